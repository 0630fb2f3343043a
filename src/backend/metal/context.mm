#include "backend/metal/context.h"

#include "core/error.h"

namespace rota::mtl {
namespace {

// Of command buffers that have not finished: commandBuffer blocks at the next one. Metal's own default.
constexpr NSUInteger kMaxCommandBuffers = 64;

Error lost_error(std::string_view call, const std::string& words) {
  return {Errc::device_lost,
          core::text("{}: Metal ended a command buffer in error; the device is lost, open it anew: {}", call, words)};
}

Owned<id<MTLResidencySet>> residency_of(id<MTLDevice> device) {
  if (![device respondsToSelector:@selector(newResidencySetWithDescriptor:error:)]) return {};
  const Owned<MTLResidencySetDescriptor*> descriptor([[NSClassFromString(@"MTLResidencySetDescriptor") alloc] init]);
  return Owned<id<MTLResidencySet>>([device newResidencySetWithDescriptor:descriptor.get() error:nullptr]);
}

}  // namespace

Result<std::shared_ptr<Context>> Context::create(Owned<id<MTLDevice>> device, OnMessage on_message) {
  std::shared_ptr<Context> made(new Context(std::move(device), std::move(on_message)));
  made->queue_ =
      Owned<id<MTLCommandQueue>>([made->device() newCommandQueueWithMaxCommandBufferCount:kMaxCommandBuffers]);
  made->fence_ = Owned<id<MTLFence>>([made->device() newFence]);
  if (!made->queue_ || !made->fence_) {
    return Error{Errc::out_of_memory, "open: Metal refuses a command queue or a fence"};
  }
  made->residency_ = residency_of(made->device());
  if (made->residency_) [made->queue() addResidencySet:made->residency_.get()];
  return made;
}

// Metal makes resident what is bound, and the queue is the engine's: so there is no set.
Result<std::shared_ptr<Context>> Context::adopt(const metal::Adoption& adoption) {
  std::shared_ptr<Context> made(new Context(retained(object_of<id<MTLDevice>>(adoption.device)), {}));
  made->adopted_ = true;
  made->patience = adoption.patience;
  made->queue_ = retained(object_of<id<MTLCommandQueue>>(adoption.queue));
  if (!made->queue_) return made;
  if (!made->is_on([made->queue() device])) {
    return core::refuse({"adopt", {"queue"}}, "of another device", "one of the device that is adopted");
  }
  made->fence_ = Owned<id<MTLFence>>([made->device() newFence]);
  if (!made->fence_) return Error{Errc::out_of_memory, "adopt: Metal refuses a fence"};
  return made;
}

Context::~Context() { [residency_.get() endResidency]; }

void Context::add_resident(id<MTLBuffer> buffer) {
  if (!residency_) return;
  const std::lock_guard lock(residency_mutex_);
  [residency_.get() addAllocation:buffer];
  [residency_.get() commit];
}

void Context::remove_resident(id<MTLBuffer> buffer) {
  if (!residency_) return;
  const std::lock_guard lock(residency_mutex_);
  [residency_.get() removeAllocation:buffer];
  [residency_.get() commit];
}

Error Context::lose(std::string_view call, std::string words) {
  const std::lock_guard lock(lost_mutex_);
  if (lost_.empty()) {
    lost_ = std::move(words);
    if (on_message_) on_message_(lost_);
  }
  return lost_error(call, lost_);
}

Status Context::alive() const {
  const std::lock_guard lock(lost_mutex_);
  if (lost_.empty()) return {};
  return lost_error("metal", lost_);
}

Status Context::lose_by(std::string_view call, const Completion& completion) {
  @autoreleasepool {
    NSError* const error = completion.error();
    if (error == nil) return {};
    return lose(call, words_of(error));
  }
}

Status Context::check_queue(std::string_view call) const {
  if (queue_) return {};
  return Error{Errc::unsupported,
               core::text("{}: the device was adopted without a queue; wanted one, or metal::record()", call)};
}

}  // namespace rota::mtl
