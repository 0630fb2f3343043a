#include "backend/vulkan/backend.h"

#include <algorithm>
#include <cstring>
#include <list>

#include "backend/vulkan/pipeline.h"
#include "backend/vulkan/placement.h"
#include "core/error.h"
#include "runtime/device_id.h"

namespace rota::vk {
namespace {

constexpr std::string_view kName = "vulkan";
constexpr std::uint64_t kStagingBytes = 16U << 20;
constexpr std::uint64_t kReadAtOnceBytes = 4U << 10;  // uncached, that takes less time than a submission

// One of the two.
class Prepared final : public runtime::PreparedBatch {
 public:
  explicit Prepared(std::unique_ptr<Submission> prepared) noexcept : submission(std::move(prepared)) {}
  explicit Prepared(std::list<Recorded> one) noexcept : recorded(std::move(one)) {}
  std::unique_ptr<Submission> submission;
  std::list<Recorded> recorded;
};

std::string_view call_of(const HostSide& host) { return host.to != nullptr ? "Buffer::read" : "Buffer::write"; }

// A copy through the queue, by a buffer that an engine may have made for other uses.
Status check_copy(const Context& context, const BufferMemory& memory, const HostSide& host) {
  if (Status status = context.check_queue(call_of(host)); !status) return status;
  const bool reads = host.to != nullptr;
  const auto wanted = reads ? VK_BUFFER_USAGE_TRANSFER_SRC_BIT : VK_BUFFER_USAGE_TRANSFER_DST_BIT;
  if ((memory.usage() & static_cast<VkBufferUsageFlags>(wanted)) != 0) return {};
  return core::refuse({call_of(host), {"the buffer"}}, "neither mapped nor made for transfers",
                      "usage {}, or a mapping", reads ? "TRANSFER_SRC" : "TRANSFER_DST");
}

Result<std::vector<DeviceInfo>> list() {
  const runtime::ForDrivers inherited;
  auto instance = Instance::create({});
  if (!instance) return instance.error();
  auto physical = (*instance)->physical_devices();
  if (!physical) return physical.error();
  std::vector<DeviceInfo> devices;
  Status unfit;
  for (std::size_t index = 0; index < physical->size(); ++index) {
    auto info = (*instance)->describe((*physical)[index], runtime::device_id(kName, index));
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
  auto info = (*instance)->describe((*physical)[*index], runtime::device_id(kName, *index));
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
  auto memory = BufferMemory::create(context_, bytes, kind == runtime::MemoryKind::upload ? Use::upload : Use::device);
  if (!memory) return memory.error();
  return std::shared_ptr<runtime::Memory>(std::move(memory).value());
}

Result<std::shared_ptr<runtime::Memory>> VulkanBackend::reserve(std::uint64_t bytes) {
  if (info_.limits.max_sparse_bytes == 0) return Backend::reserve(bytes);
  if (Status status = context_->alive(); !status) return status.error();
  auto memory = SparseBlocks::reserve(sparse_, bytes);
  if (!memory) return memory.error();
  return std::shared_ptr<runtime::Memory>(std::move(memory).value());
}

// Submissions that have ended may hold memory that nobody else does.
Status VulkanBackend::commit(std::span<const runtime::SparseRanges> parts) {
  const runtime::ForDrivers inherited;
  queue_.reclaim();
  return sparse_->commit(parts);
}

void VulkanBackend::decommit(std::span<const runtime::SparseRanges> parts) {
  const runtime::ForDrivers inherited;
  sparse_->decommit(parts);
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
  const auto* const placement = static_cast<const Placement*>(batch.placement);
  if (placement != nullptr && placement->recording != nullptr) {
    queue_.reclaim();
    auto prepared = std::make_unique<Prepared>(std::list<Recorded>{});  // once commands are written nothing may fail
    auto recorded = queue_.recorded().write(std::move(batch), *placement->recording);
    if (!recorded) return recorded.error();
    prepared->recorded = std::move(recorded).value();
    return std::unique_ptr<runtime::PreparedBatch>(std::move(prepared));
  }
  if (Status status = context_->check_queue("submit"); !status) return status.error();
  auto submission = queue_.take();
  if (!submission) return submission.error();
  if (placement != nullptr) (*submission)->set_order(*placement->order);
  if (Status status = (*submission)->record(std::move(batch)); !status) return status.error();
  return std::unique_ptr<runtime::PreparedBatch>(std::make_unique<Prepared>(std::move(submission).value()));
}

Status VulkanBackend::enqueue(std::unique_ptr<runtime::PreparedBatch> batch, std::uint64_t ticket) {
  const runtime::ForDrivers inherited;
  auto& prepared = static_cast<Prepared&>(*batch);
  if (prepared.submission) return queue_.push(std::move(prepared.submission), ticket);
  queue_.recorded().add(std::move(prepared.recorded), ticket);
  return {};
}

Status VulkanBackend::stage(const BufferMemory& memory, std::uint64_t offset, HostSide host) {
  if (Status status = check_copy(*context_, memory, host); !status) return status;
  auto staging = BufferMemory::create(context_, std::min(kStagingBytes, host.size),
                                      host.to != nullptr ? Use::download : Use::upload);
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

Status VulkanBackend::settle(const runtime::Memory& memory, Access access) {
  if (Status status = queue_.recorded().check_apart(memory, access); !status) return status;
  return Backend::settle(memory, access);
}

Status VulkanBackend::read(const runtime::Memory& from, std::uint64_t offset, std::span<std::byte> to) {
  if (Status status = context_->alive(); !status || to.empty()) return status;
  const auto& memory = static_cast<const BufferMemory&>(from);
  const bool slow = !memory.is_cached() && to.size() > kReadAtOnceBytes && context_->check_queue("read").ok();
  if (from.host() == nullptr || slow) return stage(memory, offset, {.to = to.data(), .size = to.size()});
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

}  // namespace rota::vk
