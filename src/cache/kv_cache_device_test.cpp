#include <gtest/gtest.h>

#include <algorithm>

#include "cache/kv_cache_steps_reference.h"
#include "harness/on_device.h"

namespace rota::test {
namespace {

class KvCacheOnDevice : public OnDevice {};

TEST_F(KvCacheOnDevice, AgreesWithPlainListsAfterEveryRandomStep) {
  cache::reference::run_random_steps(device, 2000, 500'000);
}

// 150 MB in each pool: more than one view may span on some devices, so that layers lie in several buffers.
TEST_F(KvCacheOnDevice, LayersInSeveralBuffersAreAllStoredSealedAndRestored) {
  constexpr std::uint32_t kLayers = 3;
  constexpr std::uint32_t kHeads = 16;
  constexpr std::uint32_t kDim = 256;
  constexpr std::uint64_t kTokens = 130;
  constexpr std::uint64_t kVector = kHeads * kDim;
  const KvCacheSpec spec{.groups = {{.layers = first_layers(kLayers),
                                     .kv_heads = kHeads,
                                     .head_dim = kDim,
                                     .k = turbo(8),
                                     .v = DType::f32,
                                     .dense = DType::f32,
                                     .page = 64,
                                     .tail = 0}},
                         .max_tokens = 3000,
                         .max_step_tokens = 1000};
  KvCache cache = KvCache::create(device, spec).value();
  std::set<const void*> buffers;
  for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
    buffers.insert(cache.view({}, layer)->v.dense.buffer.state().get());
  }
  const std::uint64_t layer_bytes = cache.memory().groups[0].v.dense.bytes() / kLayers;
  EXPECT_EQ(buffers.size() > 1, kLayers * layer_bytes > device.info().limits.max_binding_bytes);

  std::mt19937_64 random(5);
  std::vector<float> numbers(kLayers * kTokens * kVector);
  for (float& number : numbers) number = static_cast<float>(static_cast<int>(random() % 255) - 127) * 0.03125F;
  Buffer source = device.allocate(numbers.size() * sizeof(float)).value();
  ASSERT_OK(source.write(std::as_bytes(std::span(numbers))));

  const Sequence text = cache.open_sequence().value();
  Encoder encoder = device.encoder();
  KvStep step = cache.extend(encoder, text, kTokens).value();
  for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
    View x = View::token_major(source, DType::f32, {.tokens = kTokens, .heads = kHeads, .dim = kDim});
    x.offset = layer * kTokens * kVector;
    step.append(encoder, layer, x, x);
  }
  ASSERT_OK(cache.truncate(encoder, text, 100));  // seals two pages of keys, and restores half of the second
  ASSERT_OK(std::move(encoder).submit().value().wait());
  ASSERT_EQ(cache.counters().seals, 2U);
  ASSERT_EQ(cache.counters().unseals, 1U);

  for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
    const KvView view = cache.view({&text, 1}, layer).value();
    const auto wanted = [&](std::uint64_t token, std::uint64_t head) {
      return numbers.data() + (layer * kTokens + token) * kVector + head * kDim;
    };
    const auto vector_at = [&](const SlotView& slots, std::uint64_t page, std::uint64_t slot, std::uint64_t head) {
      std::vector<float> values(kDim);
      const std::uint64_t at =
          slots.offset + page * slots.page_stride + slot * slots.slot_stride + head * slots.head_stride;
      slots.buffer.read(std::as_writable_bytes(std::span(values)), at * sizeof(float)).value();
      return values;
    };
    const KvPages& keys = *view.k.sequences.front();
    const KvPages& values = *view.v.sequences.front();
    ASSERT_EQ(keys.sealed_pages, 1U);
    for (std::uint64_t head = 0; head < kHeads; ++head) {
      for (const std::uint64_t token : {0U, 63U, 64U, 99U}) {
        const auto found = vector_at(view.v.dense, values.places[token / 64], token % 64, head);
        EXPECT_TRUE(std::equal(found.begin(), found.end(), wanted(token, head))) << "value " << token;
      }
      for (const std::uint64_t token : {0U, 3U}) {
        const auto found = vector_at(*view.k.sinks, *keys.sinks, token, head);
        EXPECT_TRUE(std::equal(found.begin(), found.end(), wanted(token, head))) << "sink " << token;
      }
      for (const std::uint64_t token : {64U, 99U}) {
        const auto found = vector_at(view.k.dense, keys.places[1], token % 64, head);
        double error = 0;
        double energy = 0;
        for (std::uint64_t d = 0; d < kDim; ++d) {
          error += std::pow(found[d] - wanted(token, head)[d], 2);
          energy += std::pow(wanted(token, head)[d], 2);
        }
        EXPECT_LT(error, 1e-4 * energy) << "key " << token << " at 8 bits";
      }
      const SealedView& sealed = *view.k.sealed;
      std::vector<std::uint16_t> halves;
      for (std::uint64_t token = 0; token < 64; ++token) {
        std::transform(wanted(token, head), wanted(token, head) + kDim, std::back_inserter(halves), f16_from_f32);
      }
      std::vector<std::byte> page(page_bytes(sealed.format));
      const std::uint64_t at =
          sealed.offset_bytes + keys.places[0] * sealed.page_stride_bytes + head * sealed.head_stride_bytes;
      ASSERT_OK(sealed.buffer.read(page, at));
      EXPECT_EQ(page, ops::reference::Sealer(sealed.format).seal(halves, 4));
    }
  }
}

}  // namespace
}  // namespace rota::test
