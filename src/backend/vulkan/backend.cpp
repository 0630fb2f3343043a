#include "backend/vulkan/backend.h"

#include <algorithm>
#include <cstring>

#include "backend/vulkan/pipeline.h"
#include "core/error.h"
#include "runtime/device_id.h"

namespace rota::vulkan {
namespace {

constexpr std::string_view kName = "vulkan";
constexpr std::uint64_t kStagingBytes = 16U << 20;

class Prepared final : public runtime::PreparedBatch {
 public:
  explicit Prepared(std::unique_ptr<Submission> prepared) noexcept : submission(std::move(prepared)) {}
  std::unique_ptr<Submission> submission;
};

Result<std::vector<DeviceInfo>> list() {
  const runtime::ForDrivers inherited;
  auto instance = Instance::create({});
  if (!instance) return instance.error();
  auto physical = (*instance)->physical_devices();
  if (!physical) return physical.error();
  std::vector<DeviceInfo> devices;
  Status unfit;
  for (std::size_t index = 0; index < physical->size(); ++index) {
    auto info = describe((*physical)[index], runtime::device_id(kName, index));
    if (info) {
      devices.push_back(std::move(info).value());
    } else {
      unfit = info.error();
    }
  }
  if (devices.empty()) return unfit.error();
  return devices;
}

Result<std::unique_ptr<runtime::Backend>> open(const DeviceOptions& options) {
  const runtime::ForDrivers inherited;
  auto index = runtime::device_index(kName, options.device);
  if (!index) return index.error();
  auto instance = Instance::create(options.on_validation_message);
  if (!instance) return instance.error();
  auto physical = (*instance)->physical_devices();
  if (!physical) return physical.error();
  if (*index >= physical->size()) return runtime::no_such_device(options.device, "Vulkan", physical->size());
  auto info = describe((*physical)[*index], runtime::device_id(kName, *index));
  if (!info) return info.error();
  auto context = Context::create(std::move(instance).value(), (*physical)[*index]);
  if (!context) return context.error();
  auto pipelines = PipelineCache::create(*context, options.pipeline_cache);
  if (!pipelines) return pipelines.error();
  return std::unique_ptr<runtime::Backend>(std::make_unique<VulkanBackend>(
      std::move(info).value(), std::move(context).value(), std::move(pipelines).value()));
}

}  // namespace

Result<std::shared_ptr<runtime::Memory>> VulkanBackend::allocate(std::uint64_t bytes, runtime::MemoryKind kind) {
  if (Status status = context_->alive(); !status) return status.error();
  queue_.reclaim();
  auto memory = BufferMemory::create(context_, bytes, kind);
  if (!memory) return memory.error();
  return std::shared_ptr<runtime::Memory>(std::move(memory).value());
}

Result<std::shared_ptr<runtime::Pipeline>> VulkanBackend::build(const runtime::Kernel& kernel,
                                                                const runtime::Constants& constants) {
  const runtime::ForDrivers inherited;
  if (Status status = context_->alive(); !status) return status.error();
  auto pipeline = ComputePipeline::create(context_, pipelines_->handle(), kernel, constants);
  if (!pipeline) return pipeline.error();
  return std::shared_ptr<runtime::Pipeline>(std::move(pipeline).value());
}

Result<std::unique_ptr<runtime::PreparedBatch>> VulkanBackend::prepare(runtime::Batch batch) {
  const runtime::ForDrivers inherited;
  auto submission = queue_.take();
  if (!submission) return submission.error();
  if (Status status = (*submission)->record(std::move(batch)); !status) return status.error();
  return std::unique_ptr<runtime::PreparedBatch>(std::make_unique<Prepared>(std::move(submission).value()));
}

Status VulkanBackend::enqueue(std::unique_ptr<runtime::PreparedBatch> batch, std::uint64_t ticket) {
  const runtime::ForDrivers inherited;
  return queue_.push(std::move(static_cast<Prepared&>(*batch).submission), ticket);
}

Status VulkanBackend::stage(const BufferMemory& memory, std::uint64_t offset, HostSide host) {
  auto staging = BufferMemory::create(context_, std::min(kStagingBytes, host.size), runtime::MemoryKind::upload);
  if (!staging) return staging.error();
  for (std::uint64_t done = 0; done < host.size;) {
    const std::uint64_t part = std::min(kStagingBytes, host.size - done);
    auto submission = queue_.take();
    if (!submission) return submission.error();
    if (host.from != nullptr) std::memcpy((*staging)->host(), host.from + done, part);
    Status status = host.from != nullptr ? (*submission)->record_copy(**staging, memory, {0, offset + done, part})
                                         : (*submission)->record_copy(memory, **staging, {offset + done, 0, part});
    if (status.ok()) status = queue_.run(std::move(submission).value());
    if (!status) return status;
    if (host.to != nullptr) std::memcpy(host.to + done, (*staging)->host(), part);
    done += part;
  }
  return {};
}

Status VulkanBackend::read(const runtime::Memory& from, std::uint64_t offset, std::span<std::byte> to) {
  if (Status status = context_->alive(); !status || to.empty()) return status;
  if (from.host() == nullptr) {
    return stage(static_cast<const BufferMemory&>(from), offset, {.to = to.data(), .size = to.size()});
  }
  std::memcpy(to.data(), from.host() + offset, to.size());
  return {};
}

Status VulkanBackend::write(runtime::Memory& to, std::uint64_t offset, std::span<const std::byte> from) {
  if (Status status = context_->alive(); !status || from.empty()) return status;
  if (to.host() == nullptr) {
    return stage(static_cast<const BufferMemory&>(to), offset, {.from = from.data(), .size = from.size()});
  }
  std::memcpy(to.host() + offset, from.data(), from.size());
  return {};
}

Status VulkanBackend::save_pipelines() {
  if (Status status = context_->alive(); !status) return status;
  return pipelines_->save();
}

extern const runtime::BackendEntry kBackend{
    .name = kName,
    .advice =
        "install a Vulkan 1.1 driver for your GPU and the Vulkan loader (Debian: libvulkan1 and mesa-vulkan-drivers)",
    .list = list,
    .open = open};

}  // namespace rota::vulkan
