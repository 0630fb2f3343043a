// Included by rows.cpp through core/for_each_isa.h.

#include "codec/dense/lanes.h"

namespace rota::codec::ROTA_ISA {

// The same type passes its bits on untouched, signalling NaN included.
template <DType From, DType To>
ROTA_LANES void convert_row(const std::byte* from, std::byte* to, std::uint64_t count) noexcept {
  constexpr std::uint64_t kFromBytes = info(From).bytes;
  constexpr std::uint64_t kToBytes = info(To).bytes;
  if constexpr (From == To) {
    if (count > 0) std::memcpy(to, from, count * kToBytes);
  } else {
    std::uint64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) store<To>(load<From>(from + i * kFromBytes), to + i * kToBytes);
    if (i == count) return;
    store<To>(load<From>(from + i * kFromBytes, {count - i, kFromBytes}), to + i * kToBytes, {count - i, kToBytes});
  }
}

inline constexpr ConvertRows kRows = []<std::size_t... I>(std::index_sequence<I...>) {
  return ConvertRows{convert_row<kDTypes[I / kDTypes.size()].dtype, kDTypes[I % kDTypes.size()].dtype>...};
}(std::make_index_sequence<kDTypes.size() * kDTypes.size()>());

}  // namespace rota::codec::ROTA_ISA
