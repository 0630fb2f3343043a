#include "ops/rope/rope_bench_case.h"

#include <memory>
#include <numeric>
#include <span>

namespace rota::bench {
namespace {

// Calls on all copies, once there is memory for them.
struct RopeCalls {
  RopeCalls(const Place& place, const RopeCase& asked) : what(asked), positions(asked.tokens), copies(place) {
    std::iota(positions.begin(), positions.end(), what.first_position);
    for (const std::uint64_t heads : what.heads) {
      const std::uint64_t bytes = what.tokens * heads * what.head_dim * info(what.dtype).bytes;
      const CallCopies::Where from = copies.add(numbers(what.dtype), bytes);
      places.push_back({from, what.in_place ? from : copies.add(numbers(what.dtype), bytes)});
    }
  }

  void prepare(Device& device) {
    copies.fill(device);
    for (std::uint64_t copy = 0; copy < copies.count(); ++copy) {
      for (std::size_t at = 0; at < places.size(); ++at) tensors.push_back(tensor_of(at, copy));
    }
  }

  void record(Encoder& encoder, std::uint64_t copy) const {
    rope(encoder, {.tensors = std::span(tensors).subspan(places.size() * copy, places.size()),
                   .positions = positions,
                   .rotary = what.rotary});
  }

  RopeTensor tensor_of(std::size_t index, std::uint64_t copy) const {
    const Shape shape{what.tokens, what.heads[index], what.head_dim};
    const CallCopies::At from = copies.at(places[index].from, copy), to = copies.at(places[index].to, copy);
    RopeTensor tensor{.from = View::token_major(from.buffer, what.dtype, shape),
                      .to = MutView::token_major(to.buffer, what.dtype, shape)};
    tensor.from.offset = from.offset_bytes / info(what.dtype).bytes;
    tensor.to.offset = to.offset_bytes / info(what.dtype).bytes;
    if (what.normed) tensor.norm = HeadNorm{.epsilon = 1e-6};
    return tensor;
  }

  struct Places {
    CallCopies::Where from, to;
  };

  RopeCase what;
  std::vector<std::int64_t> positions;
  CallCopies copies;
  std::vector<Places> places{};
  std::vector<RopeTensor> tensors{};
};

}  // namespace

std::uint64_t RopeCase::tensor_bytes() const {
  const std::uint64_t all_heads = std::accumulate(heads.begin(), heads.end(), std::uint64_t{0});
  return tokens * all_heads * head_dim * info(dtype).bytes;
}

std::uint64_t RopeCase::copy_bytes() const { return tensor_bytes() * (in_place ? 1 : 2); }

Work rope_work(Place& place, const RopeCase& what) {
  const auto calls = std::make_shared<RopeCalls>(place, what);
  calls->copies.reserve(place, what.rotated_bytes);
  return {.bytes = 2 * what.tensor_bytes(),
          .prepare = [calls, device = place.device]() mutable { calls->prepare(device); },
          .run = rotating(place.device, {calls, &calls->copies},
                          [calls](Encoder& encoder, std::uint64_t copy) { calls->record(encoder, copy); })};
}

}  // namespace rota::bench
