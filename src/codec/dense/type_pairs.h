#pragma once

#include <array>
#include <cstddef>
#include <utility>

#include "rota/dtype.h"

namespace rota::codec {

// One entry for each pair of types, a source's and a target's.
template <class Entry>
using ByTypePair = std::array<Entry, kDTypes.size() * kDTypes.size()>;

constexpr std::size_t type_pair(DType from, DType to) noexcept {
  return static_cast<std::size_t>(from) * kDTypes.size() + static_cast<std::size_t>(to);
}

// make.template operator()<From, To>() for each pair, in the order of type_pair.
template <class Entry, class Make>
constexpr ByTypePair<Entry> for_type_pairs(const Make& make) {
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    return ByTypePair<Entry> {
      make.template operator()<kDTypes[I / kDTypes.size()].dtype, kDTypes[I % kDTypes.size()].dtype>()...
    };
  }(std::make_index_sequence<kDTypes.size() * kDTypes.size()>());
}

}  // namespace rota::codec
