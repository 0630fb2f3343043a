#include "backend/metal/backend.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <list>

#include "backend/metal/memory.h"
#include "backend/metal/placement.h"
#include "core/error.h"
#include "core/extent.h"
#include "runtime/device_id.h"

namespace rota::mtl {
namespace {

constexpr std::string_view kName = "metal";

// One of the two.
class Prepared final : public runtime::PreparedBatch {
 public:
  explicit Prepared(std::unique_ptr<Submission> prepared) noexcept : submission(std::move(prepared)) {}
  explicit Prepared(std::list<Recorded> one) noexcept : recorded(std::move(one)) {}
  std::unique_ptr<Submission> submission;
  std::list<Recorded> recorded;
};

// An error if the host cannot address the memory, with the call that would.
Status check_host(const runtime::Memory& memory, std::string_view call) {
  if (memory.host() != nullptr) return {};
  return Error{Errc::unsupported,
               core::text("{}: the buffer's storage is not shared; wanted one that is, or a copy by the engine", call)};
}

struct Family {
  MTLGPUFamily family;
  std::string_view name;
};
constexpr std::array kFamilies{Family{MTLGPUFamilyApple7, "Apple7"}, Family{MTLGPUFamilyApple8, "Apple8"},
                               Family{MTLGPUFamilyApple9, "Apple9"}, Family{MTLGPUFamilyMac2, "Mac2"},
                               Family{MTLGPUFamilyMetal3, "Metal3"}};

// What a pipeline of any kernel says on every GPU of Apple's, and what Metal promises of no other.
constexpr std::uint32_t kSimdgroupSize = 32;
constexpr std::uint32_t kLaneRegisters = 128;  // more than 104 lessen the threads that are in flight

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
      infos.push_back(describe([devices->get() objectAtIndex:index], runtime::device_id(kName, index)));
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
    DeviceInfo info = describe(device.get(), runtime::device_id(kName, *index));
    auto context = Context::create(std::move(device), options.on_validation_message);
    if (!context) return context.error();
    auto pipelines = Pipelines::create(*context, options.pipeline_cache);
    if (!pipelines) return pipelines.error();
    return std::unique_ptr<runtime::Backend>(
        std::make_unique<MetalBackend>(std::move(info), std::move(context).value(), std::move(pipelines).value()));
  }
}

}  // namespace

DeviceInfo describe(id<MTLDevice> device, std::string id) {
  // Kernels count words in 32 bits.
  constexpr std::uint64_t kMostBytes =
      core::round_down(std::uint64_t{std::numeric_limits<std::uint32_t>::max()}, runtime::kBindingAlignment);
  DeviceInfo info{.id = std::move(id),
                  .name = text_of([device name]),
                  .driver = "Metal",
                  .kind = [device hasUnifiedMemory] ? DeviceKind::integrated_gpu : DeviceKind::discrete_gpu,
                  .memory_bytes = [device recommendedMaxWorkingSetSize],
                  .limits = {.max_buffer_bytes = [device maxBufferLength],
                             .max_binding_bytes = std::min<std::uint64_t>([device maxBufferLength], kMostBytes),
                             .subgroup_size = kSimdgroupSize,
                             .max_workgroup_size = static_cast<std::uint32_t>([device maxThreadsPerThreadgroup].width),
                             .shared_memory_bytes = static_cast<std::uint32_t>([device maxThreadgroupMemoryLength]),
                             .lane_registers = kLaneRegisters}};
  for (const Family& each : kFamilies) {
    if ([device supportsFamily:each.family]) info.features.emplace_back(each.name);
  }
  return info;
}

Result<std::shared_ptr<runtime::Memory>> MetalBackend::allocate(std::uint64_t bytes, runtime::MemoryKind) {
  const runtime::ForDrivers inherited;
  queue_.reclaim();
  if (Status status = context_->alive(); !status) return status.error();
  auto memory = BufferMemory::create(context_, bytes);
  if (!memory) return memory.error();
  return std::shared_ptr<runtime::Memory>(std::move(memory).value());
}

Result<std::shared_ptr<runtime::Pipeline>> MetalBackend::build(const runtime::Kernel& kernel,
                                                               const runtime::Constants& constants) {
  const runtime::ForDrivers inherited;
  if (Status status = context_->alive(); !status) return status.error();
  auto pipeline = pipelines_->build(kernel, constants);
  if (!pipeline) return pipeline.error();
  return std::shared_ptr<runtime::Pipeline>(std::move(pipeline).value());
}

Result<std::unique_ptr<runtime::PreparedBatch>> MetalBackend::prepare(runtime::Batch batch) {
  const auto* const placement = static_cast<const Placement*>(batch.placement);
  if (placement != nullptr && placement->recording != nullptr) {
    const runtime::ForDrivers inherited;
    queue_.reclaim();
    auto prepared = std::make_unique<Prepared>(std::list<Recorded>{});  // once commands are written nothing may fail
    auto recorded = queue_.recorded().write(std::move(batch), *placement->recording);
    if (!recorded) return recorded.error();
    prepared->recorded = std::move(recorded).value();
    return std::unique_ptr<runtime::PreparedBatch>(std::move(prepared));
  }
  if (Status status = context_->check_queue("submit"); !status) return status.error();
  const metal::Order* const order = placement != nullptr ? placement->order : nullptr;
  return std::unique_ptr<runtime::PreparedBatch>(
      std::make_unique<Prepared>(std::make_unique<Submission>(context_, std::move(batch), order)));
}

Status MetalBackend::enqueue(std::unique_ptr<runtime::PreparedBatch> batch, std::uint64_t ticket) {
  const runtime::ForDrivers inherited;
  auto& prepared = static_cast<Prepared&>(*batch);
  if (!prepared.submission) {
    queue_.recorded().add(std::move(prepared.recorded), ticket);
    return {};
  }
  queue_.reclaim();
  return queue_.push(std::move(prepared.submission), ticket);
}

Status MetalBackend::settle(const runtime::Memory& memory, Access access) {
  if (Status status = queue_.recorded().check_apart(memory, access); !status) return status;
  return Backend::settle(memory, access);
}

Status MetalBackend::read(const runtime::Memory& from, std::uint64_t offset, std::span<std::byte> to) {
  if (Status status = context_->alive(); !status || to.empty()) return status;
  if (Status status = check_host(from, "Buffer::read"); !status) return status;
  std::memcpy(to.data(), from.host() + offset, to.size());
  return {};
}

Status MetalBackend::write(runtime::Memory& to, std::uint64_t offset, std::span<const std::byte> from) {
  if (Status status = context_->alive(); !status || from.empty()) return status;
  if (Status status = check_host(to, "Buffer::write"); !status) return status;
  std::memcpy(to.host() + offset, from.data(), from.size());
  return {};
}

Status MetalBackend::save_pipelines() {
  if (Status status = context_->alive(); !status) return status;
  return pipelines_->save();
}

extern const runtime::BackendEntry kBackend{
    .name = kName, .advice = "run on a Mac with macOS 13 or later", .list = list, .open = open};

}  // namespace rota::mtl
