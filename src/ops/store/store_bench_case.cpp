#include "ops/store/store_bench_case.h"

#include <memory>
#include <optional>
#include <span>

#include "rota/ops.h"

namespace rota::bench {

namespace {

// Calls on all copies, once there is memory for them.
struct StoreCalls {
  StoreCalls(const Place& place, StoreCase asked) : what(std::move(asked)), copies(place) {
    for (const StoreCase::Side& side : what.sides) {
      const std::uint64_t from_bytes = what.heads * side.dim * info(side.from).bytes;
      const std::uint64_t to_bytes = what.heads * side.dim * info(side.to).bytes;
      call_bytes += what.tokens * (from_bytes + to_bytes);
      places.push_back(
          {copies.add(numbers(side.from), what.tokens * from_bytes), copies.add(numbers(side.to), slots * to_bytes)});
    }
  }

  void prepare(Device& device) {
    copies.fill(device);
    if (what.counts) counter = Counter{cleared(device, 8)};
    for (std::uint64_t copy = 0; copy < copies.count(); ++copy) {
      for (std::size_t at = 0; at < places.size(); ++at) pairs.push_back(pair_of(at, copy));
    }
  }

  void record(Encoder& encoder, std::uint64_t copy) const {
    const TokenRun run{.tokens = what.tokens, .position = what.position, .capacity = slots};
    store(encoder, {.pairs = std::span(pairs).subspan(places.size() * copy, places.size()),
                    .sequences = {&run, 1},
                    .non_finite = counter});
  }

  StorePair pair_of(std::size_t index, std::uint64_t copy) const {
    const StoreCase::Side& side = what.sides[index];
    const CallCopies::At from = copies.at(places[index].from, copy), to = copies.at(places[index].to, copy);
    StorePair pair{
        .from = View::token_major(from.buffer, side.from, {what.tokens, what.heads, side.dim}),
        .to = SlotView::head_major(to.buffer, side.to, {.page_slots = slots, .heads = what.heads, .dim = side.dim})};
    pair.from.offset = from.offset_bytes / info(side.from).bytes;
    pair.to.offset = to.offset_bytes / info(side.to).bytes;
    return pair;
  }

  struct Places {
    CallCopies::Where from, to;
  };

  StoreCase what;
  std::uint64_t slots = what.slots == 0 ? what.tokens : what.slots;
  std::uint64_t call_bytes = 0;
  CallCopies copies;
  std::vector<Places> places{};
  std::vector<StorePair> pairs{};
  std::optional<Counter> counter{};
};

}  // namespace

Work store_work(Place& place, const StoreCase& what) {
  const auto calls = std::make_shared<StoreCalls>(place, what);
  calls->copies.reserve(place, what.rotated_bytes);
  return {.bytes = calls->call_bytes,
          .prepare = [calls, device = place.device]() mutable { calls->prepare(device); },
          .run = rotating(place.device, {calls, &calls->copies},
                          [calls](Encoder& encoder, std::uint64_t copy) { calls->record(encoder, copy); })};
}

}  // namespace rota::bench
