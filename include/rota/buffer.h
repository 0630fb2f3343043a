#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "rota/export.h"
#include "rota/result.h"

namespace rota::runtime {
class BufferState;
struct Inside;
}  // namespace rota::runtime

namespace rota::inline ROTA_ABI {

// A handle to memory of one device. Copies share the memory, which lives until the last handle and the last command
// that uses it are gone. The contents of a new buffer are undefined.
class ROTA_API Buffer {
 public:
  Buffer() noexcept = default;

  // Zero for a buffer that no device allocated.
  std::uint64_t size_bytes() const noexcept;

  // Copies `from` into the buffer. Waits for every earlier submission that reads or writes the buffer, and returns when
  // the copy is done.
  Status write(std::span<const std::byte> from, std::uint64_t offset_bytes = 0);

  // Copies from the buffer into `to`. Waits for every earlier submission that writes the buffer, and returns when the
  // copy is done.
  Status read(std::span<std::byte> to, std::uint64_t offset_bytes = 0) const;

 private:
  friend class Device;
  friend struct runtime::Inside;
  explicit Buffer(std::shared_ptr<runtime::BufferState> state) noexcept : state_(std::move(state)) {}

  std::shared_ptr<runtime::BufferState> state_;
};

}  // namespace rota::inline ROTA_ABI
