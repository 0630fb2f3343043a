#include "backend/metal/memory.h"

#include "core/error.h"
#include "core/extent.h"

namespace rota::mtl {

Result<std::shared_ptr<BufferMemory>> BufferMemory::create(std::shared_ptr<Context> context, std::uint64_t bytes) {
  @autoreleasepool {
    const std::uint64_t rounded = core::round_up(bytes, runtime::kBindingAlignment);
    // An engine's encoders use it, too, and between those no fence of ours can stand: Metal must.
    const MTLResourceOptions hazards =
        context->is_adopted() ? MTLResourceHazardTrackingModeTracked : MTLResourceHazardTrackingModeUntracked;
    Owned<id<MTLBuffer>> buffer([context->device() newBufferWithLength:rounded
                                                               options:MTLResourceStorageModeShared | hazards]);
    if (!buffer) return Error{Errc::out_of_memory, core::text("allocate: Metal refuses {} bytes", bytes)};
    context->add_resident(buffer.get());
    return std::shared_ptr<BufferMemory>(new BufferMemory(bytes, std::move(context), std::move(buffer)));
  }
}

std::byte* BufferMemory::host_of(id<MTLBuffer> buffer) noexcept {
  return [buffer storageMode] == MTLStorageModeShared ? static_cast<std::byte*>([buffer contents]) : nullptr;
}

std::shared_ptr<BufferMemory> BufferMemory::wrap(Owned<id<MTLBuffer>> buffer, std::shared_ptr<const void> keep) {
  const std::uint64_t bytes = [buffer.get() length];
  std::shared_ptr<BufferMemory> made(new BufferMemory(bytes, nullptr, std::move(buffer)));
  made->keep_ = std::move(keep);
  return made;
}

BufferMemory::~BufferMemory() {
  @autoreleasepool {
    if (context_) context_->remove_resident(buffer_.get());
  }
}

}  // namespace rota::mtl
