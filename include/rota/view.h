#pragma once

#include <cstdint>
#include <limits>

#include "rota/buffer.h"
#include "rota/codec.h"
#include "rota/dtype.h"
#include "rota/export.h"

namespace rota::inline ROTA_ABI {

// Whether a view may be written.
enum class Access : std::uint8_t { read, write };

namespace detail {
// a * b, or 2^64 - 1 if that does not fit, so that bounds checks refuse it.
constexpr std::uint64_t saturating_multiply(std::uint64_t a, std::uint64_t b) noexcept {
  constexpr auto kMax = std::numeric_limits<std::uint64_t>::max();
  return a != 0 && b > kMax / a ? kMax : a * b;
}
}  // namespace detail

// The shape of a view.
struct Shape {
  std::uint64_t tokens = 0, heads = 0, dim = 0;
};

// Head vectors, addressed as [token, head, dim]. The strides tell the order in memory, so that ops take token-major
// activations and head-major tensors alike. The offset and the strides count elements. Making a view checks nothing;
// ops check the views that they are given.
template <Access A>
struct BasicView {
  Buffer buffer;
  DType dtype = DType::f32;
  Shape shape = {};
  std::uint64_t offset = 0;
  std::uint64_t token_stride = 0, head_stride = 0, dim_stride = 1;

  // The offset of a slice that is not inside its view. Every op refuses it.
  static constexpr std::uint64_t kOutside = std::numeric_limits<std::uint64_t>::max();

  // [token][head][dim] in memory.
  static BasicView token_major(Buffer buffer, DType dtype, Shape shape) {
    return {.buffer = std::move(buffer),
            .dtype = dtype,
            .shape = shape,
            .token_stride = detail::saturating_multiply(shape.heads, shape.dim),
            .head_stride = shape.dim};
  }

  // [head][token][dim] in memory.
  static BasicView head_major(Buffer buffer, DType dtype, Shape shape) {
    return {.buffer = std::move(buffer),
            .dtype = dtype,
            .shape = shape,
            .token_stride = shape.dim,
            .head_stride = detail::saturating_multiply(shape.tokens, shape.dim)};
  }

  // `count` tokens from token `first` on.
  BasicView slice(std::uint64_t first, std::uint64_t count) const {
    BasicView sliced = *this;
    const bool inside = first <= shape.tokens && count <= shape.tokens - first;
    const std::uint64_t skipped = detail::saturating_multiply(first, token_stride);
    sliced.shape.tokens = count;
    sliced.offset = !inside || skipped > kOutside - offset ? kOutside : offset + skipped;
    return sliced;
  }

  // A view for writing may be read, but not the reverse.
  operator BasicView<Access::read>() const
    requires(A == Access::write)
  {
    return {buffer, dtype, shape, offset, token_stride, head_stride, dim_stride};
  }
};

using View = BasicView<Access::read>;
using MutView = BasicView<Access::write>;

// The shape of a SlotView.
struct SlotShape {
  std::uint64_t pages = 1, page_slots = 0, heads = 0, dim = 0;
};

// The memory of a cache: head vectors, addressed as [page, slot, head, dim]. A contiguous cache is one page with all
// slots. The offset and the strides count elements. The view may be written.
struct SlotView {
  Buffer buffer;
  DType dtype = DType::f16;
  SlotShape shape = {};
  std::uint64_t offset = 0;
  std::uint64_t page_stride = 0, slot_stride = 0, head_stride = 0, dim_stride = 1;

  // [page][slot][head][dim] in memory.
  static SlotView token_major(Buffer buffer, DType dtype, SlotShape shape) {
    const std::uint64_t slot_size = detail::saturating_multiply(shape.heads, shape.dim);
    return {.buffer = std::move(buffer),
            .dtype = dtype,
            .shape = shape,
            .page_stride = detail::saturating_multiply(shape.page_slots, slot_size),
            .slot_stride = slot_size,
            .head_stride = shape.dim};
  }

  // [page][head][slot][dim] in memory.
  static SlotView head_major(Buffer buffer, DType dtype, SlotShape shape) {
    const std::uint64_t head_size = detail::saturating_multiply(shape.page_slots, shape.dim);
    return {.buffer = std::move(buffer),
            .dtype = dtype,
            .shape = shape,
            .page_stride = detail::saturating_multiply(shape.heads, head_size),
            .slot_stride = shape.dim,
            .head_stride = head_size};
  }
};

// The shape of a SealedView.
struct SealedShape {
  std::uint64_t pages = 1, heads = 0;
};

// Sealed pages, addressed as [page, head], page_bytes(format) bytes each. The offset and the strides are multiples of
// 64 bytes. The view may be written.
struct SealedView {
  Buffer buffer;
  PageFormat format;
  SealedShape shape = {};
  std::uint64_t offset_bytes = 0;
  std::uint64_t page_stride_bytes = 0, head_stride_bytes = 0;

  // [page][head] in memory, without gaps.
  static SealedView packed(Buffer buffer, const PageFormat& format, SealedShape shape) {
    const std::uint64_t bytes = page_bytes(format);
    return {.buffer = std::move(buffer),
            .format = format,
            .shape = shape,
            .page_stride_bytes = detail::saturating_multiply(shape.heads, bytes),
            .head_stride_bytes = bytes};
  }
};

// A u64 in memory, little-endian, that ops add to. The caller sets it to zero before. Commands that share a counter run
// one after the other.
struct Counter {
  Buffer buffer;
  std::uint64_t offset_bytes = 0;  // a multiple of 8
};

}  // namespace rota::inline ROTA_ABI
