#include "rota/buffer.h"

#include "core/error.h"
#include "runtime/device_state.h"

namespace rota::inline ROTA_ABI {
namespace {

Status check_span(const Buffer& buffer, std::string_view op, std::uint64_t offset, std::uint64_t size) {
  const auto& state = runtime::Inside::of(buffer);
  if (!state) return core::refuse({op, {"the buffer"}}, "empty", "one that a device allocated");
  if (Status here = state->device()->check_here(op); !here) return here;
  const std::uint64_t available = buffer.size_bytes();
  if (offset > available || size > available - offset) {
    return core::refuse({op, {"the range"}}, core::text("{} bytes from byte {} on", size, offset),
                        "all of it inside the buffer of {} bytes", available);
  }
  return {};
}

}  // namespace

std::uint64_t Buffer::size_bytes() const noexcept { return state_ ? state_->memory()->size_bytes() : 0; }

Status Buffer::write(std::span<const std::byte> from, std::uint64_t offset_bytes) {
  return core::guarded([&]() -> Status {
    if (Status status = check_span(*this, "Buffer::write", offset_bytes, from.size()); !status) return status;
    runtime::Backend& backend = state_->device()->backend();
    runtime::Memory& memory = *state_->memory();
    if (Status status = backend.settle(memory, Access::write); !status) return status;
    return backend.write(memory, offset_bytes, from);
  });
}

Status Buffer::read(std::span<std::byte> to, std::uint64_t offset_bytes) const {
  return core::guarded([&]() -> Status {
    if (Status status = check_span(*this, "Buffer::read", offset_bytes, to.size()); !status) return status;
    runtime::Backend& backend = state_->device()->backend();
    if (Status status = backend.settle(*state_->memory(), Access::read); !status) return status;
    return backend.read(*state_->memory(), offset_bytes, to);
  });
}

}  // namespace rota::inline ROTA_ABI
