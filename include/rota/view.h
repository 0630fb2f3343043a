#pragma once

#include <cstdint>
#include <limits>

#include "rota/buffer.h"
#include "rota/codec.h"
#include "rota/dtype.h"
#include "rota/export.h"

namespace rota::inline ROTA_ABI {

enum class Access : std::uint8_t { read, write };

namespace detail {
// Sizes that do not fit become "too large" instead of wrapping, so that bounds checks refuse them.
constexpr std::uint64_t saturating_multiply(std::uint64_t a, std::uint64_t b) noexcept {
  constexpr auto kMax = std::numeric_limits<std::uint64_t>::max();
  return a != 0 && b > kMax / a ? kMax : a * b;
}
}  // namespace detail

struct Shape {
  std::uint64_t tokens = 0, heads = 0, dim = 0;
};

// Head vectors addressed as [token, head, dim]. The memory order is in the strides: token-major
// activations and head-major tensors are the same type to every op. Offsets and strides count
// elements. Ops check a view before they use it; building one checks nothing.
template <Access A>
struct BasicView {
  Buffer buffer;
  DType dtype = DType::f32;
  Shape shape = {};
  std::uint64_t offset = 0;
  std::uint64_t token_stride = 0, head_stride = 0, dim_stride = 1;

  // Marks a slice that left its view; every op refuses it.
  static constexpr std::uint64_t kOutside = std::numeric_limits<std::uint64_t>::max();

  static BasicView token_major(Buffer buffer, DType dtype, Shape shape) {
    return {.buffer = std::move(buffer),
            .dtype = dtype,
            .shape = shape,
            .token_stride = detail::saturating_multiply(shape.heads, shape.dim),
            .head_stride = shape.dim};
  }

  static BasicView head_major(Buffer buffer, DType dtype, Shape shape) {
    return {.buffer = std::move(buffer),
            .dtype = dtype,
            .shape = shape,
            .token_stride = shape.dim,
            .head_stride = detail::saturating_multiply(shape.tokens, shape.dim)};
  }

  // `count` tokens from token `first` on.
  BasicView slice(std::uint64_t first, std::uint64_t count) const {
    BasicView part = *this;
    const bool inside = first <= shape.tokens && count <= shape.tokens - first;
    const std::uint64_t skipped = detail::saturating_multiply(first, token_stride);
    part.shape.tokens = count;
    part.offset = !inside || skipped > kOutside - offset ? kOutside : offset + skipped;
    return part;
  }

  // What may be written may be read; the reverse does not compile.
  operator BasicView<Access::read>() const
    requires(A == Access::write)
  {
    return {buffer, dtype, shape, offset, token_stride, head_stride, dim_stride};
  }
};

using View = BasicView<Access::read>;
using MutView = BasicView<Access::write>;

struct SlotShape {
  std::uint64_t pages = 1, page_slots = 0, heads = 0, dim = 0;
};

// Head vectors addressed as [page, slot, head, dim]: the memory behind a cache. A contiguous cache
// is one page that holds all slots. Offsets and strides count elements; all of it may be written.
struct SlotView {
  Buffer buffer;
  DType dtype = DType::f16;
  SlotShape shape = {};
  std::uint64_t offset = 0;
  std::uint64_t page_stride = 0, slot_stride = 0, head_stride = 0, dim_stride = 1;

  // [page][slot][head][dim]
  static SlotView token_major(Buffer buffer, DType dtype, SlotShape shape) {
    const std::uint64_t slot_size = detail::saturating_multiply(shape.heads, shape.dim);
    return {.buffer = std::move(buffer),
            .dtype = dtype,
            .shape = shape,
            .page_stride = detail::saturating_multiply(shape.page_slots, slot_size),
            .slot_stride = slot_size,
            .head_stride = shape.dim};
  }

  // [page][head][slot][dim]
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

struct SealedShape {
  std::uint64_t pages = 1, heads = 0;
};

// Sealed pages addressed as [page, head], page_bytes(format) each. Offset and strides count bytes, in multiples of 64;
// all of it may be written.
struct SealedView {
  Buffer buffer;
  PageFormat format;
  SealedShape shape = {};
  std::uint64_t offset_bytes = 0;
  std::uint64_t page_stride_bytes = 0, head_stride_bytes = 0;

  // [page][head], one after the other
  static SealedView packed(Buffer buffer, const PageFormat& format, SealedShape shape) {
    const std::uint64_t bytes = page_bytes(format);
    return {.buffer = std::move(buffer),
            .format = format,
            .shape = shape,
            .page_stride_bytes = detail::saturating_multiply(shape.heads, bytes),
            .head_stride_bytes = bytes};
  }
};

// A 64-bit number, little-endian, that ops add to. Whoever reads it has set it to zero before. Work that shares one
// takes turns.
struct Counter {
  Buffer buffer;
  std::uint64_t offset_bytes = 0;  // a multiple of 8
};

}  // namespace rota::inline ROTA_ABI
