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
}  // namespace rota::runtime

namespace rota::inline ROTA_ABI {

// A handle to memory of one device; copies share it. The memory lives until the last handle and
// the last command that uses it are gone. A new buffer's contents are undefined.
class ROTA_API Buffer {
 public:
  Buffer() noexcept = default;

  std::uint64_t size_bytes() const noexcept;

  // Both are ordered after every submission made so far that conflicts, and return when done.
  Status write(std::span<const std::byte> from, std::uint64_t offset_bytes = 0);
  Status read(std::span<std::byte> to, std::uint64_t offset_bytes = 0) const;

  const std::shared_ptr<runtime::BufferState>& state() const noexcept { return state_; }

 private:
  friend class Device;
  explicit Buffer(std::shared_ptr<runtime::BufferState> state) noexcept : state_(std::move(state)) {}

  std::shared_ptr<runtime::BufferState> state_;
};

}  // namespace rota::inline ROTA_ABI
