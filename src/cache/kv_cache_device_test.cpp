#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "cache/kv_cache_run_reference.h"
#include "cache/kv_cache_saved_reference.h"
#include "harness/numbers.h"
#include "harness/on_device.h"
#include "runtime/inside.h"

namespace rota::test {
namespace {

class KvCacheOnDevice : public OnDevice {};

TEST_F(KvCacheOnDevice, AgreesWithPlainListsAfterEveryRandomStep) {
  // Attention would take a pipeline for every codec here; it is looked at in every step of the same kind on the CPU.
  cache::reference::run_random_steps(device, {.steps = 2000, .first_seed = 500'000, .attend_every = 0});
}

// One layer of one head, dense, whose pages leave behind a window of 100 keys.
class KvCacheWindow : public KvCacheOnDevice {
 protected:
  static constexpr std::uint64_t kDim = 32, kWindow = 100, kTail = 16, kMostTokens = 300;

  KvCache make(LayerOrder order) {
    const KvGroup group{.layers = {0},
                        .kv_heads = 1,
                        .head_dim = kDim,
                        .k = DType::f32,
                        .v = DType::f32,
                        .page = 64,
                        .tail = kTail,
                        .window = kWindow};
    return KvCache::create(device, {.groups = {group}, .max_tokens = 2000, .max_sequences = 2, .layer_order = order})
        .value();
  }

  static std::vector<float> draw(std::uint64_t seed) { return normal_numbers(seed, kMostTokens * kDim); }
  static View tokens(const Buffer& buffer, std::uint64_t count) {
    return View::token_major(buffer, DType::f32, {.tokens = count, .heads = 1, .dim = kDim});
  }

  KvStep extend(KvCache& cache, Encoder& encoder, Sequence sequence, std::uint64_t count) {
    KvStep step = cache.extend(encoder, sequence, count).value();
    step.append(encoder, 0, tokens(k_buffer, count), tokens(v_buffer, count));
    return step;
  }

  // Attends with the newest tokens; the query of position p is q[p].
  Result<std::vector<float>> attend_to(const KvView& view, std::uint64_t query_tokens) {
    Buffer out = device.allocate(query_tokens * kDim * sizeof(float)).value();
    Encoder encoder = device.encoder();
    View queries = tokens(q_buffer, query_tokens);
    queries.offset = (view.lengths.front() - query_tokens) * kDim;
    attend(encoder, {.q = queries,
                     .kv = view,
                     .out = MutView::token_major(out, DType::f32, {.tokens = query_tokens, .heads = 1, .dim = kDim}),
                     .scale = 0.2,
                     .query_tokens = {&query_tokens, 1}});
    auto fence = std::move(encoder).submit();
    if (!fence) return fence.error();
    if (Status status = fence->wait(); !status) return status.error();
    std::vector<float> found(query_tokens * kDim);
    out.read(std::as_writable_bytes(std::span(found))).value();
    return found;
  }

  // By the definition: position p sees the newest kWindow keys up to itself, of a sequence whose token p is k[p], v[p].
  void expect_outputs(const Result<std::vector<float>>& found, std::uint64_t length) {
    ASSERT_OK(found);
    const std::uint64_t query_tokens = found->size() / kDim;
    for (std::uint64_t query = 0; query < query_tokens; ++query) {
      const std::uint64_t position = length - query_tokens + query;
      std::vector<double> out(kDim);
      double sum = 0;
      for (std::uint64_t key = position + 1 - std::min(position + 1, kWindow); key <= position; ++key) {
        double logit = 0;
        for (std::uint64_t d = 0; d < kDim; ++d)
          logit += static_cast<double>(q[position * kDim + d]) * static_cast<double>(k[key * kDim + d]);
        const double weight = std::exp(0.2 * logit);
        sum += weight;
        for (std::uint64_t d = 0; d < kDim; ++d) out[d] += weight * static_cast<double>(v[key * kDim + d]);
      }
      double worst = 0;
      for (std::uint64_t d = 0; d < kDim; ++d) {
        worst = std::max(worst, std::abs(static_cast<double>((*found)[query * kDim + d]) - out[d] / sum));
      }
      ASSERT_LT(worst, 1e-4) << "position " << position;
    }
  }

  const std::vector<float> q = draw(1), k = draw(2), v = draw(3);
  const Buffer q_buffer = upload(device, q), k_buffer = upload(device, k), v_buffer = upload(device, v);
};

TEST_F(KvCacheWindow, EveryQueryOfAStepSeesItsKeysUntilTheLayerIsDone) {
  for (const bool said : {true, false}) {
    KvCache cache = make(LayerOrder::in_turn);
    const Sequence sequence = cache.open_sequence().value();
    Encoder encoder = device.encoder();
    KvStep step = extend(cache, encoder, sequence, 300);
    ASSERT_OK(std::move(encoder).submit());
    expect_outputs(attend_to(step.view(0).value(), 300), 300);
    EXPECT_GT(cache.counters().step.used, 0U);
    Encoder next = device.encoder();
    if (said) {
      step.done(next, 0);
    } else {
      ASSERT_OK(cache.settle(next));
    }
    ASSERT_OK(std::move(next).submit());
    expect_error(step.view(0), Errc::invalid_argument, {"layer is 0, which is done"});
    const KvView view = cache.view({&sequence, 1}, 0).value();
    ASSERT_EQ(view.k.sequences.front()->first_page, (300 - kTail - kWindow) / 64);
    expect_outputs(attend_to(view, 1 + kTail), 300);
    Encoder settling = device.encoder();
    ASSERT_OK(cache.settle(settling));
    ASSERT_OK(std::move(settling).submit());
    EXPECT_EQ(cache.counters().step.used, 0U);
    expect_outputs(attend_to(view, 1 + kTail), 300);
  }
}

TEST_F(KvCacheWindow, EveryQueryOfAStepThatIsHeldSeesItsKeys) {
  for (const bool by_another : {true, false}) {
    KvCache cache = make(LayerOrder::together);
    const Sequence sequence = cache.open_sequence().value();
    const Sequence other = cache.open_sequence().value();
    Encoder encoder = device.encoder();
    std::optional<KvStep> step = extend(cache, encoder, sequence, 300);
    if (by_another) {
      (void)extend(cache, encoder, other, 1);
    } else {
      ASSERT_OK(cache.settle(encoder));
    }
    ASSERT_OK(std::move(encoder).submit());
    expect_outputs(attend_to(step->view(0).value(), 300), 300);

    // Given up, the step keeps nothing: what can still come is there, and queries that would see more are refused.
    step.reset();
    Encoder next = device.encoder();
    ASSERT_OK(cache.settle(next));
    ASSERT_OK(std::move(next).submit());
    const KvView view = cache.view({&sequence, 1}, 0).value();
    ASSERT_EQ(view.k.sequences.front()->first_page, (300 - kTail - kWindow) / 64);
    expect_outputs(attend_to(view, 1 + kTail), 300);
    expect_outputs(attend_to(view, 300 + 1 - 128 - kWindow), 300);
    expect_error(attend_to(view, 300 + 2 - 128 - kWindow), Errc::invalid_argument,
                 {"query_tokens[0] is 74", "sees position 127 and on", "nothing before position 128"});
    expect_error(attend_to(view, 300), Errc::invalid_argument, {"query_tokens[0] is 300", "sees position 0 and on"});
  }
}

TEST_F(KvCacheWindow, ATruncationInsideTheTailLeavesWholeWhatTheShorterSequenceSees) {
  for (const bool settled : {true, false}) {
    KvCache cache = make(LayerOrder::together);
    const Sequence sequence = cache.open_sequence().value();
    constexpr std::uint64_t kTokens = 64 + kTail + kWindow - 1;
    Encoder encoder = device.encoder();
    (void)extend(cache, encoder, sequence, kTokens);
    ASSERT_OK(std::move(encoder).submit());
    Encoder later = device.encoder();
    if (settled) ASSERT_OK(cache.settle(later));
    ASSERT_OK(cache.truncate(later, sequence, kTokens - kTail));
    ASSERT_OK(std::move(later).submit());
    expect_outputs(attend_to(cache.view({&sequence, 1}, 0).value(), 1), kTokens - kTail);
  }
}

// 150 MB in each pool: more than one view may span on some devices, so that layers lie in several buffers.
class KvCacheInSeveralBuffers : public KvCacheOnDevice {
 protected:
  static constexpr std::uint32_t kLayers = 3, kHeads = 16, kDim = 256;
  static constexpr std::uint64_t kTokens = 130;
  static constexpr std::uint64_t kVector = kHeads * kDim;

  static std::vector<float> draw() {
    std::mt19937_64 random(5);
    std::vector<float> numbers(kLayers * kTokens * kVector);
    for (float& number : numbers) number = static_cast<float>(static_cast<int>(random() % 255) - 127) * 0.03125F;
    return numbers;
  }

  const float* wanted(std::uint32_t layer, std::uint64_t token, std::uint64_t head) const {
    return numbers.data() + (layer * kTokens + token) * kVector + head * kDim;
  }

  static std::vector<float> vector_at(const SlotView& slots, std::uint64_t page, std::uint64_t slot,
                                      std::uint64_t head) {
    std::vector<float> values(kDim);
    const std::uint64_t at =
        slots.offset + page * slots.page_stride + slot * slots.slot_stride + head * slots.head_stride;
    slots.buffer.read(std::as_writable_bytes(std::span(values)), at * sizeof(float)).value();
    return values;
  }

  void store_all(Encoder& encoder, KvStep& step) {
    Buffer source = device.allocate(numbers.size() * sizeof(float)).value();
    ASSERT_OK(source.write(std::as_bytes(std::span(numbers))));
    for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
      View x = View::token_major(source, DType::f32, {.tokens = kTokens, .heads = kHeads, .dim = kDim});
      x.offset = layer * kTokens * kVector;
      step.append(encoder, layer, x, x);
    }
  }

  // Values and sinks are as they were stored, keys that were restored nearly so.
  void expect_dense(const KvView& view, std::uint32_t layer, std::uint64_t head) const {
    const KvPages& keys = *view.k.sequences.front();
    for (const std::uint64_t token : {0U, 63U, 64U, 99U}) {
      const std::uint32_t page = view.v.sequences.front()->page_table[token / 64];
      const auto found = vector_at(view.v.dense, page, token % 64, head);
      EXPECT_TRUE(std::equal(found.begin(), found.end(), wanted(layer, token, head))) << "value " << token;
    }
    for (const std::uint64_t token : {0U, 3U}) {
      const auto found = vector_at(*view.k.sinks, *keys.sinks, token, head);
      EXPECT_TRUE(std::equal(found.begin(), found.end(), wanted(layer, token, head))) << "sink " << token;
    }
    for (const std::uint64_t token : {64U, 99U}) {
      const auto found = vector_at(view.k.dense, keys.page_table[1], token % 64, head);
      double error = 0;
      double energy = 0;
      for (std::uint64_t d = 0; d < kDim; ++d) {
        error += std::pow(found[d] - wanted(layer, token, head)[d], 2);
        energy += std::pow(wanted(layer, token, head)[d], 2);
      }
      EXPECT_LT(error, 1e-4 * energy) << "key " << token << " at 8 bits";
    }
  }

  // The first page of keys, to the byte.
  void expect_sealed(const KvView& view, std::uint32_t layer, std::uint64_t head) const {
    const SealedView& sealed = *view.k.sealed;
    std::vector<std::uint16_t> halves;
    for (std::uint64_t token = 0; token < 64; ++token) {
      const float* const key = wanted(layer, token, head);
      std::transform(key, key + kDim, std::back_inserter(halves), f16_from_f32);
    }
    std::vector<std::byte> page(page_bytes(sealed.format));
    const std::uint32_t physical = view.k.sequences.front()->page_table[0];
    ASSERT_OK(sealed.buffer.read(
        page, sealed.offset_bytes + physical * sealed.page_stride_bytes + head * sealed.head_stride_bytes));
    EXPECT_EQ(page, ops::reference::Sealer(sealed.format).seal(halves, 4));
  }

  const std::vector<float> numbers = draw();  // [layer][token][head][dim]; keys and values alike
  KvCache cache = KvCache::create(device, {.groups = {{.layers = first_layers(kLayers),
                                                       .kv_heads = kHeads,
                                                       .head_dim = kDim,
                                                       .k = turbo(8),
                                                       .v = DType::f32,
                                                       .dense = DType::f32,
                                                       .page = 64,
                                                       .tail = 0}},
                                           .max_tokens = 3000,
                                           .max_step_tokens = 1000})
                      .value();
};

TEST_F(KvCacheInSeveralBuffers, AllLayersAreStoredSealedAndRestored) {
  std::set<const void*> buffers;
  for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
    buffers.insert(runtime::Inside::of(cache.view({}, layer)->v.dense.buffer).get());
  }
  const std::uint64_t layer_bytes = cache.memory().groups[0].v.dense.bytes() / kLayers;
  EXPECT_EQ(buffers.size() > 1, kLayers * layer_bytes > device.info().limits.max_binding_bytes);

  const Sequence sequence = cache.open_sequence().value();
  Encoder encoder = device.encoder();
  KvStep step = cache.extend(encoder, sequence, kTokens).value();
  store_all(encoder, step);
  ASSERT_OK(cache.truncate(encoder, sequence, 100));  // seals two pages of keys, and restores half of the second
  ASSERT_OK(std::move(encoder).submit().value().wait());
  ASSERT_EQ(cache.counters().seals, 2U);
  ASSERT_EQ(cache.counters().unseals, 1U);
  for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
    const KvView view = cache.view({&sequence, 1}, layer).value();
    ASSERT_EQ(view.k.sequences.front()->sealed_pages, 1U);
    for (std::uint64_t head = 0; head < kHeads; ++head) {
      expect_dense(view, layer, head);
      expect_sealed(view, layer, head);
    }
  }
}

// Bytes leave a CPU and this device alike, and come back to either.
class KvCacheSavedOnDevice : public KvCacheOnDevice {
 protected:
  static constexpr std::uint64_t kDim = 32, kMostTokens = 700;

