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
    const std::uint64_t pieces = side_by_side ? (count > 0 ? 1 : 0) : count;
    for (std::uint64_t i = 0; i < pieces; ++i) {
      std::memcpy(to.at + i * to_step, from.at + i * from_step, info(To).bytes * (count / pieces));
    }
  } else {
    std::uint64_t i = 0;
    for (; side_by_side && i + kLanes <= count; i += kLanes) {
      store<To>(load<From>(from.at + i * from_step), to.at + i * to_step);
    }
    for (; i < count; i += kLanes) {
      const std::uint64_t left = count - i < kLanes ? count - i : kLanes;
      store<To>(load<From>(from.at + i * from_step, {left, from_step}), to.at + i * to_step, {left, to_step});
    }
  }
}

inline constexpr ConvertRows kRows = []<std::size_t... I>(std::index_sequence<I...>) {
  return ConvertRows{convert_row<kDTypes[I / kDTypes.size()].dtype, kDTypes[I % kDTypes.size()].dtype>...};
}(std::make_index_sequence<kDTypes.size() * kDTypes.size()>());

}  // namespace rota::codec::ROTA_ISA
