#include "backend/metal/memory.h"

#include "core/error.h"
#include "core/extent.h"

namespace rota::metal {

Result<std::shared_ptr<BufferMemory>> BufferMemory::create(std::shared_ptr<Context> context, std::uint64_t bytes) {
  @autoreleasepool {
    const std::uint64_t rounded = core::round_up(bytes, runtime::kBindingAlignment);
    Owned<id<MTLBuffer>> buffer([context->device()
        newBufferWithLength:rounded
                    options:MTLResourceStorageModeShared | MTLResourceHazardTrackingModeUntracked]);
    if (!buffer) return Error{Errc::out_of_memory, core::text("allocate: Metal refuses {} bytes", bytes)};
    context->add_resident(buffer.get());
    return std::shared_ptr<BufferMemory>(new BufferMemory(bytes, std::move(context), std::move(buffer)));
  }
}

BufferMemory::~BufferMemory() {
  @autoreleasepool {
    if (buffer_) context_->remove_resident(buffer_.get());
  }
}

}  // namespace rota::metal
