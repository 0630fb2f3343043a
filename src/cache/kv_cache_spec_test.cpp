#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/kv_cache_calls.h"
#include "harness/on_device.h"
#include "harness/source_file.h"
#include "rota/rota.h"
#include "runtime/inside.h"

// Descriptions: which are refused, and what the others take.

namespace rota::test {
namespace {

TEST(KvCacheSpec, EveryBadDescriptionIsRefused) {
  struct Bad {
    std::string_view text;
    std::function<void(KvCacheSpec&)> make;
  };
  const std::vector<Bad> all{
      {"groups is empty", [](KvCacheSpec& s) { s.groups.clear(); }},
      {"groups[0].layers is empty", [](KvCacheSpec& s) { s.groups[0].layers.clear(); }},
      {"groups[0].layers is naming layer 1 again", [](KvCacheSpec& s) { s.groups[0].layers = {1, 0, 1}; }},
      {"groups[1].layers is naming layer 0 again", [](KvCacheSpec& s) { s.groups.push_back(s.groups[0]); }},
      {"groups[0].kv_heads is 0", [](KvCacheSpec& s) { s.groups[0].kv_heads = 0; }},
      {"groups[0].kv_heads is 65537", [](KvCacheSpec& s) { s.groups[0].kv_heads = 65537; }},
      {"groups[0].k: ", [](KvCacheSpec& s) { s.groups[0].head_dim = 40; }},
      {"groups[0].v: ", [](KvCacheSpec& s) { s.groups[0].value_dim = 17; }},
      {"groups[0].k: ", [](KvCacheSpec& s) { s.groups[0].k = turbo(7); }},
      {"groups[0].head_dim is 0", [](KvCacheSpec& s) { s.groups[0].head_dim = 0; }},
      {"groups[0].value_dim is 4097", [](KvCacheSpec& s) { s.groups[0].value_dim = 4097; }},
      {"groups[0].v is dtype 9", [](KvCacheSpec& s) { s.groups[0].v = static_cast<DType>(9); }},
      {"groups[0].dense is 9", [](KvCacheSpec& s) { s.groups[0].dense = static_cast<DType>(9); }},
      {"groups[0].k is turbo4; wanted f32, f16 or bf16, where values",
       [](KvCacheSpec& s) { s.groups[0].v_in_k = true; }},
      {"groups[0].value_dim is 17; wanted 1 to 16",
       [](KvCacheSpec& s) {
         s.groups[0].k = DType::f16;
         s.groups[0].v_in_k = true;
         s.groups[0].value_dim = 17;
       }},
      {"groups[0].shared is naming layer 5 to share", [](KvCacheSpec& s) { s.groups[0].shared = {{7, 5}}; }},
      {"groups[0].shared is naming layer 1 again", [](KvCacheSpec& s) { s.groups[0].shared = {{1, 0}}; }},
      {"groups[0].shared is naming layer 7 again", [](KvCacheSpec& s) { s.groups[0].shared = {{7, 0}, {7, 1}}; }},
      {"groups[0].page is 96", [](KvCacheSpec& s) { s.groups[0].page = 96; }},
      {"groups[0].sinks is 65", [](KvCacheSpec& s) { s.groups[0].sinks = 65; }},
      {"groups[0].window is 63; wanted at least the tail of 64", [](KvCacheSpec& s) { s.groups[0].window = 63; }},
      {"groups[0].window is 0", [](KvCacheSpec& s) { s.groups[0].window = 0; }},
      {"groups[0].tail is", [](KvCacheSpec& s) { s.groups[0].tail = ~std::uint64_t{0}; }},
      {"max_tokens is missing",
       [](KvCacheSpec& s) {
         s.max_tokens.reset();
         s.at_once = true;
       }},
      {"max_tokens is given, and max_bytes", [](KvCacheSpec& s) { s.max_bytes = 1000000; }},
      {"max_tokens is 0", [](KvCacheSpec& s) { s.max_tokens = 0; }},
      {"max_tokens is", [](KvCacheSpec& s) { s.max_tokens = ~std::uint64_t{0}; }},
      {"max_sequences is 0", [](KvCacheSpec& s) { s.max_sequences = 0; }},
      {"seal_within is 0; wanted 1 to 64", [](KvCacheSpec& s) { s.seal_within = 0; }},
      {"seal_within is 65; wanted 1 to 64", [](KvCacheSpec& s) { s.seal_within = 65; }},
      {"layer_order is 7; wanted in_turn or together",
       [](KvCacheSpec& s) { s.layer_order = static_cast<LayerOrder>(7); }},
      {"max_sequences is 65537", [](KvCacheSpec& s) { s.max_sequences = 65537; }},
      {"max_step_tokens is 0", [](KvCacheSpec& s) { s.max_step_tokens = 0; }},
      {"2^60 bytes", [](KvCacheSpec& s) {
         s.groups[0].kv_heads = 65536;
         s.groups[0].head_dim = 1024;
         s.max_tokens = std::uint64_t{1} << 39;
       }}};
  Device device = Device::open({.device = "cpu", .threads = 1}).value();
  for (const Bad& bad : all) {
    KvCacheSpec spec{.groups = {small_group()}, .max_tokens = 1000};
    ASSERT_OK(estimate(spec));
    bad.make(spec);
    expect_error(estimate(spec), Errc::invalid_argument, {bad.text});
    expect_error(KvCache::create(device, spec), Errc::invalid_argument, {bad.text});
  }
  // A dense group's tail is only what a window keeps for truncations.
  KvCacheSpec dense{.groups = {small_group()}, .max_tokens = 1000};
  dense.groups[0].k = dense.groups[0].v = DType::f16;
  dense.groups[0].window = 16;
  EXPECT_OK(estimate(dense));
}

TEST(KvCacheSpec, BytesBuyAsManyTokensAsFit) {
  KvCacheSpec spec{.groups = {small_group()}, .max_bytes = 3'000'000, .max_sequences = 4};
  const KvMemory most = estimate(spec).value();
  EXPECT_LE(most.bytes(), 3'000'000U);
  KvCacheSpec same = spec;
  same.max_bytes.reset();
  same.max_tokens = most.max_tokens;
  EXPECT_EQ(estimate(same).value(), most);
  same.max_tokens = most.max_tokens + 1;
  EXPECT_GT(estimate(same)->bytes(), 3'000'000U);
  spec.max_bytes = 100;
  expect_error(estimate(spec), Errc::out_of_memory, {"max_bytes is 100", "one token takes"});
}

TEST(KvCacheSpec, LargestSizesFitTheArithmetic) {
  const KvCacheSpec spec{
      .groups = {{.layers = first_layers(128), .kv_heads = 8, .head_dim = 128, .k = turbo(4), .v = turbo(4)}},
      .max_tokens = 1'048'576,
      .max_sequences = 256,
      .max_step_tokens = 2048};
  const KvMemory memory = estimate(spec).value();
  const PageFormat keys{.codec = turbo(4), .side = KvSide::keys, .head_dim = 128};
  EXPECT_EQ(memory.groups[0].k.sealed.bytes(), std::uint64_t{8192} * 128 * 8 * page_bytes(keys));
  // A tail of 128 and a page that is not full, and a page that two share. The step: one page for two tokens of each,
  // the rest of one sequence.
  EXPECT_EQ(memory.groups[0].k.dense.pages, 256U * 2 + 128);
  EXPECT_EQ(memory.groups[0].k.step, (KvPoolSize{256 + (2048 - 256 * 2) / 128, std::uint64_t{128} * 8 * 128 * 2}));
  KvCacheSpec together = spec;
  together.layer_order = LayerOrder::together;
  // A tail of 128, a page that is not full, one that is sealed just now, and two chunks of prompts.
  EXPECT_EQ(estimate(together)->groups[0].k.dense.pages, 256U * 3 + (2 * 2048 - 256 * 2) / 128);
}

TEST(KvCacheSpec, OnlyASideThatSealsHasSinks) {
  KvGroup group = small_group();
  group.sinks = 3;
  group.v = DType::f16;
  const KvMemory memory = estimate({.groups = {group}, .max_tokens = 1000, .max_sequences = 5}).value();
  EXPECT_EQ(memory.groups[0].k.sinks, (KvPoolSize{5, std::uint64_t{3} * 2 * 16 * 2})) << "tokens, layers, dims, bytes";
  EXPECT_EQ(memory.groups[0].v.sinks, KvPoolSize{});
}

// Of all buffers that layers' views name.
std::uint64_t buffer_bytes(const KvCache& cache) {
  std::set<const void*> seen;
  std::uint64_t bytes = cache.memory().counter_bytes;
  const auto add = [&](const Buffer& buffer) {
    if (seen.insert(runtime::Inside::of(buffer).get()).second) bytes += buffer.size_bytes();
  };
  for (const KvGroup& group : cache.spec().groups) {
    for (const std::uint32_t layer : group.layers) {
      const KvView view = cache.view({}, layer).value();
      for (const KvSideView& side : {view.k, view.v}) {
        add(side.dense.buffer);
        if (side.sealed) add(side.sealed->buffer);
        if (side.sinks) add(side.sinks->buffer);
        if (side.step) add(side.step->buffer);
      }
    }
  }
  return bytes;
}

TEST(KvCacheSpec, TheEstimateIsWhatPublicModelsAllocate) {
  Device device = Device::open({.device = "cpu", .threads = 1}).value();
  std::size_t models = 0;
  const auto data = read_json("data/models.json");
  for (const auto& model : data.at("models")) {
    for (const KvCodec& v : {KvCodec(DType::f16), KvCodec(turbo(4))}) {
      KvCacheSpec spec{.groups = {},
                       .max_tokens = std::min<std::uint64_t>(model.at("context").get<std::uint64_t>(), 8192),
                       .max_sequences = 2};
      for (const auto& entry : model.at("groups")) {
        KvGroup group{.layers = entry.contains("count") ? first_layers(entry.at("count").get<std::uint32_t>())
                                                        : entry.at("layers").get<std::vector<std::uint32_t>>(),
                      .kv_heads = entry.at("kv_heads").get<std::uint32_t>(),
                      .head_dim = entry.at("head_dim").get<std::uint32_t>(),
                      .value_dim = entry.at("value_dim").get<std::uint32_t>(),
                      .k = turbo(4),
                      .v = v};
        if (entry.contains("window")) group.window = entry.at("window").get<std::uint64_t>();
        spec.groups.push_back(std::move(group));
      }
      const KvMemory memory = estimate(spec).value();
      KvCache growing = KvCache::create(device, spec).value();
      EXPECT_EQ(growing.counters().bytes_allocated(), 0U);
      EXPECT_OK(growing.reserve(*spec.max_tokens));
      spec.at_once = true;
      for (const KvCache& cache : {growing, KvCache::create(device, spec).value()}) {
        EXPECT_EQ(buffer_bytes(cache), memory.bytes()) << model.at("name");
        EXPECT_EQ(cache.counters().bytes_allocated() + memory.counter_bytes, memory.bytes()) << model.at("name");
        EXPECT_EQ(cache.memory(), memory) << model.at("name");
      }
    }
    ++models;
  }
  EXPECT_GE(models, 20U);
}

}  // namespace
}  // namespace rota::test
