#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace rota::runtime {

// Adds to the number of a Counter. For CPU kernels; several threads may do so at once.
inline void add_to_counter(std::byte* counter, std::uint64_t count) noexcept {
  if (count == 0) return;
  std::atomic_ref(*reinterpret_cast<std::uint64_t*>(counter)).fetch_add(count, std::memory_order_relaxed);
}

}  // namespace rota::runtime
