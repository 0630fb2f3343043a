#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "harness/elements.h"
#include "harness/guarded.h"
#include "harness/on_device.h"
#include "rota/rota.h"

// For tests: `store` as its definition says it, one element after the other, newest last.

namespace rota::test {

struct Sequence {
  std::uint64_t tokens, position, capacity;
  std::vector<std::uint32_t> page_table = {};
  WhenFull when_full = WhenFull::wrap;

  TokenRun run() const {
    return {
        .tokens = tokens, .position = position, .capacity = capacity, .page_table = page_table, .when_full = when_full};
  }
};

inline std::vector<TokenRun> runs_of(const std::vector<Sequence>& sequences) {
  std::vector<TokenRun> runs;
  for (const Sequence& sequence : sequences) runs.push_back(sequence.run());
  return runs;
}

// One pair with host copies of its memory: what the source holds, and what the target must become.
class PairUnderTest {
 public:
  struct Layout {
    DType dtype = DType::f32;
    std::uint64_t elements = 0;  // that the view reaches
  };

  PairUnderTest(Device& device, std::mt19937_64& random, Layout from_layout, Layout to_layout)
      : from_(device, from_layout.elements, from_layout.dtype),
        to_(device, to_layout.elements, to_layout.dtype),
        source_(random_elements(random, from_layout.dtype, from_layout.elements)),
        wanted_(to_.read()) {
    from_.write(source_);
    view.from.buffer = from_.buffer;
    view.from.dtype = from_layout.dtype;
    view.from.offset = from_.offset;
    view.to.buffer = to_.buffer;
    view.to.dtype = to_layout.dtype;
    view.to.offset = to_.offset;
  }

  // Strides and shapes are the caller's to set.
  StorePair view;

  // Returns how many of the elements that stay are infinite or NaN.
  std::uint64_t store_by_definition(const std::vector<Sequence>& sequences) {
    const auto& [from, to] = view;
    std::uint64_t token = 0;
    std::uint64_t non_finite = 0;
    for (const Sequence& sequence : sequences) {
      for (std::uint64_t i = 0; i < sequence.tokens; ++i, ++token) {
        const bool stays = sequence.tokens - i <= sequence.capacity;
        const std::uint64_t slot = (sequence.position + i) % sequence.capacity;
        const std::uint64_t page = sequence.page_table.empty() ? 0 : sequence.page_table[slot / to.shape.page_slots];
        for (std::uint64_t h = 0; h < from.shape.heads; ++h) {
          for (std::uint64_t d = 0; d < from.shape.dim; ++d) {
            const std::uint64_t source =
                from.offset - from_.offset + token * from.token_stride + h * from.head_stride + d * from.dim_stride;
            const std::uint64_t target = to.offset - to_.offset + page * to.page_stride +
                                         slot % to.shape.page_slots * to.slot_stride + h * to.head_stride +
                                         d * to.dim_stride;
            const std::uint32_t bits = convert_bits(load_bits(source_, from.dtype, source), from.dtype, to.dtype);
            save_bits(wanted_, to.dtype, target, bits);
            if (stays && !std::isfinite(value_of(bits, to.dtype))) ++non_finite;
          }
        }
      }
    }
    return non_finite;
  }

  void expect_as_defined() const {
    EXPECT_EQ(to_.read(), wanted_);
    EXPECT_EQ(from_.read(), source_);
    EXPECT_TRUE(from_.guards_intact());
    EXPECT_TRUE(to_.guards_intact());
  }

  bool is_as_defined() const {
    return to_.read() == wanted_ && from_.read() == source_ && from_.guards_intact() && to_.guards_intact();
  }

 private:
  Guarded from_, to_;
  std::vector<std::byte> source_, wanted_;
};

// A pair whose two sides are laid out by the named helpers.
enum class Order { token_major, head_major };

struct PlainPair {
  DType from = DType::f32, to = DType::f16;
  Order from_order = Order::token_major, to_order = Order::head_major;
  std::uint64_t tokens = 1;
  SlotShape pool = {};
};

inline PairUnderTest make_pair(Device& device, std::mt19937_64& random, const PlainPair& plain) {
  const SlotShape& pool = plain.pool;
  const Shape shape{.tokens = plain.tokens, .heads = pool.heads, .dim = pool.dim};
  PairUnderTest pair(device, random, {plain.from, shape.tokens * shape.heads * shape.dim},
                     {plain.to, pool.pages * pool.page_slots * pool.heads * pool.dim});
  const auto [from_offset, to_offset] = std::pair(pair.view.from.offset, pair.view.to.offset);
  pair.view.from = plain.from_order == Order::token_major ? View::token_major(pair.view.from.buffer, plain.from, shape)
                                                          : View::head_major(pair.view.from.buffer, plain.from, shape);
  pair.view.to = plain.to_order == Order::token_major ? SlotView::token_major(pair.view.to.buffer, plain.to, pool)
                                                      : SlotView::head_major(pair.view.to.buffer, plain.to, pool);
  pair.view.from.offset = from_offset;
  pair.view.to.offset = to_offset;
  return pair;
}

inline Status run_store(Device& device, const std::vector<StorePair>& pairs, const std::vector<TokenRun>& runs,
                        const std::optional<Counter>& non_finite = {}) {
  return run_on(
      device, [&](Encoder& encoder) { store(encoder, {.pairs = pairs, .sequences = runs, .non_finite = non_finite}); });
}

}  // namespace rota::test
