#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "backend/metal/context.h"
#include "backend/metal/memory.h"
#include "backend/metal/pipeline.h"
#include "backend/metal/queue.h"
#include "core/error.h"
#include "core/extent.h"
#include "runtime/backend.h"
#include "runtime/device_id.h"

namespace rota::metal {
namespace {

constexpr std::string_view kName = "metal";

class Prepared final : public runtime::PreparedBatch {
 public:
  explicit Prepared(std::unique_ptr<Submission> prepared) noexcept : submission(std::move(prepared)) {}
  std::unique_ptr<Submission> submission;
};

class MetalBackend final : public runtime::Backend {
 public:
  MetalBackend(DeviceInfo info, std::shared_ptr<Context> context, std::unique_ptr<Pipelines> pipelines)
      : info_(std::move(info)), context_(std::move(context)), pipelines_(std::move(pipelines)), queue_(context_) {}

  const DeviceInfo& info() const noexcept override { return info_; }

  Result<std::shared_ptr<runtime::Memory>> allocate(std::uint64_t bytes, runtime::MemoryKind) override {
    const runtime::ForDrivers inherited;
    queue_.reclaim();
    if (Status status = context_->alive(); !status) return status.error();
    auto memory = BufferMemory::create(context_, bytes);
    if (!memory) return memory.error();
    return std::shared_ptr<runtime::Memory>(std::move(memory).value());
  }

  Result<std::shared_ptr<runtime::Pipeline>> build(const runtime::Kernel& kernel,
                                                   const runtime::Constants& constants) override {
    const runtime::ForDrivers inherited;
    if (Status status = context_->alive(); !status) return status.error();
    auto pipeline = pipelines_->build(kernel, constants);
    if (!pipeline) return pipeline.error();
    return std::shared_ptr<runtime::Pipeline>(std::move(pipeline).value());
  }

  Result<std::unique_ptr<runtime::PreparedBatch>> prepare(runtime::Batch batch) override {
    return std::unique_ptr<runtime::PreparedBatch>(
        std::make_unique<Prepared>(std::make_unique<Submission>(context_, std::move(batch))));
  }

  Status enqueue(std::unique_ptr<runtime::PreparedBatch> batch, std::uint64_t ticket) override {
    const runtime::ForDrivers inherited;
    queue_.reclaim();
    return queue_.push(std::move(static_cast<Prepared&>(*batch).submission), ticket);
  }

  Result<bool> wait_for(std::uint64_t ticket, std::chrono::nanoseconds timeout) override {
    return queue_.wait_for(ticket, timeout);
  }

  Status read(const runtime::Memory& from, std::uint64_t offset, std::span<std::byte> to) override {
    if (Status status = context_->alive(); !status || to.empty()) return status;
    std::memcpy(to.data(), from.host() + offset, to.size());
    return {};
  }

  Status write(runtime::Memory& to, std::uint64_t offset, std::span<const std::byte> from) override {
    if (Status status = context_->alive(); !status || from.empty()) return status;
    std::memcpy(to.host() + offset, from.data(), from.size());
    return {};
  }

  Status save_pipelines() override {
    if (Status status = context_->alive(); !status) return status;
    return pipelines_->save();
  }

 private:
  DeviceInfo info_;
  std::shared_ptr<Context> context_;
  std::unique_ptr<Pipelines> pipelines_;
  Queue queue_;  // last: it waits for what is in flight
};

struct Family {
  MTLGPUFamily family;
  std::string_view name;
};
constexpr std::array kFamilies{Family{MTLGPUFamilyApple7, "Apple7"}, Family{MTLGPUFamilyApple8, "Apple8"},
                               Family{MTLGPUFamilyApple9, "Apple9"}, Family{MTLGPUFamilyMac2, "Mac2"},
                               Family{MTLGPUFamilyMetal3, "Metal3"}};

// What a pipeline of any kernel says on every GPU of Apple's, and what Metal promises of no other.
constexpr std::uint32_t kSimdgroupSize = 32;

DeviceInfo describe(id<MTLDevice> device, std::size_t index) {
  // Kernels count words in 32 bits.
  constexpr std::uint64_t kMostBytes =
      core::round_down(std::uint64_t{std::numeric_limits<std::uint32_t>::max()}, runtime::kBindingAlignment);
  DeviceInfo info{.id = runtime::device_id(kName, index),
                  .name = text_of([device name]),
                  .driver = "Metal",
                  .kind = [device hasUnifiedMemory] ? DeviceKind::integrated_gpu : DeviceKind::discrete_gpu,
                  .memory_bytes = [device recommendedMaxWorkingSetSize],
                  .limits = {.max_buffer_bytes = [device maxBufferLength],
                             .max_binding_bytes = std::min<std::uint64_t>([device maxBufferLength], kMostBytes),
                             .subgroup_size = kSimdgroupSize,
                             .max_workgroup_size = static_cast<std::uint32_t>([device maxThreadsPerThreadgroup].width),
                             .shared_memory_bytes = static_cast<std::uint32_t>([device maxThreadgroupMemoryLength])}};
  for (const Family& each : kFamilies) {
    if ([device supportsFamily:each.family]) info.features.emplace_back(each.name);
  }
  return info;
}

Result<Owned<NSArray*>> all_devices() {
  Owned<NSArray*> devices(MTLCopyAllDevices());
  if (devices && [devices.get() count] != 0) return devices;
  return Error{Errc::no_device, "metal: the system offers no device"};
}

Result<std::vector<DeviceInfo>> list() {
  const runtime::ForDrivers inherited;
  @autoreleasepool {
    auto devices = all_devices();
    if (!devices) return devices.error();
    std::vector<DeviceInfo> infos;
    for (NSUInteger index = 0; index < [devices->get() count]; ++index) {
      infos.push_back(describe([devices->get() objectAtIndex:index], index));
    }
    return infos;
  }
}

Result<std::unique_ptr<runtime::Backend>> open(const DeviceOptions& options) {
  const runtime::ForDrivers inherited;
  @autoreleasepool {
    auto index = runtime::device_index(kName, options.device);
    if (!index) return index.error();
    auto devices = all_devices();
    if (!devices) return devices.error();
    const std::uint64_t count = [devices->get() count];
    if (*index >= count) return runtime::no_such_device(options.device, "Metal", count);
    Owned<id<MTLDevice>> device = retained<id<MTLDevice>>([devices->get() objectAtIndex:*index]);
    DeviceInfo info = describe(device.get(), *index);
    auto context = Context::create(std::move(device), options.on_validation_message);
    if (!context) return context.error();
    auto pipelines = Pipelines::create(*context, options.pipeline_cache);
    if (!pipelines) return pipelines.error();
    return std::unique_ptr<runtime::Backend>(
        std::make_unique<MetalBackend>(std::move(info), std::move(context).value(), std::move(pipelines).value()));
  }
}

}  // namespace

extern const runtime::BackendEntry kBackend{
    .name = kName, .advice = "run on a Mac with macOS 13 or later", .list = list, .open = open};

}  // namespace rota::metal
