#pragma once

#include <memory>

#include "backend/metal/context.h"
#include "runtime/backend.h"

namespace rota::mtl {

// Memory is one for CPU and GPU: every kind is shared, and mapping it costs nothing. An engine's may be private.
class BufferMemory final : public runtime::Memory {
 public:
  static Result<std::shared_ptr<BufferMemory>> create(std::shared_ptr<Context> context, std::uint64_t bytes);

  // An engine's, with what keeps it.
  static std::shared_ptr<BufferMemory> wrap(Owned<id<MTLBuffer>> buffer, std::shared_ptr<const void> keep);
  ~BufferMemory() override;

  id<MTLBuffer> buffer() const noexcept { return buffer_.get(); }

 private:
  BufferMemory(std::uint64_t bytes, std::shared_ptr<Context> context, Owned<id<MTLBuffer>> buffer) noexcept
      : Memory(bytes, host_of(buffer.get())), context_(std::move(context)), buffer_(std::move(buffer)) {}

  static std::byte* host_of(id<MTLBuffer> buffer) noexcept;

  std::shared_ptr<Context> context_;  // null: an engine's
  std::shared_ptr<const void> keep_;
  Owned<id<MTLBuffer>> buffer_;
};

}  // namespace rota::mtl
