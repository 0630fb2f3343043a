#include "rota/device.h"

#include <algorithm>
#include <limits>

#include "core/check.h"
#include "runtime/device_state.h"
#include "runtime/recorder.h"

namespace rota::inline ROTA_ABI {
namespace {

// Sizes and offsets may be rounded up without overflow.
constexpr auto kMaxBytes = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());

Error moved_from(std::string_view op) { return core::refuse({op, {"the device"}}, "moved from", "an open one"); }

}  // namespace

std::string_view name(DeviceKind kind) noexcept {
  switch (kind) {
    case DeviceKind::cpu: return "CPU";
    case DeviceKind::discrete_gpu: return "discrete GPU";
    case DeviceKind::integrated_gpu: return "integrated GPU";
    case DeviceKind::virtual_gpu: return "virtual GPU";
    case DeviceKind::software_gpu: return "software GPU";
  }
  return "unknown";
}

Result<std::vector<BackendReport>> list_backends() {
  return core::guarded([]() -> Result<std::vector<BackendReport>> {
    std::vector<BackendReport> reports;
    for (const runtime::BackendEntry& entry : runtime::backends()) {
      BackendReport report{.name = std::string(entry.name)};
      if (auto devices = entry.list(); devices) {
        report.devices = std::move(devices).value();
      } else {
        report.status = devices.error();
        report.advice = entry.advice;
      }
      reports.push_back(std::move(report));
    }
    return reports;
  });
}

Device::Device(std::shared_ptr<runtime::DeviceState> state) noexcept : state_(std::move(state)) {}

Result<Device> Device::open(const DeviceOptions& options) {
  return core::guarded([&]() -> Result<Device> {
    std::string known;
    for (const runtime::BackendEntry& entry : runtime::backends()) {
      const std::string_view backend_name = std::string_view(options.device).substr(0, options.device.find(':'));
      if (backend_name == entry.name) {
        auto backend = entry.open(options);
        if (!backend) return backend.error();
        return Device(runtime::DeviceState::make(std::move(backend).value(), {options.pipeline_cache, options.trace}));
      }
      known += core::text("{}{}", known.empty() ? "" : ", ", entry.name);
    }
    return Error{Errc::no_device,
                 core::text("open: no backend serves the device \"{}\"; this build has: {}", options.device, known)};
  });
}

Result<Device> Device::open_best() {
  return core::guarded([]() -> Result<Device> {
    auto reports = list_backends();
    if (!reports) return reports.error();
    for (const DeviceKind wanted : {DeviceKind::discrete_gpu, DeviceKind::integrated_gpu, DeviceKind::cpu}) {
      for (const BackendReport& report : *reports) {
        for (const DeviceInfo& device : report.devices) {
          if (device.kind == wanted) return open({.device = device.id});
        }
      }
    }
    return Error{Errc::no_device, "open: this build found no device at all"};
  });
}

const DeviceInfo& Device::info() const noexcept {
  static const DeviceInfo none;
  return state_ ? state_->info() : none;
}

Result<Buffer> Device::allocate(std::uint64_t bytes) {
  return core::guarded([&]() -> Result<Buffer> {
    if (!state_) return moved_from("allocate");
    if (Status status = state_->check_here("allocate"); !status) return status.error();
    const DeviceInfo& device = info();
    if (Status status = core::check_positive({"allocate", {"bytes"}}, bytes); !status) return status.error();
    if (bytes > std::min(device.limits.max_buffer_bytes, kMaxBytes)) {
      return Error{Errc::out_of_memory, core::text("allocate: bytes is {}; {} serves at most {} bytes in one buffer",
                                                   bytes, device.id, device.limits.max_buffer_bytes)};
    }
    auto memory = state_->backend().allocate(bytes, runtime::MemoryKind::device);
    if (!memory) return memory.error();
    return Buffer(runtime::BufferState::make(state_, std::move(memory).value()));
  });
}

Result<Buffer> Device::wrap(std::span<std::byte> memory, std::shared_ptr<const void> keep) {
  return core::guarded([&]() -> Result<Buffer> {
    if (!state_) return moved_from("wrap");
    if (Status status = state_->check_here("wrap"); !status) return status.error();
    if (memory.empty()) return core::refuse({"wrap", {"memory"}}, "empty", "at least one byte");
    auto wrapped = state_->backend().wrap(memory, std::move(keep));
    if (!wrapped) return wrapped.error();
    return Buffer(runtime::BufferState::make(state_, std::move(wrapped).value()));
  });
}

Encoder Device::encoder() {
  Encoder encoder(runtime::OwnedRecorder(state_ ? new (std::nothrow) runtime::Recorder(state_) : nullptr));
  encoder.out_of_memory_ = state_ && encoder.recorder_ == nullptr;
  return encoder;
}

Status Device::save_pipelines() {
  return core::guarded([&]() -> Status {
    if (!state_) return moved_from("save_pipelines");
    if (Status status = state_->check_here("save_pipelines"); !status) return status;
    if (state_->pipeline_cache().empty()) {
      return core::refuse({"save_pipelines", {"DeviceOptions::pipeline_cache"}}, "empty", "the name of a file");
    }
    return state_->backend().save_pipelines();
  });
}

}  // namespace rota::inline ROTA_ABI
