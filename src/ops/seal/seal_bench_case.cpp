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
class Sides {
 public:
  Sides(const Place& place, const SealCase& what) : copies(place), what_(what) {
    for (const PageFormat& format : what.formats) {
      const std::uint64_t numbers_of_page = std::uint64_t{format.tokens} * format.head_dim;
      const std::uint64_t all = what.pages * what.heads;
      const std::uint64_t dense_bytes = all * numbers_of_page * info(what.dtype).bytes;
      const std::uint64_t sealed_bytes = all * page_bytes(format);
      places_.push_back({copies.add(numbers(what.dtype), dense_bytes), copies.add(blank_pages(format), sealed_bytes)});
      call_bytes += dense_bytes + sealed_bytes;
    }
  }

  void prepare(Device& device) {
    copies.fill(device);
    for (std::uint64_t copy = 0; copy < copies.count(); ++copy) {
      for (std::size_t at = 0; at < places_.size(); ++at) all_.push_back(side_of(at, copy));
    }
  }

  std::span<const Side> of(std::uint64_t copy) const {
    return std::span(all_).subspan(places_.size() * copy, places_.size());
  }

  CallCopies copies;
  std::uint64_t call_bytes = 0;

 private:
  struct Places {
    CallCopies::Where dense, sealed;
  };

  Side side_of(std::size_t index, std::uint64_t copy) const {
    const PageFormat& format = what_.formats[index];
    const CallCopies::At dense = copies.at(places_[index].dense, copy), sealed = copies.at(places_[index].sealed, copy);
    const SlotShape shape{
        .pages = what_.pages, .page_slots = format.tokens, .heads = what_.heads, .dim = format.head_dim};
    Side side{what_.head_major ? SlotView::head_major(dense.buffer, what_.dtype, shape)
                               : SlotView::token_major(dense.buffer, what_.dtype, shape),
              SealedView::packed(sealed.buffer, format, {.pages = what_.pages, .heads = what_.heads})};
    side.dense.offset = dense.offset_bytes / info(what_.dtype).bytes;
    side.sealed.offset_bytes = sealed.offset_bytes;
    return side;
  }

  SealCase what_;
  std::vector<Places> places_{};
  std::vector<Side> all_{};  // copies, one after the other
};

std::shared_ptr<Sides> sides_of(Place& place, const SealCase& what) {
  const auto sides = std::make_shared<Sides>(place, what);
  sides->copies.reserve(place, what.rotated_bytes);
  return sides;
}

template <class Page>
std::vector<Page> each_in_place(std::uint64_t pages) {
  std::vector<Page> list;
  for (std::uint64_t page = 0; page < pages; ++page) list.push_back({.from = page, .to = page});
  return list;
}

std::function<void(std::uint64_t calls)> sealing(Device& device, const std::shared_ptr<const Sides>& sides,
                                                 std::uint64_t pages) {
  const auto record = [sides, counter = cleared(device, 8), list = each_in_place<SealPage>(pages)](Encoder& encoder,
                                                                                                   std::uint64_t copy) {
    for (const Side& side : sides->of(copy)) {
      seal(encoder, {.from = side.dense, .to = side.sealed, .pages = list, .non_finite = {counter}});
    }
  };
  return rotating(device, {sides, &sides->copies}, record);
}

}  // namespace

Work seal_work(Place& place, const SealCase& what) {
  const auto sides = sides_of(place, what);
  return {.bytes = sides->call_bytes,
          .prepare = [sides, device = place.device]() mutable { sides->prepare(device); },
          .run = sealing(place.device, sides, what.pages)};
}

Work unseal_work(Place& place, const SealCase& what) {
  const auto sides = sides_of(place, what);
  const auto record = [sides, list = each_in_place<UnsealPage>(what.pages)](Encoder& encoder, std::uint64_t copy) {
    for (const Side& side : sides->of(copy)) {
      unseal(encoder, {.from = side.sealed, .to = side.dense, .pages = list});
    }
  };
  const auto prepare = [sides, device = place.device, pages = what.pages]() mutable {
    sides->prepare(device);
    sealing(device, sides, pages)(sides->copies.count());
  };
  return {
      .bytes = sides->call_bytes, .prepare = prepare, .run = rotating(place.device, {sides, &sides->copies}, record)};
}

}  // namespace rota::bench