  static KvCacheSpec spec() {
    const KvGroup sealed{.layers = {0, 2}, .kv_heads = 2, .head_dim = kDim, .k = turbo(4), .v = turbo(3), .page = 64};
    const KvGroup windowed{
        .layers = {1}, .kv_heads = 2, .head_dim = kDim, .k = DType::f16, .v = turbo(8), .page = 64, .window = 200};
    return {.groups = {sealed, windowed}, .max_tokens = 4000, .max_sequences = 4, .max_step_tokens = kMostTokens};
  }

  // Token t is the same wherever it is computed.
  static View tokens(Device& on, std::uint64_t first, std::uint64_t count) {
    std::vector<float> numbers(count * 2 * kDim);
    for (std::uint64_t i = 0; i < numbers.size(); ++i) {
      const std::uint64_t at = first * 2 * kDim + i;
      numbers[i] = static_cast<float>((at * 2654435761U >> 7) % 1021) * 0.00390625F - 2;
    }
    Buffer buffer = on.allocate(numbers.size() * sizeof(float)).value();
    buffer.write(std::as_bytes(std::span(numbers))).value();
    return View::token_major(buffer, DType::f32, {.tokens = count, .heads = 2, .dim = kDim});
  }

  // Adds tokens, and returns what the newest of them sees in each layer.
  static std::vector<float> extend(Device& on, KvCache& cache, Sequence sequence, std::uint64_t count) {
    const std::uint64_t length = cache.length(sequence).value();
    const View x = tokens(on, length, count);
    Encoder encoder = on.encoder();
    KvStep step = cache.extend(encoder, sequence, count).value();
    Buffer out = on.allocate(3 * 2 * kDim * sizeof(float)).value();
    const std::uint64_t one = 1;
    for (const std::uint32_t layer : {0U, 1U, 2U}) {
      step.append(encoder, layer, x, x);
      MutView to = MutView::token_major(out, DType::f32, {.tokens = 1, .heads = 2, .dim = kDim});
      to.offset = layer * 2 * kDim;
      attend(encoder, {.q = x.slice(count - 1, 1),
                       .kv = step.view(layer).value(),
                       .out = to,
                       .scale = 0.125,
                       .query_tokens = {&one, 1}});
    }
    std::move(encoder).submit().value().wait().value();
    std::vector<float> found(3 * 2 * kDim);
    out.read(std::as_writable_bytes(std::span(found))).value();
    return found;
  }
};

TEST_F(KvCacheSavedOnDevice, ComesBackWithTheSameBits) {
  Device cpu = Device::open({.device = "cpu", .threads = 1}).value();
  KvCache here = KvCache::create(device, spec()).value();
  KvCache there = KvCache::create(cpu, spec()).value();
  const Sequence original = here.open_sequence().value();
  const Sequence on_cpu = there.open_sequence().value();
  for (const std::uint64_t count : {700U, 1U, 70U}) {
    extend(device, here, original, count);
    extend(cpu, there, on_cpu, count);
  }
  const auto bytes = cache::reference::saved_bytes(here, original).value();
  ASSERT_EQ(cache::reference::saved_bytes(there, on_cpu).value(), bytes) << "as on a CPU";
  const Sequence loaded = here.load(bytes)->sequence;
  const Sequence as_it_comes = here.load(source_of(bytes))->sequence;
  const Sequence moved = there.load(bytes)->sequence;
  for (const std::uint64_t count : {1U, 1U, 130U, 1U}) {
    const std::vector<float> wanted = extend(device, here, original, count);
    EXPECT_EQ(extend(device, here, loaded, count), wanted);
    EXPECT_EQ(extend(device, here, as_it_comes, count), wanted);
    EXPECT_EQ(extend(cpu, there, moved, count), extend(cpu, there, on_cpu, count));
  }
  const auto later = cache::reference::saved_bytes(here, original).value();
  EXPECT_NE(later, bytes);
  for (const Sequence sequence : {loaded, as_it_comes}) {
    EXPECT_EQ(cache::reference::saved_bytes(here, sequence).value(), later);
  }
  EXPECT_EQ(cache::reference::saved_bytes(there, moved).value(), later);
}

// DeepSeek's MLA with its keys absorbed: one KV head of 576 numbers, of which the first 512 are the value, and 128
// query heads.
class KvCacheMla : public KvCacheOnDevice {
 protected:
  static constexpr std::uint64_t kKeyDim = 576, kValueDim = 512, kHeads = 128, kTokens = 300;
  static constexpr double kScale = 1.0 / 24;

