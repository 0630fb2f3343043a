// Included by rows.cpp through core/for_each_isa.h.

#if !defined(ROTA_ISA)
#include "core/simd.h"
#endif
#include <limits>

#include "codec/dense/dense.params.h"
#include "codec/dense/rows.h"
#include "codec/dense/simd.h"
#include "codec/dense/type_pairs.h"

namespace rota::codec::ROTA_ISA {

// The same type passes its bits on untouched, signalling NaN included.
template <DType From, DType To>
ROTA_SIMD void convert_row(SourceRow from, TargetRow to, std::uint64_t count) noexcept {
  const std::uint64_t from_step = from.stride * info(From).bytes;
  const std::uint64_t to_step = to.stride * info(To).bytes;
  const bool side_by_side = from.stride == 1 && to.stride == 1;
  if constexpr (From == To) {
    if (side_by_side && count > 0) std::memcpy(to.at, from.at, count * info(To).bytes);
    for (std::uint64_t i = 0; !side_by_side && i < count; ++i) {
      std::memcpy(to.at + i * to_step, from.at + i * from_step, info(To).bytes);
    }
  } else {
    std::uint64_t i = 0;
    for (; side_by_side && i + kLanes <= count; i += kLanes) {
      store<To>(load<From>(from.at + i * from_step), to.at + i * to_step);
    }
    for (; i < count; i += kLanes) {
      const std::uint64_t lanes = lanes_of(count - i);
      store<To>(load<From>(from.at + i * from_step, {lanes, from_step}), to.at + i * to_step, {lanes, to_step});
    }
  }
}

inline constexpr auto kRows =
    for_type_pairs<ConvertRow>([]<DType From, DType To>() -> ConvertRow { return convert_row<From, To>; });

// 1 in each lane that has all bits of the mask, else 0.
template <class Elements>
ROTA_SIMD_INLINE Elements has_all_of(Elements bits, Elements mask) noexcept {
  return Elements{} - same_bits<Elements>((bits & mask) == mask);
}

// A lane counts in the width of an element, so a long row comes in parts.
template <DType T, class Element>
ROTA_SIMD std::uint64_t count_non_finite(SourceRow row, std::uint64_t count) noexcept {
  static_assert(sizeof(Element) == info(T).bytes);
  using Elements [[gnu::vector_size(ROTA_ISA_WIDTH * sizeof(Element))]] = Element;
  constexpr std::uint64_t kPart = kLanes * std::numeric_limits<std::uint16_t>::max();
  const Elements exponent = Elements{} + static_cast<Element>(ops::exponent_mask(static_cast<std::uint32_t>(T)));
  const std::uint64_t step = row.stride * sizeof(Element);
  std::uint64_t found = 0;
  for (std::uint64_t i = 0; i < count;) {
    const std::uint64_t end = count - i < kPart ? count : i + kPart;
    Elements counts = {};
    for (; row.stride == 1 && i + kLanes <= end; i += kLanes) {
      counts += has_all_of(load_bits<Elements>(row.at + i * step), exponent);
    }
    for (; i < end; i += kLanes) {
      counts += has_all_of(load_bits<Elements>(row.at + i * step, {lanes_of(end - i), step}), exponent);
    }
    if (is_zero(counts)) continue;  // as it is nearly always, and lanes are slow to add up
    for (std::uint64_t lane = 0; lane < kLanes; ++lane) found += counts[lane];
  }
  return found;
}

inline constexpr std::array<CountRow, kDTypes.size()> kNonFiniteCounters{count_non_finite<DType::f32, std::uint32_t>,
                                                                         count_non_finite<DType::f16, std::uint16_t>,
                                                                         count_non_finite<DType::bf16, std::uint16_t>};

}  // namespace rota::codec::ROTA_ISA
