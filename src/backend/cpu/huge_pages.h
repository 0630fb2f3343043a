#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

namespace rota::cpu {

inline constexpr std::uint64_t kHugePageBytes = 2U << 20;

// A wish: without it memory is slower, nothing else.
inline void wish_for_huge_pages([[maybe_unused]] std::byte* begin, [[maybe_unused]] std::uint64_t bytes) noexcept {
#if defined(MADV_HUGEPAGE)
  madvise(begin, bytes, MADV_HUGEPAGE);
#endif
}

}  // namespace rota::cpu
