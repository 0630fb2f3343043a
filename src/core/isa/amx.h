#pragma once

#if defined(__x86_64__)

#include <cstddef>
#include <cstdint>

// AMX: eight registers, each a tile of up to 16 rows of 64 bytes, and products of such matrices. By hand: g++ 12 moves
// stores to memory past its intrinsics that load from there.

#define ROTA_SIMD_AMX [[gnu::target("avx2,fma,f16c,avx512f,avx512dq,avx512bw,avx512vnni,avx512vbmi,amx-tile,amx-int8")]]

namespace rota::core::amx {

inline constexpr std::uint32_t kTileRows = 16;
inline constexpr std::uint32_t kTileRowBytes = 64;

// What each register holds, as LDTILECFG reads it.
struct alignas(64) TileShapes {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};

  constexpr void set(std::size_t tile, std::uint32_t its_rows, std::uint32_t its_row_bytes) noexcept {
    rows[tile] = static_cast<std::uint8_t>(its_rows);
    row_bytes[tile] = static_cast<std::uint16_t>(its_row_bytes);
  }
};

ROTA_SIMD_AMX inline void configure(const TileShapes& shapes) noexcept { asm volatile("ldtilecfg %0" ::"m"(shapes)); }

// A thread that leaves tiles in use has them saved at each switch.
ROTA_SIMD_AMX inline void release() noexcept { asm volatile("tilerelease"); }

#define ROTA_AMX_INLINE [[gnu::always_inline]] ROTA_SIMD_AMX inline

template <int kTile>
ROTA_AMX_INLINE void zero() noexcept {
  asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
}

template <int kTile>
ROTA_AMX_INLINE void load(const void* at, std::uint64_t stride_bytes) noexcept {
  asm volatile("tileloadd (%1,%2,1), %%tmm%c0" ::"i"(kTile), "r"(at), "r"(stride_bytes) : "memory");
}

template <int kTile>
ROTA_AMX_INLINE void store(void* at, std::uint64_t stride_bytes) noexcept {
  asm volatile("tilestored %%tmm%c0, (%1,%2,1)" ::"i"(kTile), "r"(at), "r"(stride_bytes) : "memory");
}

// sums[i][j] += sum over k of left[i][k] * right[k / 4][4 * j + k % 4]
template <int kSums, int kLeft, int kRight>
ROTA_AMX_INLINE void add_signed_by_unsigned() noexcept {
  asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSums), "i"(kLeft), "i"(kRight));
}
template <int kSums, int kLeft, int kRight>
ROTA_AMX_INLINE void add_unsigned_by_signed() noexcept {
  asm volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSums), "i"(kLeft), "i"(kRight));
}

}  // namespace rota::core::amx

#endif
