// Included by checksum_cpu.cpp through core/for_each_isa.h.

#if !defined(ROTA_ISA)
#include "core/simd.h"
#endif
#include "codec/dense/simd.h"

namespace rota::ops::ROTA_ISA {

namespace simd = codec::ROTA_ISA;
using simd::kLanes;
using simd::U32s;

inline constexpr std::uint64_t kLineBytes = 64;

// A core that reads in one place alone has too few requests to memory in flight: so it reads in several by turns.
inline constexpr std::uint64_t kStreams = 4;
inline constexpr std::uint64_t kStepLines = 4;  // that a stream's turn takes
inline constexpr std::uint64_t kStepBytes = kStepLines * kLineBytes;
inline constexpr std::uint64_t kBytesAhead = 2048;

struct StepSums {
  U32s first, second, third, fourth;
};

// The line is fetched well before: hardware stops at the end of each page. A fetch of what is not there does nothing.
ROTA_SIMD_INLINE U32s sum_line(const std::byte* at) noexcept {
  __builtin_prefetch(at + kBytesAhead);
  U32s sum = simd::load_bits<U32s>(at);
  for (std::uint64_t i = sizeof(U32s); i < kLineBytes; i += sizeof(U32s)) sum += simd::load_bits<U32s>(at + i);
  return sum;
}

ROTA_SIMD_INLINE void add_step(const std::byte* at, StepSums& sums) noexcept {
  static_assert(kStepLines == 4);
  sums.first += sum_line(at);
  sums.second += sum_line(at + kLineBytes);
  sums.third += sum_line(at + 2 * kLineBytes);
  sums.fourth += sum_line(at + 3 * kLineBytes);
}

ROTA_SIMD_INLINE std::uint32_t sum_one_by_one(const std::byte* at, std::uint64_t words) noexcept {
  std::uint32_t sum = 0;
  for (std::uint64_t i = 0; i < words; ++i) sum += simd::load_bits<std::uint32_t>(at + i * sizeof(sum));
  return sum;
}

ROTA_SIMD std::uint32_t sum_words(const std::byte* at, std::uint64_t words) noexcept {
  const std::uint64_t to_line = (kLineBytes - reinterpret_cast<std::uintptr_t>(at) % kLineBytes) % kLineBytes / 4;
  const std::uint64_t before = words < to_line ? words : to_line;
  std::uint32_t sum = sum_one_by_one(at, before);
  at += before * 4;
  words -= before;

  const std::uint64_t stream_bytes = words * 4 / (kStreams * kStepBytes) * kStepBytes;
  StepSums sums{};
  for (const std::byte* const end = at + stream_bytes; at < end; at += kStepBytes) {
    for (std::uint64_t stream = 0; stream < kStreams; ++stream) add_step(at + stream * stream_bytes, sums);
  }
  at += (kStreams - 1) * stream_bytes;
  words -= kStreams * stream_bytes / 4;
  const U32s all = sums.first + sums.second + sums.third + sums.fourth;
  for (std::uint64_t lane = 0; lane < kLanes; ++lane) sum += all[lane];
  return sum + sum_one_by_one(at, words);
}

}  // namespace rota::ops::ROTA_ISA
