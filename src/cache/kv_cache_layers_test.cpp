#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "harness/kv_cache_calls.h"
#include "harness/on_device.h"
#include "rota/rota.h"

// Long steps, which are dense in one layer at a time.

namespace rota::test {
namespace {

constexpr std::uint64_t kDim = 16;
constexpr std::array kLayers{1U, 0U, 2U, 4U, 3U};

class KvCacheLayers : public KvCacheCalls {
 protected:
  KvCacheSpec spec(LayerOrder order) const {
    KvGroup sealed = small_group();
    sealed.tail = 100;
    KvGroup windowed = small_group();
    windowed.layers = {2};
    windowed.window = 200;
    KvGroup later = small_group();  // seals at other times
    later.layers = {3, 4};
    later.tail = 132;
    return {.groups = {sealed, windowed, later},
            .max_tokens = 10'000,
            .max_sequences = 2,
            .max_step_tokens = 10'000,
            .layer_order = order};
  }

  // Token t of a layer is the same in every chunk.
  View tokens(std::uint32_t layer, std::uint64_t first, std::uint64_t count) {
    std::vector<float> numbers(count * kDim);
    for (std::uint64_t i = 0; i < numbers.size(); ++i) {
      const std::uint64_t token = first + i / kDim;
      numbers[i] = static_cast<float>((token * 7919 + i % kDim * 104729 + layer * 31) % 511) * 0.0078125F - 2;
    }
    Buffer buffer = device.allocate(numbers.size() * sizeof(float)).value();
    buffer.write(std::as_bytes(std::span(numbers))).value();
    return View::token_major(buffer, DType::f32, {.tokens = count, .heads = 1, .dim = kDim});
  }

  void append(Encoder& encoder, KvStep& step, std::uint32_t layer) {
    const View x = tokens(layer, static_cast<std::uint64_t>(step.positions().front()), step.positions().size());
    step.append(encoder, layer, x, x);
  }

  void extend(KvCache& cache, Sequence sequence, std::uint64_t count) {
    Encoder encoder = device.encoder();
    KvStep step = cache.extend(encoder, sequence, count).value();
    for (const std::uint32_t layer : kLayers) append(encoder, step, layer);
    ASSERT_OK(std::move(encoder).submit());
  }

  void settle(KvCache& cache) {
    Encoder encoder = device.encoder();
    ASSERT_OK(cache.settle(encoder));
    ASSERT_OK(std::move(encoder).submit());
  }

