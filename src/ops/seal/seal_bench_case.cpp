#include "ops/seal/seal_bench_case.h"

#include <memory>
#include <span>

#include "rota/ops.h"

namespace rota::bench {
namespace {

struct Side {
  SlotView dense;
  SealedView sealed;
};

// The memory that calls go round through.
struct Sides {
  std::vector<Side> all{};  // copies, one after the other
  std::uint64_t copies = 0, bytes = 0;

  std::span<const Side> of(std::uint64_t copy) const {
    const std::size_t each = all.size() / copies;
    return std::span(all).subspan(each * copy, each);
  }
};

Side side_of(Device& device, const SealCase& what, const PageFormat& format) {
  const SlotShape shape{.pages = what.pages, .page_slots = format.tokens, .heads = what.heads, .dim = format.head_dim};
  const Buffer dense = numbers_in(device, what.dtype, shape.pages * shape.page_slots * shape.heads * shape.dim);
  const Buffer sealed = device.allocate(what.pages * what.heads * page_bytes(format)).value();
  return {what.head_major ? SlotView::head_major(dense, what.dtype, shape)
                          : SlotView::token_major(dense, what.dtype, shape),
          SealedView::packed(sealed, format, {.pages = what.pages, .heads = what.heads})};
}

std::shared_ptr<const Sides> sides_of(Place& place, const SealCase& what) {
  const auto sides = std::make_shared<Sides>();
  for (const PageFormat& format : what.formats) {
    const std::uint64_t dense_bytes = std::uint64_t{format.tokens} * format.head_dim * info(what.dtype).bytes;
    sides->bytes += what.pages * what.heads * (page_bytes(format) + dense_bytes);
  }
  sides->copies = copies_for(what.rotated_bytes, sides->bytes);
  place.take(sides->copies * sides->bytes);
  for (std::uint64_t copy = 0; copy < sides->copies; ++copy) {
    for (const PageFormat& format : what.formats) sides->all.push_back(side_of(place.device, what, format));
  }
  return sides;
}

template <class Page>
std::vector<Page> each_in_place(std::uint64_t pages) {
  std::vector<Page> list;
  for (std::uint64_t page = 0; page < pages; ++page) list.push_back({.from = page, .to = page});
  return list;
}

Work seal_work_on(Place& place, const std::shared_ptr<const Sides>& sides, std::uint64_t pages) {
  const Buffer counter = cleared(place.device, 8);
  const auto record = [sides, counter, list = each_in_place<SealPage>(pages)](Encoder& encoder, std::uint64_t copy) {
    for (const Side& side : sides->of(copy)) {
      seal(encoder, {.from = side.dense, .to = side.sealed, .pages = list, .non_finite = {counter}});
    }
  };
  return {.bytes = sides->bytes, .run = rotating(place.device, sides->copies, record)};
}

}  // namespace

Work seal_work(Place& place, const SealCase& what) { return seal_work_on(place, sides_of(place, what), what.pages); }

Work unseal_work(Place& place, const SealCase& what) {
  const auto sides = sides_of(place, what);
  seal_work_on(place, sides, what.pages).run(sides->copies);
  const auto record = [sides, list = each_in_place<UnsealPage>(what.pages)](Encoder& encoder, std::uint64_t copy) {
    for (const Side& side : sides->of(copy)) {
      unseal(encoder, {.from = side.sealed, .to = side.dense, .pages = list});
    }
  };
  return {.bytes = sides->bytes, .run = rotating(place.device, sides->copies, record)};
}

}  // namespace rota::bench
