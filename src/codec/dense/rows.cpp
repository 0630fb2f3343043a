#include "codec/dense/rows.h"

#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "codec/dense/dense.params.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace rota::codec {
namespace {

static_assert(ops::kF32 == static_cast<std::uint32_t>(DType::f32) &&
              ops::kF16 == static_cast<std::uint32_t>(DType::f16) &&
              ops::kBf16 == static_cast<std::uint32_t>(DType::bf16));

template <DType T>
struct Element {
  using Bits = std::uint16_t;
};
template <>
struct Element<DType::f32> {
  using Bits = std::uint32_t;
};

// The same type passes its bits on untouched, signalling NaN included.
template <DType From, DType To>
typename Element<To>::Bits convert(typename Element<From>::Bits bits) noexcept {
  if constexpr (From == To) {
    return bits;
  } else {
    float wide = 0;
    if constexpr (From == DType::f32) wide = std::bit_cast<float>(bits);
    if constexpr (From == DType::f16) wide = f32_from_f16(bits);
    if constexpr (From == DType::bf16) wide = f32_from_bf16(bits);
    if constexpr (To == DType::f32) return std::bit_cast<std::uint32_t>(wide);
    if constexpr (To == DType::f16) return f16_from_f32(wide);
    if constexpr (To == DType::bf16) return bf16_from_f32(wide);
  }
}

template <DType From, DType To>
void convert_row(const std::byte* from, std::byte* to, std::uint64_t count) noexcept {
  using FromBits = typename Element<From>::Bits;
  using ToBits = typename Element<To>::Bits;
  if constexpr (From == To) {
    if (count > 0) std::memcpy(to, from, count * sizeof(ToBits));
  } else {
    for (std::uint64_t i = 0; i < count; ++i) {
      FromBits in;
      std::memcpy(&in, from + i * sizeof(in), sizeof(in));
      const ToBits out = convert<From, To>(in);
      std::memcpy(to + i * sizeof(out), &out, sizeof(out));
    }
  }
}

// Indexed by both types' numbers.
using Table = std::array<ConvertRow, kDTypes.size() * kDTypes.size()>;

constexpr std::size_t index_of(DType from, DType to) {
  return static_cast<std::size_t>(from) * kDTypes.size() + static_cast<std::size_t>(to);
}

constexpr Table kPortable = []<std::size_t... I>(std::index_sequence<I...>) {
  return Table{convert_row<kDTypes[I / kDTypes.size()].dtype, kDTypes[I % kDTypes.size()].dtype>...};
}(std::make_index_sequence<kDTypes.size() * kDTypes.size()>());

#if defined(__x86_64__)

// x86's own conversions give the defined bits, NaN and denormals included; eight at a time.
[[gnu::target("avx2,f16c")]] void f16_row_from_f32_x86(const std::byte* from, std::byte* to,
                                                       std::uint64_t count) noexcept {
  std::uint64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256 wide = _mm256_loadu_ps(reinterpret_cast<const float*>(from + i * 4));
    const __m128i half = _mm256_cvtps_ph(wide, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i * 2), half);
  }
  convert_row<DType::f32, DType::f16>(from + i * 4, to + i * 2, count - i);
}

[[gnu::target("avx2,f16c")]] void f32_row_from_f16_x86(const std::byte* from, std::byte* to,
                                                       std::uint64_t count) noexcept {
  std::uint64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i * 2));
    _mm256_storeu_ps(reinterpret_cast<float*>(to + i * 4), _mm256_cvtph_ps(half));
  }
  convert_row<DType::f16, DType::f32>(from + i * 2, to + i * 4, count - i);
}

[[gnu::target("avx2,f16c")]] void bf16_row_from_f32_x86(const std::byte* from, std::byte* to,
                                                        std::uint64_t count) noexcept {
  const __m256i half_place = _mm256_set1_epi32(0x7fff);
  const __m256i one = _mm256_set1_epi32(1);
  const __m256i infinity = _mm256_set1_epi32(0x7f800000);
  const __m256i quiet_bit = _mm256_set1_epi32(0x40);
  std::uint64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i * 4));
    const __m256i top = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(top, one);
    const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, half_place), odd), 16);
    const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
    const __m256i nan = _mm256_cmpgt_epi32(magnitude, infinity);
    const __m256i words = _mm256_blendv_epi8(rounded, _mm256_or_si256(top, quiet_bit), nan);
    const __m128i halves = _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i * 2), halves);
  }
  convert_row<DType::f32, DType::bf16>(from + i * 4, to + i * 2, count - i);
}

Table best_for_this_cpu() noexcept {
  Table table = kPortable;
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c")) {
    table[index_of(DType::f32, DType::f16)] = f16_row_from_f32_x86;
    table[index_of(DType::f16, DType::f32)] = f32_row_from_f16_x86;
    table[index_of(DType::f32, DType::bf16)] = bf16_row_from_f32_x86;
  }
  return table;
}

#else

Table best_for_this_cpu() noexcept { return kPortable; }

#endif

}  // namespace

ConvertRow row_converter(DType from, DType to) noexcept {
  static const Table table = best_for_this_cpu();
  return table[index_of(from, to)];
}

ConvertRow portable_row_converter(DType from, DType to) noexcept { return kPortable[index_of(from, to)]; }

}  // namespace rota::codec
