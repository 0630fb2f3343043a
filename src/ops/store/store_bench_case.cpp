#include "ops/store/store_bench_case.h"

#include <memory>
#include <optional>
#include <span>

#include "rota/ops.h"

namespace rota::bench {

Work store_work(Place& place, const StoreCase& what) {
  const std::uint64_t slots = what.slots == 0 ? what.tokens : what.slots;
  std::uint64_t call_bytes = 0, copy_bytes = 0;
  for (const StoreCase::Side& side : what.sides) {
    const std::uint64_t from_bytes = what.heads * side.dim * info(side.from).bytes;
    const std::uint64_t to_bytes = what.heads * side.dim * info(side.to).bytes;
    call_bytes += what.tokens * (from_bytes + to_bytes);
    copy_bytes += what.tokens * from_bytes + slots * to_bytes;
  }
  const std::uint64_t copies = copies_for(what.rotated_bytes, copy_bytes);
  place.take(copies * copy_bytes);
  const auto pairs = std::make_shared<std::vector<StorePair>>();
  for (std::uint64_t copy = 0; copy < copies; ++copy) {
    for (const StoreCase::Side& side : what.sides) {
      const std::uint64_t token_numbers = what.heads * side.dim;
      pairs->push_back({.from = View::token_major(numbers_in(place.device, side.from, what.tokens * token_numbers),
                                                  side.from, {what.tokens, what.heads, side.dim}),
                        .to = SlotView::head_major(numbers_in(place.device, side.to, slots * token_numbers), side.to,
                                                   {.page_slots = slots, .heads = what.heads, .dim = side.dim})});
    }
  }
  const TokenRun run{.tokens = what.tokens, .position = what.position, .capacity = slots};
  const std::optional<Counter> counter = what.counts ? std::optional(Counter{cleared(place.device, 8)}) : std::nullopt;
  const auto record = [pairs, run, counter, sides = what.sides.size()](Encoder& encoder, std::uint64_t copy) {
    store(encoder,
          {.pairs = std::span(*pairs).subspan(sides * copy, sides), .sequences = {&run, 1}, .non_finite = counter});
  };
  return {.bytes = call_bytes, .run = rotating(place.device, copies, record)};
}

}  // namespace rota::bench
