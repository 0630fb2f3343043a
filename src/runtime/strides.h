#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "rota/view.h"
#include "runtime/inside.h"
#include "runtime/strides.params.h"
#include "runtime/target.h"

// What kernels get to know of a checked view.

namespace rota::runtime {

// The stride, or 0 if it is never applied: the caller's value may be anything, and might not fit into 32 bits.
constexpr std::uint64_t effective(std::uint64_t stride, std::uint64_t count) { return count > 1 ? stride : 0; }

inline ops::Strides strides_of(const View& view, const Bindable& bound) {
  return {.offset = bound.first_element,
          .token = effective(view.token_stride, view.shape.tokens),
          .head = effective(view.head_stride, view.shape.heads),
          .dim = effective(view.dim_stride, view.shape.dim)};
}

inline ops::SlotStrides strides_of(const SlotView& view, const Bindable& bound) {
  return {.offset = bound.first_element,
          .page = effective(view.page_stride, view.shape.pages),
          .slot = effective(view.slot_stride, view.shape.page_slots),
          .head = effective(view.head_stride, view.shape.heads),
          .dim = effective(view.dim_stride, view.shape.dim)};
}

// Whether two views are the same elements. Precondition: their shapes are equal.
inline bool same_place(const View& a, const View& b) {
  const auto& [tokens, heads, dim] = a.shape;
  const auto same = [](std::uint64_t first, std::uint64_t second, std::uint64_t count) {
    return effective(first, count) == effective(second, count);
  };
  return Inside::of(a.buffer) == Inside::of(b.buffer) && a.dtype == b.dtype && a.offset == b.offset &&
         same(a.token_stride, b.token_stride, tokens) && same(a.head_stride, b.head_stride, heads) &&
         same(a.dim_stride, b.dim_stride, dim);
}

// Whether rows consist of whole words: elements are side by side, and every row starts on a word.
inline bool in_whole_words(DType dtype, std::initializer_list<std::uint64_t> row_starts, std::uint64_t dim_stride) {
  if (info(dtype).bytes == sizeof(std::uint32_t)) return true;
  return dim_stride == 1 && std::ranges::all_of(row_starts, [](std::uint64_t start) { return start % 2 == 0; });
}

inline bool in_whole_words(DType dtype, const ops::Strides& strides) {
  return in_whole_words(dtype, {strides.offset, strides.token, strides.head}, strides.dim);
}

inline bool in_whole_words(DType dtype, const ops::SlotStrides& strides) {
  return in_whole_words(dtype, {strides.offset, strides.page, strides.slot, strides.head}, strides.dim);
}

// Whether rows consist of whole units of kUnitBytes.
inline bool in_whole_units(DType dtype, const ops::SlotStrides& strides, std::uint64_t dim) {
  const std::uint64_t elements = kUnitBytes / info(dtype).bytes;
  const std::initializer_list<std::uint64_t> starts{dim, strides.offset, strides.page, strides.slot, strides.head};
  return strides.dim == 1 && std::ranges::all_of(starts, [&](std::uint64_t start) { return start % elements == 0; });
}

}  // namespace rota::runtime