  // All that a layer keeps of a sequence, by position.
  static std::vector<std::byte> contents(const KvCache& cache, Sequence sequence, std::uint32_t layer) {
    const KvView view = cache.view({&sequence, 1}, layer).value();
    std::vector<std::byte> all;
    for (const KvSideView& side : {view.k, view.v}) {
      const KvPages& pages = *side.sequences.front();
      const auto add = [&](const Buffer& buffer, std::uint64_t at, std::uint64_t bytes) {
        std::vector<std::byte> page(buffer.size_bytes());
        buffer.read(page).value();
        all.insert(all.end(), page.begin() + static_cast<std::ptrdiff_t>(at),
                   page.begin() + static_cast<std::ptrdiff_t>(at + bytes));
      };
      for (std::uint64_t page = pages.first_page; page < pages.sealed_pages; ++page) {
        const SealedView& sealed = *side.sealed;
        add(sealed.buffer, sealed.offset_bytes + pages.page_table[page - pages.first_page] * sealed.page_stride_bytes,
            page_bytes(sealed.format));
      }
      const auto add_slots = [&](const SlotView& slots, std::uint64_t page, std::uint64_t count) {
        add(slots.buffer, 2 * (slots.offset + page * slots.page_stride), 2 * count * kDim);
      };
      for (std::uint64_t at = pages.sealed_pages * 64; at < view.lengths.front(); at += 64) {
        add_slots(side.dense, pages.page_table[at / 64 - pages.first_page],
                  std::min<std::uint64_t>(64, view.lengths.front() - at));
      }
      if (pages.sinks) add_slots(*side.sinks, *pages.sinks, side.sinks->shape.page_slots);
    }
    return all;
  }
};

TEST_F(KvCacheLayers, TheSameTokensEndAsTheSameBytesWhateverTheChunks) {
  constexpr std::uint64_t kTokens = 4'000;
  std::vector<std::vector<std::byte>> wanted;
  for (int kind = 0; kind < 4; ++kind) {
    for (const std::uint64_t chunk : {1U, 7U, 128U, 512U, 2048U, 10'000U}) {
      KvCacheSpec of_kind = spec(kind % 2 == 0 ? LayerOrder::in_turn : LayerOrder::together);
      if (kind >= 2) of_kind.seal_within = 64;
      KvCache cache = make(of_kind);
      const Sequence sequence = cache.open_sequence().value();
      for (std::uint64_t done = 0; done < kTokens; done += chunk) {
        extend(cache, sequence, std::min<std::uint64_t>(chunk, kTokens - done));
      }
      settle(cache);
      std::vector<std::vector<std::byte>> found;
      for (const std::uint32_t layer : kLayers) found.push_back(contents(cache, sequence, layer));
      if (wanted.empty()) wanted = found;
      EXPECT_TRUE(found == wanted) << "chunks of " << chunk;
      EXPECT_EQ(cache.counters().step.used, 0U);
    }
  }
}

// Drafts are taken back all the time: no call seals more than its share of layers.
TEST_F(KvCacheLayers, SpeculativeDecodingKeepsThePace) {
  KvGroup group = small_group();
  group.layers = first_layers(16);
  KvCache cache = make({.groups = {group}, .max_tokens = 1000, .seal_within = 64});
  const Sequence sequence = cache.open_sequence().value();
  const auto sealed_pages = [&] {
    std::uint64_t sum = 0;
    for (const std::uint32_t layer : group.layers) {
      sum += cache.view({&sequence, 1}, layer)->k.sequences.front()->sealed_pages;
    }
    return sum;
  };
  std::uint64_t before = 0;
  std::uint64_t most = 0;
  const auto look = [&] {
    const std::uint64_t now = sealed_pages();
    most = std::max(most, now - before);
    before = now;
  };
  for (std::uint64_t length = 0; length < 600; ++length) {
    ASSERT_OK(KvCacheCalls::extend(cache, {{sequence, 4}}));
    look();
    Encoder encoder = device.encoder();
    ASSERT_OK(cache.truncate(encoder, sequence, length + 1));
    ASSERT_OK(std::move(encoder).submit());
    look();
  }
  EXPECT_LE(most, 2U) << "of 16 layers, in one call";
  EXPECT_GE(before, 16U * 7);
}

// As Gemma 3n: its last layers see the keys and values of the last ones that have some, of either kind.
TEST_F(KvCacheLayers, SharedLayersSeeTheLayerThatTheyShare) {
  KvCacheSpec shares = spec(LayerOrder::in_turn);
  shares.groups[0].shared = {{20, 1}, {22, 1}};
  shares.groups[1].shared = {{21, 2}};
  KvCache cache = make(shares);
  const Sequence sequence = cache.open_sequence().value();
  Encoder encoder = device.encoder();
  KvStep step = cache.extend(encoder, sequence, 1000).value();  // long, so that layers take turns
  for (const std::uint32_t layer : {0U, 1U, 2U}) append(encoder, step, layer);
  EXPECT_FALSE(step.view(0).ok()) << "layer 1 took its turn";
  const auto expect_same = [&](std::uint32_t shared, std::uint32_t own) {
    const auto found = step.view(shared);
    const auto wanted = step.view(own);
    ASSERT_OK(found);
    ASSERT_OK(wanted);
    EXPECT_EQ(found->k.sequences, wanted->k.sequences);
    EXPECT_EQ(found->k.dense.offset, wanted->k.dense.offset);
    EXPECT_EQ(found->v.dense.offset, wanted->v.dense.offset);
    EXPECT_EQ(found->window, wanted->window);
    EXPECT_EQ(cache.view({&sequence, 1}, shared)->k.sequences, wanted->k.sequences);
  };
  expect_same(20, 1);
  expect_same(21, 2);  // of another group: both are still there
  expect_same(22, 1);
  step.append(encoder, 20, tokens(0, 0, 1000), tokens(0, 0, 1000));
  ASSERT_FALSE(encoder.status().ok());
  EXPECT_NE(encoder.status().error().message.find("20, which shares the cache of layer 1"), std::string::npos);
}

TEST_F(KvCacheLayers, ALayerWaitsForTheEncoderOfTheOneBefore) {
  KvCache cache = make(spec(LayerOrder::in_turn));
  const Sequence sequence = cache.open_sequence().value();
  Encoder begin = device.encoder();
  KvStep step = cache.extend(begin, sequence, 900).value();
  ASSERT_OK(std::move(begin).submit());
  std::optional<Encoder> first(device.encoder());
  append(*first, step, 0);
  {
    Encoder second = device.encoder();
    append(second, step, 1);
    expect_error(second.status(), Errc::busy, {"at layer 0", "another encoder that is not submitted"});
  }
  ASSERT_OK(std::move(*first).submit());
  {
    // A layer that was done in an encoder that is dropped is not.
    Encoder dropped = device.encoder();
    append(dropped, step, 1);
    expect_error(step.view(0), Errc::invalid_argument, {"layer is 0, which is done"});
  }
  EXPECT_OK(step.view(0));
  Encoder rest = device.encoder();
  step.done(rest, 0);
  step.done(rest, 0);
  for (const std::uint32_t layer : {1U, 2U, 3U, 4U}) append(rest, step, layer);
  ASSERT_OK(std::move(rest).submit());
  settle(cache);

  KvCache other = make(spec(LayerOrder::together));
  const Sequence same = other.open_sequence().value();
  extend(other, same, 900);
  settle(other);
  for (const std::uint32_t layer : kLayers) {
    EXPECT_TRUE(contents(cache, sequence, layer) == contents(other, same, layer)) << layer;
  }
}

TEST_F(KvCacheLayers, DoneIsRefusedBeforeTheAppendAndForNoLayer) {
  KvCache cache = make(spec(LayerOrder::in_turn));
  const Sequence sequence = cache.open_sequence().value();
  for (const std::uint32_t layer : {1U, 9U}) {
    Encoder encoder = device.encoder();
    KvStep step = cache.extend(encoder, sequence, 900).value();
    append(encoder, step, 0);
    step.done(encoder, layer);
    expect_error(encoder.status(), Errc::invalid_argument,
                 {layer == 9 ? "layer is 9; wanted one of the 5" : "layer is 1, which was not appended"});
  }
}

// Page 0 is due with 64 + 64 tokens. Eight later it is sealed in all four layers, and nobody else's steps hasten it.
TEST_F(KvCacheLayers, APageIsSealedAtAPace) {
  KvGroup group = small_group();
  group.layers = {0, 1, 2, 3};
  KvCache cache = make({.groups = {group}, .max_tokens = 2000, .max_sequences = 2, .seal_within = 8});
  const auto sealed_layers = [&](Sequence sequence) {
    std::uint64_t layers = 0;
    for (const std::uint32_t layer : group.layers) {
      const KvView view = cache.view({&sequence, 1}, layer).value();
      EXPECT_EQ(view.k.sequences.front()->sealed_pages, view.v.sequences.front()->sealed_pages);
      layers += view.k.sequences.front()->sealed_pages;
    }
    return layers;
  };
  const auto add_token = [&](Sequence sequence) { ASSERT_OK(KvCacheCalls::extend(cache, {{sequence, 1}})); };
  const Sequence sequence = sequence_of(cache, 127);
  const Sequence other = sequence_of(cache, 3);
  add_token(sequence);
  EXPECT_EQ(sealed_layers(sequence), 0U);
  for (std::uint64_t since = 1; since <= 10; ++since) {
    add_token(other);
    add_token(sequence);
    EXPECT_EQ(sealed_layers(sequence), std::min<std::uint64_t>((4 * since + 7) / 8, 4)) << since;
    EXPECT_EQ(cache.counters().seals, since < 7 ? 0U : 2U);
    EXPECT_EQ(cache.counters().sealed.used, 2U);
  }
  // A token that is dropped takes its layers back; what settles does not wait.
  while (cache.length(sequence).value() < 193) add_token(sequence);
  EXPECT_EQ(sealed_layers(sequence), 4U + 1);
  {
    Encoder dropped = device.encoder();
    for (int i = 0; i < 3; ++i) {
      KvStep step = cache.extend(dropped, sequence, 1).value();
      KvCacheCalls::append(dropped, step, {0, 1, 2, 3});
    }
    EXPECT_EQ(sealed_layers(sequence), 4U + 2);
  }
  EXPECT_EQ(sealed_layers(sequence), 4U + 1);
  Encoder both = device.encoder();
  for (int i = 0; i < 3; ++i) {
    KvStep step = cache.extend(both, sequence, 1).value();
    KvCacheCalls::append(both, step, {0, 1, 2, 3});
  }
  ASSERT_OK(std::move(both).submit());
  EXPECT_EQ(sealed_layers(sequence), 4U + 2);
  EXPECT_OK(cache.wait(sequence, std::chrono::milliseconds(0)));
  settle(cache);
  EXPECT_EQ(sealed_layers(sequence), 4U + 4);
  EXPECT_EQ(cache.counters().seals, 4U);
}

// Where the ends of pages and tails meet, with sequences that wait for each other.
TEST_F(KvCacheLayers, WithinItsBudgetASequenceFindsPagesAtEveryEdge) {
  for (int kind = 0; kind < 6; ++kind) {
    for (const std::uint64_t tail : {0U, 1U, 2U, 63U, 64U, 65U, 100U}) {
      for (const auto& [sequences, step] :
           {std::pair(1U, 1U), std::pair(1U, 65U), std::pair(8U, 8U), std::pair(20U, 40U)}) {
        SCOPED_TRACE(std::to_string(kind) + ": tail " + std::to_string(tail) + ", step " + std::to_string(step));
        KvGroup group = small_group();
        group.tail = tail;
        if (kind == 4) group.window = 100;
        if (kind == 5) group.k = group.v = DType::f16;
        if (kind == 5) group.window = 100;
        KvCacheSpec of_kind{.groups = {group},
                            .max_tokens = std::uint64_t{300} * sequences,
                            .max_sequences = sequences,
                            .max_step_tokens = step,
                            .layer_order = kind % 2 == 0 ? LayerOrder::in_turn : LayerOrder::together};
        if (kind == 2 || kind == 3) of_kind.seal_within = 8;
        KvCache cache = make(of_kind);
        std::vector<KvExtension> all;
        for (std::uint32_t i = 0; i < sequences; ++i) all.push_back({cache.open_sequence().value(), step / sequences});
        // All at once if a step has a token for each, else one after the other up to the same length.
        for (std::uint64_t length = 0; length + step < 300; length += std::max<std::uint64_t>(step / sequences, 1)) {
          if (sequences <= step && length % 3 != 0) {
            ASSERT_OK(KvCacheCalls::extend(cache, all));
            continue;
          }
          for (const KvExtension& one : all) {
            ASSERT_OK(KvCacheCalls::extend(cache, {{one.sequence, std::max<std::uint64_t>(step / sequences, 1)}}));
          }
        }
        // Idle sequences with a page that has just become due.
        for (const KvExtension& one : all) {
          const std::uint64_t left = 300 - cache.length(one.sequence).value();
          ASSERT_OK(KvCacheCalls::extend(cache, {{one.sequence, std::min<std::uint64_t>(left, step)}}));
        }
      }
    }
  }
}

// A page that is sealed at a pace stays dense while its sequence is idle, however few tokens it would take.
TEST_F(KvCacheLayers, WithinItsBudgetIdleSequencesKeepPagesThatAreDue) {
  for (const LayerOrder order : {LayerOrder::in_turn, LayerOrder::together}) {
    KvGroup group = small_group();
    group.tail = 100;
    KvCache cache = make({.groups = {group},
                          .max_tokens = 10'000,
                          .max_sequences = 20,
                          .max_step_tokens = 40,
                          .layer_order = order,
                          .seal_within = 8});
    std::vector<Sequence> sequences;
    for (int i = 0; i < 20; ++i) sequences.push_back(sequence_of(cache, 163));
    for (const Sequence sequence : sequences) ASSERT_OK(KvCacheCalls::extend(cache, {{sequence, 30}}));
    const KvView view = cache.view({&sequences.front(), 1}, 0).value();
    // In turn the step was a long one.
    EXPECT_EQ(view.k.sequences.front()->sealed_pages, order == LayerOrder::together ? 0U : 1U);
  }
}

// Pages that a fork shares are not written, though the step has sealed them.
TEST_F(KvCacheLayers, ALongStepLeavesPagesOfAForkAlone) {
  KvCacheSpec with_forks = spec(LayerOrder::in_turn);
  with_forks.max_sequences = 3;
  KvCache cache = make(with_forks);
  const Sequence sequence = cache.open_sequence().value();
  extend(cache, sequence, 192);
  Encoder forking = device.encoder();
  const Sequence fork = cache.fork(forking, sequence).value();
  ASSERT_OK(std::move(forking).submit());
  std::map<std::uint32_t, std::vector<std::byte>> before;
  for (const std::uint32_t layer : kLayers) before[layer] = contents(cache, fork, layer);
  extend(cache, sequence, 2'000);
  settle(cache);
  for (const std::uint32_t layer : kLayers) EXPECT_TRUE(contents(cache, fork, layer) == before[layer]) << layer;
}

// The same as one after the other.
TEST_F(KvCacheLayers, TokensOfSequencesMayBeMixed) {
  KvCache cache = make(spec(LayerOrder::in_turn));
  const Sequence a = cache.open_sequence().value();
  const Sequence b = cache.open_sequence().value();
  extend(cache, a, 150);
  Encoder encoder = device.encoder();
  const std::vector<KvExtension> mixed{{b, 70}, {a, 100}, {b, 5}, {a, 1}, {b, 1}};
  KvStep step = cache.extend(encoder, mixed).value();
  for (const std::uint32_t layer : kLayers) {
    std::vector<std::byte> bytes;
    std::uint64_t next = 0;
    for (const KvExtension& extension : mixed) {
      const std::uint64_t count = extension.tokens;
      const View part = tokens(layer, static_cast<std::uint64_t>(step.positions()[next]), count);
      std::vector<std::byte> of_part(part.buffer.size_bytes());
      part.buffer.read(of_part).value();
      bytes.insert(bytes.end(), of_part.begin(), of_part.end());
      next += count;
    }
    Buffer source = device.allocate(bytes.size()).value();
    source.write(bytes).value();
    const View x = View::token_major(source, DType::f32, {.tokens = next, .heads = 1, .dim = kDim});
    step.append(encoder, layer, x, x);
    EXPECT_EQ(step.view(layer)->lengths, (std::vector<std::uint64_t>{70, 250, 75, 251, 76}));
  }
  ASSERT_OK(std::move(encoder).submit());
  settle(cache);

  KvCache other = make(spec(LayerOrder::together));
  for (const auto& [sequence, length] : {std::pair(a, 251U), std::pair(b, 76U)}) {
    const Sequence same = other.open_sequence().value();
    extend(other, same, length);
    settle(other);
    for (const std::uint32_t layer : kLayers) {
      EXPECT_TRUE(contents(cache, sequence, layer) == contents(other, same, layer)) << layer;
    }
  }
}

}  // namespace
}  // namespace rota::test