  static KvCacheSpec spec(bool v_in_k) {
    const KvGroup group{.layers = {0, 1}, .kv_heads = 1, .head_dim = kKeyDim, .value_dim = kValueDim, .v_in_k = v_in_k};
    return {.groups = {group}, .max_tokens = 1024, .max_step_tokens = kTokens};
  }

  // Numbers that f16 holds.
  static std::vector<float> draw(std::uint64_t seed, std::uint64_t count, float largest) {
    std::mt19937_64 random(seed);
    std::vector<float> numbers(count);
    for (float& number : numbers) number = static_cast<float>(static_cast<int>(random() % 129) - 64) / 64 * largest;
    return numbers;
  }

  // One query head over all keys, by the definition.
  static std::vector<double> attended(std::span<const float> query, std::span<const float> keys) {
    std::vector<double> out(kValueDim);
    double sum = 0;
    for (std::uint64_t key = 0; key < kTokens; ++key) {
      const auto vector = keys.subspan(key * kKeyDim, kKeyDim);
      double logit = 0;
      for (std::uint64_t d = 0; d < kKeyDim; ++d)
        logit += static_cast<double>(query[d]) * static_cast<double>(vector[d]);
      const double weight = std::exp(kScale * logit);
      sum += weight;
      for (std::uint64_t d = 0; d < kValueDim; ++d) out[d] += weight * static_cast<double>(vector[d]);
    }
    for (double& value : out) value /= sum;
    return out;
  }
};

TEST_F(KvCacheMla, ValuesThatAreInTheKeysTakeNoMemory) {
  const std::uint64_t apart = estimate(spec(false))->bytes();
  const std::uint64_t in_keys = estimate(spec(true))->bytes();
  // 512 of 576 + 512 numbers, and no counters' worth.
  EXPECT_NEAR(1 - static_cast<double>(in_keys) / static_cast<double>(apart), 512.0 / 1088, 1e-4);
  EXPECT_EQ(KvCache::create(device, spec(true))->memory().groups[0].v.bytes(), 0U);
}

TEST_F(KvCacheMla, AttentionIsThatOfF64) {
  KvCache cache = KvCache::create(device, spec(true)).value();
  const Sequence sequence = cache.open_sequence().value();
  // Logits are at most 576 / 4 / 24 = 6 in magnitude: f32 sums err by 2^-24 * 576 * 6 at most, weights by that part of
  // them, and so do outputs, which are at most 1, twice. A key that is missing changes more.
  constexpr double kError = 2 * 576 * 6.0 / (1 << 24);
  const std::vector<float> keys = draw(1, kTokens * kKeyDim, 1);
  const std::vector<float> queries = draw(2, kHeads * kKeyDim, 0.25F);
  const Buffer k = upload(device, keys);
  const Buffer q = upload(device, queries);
  Buffer out = device.allocate(kHeads * kValueDim * sizeof(float)).value();
  Encoder encoder = device.encoder();
  KvStep step = cache.extend(encoder, sequence, kTokens).value();
  const std::uint64_t one = 1;
  for (const std::uint32_t layer : {1U, 0U}) {
    step.append(encoder, layer, View::token_major(k, DType::f32, {.tokens = kTokens, .heads = 1, .dim = kKeyDim}));
    attend(encoder, {.q = View::token_major(q, DType::f32, {.tokens = 1, .heads = kHeads, .dim = kKeyDim}),
                     .kv = step.view(layer).value(),
                     .out = MutView::token_major(out, DType::f32, {.tokens = 1, .heads = kHeads, .dim = kValueDim}),
                     .scale = kScale,
                     .query_tokens = {&one, 1},
                     .arithmetic = Arithmetic::f32});
  }
  ASSERT_OK(std::move(encoder).submit());
  std::vector<float> found(kHeads * kValueDim);
  out.read(std::as_writable_bytes(std::span(found))).value();
  for (std::uint64_t head = 0; head < kHeads; ++head) {
    const auto wanted = attended(std::span(queries).subspan(head * kKeyDim, kKeyDim), keys);
    for (std::uint64_t d = 0; d < kValueDim; ++d) {
      ASSERT_NEAR(static_cast<double>(found[head * kValueDim + d]), wanted[d], kError) << "head " << head;
    }
  }
}

}  // namespace
}  // namespace rota::test
