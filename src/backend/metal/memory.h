#pragma once

#include <memory>

#include "backend/metal/context.h"
#include "runtime/backend.h"

namespace rota::metal {

// Memory is one for CPU and GPU: every kind is shared, and mapping it costs nothing.
class BufferMemory final : public runtime::Memory {
 public:
  static Result<std::shared_ptr<BufferMemory>> create(std::shared_ptr<Context> context, std::uint64_t bytes);
  ~BufferMemory() override;

  id<MTLBuffer> buffer() const noexcept { return buffer_.get(); }

 private:
  BufferMemory(std::uint64_t bytes, std::shared_ptr<Context> context, Owned<id<MTLBuffer>> buffer) noexcept
      : Memory(bytes, static_cast<std::byte*>([buffer.get() contents])),
        context_(std::move(context)),
        buffer_(std::move(buffer)) {}

  std::shared_ptr<Context> context_;
  Owned<id<MTLBuffer>> buffer_;
};

}  // namespace rota::metal
