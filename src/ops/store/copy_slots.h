#pragma once

#include <cstdint>
#include <span>

#include "rota/encoder.h"
#include "rota/view.h"

namespace rota::ops {

// The first slots of one page, for all heads, into the first of another.
struct SlotCopy {
  std::uint32_t from, to;  // pages
  std::uint64_t tokens;
};

// From pages to other pages, of the same memory or of another, in one command however many there are. Preconditions:
// both views have the same heads, dim and dtype, elements of a vector side by side, and a page's stride is a multiple
// of its slots'. No page that is read is written, and none is written twice.
struct CopySlots {
  const SlotView& from;
  const SlotView& to;
  std::span<const SlotCopy> copies;
};

void copy_slots(Encoder& encoder, const CopySlots& call);

}  // namespace rota::ops
