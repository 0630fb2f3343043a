// Included by rows.cpp through core/for_each_isa.h.

#include "codec/dense/lanes.h"

namespace rota::codec::ROTA_ISA {

// The same type passes its bits on untouched, signalling NaN included.
template <DType From, DType To>
ROTA_LANES void convert_row(SourceRow from, TargetRow to, std::uint64_t count) noexcept {
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

}  // namespace rota::codec::ROTA_ISA
