#include "ops/rope/rope_bench_case.h"

#include <memory>
#include <numeric>
#include <span>

namespace rota::bench {
namespace {

RopeTensor tensor_of(Device& device, const RopeCase& what, std::uint64_t heads) {
  const Shape shape{what.tokens, heads, what.head_dim};
  const auto numbers = [&] { return numbers_in(device, what.dtype, what.tokens * heads * what.head_dim); };
  const Buffer from = numbers();
  RopeTensor tensor{.from = View::token_major(from, what.dtype, shape),
                    .to = MutView::token_major(what.in_place ? from : numbers(), what.dtype, shape)};
  if (what.normed) tensor.norm = HeadNorm{.epsilon = 1e-6};
  return tensor;
}

}  // namespace

std::uint64_t RopeCase::tensor_bytes() const {
  const std::uint64_t all_heads = std::accumulate(heads.begin(), heads.end(), std::uint64_t{0});
  return tokens * all_heads * head_dim * info(dtype).bytes;
}

std::uint64_t RopeCase::copy_bytes() const { return tensor_bytes() * (in_place ? 1 : 2); }

Work rope_work(Place& place, const RopeCase& what) {
  struct Calls {
    Rotary rotary;
    std::vector<RopeTensor> tensors;
    std::vector<std::int64_t> positions;
  };
  const std::uint64_t copies = copies_for(what.rotated_bytes, what.copy_bytes());
  place.take(copies * what.copy_bytes());
  const auto calls = std::make_shared<Calls>(Calls{.rotary = what.rotary, .tensors = {}, .positions = {}});
  for (std::uint64_t copy = 0; copy < copies; ++copy) {
    for (const std::uint64_t heads : what.heads) calls->tensors.push_back(tensor_of(place.device, what, heads));
  }
  calls->positions.resize(what.tokens);
  std::iota(calls->positions.begin(), calls->positions.end(), what.first_position);
  const auto record = [calls, count = what.heads.size()](Encoder& encoder, std::uint64_t copy) {
    rope(encoder, {.tensors = std::span(calls->tensors).subspan(count * copy, count),
                   .positions = calls->positions,
                   .rotary = calls->rotary});
  };
  return {.bytes = 2 * what.tensor_bytes(), .run = rotating(place.device, copies, record)};
}

}  // namespace rota::bench
