#include "backend/metal/backend.h"
#include "backend/metal/memory.h"
#include "backend/metal/placement.h"
#include "core/error.h"
#include "rota/metal.h"
#include "runtime/engine.h"

namespace rota::mtl {
namespace {

constexpr std::string_view kAdoptedId = "metal:adopted";
constexpr std::uint64_t kWordBytes = sizeof(std::uint32_t);

Status check_given(std::string_view op, std::string_view argument, const void* handle) {
  if (handle != nullptr) return {};
  return core::refuse({op, {argument}}, "null", "an object of the engine's");
}

Status check(const metal::Adoption& adoption) {
  if (Status status = check_given("adopt", "device", adoption.device); !status) return status;
  if (adoption.patience < std::chrono::nanoseconds::zero()) {
    return core::refuse({"adopt", {"patience"}}, "below zero", "a duration");
  }
  return {};
}

Status check(const Context& context, const metal::ForeignBuffer& foreign) {
  if (Status status = check_given("wrap", "buffer", foreign.buffer); !status) return status;
  const id<MTLBuffer> buffer = object_of<id<MTLBuffer>>(foreign.buffer);
  if (!context.is_on([buffer device])) {
    return core::refuse({"wrap", {"buffer"}}, "of another device", "one of the device that was adopted");
  }
  const std::uint64_t bytes = [buffer length];
  if (bytes % kWordBytes == 0) return {};
  return core::refuse({"wrap", {"the buffer's length"}}, bytes, "a multiple of {}, because kernels work on words",
                      kWordBytes);
}

Status check(std::string_view list, const std::vector<metal::EventPoint>& points) {
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (points[i].event == nullptr) return core::refuse({"submit", {list, i, "event"}}, "null", "an event");
  }
  return {};
}

// What the engine has adopted; on any other device its objects would mean nothing.
Result<MetalBackend*> adopted(const Result<runtime::Backend*>& backend, std::string_view op) {
  if (!backend) return backend.error();
  auto* const ours = dynamic_cast<MetalBackend*>(*backend);
  if (ours != nullptr && ours->context()->is_adopted()) return ours;
  return core::refuse({op, {"the device"}}, (*backend)->info().id, "one that metal::adopt() returned");
}

Result<Device> adopt(const metal::Adoption& adoption) {
  const runtime::ForDrivers inherited;
  @autoreleasepool {
    if (Status status = check(adoption); !status) return status.error();
    auto context = Context::adopt(adoption);
    if (!context) return context.error();
    DeviceInfo info = describe((*context)->device(), std::string(kAdoptedId));
    auto pipelines = Pipelines::create(*context, adoption.pipeline_cache);
    if (!pipelines) return pipelines.error();
    return runtime::device_on(
        std::make_unique<MetalBackend>(std::move(info), std::move(context).value(), std::move(pipelines).value()),
        {adoption.pipeline_cache, adoption.trace});
  }
}

Result<Buffer> wrap(const Device& device, const metal::ForeignBuffer& foreign) {
  @autoreleasepool {
    auto backend = adopted(runtime::backend_of(device, "wrap"), "wrap");
    if (!backend) return backend.error();
    if (Status status = check(*(*backend)->context(), foreign); !status) return status.error();
    return runtime::buffer_on(device,
                              BufferMemory::wrap(retained(object_of<id<MTLBuffer>>(foreign.buffer)), foreign.keep));
  }
}

Status check(const Encoder& encoder, const metal::Order& order) {
  auto backend = adopted(runtime::backend_of(encoder, "submit"), "submit");
  if (!backend) return backend.error();
  if (Status status = check("waits", order.waits); !status) return status;
  return check("signals", order.signals);
}

Status check(const Encoder& encoder, const metal::Recording& recording) {
  auto backend = adopted(runtime::backend_of(encoder, "record"), "record");
  if (!backend) return backend.error();
  if (Status status = check_given("record", "commands", recording.commands); !status) return status;
  if (Status status = check_given("record", "encoder", recording.encoder); !status) return status;
  const Context& context = *(*backend)->context();
  const id<MTLCommandBuffer> commands = object_of<id<MTLCommandBuffer>>(recording.commands);
  if (!context.is_on([commands device])) {
    return core::refuse({"record", {"commands"}}, "of another device", "a command buffer of the adopted one");
  }
  if (!context.is_on([object_of<id<MTLComputeCommandEncoder>>(recording.encoder) device])) {
    return core::refuse({"record", {"encoder"}}, "of another device", "one of the command buffer");
  }
  if ([commands status] < MTLCommandBufferStatusCommitted) return {};
  return core::refuse({"record", {"commands"}}, "committed", "a command buffer that is not yet");
}

template <class Wanted>
Result<Fence> submit(Encoder encoder, const Wanted& wanted) {
  @autoreleasepool {
    // An error that the encoder has kept is the cause of what follows.
    if (Status status = encoder.status(); !status) return status.error();
    if (Status status = check(encoder, wanted); !status) return status.error();
    const Placement placement(wanted);
    return runtime::submit(encoder, &placement);
  }
}

}  // namespace
}  // namespace rota::mtl

namespace rota::inline ROTA_ABI::metal {

Result<Device> adopt(const Adoption& adoption) {
  return core::guarded([&] { return mtl::adopt(adoption); });
}

Result<Buffer> wrap(const Device& device, const ForeignBuffer& foreign) {
  return core::guarded([&] { return mtl::wrap(device, foreign); });
}

Result<Fence> submit(Encoder&& encoder, const Order& order) {
  return core::guarded([&] { return mtl::submit(std::move(encoder), order); });
}

Result<Fence> record(Encoder&& encoder, const Recording& recording) {
  return core::guarded([&] { return mtl::submit(std::move(encoder), recording); });
}

}  // namespace rota::inline ROTA_ABI::metal
