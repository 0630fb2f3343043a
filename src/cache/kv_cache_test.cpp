#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <string>
#include <thread>

#include "cache/kv_cache_steps_reference.h"
#include "harness/elements.h"
#include "harness/environment.h"
#include "harness/on_device.h"
#include "harness/source_file.h"

// Bookkeeping, on the CPU. What reaches other devices is in kv_cache_device_test.cpp.

namespace rota::test {
namespace {

TEST(KvCache, AgreesWithPlainListsAfterEveryRandomStep) {
  Device device = Device::open({.device = "cpu", .threads = 1}).value();
  cache::reference::run_random_steps(device, number_from("ROTA_TEST_CACHE_STEPS", 100'000),
                                     number_from("ROTA_TEST_CACHE_SEED", 1));
}

KvGroup small_group() {
  return {.layers = {0, 1}, .kv_heads = 1, .head_dim = 16, .k = turbo(4), .v = turbo(4), .page = 64, .tail = 64};
}

// Two layers and zeros for everything.
class KvCacheCalls : public ::testing::Test {
 protected:
  KvCacheCalls() { zeros.write(std::vector<std::byte>(zeros.size_bytes())).value(); }

  KvCache make(const KvCacheSpec& spec) { return KvCache::create(device, spec).value(); }
  KvCache make() {
    return make({.groups = {small_group()}, .max_tokens = 2000, .max_sequences = 3, .max_step_tokens = 600});
  }

  View values(std::uint64_t tokens) const {
    return {.buffer = zeros, .dtype = DType::f32, .shape = {.tokens = tokens, .heads = 1, .dim = 16}};
  }

  void append(Encoder& encoder, KvStep& step, std::initializer_list<std::uint32_t> layers) const {
    const View x = values(step.positions().size());
    for (const std::uint32_t layer : layers) step.append(encoder, layer, x, x);
  }

  // A whole step in a submission of its own.
  Status extend(KvCache& cache, const std::vector<KvExtension>& extensions) {
    Encoder encoder = device.encoder();
    auto step = cache.extend(encoder, extensions);
    if (!step) return step.error();
    for (const KvGroup& group : cache.spec().groups) {
      for (const std::uint32_t layer : group.layers) append(encoder, *step, {layer});
    }
    auto fence = std::move(encoder).submit();
    return fence ? fence->wait() : Status(fence.error());
  }

  Sequence text_of(KvCache& cache, std::uint64_t tokens) {
    const Sequence text = cache.open_sequence().value();
    while (tokens > 0) {
      const std::uint64_t part = std::min(tokens, cache.spec().max_step_tokens);
      extend(cache, {{text, part}}).value();
      tokens -= part;
    }
    return text;
  }

  Device device = Device::open({.device = "cpu", .threads = 1}).value();
  Buffer zeros = device.allocate(16 * sizeof(float)).value();  // one vector, for all tokens
};

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
      {"groups[0].page is 96", [](KvCacheSpec& s) { s.groups[0].page = 96; }},
      {"groups[0].sinks is 65", [](KvCacheSpec& s) { s.groups[0].sinks = 65; }},
      {"groups[0].window is 63; wanted at least the tail of 64", [](KvCacheSpec& s) { s.groups[0].window = 63; }},
      {"groups[0].window is 0", [](KvCacheSpec& s) { s.groups[0].window = 0; }},
      {"groups[0].tail is", [](KvCacheSpec& s) { s.groups[0].tail = ~std::uint64_t{0}; }},
      {"max_tokens is missing", [](KvCacheSpec& s) { s.max_tokens.reset(); }},
      {"max_tokens is given, and max_bytes", [](KvCacheSpec& s) { s.max_bytes = 1000000; }},
      {"max_tokens is 0", [](KvCacheSpec& s) { s.max_tokens = 0; }},
      {"max_tokens is", [](KvCacheSpec& s) { s.max_tokens = ~std::uint64_t{0}; }},
      {"max_sequences is 0", [](KvCacheSpec& s) { s.max_sequences = 0; }},
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
  // A tail of 128, a page that is not full, one that is sealed just now, and two chunks of prompts.
  EXPECT_EQ(memory.groups[0].k.dense.pages, 256U * 3 + (2 * 2048 - 256 * 2) / 128);
}

TEST(KvCacheSpec, OnlyASideThatSealsHasSinks) {
  KvGroup group = small_group();
  group.sinks = 3;
  group.v = DType::f16;
  const KvMemory memory = estimate({.groups = {group}, .max_tokens = 1000, .max_sequences = 5}).value();
  EXPECT_EQ(memory.groups[0].k.sinks, (KvPoolSize{5, std::uint64_t{3} * 2 * 16 * 2})) << "tokens, layers, dims, bytes";
  EXPECT_EQ(memory.groups[0].v.sinks, KvPoolSize{});
}

std::uint64_t allocated_bytes(const KvCache& cache) {
  std::set<const void*> seen;
  std::uint64_t bytes = cache.memory().counter_bytes;
  const auto add = [&](const Buffer& buffer) {
    if (buffer.state() && seen.insert(buffer.state().get()).second) bytes += buffer.size_bytes();
  };
  for (const KvGroup& group : cache.spec().groups) {
    for (const std::uint32_t layer : group.layers) {
      const KvView view = cache.view({}, layer).value();
      for (const KvSideView& side : {view.k, view.v}) {
        add(side.dense.buffer);
        if (side.sealed) add(side.sealed->buffer);
        if (side.sinks) add(side.sinks->buffer);
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
      const KvCache cache = KvCache::create(device, spec).value();
      EXPECT_EQ(allocated_bytes(cache), memory.bytes()) << model.at("name");
      EXPECT_EQ(cache.memory(), memory) << model.at("name");
    }
    ++models;
  }
  EXPECT_GE(models, 20U);
}

// All that can be seen of a cache.
struct Fingerprint {
  KvCounters counters;
  std::vector<std::uint64_t> lengths;
  std::vector<KvPages> pages;

  Fingerprint(const KvCache& cache, const std::vector<Sequence>& texts) : counters(cache.counters()) {
    for (const Sequence text : texts) {
      lengths.push_back(cache.length(text).value());
      const KvView view = cache.view({&text, 1}, 0).value();
      pages.push_back(*view.k.sequences.front());
      pages.push_back(*view.v.sequences.front());
    }
  }

  friend bool operator==(const Fingerprint& a, const Fingerprint& b) {
    const auto used = [](const KvCounters& c) {
      return std::array{c.sealed.used, c.dense.used, c.sinks.used, c.sealed.shared, c.dense.shared,
                        c.sequences,   c.tokens,     c.seals,      c.unseals,       c.copied_bytes};
    };
    return a.lengths == b.lengths && a.pages == b.pages && used(a.counters) == used(b.counters);
  }
};

TEST_F(KvCacheCalls, ABadCallIsRefusedAndChangesNothing) {
  KvCache cache = make();
  KvCache other = make();
  const Sequence text = text_of(cache, 300);
  const Sequence second = text_of(cache, 10);
  const Sequence foreign = other.open_sequence().value();
  const Sequence closed = cache.open_sequence().value();
  cache.close(closed).value();
  Sequence outside = text;
  outside.slot = 1000;
  const Sequence reused = cache.open_sequence().value();
  ASSERT_EQ(reused.slot, closed.slot);
  Device another = Device::open({.device = "cpu", .threads = 1}).value();

  Encoder encoder = device.encoder();
  Encoder of_another = another.encoder();
  Encoder spent = device.encoder();
  (void)std::move(spent).submit();
  Encoder broken = device.encoder();
  store(broken, {});

  struct Bad {
    std::string_view text;
    std::function<Status()> call;
    Errc code = Errc::invalid_argument;
  };
  const auto status_of = [](const auto& result) { return result ? Status() : Status(result.error()); };
  const auto extends = [&](std::vector<KvExtension> extensions, Encoder* in = nullptr) {
    return std::function<Status()>([&, extensions = std::move(extensions), in] {
      return status_of(cache.extend(in != nullptr ? *in : encoder, extensions));
    });
  };
  std::vector<Bad> all{
      {"extensions is empty", extends({})},
      {"extensions[0].sequence is of another cache", extends({{foreign, 1}})},
      {"extensions[0].sequence is of another cache", extends({{Sequence{}, 1}})},
      {"extensions[1].sequence is closed", extends({{text, 1}, {closed, 1}})},
      {"extensions[0].sequence is closed", extends({{outside, 1}})},
      {"extensions[1].sequence is extended by this step already", extends({{text, 1}, {text, 1}})},
      {"extensions[0].tokens is 0", extends({{text, 0}})},
      {"extensions[0].tokens is 65537; wanted 1 to 65536", extends({{text, 65537}})},
      {"extensions[1].tokens is 400; wanted at most 600 in all", extends({{text, 201}, {second, 400}})},
      {"the encoder is submitted already", extends({{text, 1}}, &spent)},
      {"pairs is empty", extends({{text, 1}}, &broken)},
      {"encoder is of another device", extends({{text, 1}}, &of_another)},
      {"length is 301; wanted at most the 300", [&] { return cache.truncate(encoder, text, 301); }},
      {"sequence is closed", [&] { return cache.truncate(encoder, closed, 0); }},
      {"sequence is of another cache", [&] { return cache.truncate(encoder, foreign, 0); }},
      {"encoder is of another device", [&] { return cache.truncate(of_another, text, 5); }},
      {"sequence is closed", [&] { return status_of(cache.fork(encoder, closed)); }},
      {"all 3 sequences are open", [&] { return status_of(cache.fork(encoder, text)); }, Errc::out_of_pages},
      {"all 3 sequences are open", [&] { return status_of(cache.open_sequence()); }, Errc::out_of_pages},
      {"sequence is closed", [&] { return cache.close(closed); }},
      {"sequence is of another cache", [&] { return cache.close(foreign); }},
      {"sequence is closed", [&] { return status_of(cache.length(closed)); }},
      {"sequences[0] is of another cache", [&] { return status_of(cache.view({&foreign, 1}, 0)); }},
      {"layer is 2; wanted one of the 2", [&] { return status_of(cache.view({&text, 1}, 2)); }},
      {"encoder is of another device", [&] { return cache.settle(of_another); }}};
  const Fingerprint before(cache, {text, second});
  for (const Bad& bad : all) {
    expect_error(bad.call(), bad.code, {bad.text});
    EXPECT_TRUE(Fingerprint(cache, {text, second}) == before) << bad.text;
  }
  EXPECT_TRUE(encoder.status().ok()) << "a refused call leaves the encoder as it was";

  KvCache gone = make();
  {
    const KvCache taken = std::move(gone);
  }
  // NOLINTBEGIN(bugprone-use-after-move): the subject
  expect_error(gone.open_sequence(), Errc::invalid_argument, {"moved from"});
  expect_error(gone.extend(encoder, text, 1), Errc::invalid_argument, {"moved from"});
  expect_error(gone.close(text), Errc::invalid_argument, {"moved from"});
  expect_error(gone.settle(encoder), Errc::invalid_argument, {"moved from"});
  expect_error(gone.non_finite(), Errc::invalid_argument, {"moved from"});
  EXPECT_EQ(gone.counters().sequences, 0U);
  EXPECT_EQ(gone.memory().bytes(), 0U);
  EXPECT_TRUE(gone.spec().groups.empty());
  // NOLINTEND(bugprone-use-after-move)
}

TEST_F(KvCacheCalls, ABadAppendIsKeptByTheEncoderAndTakesItsStepBack) {
  KvCache cache = make();
  const Sequence text = text_of(cache, 300);
  Device another = Device::open({.device = "cpu", .threads = 1}).value();
  View foreign = values(2);
  foreign.buffer = another.allocate(64).value();
  View two_heads = values(2);
  two_heads.shape.heads = 2;
  View wide = values(2);
  wide.shape.dim = 32;
  struct Bad {
    std::string_view text;
    std::function<void(Encoder&, KvStep&)> call;
  };
  const std::vector<Bad> all{
      {"layer is 2; wanted one of the 2", [&](Encoder& e, KvStep& s) { s.append(e, 2, values(2), values(2)); }},
      {"layer is 0, which was appended already", [&](Encoder& e, KvStep& s) { append(e, s, {0, 0}); }},
      {"k.shape.tokens is 1; wanted the step's 2",
       [&](Encoder& e, KvStep& s) { s.append(e, 0, values(1), values(2)); }},
      {"v.shape.tokens is 3", [&](Encoder& e, KvStep& s) { s.append(e, 0, values(2), values(3)); }},
      {"k.shape.heads is 2; wanted 1", [&](Encoder& e, KvStep& s) { s.append(e, 0, two_heads, values(2)); }},
      {"v.shape.dim is 32; wanted 16", [&](Encoder& e, KvStep& s) { s.append(e, 0, values(2), wide); }},
      {"another device", [&](Encoder& e, KvStep& s) { s.append(e, 0, values(2), foreign); }}};
  const Fingerprint before(cache, {text});
  for (const Bad& bad : all) {
    Encoder encoder = device.encoder();
    KvStep step = cache.extend(encoder, text, 2).value();
    EXPECT_EQ(cache.length(text).value(), 302U);
    bad.call(encoder, step);
    expect_error(std::move(encoder).submit(), Errc::invalid_argument, {bad.text});
    EXPECT_TRUE(Fingerprint(cache, {text}) == before) << bad.text;

    Encoder later = device.encoder();
    append(later, step, {0});
    expect_error(later.status(), Errc::invalid_argument, {"the step is over"});
    expect_error(step.view(0), Errc::invalid_argument, {"the step is over"});
  }
  EXPECT_OK(extend(cache, {{text, 2}}));
}

TEST_F(KvCacheCalls, OutOfPagesChangesNothingAndPassesOnceSomethingCloses) {
  KvCache cache = make({.groups = {small_group()}, .max_tokens = 640, .max_sequences = 2, .max_step_tokens = 64});
  const Sequence text = text_of(cache, 640);
  const Sequence second = cache.open_sequence().value();
  Status status;
  while (status.ok()) status = extend(cache, {{second, 63}});
  expect_error(status, Errc::out_of_pages, {"pages of the keys of groups[0] are in use"});
  const Fingerprint before(cache, {text, second});
  expect_error(extend(cache, {{text, 1}, {second, 63}}), Errc::out_of_pages, {"in use"});
  EXPECT_TRUE(Fingerprint(cache, {text, second}) == before);
  cache.close(text).value();
  EXPECT_OK(extend(cache, {{second, 64}}));
}

TEST_F(KvCacheCalls, WithinItsBudgetATextThatIsOnlyExtendedFindsPages) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    std::mt19937_64 random(seed);
    KvCacheSpec spec = cache::reference::random_spec(random);
    for (KvGroup& group : spec.groups) {
      group.kv_heads = 1;
      group.value_dim.reset();
    }
    KvCache cache = make(spec);
    std::vector<Sequence> texts;
    for (std::uint32_t i = 0; i < spec.max_sequences; ++i) texts.push_back(cache.open_sequence().value());
    std::uint64_t left = *spec.max_tokens;
    const bool one_by_one = random() % 4 == 0;
    while (left > 0) {
      std::vector<KvExtension> extensions;
      std::uint64_t of_step = std::min(left, spec.max_step_tokens);
      for (const Sequence text : texts) {
        if (of_step == 0 || random() % 2 == 0) continue;
        const std::uint64_t tokens = one_by_one ? 1 : 1 + random() % of_step;
        extensions.push_back({text, tokens});
        of_step -= tokens;
        left -= tokens;
      }
      if (extensions.empty()) continue;
      const Status status = extend(cache, extensions);
      ASSERT_TRUE(status.ok()) << status.error().message << "; seed " << seed << ", " << left << " tokens left";
    }
  }
}

TEST_F(KvCacheCalls, ForkSharesAHundredThousandTokensInUnderAMillisecond) {
  KvCache cache =
      make({.groups = {{.layers = first_layers(32), .kv_heads = 1, .head_dim = 16, .k = turbo(4), .v = turbo(4)}},
            .max_tokens = 110'000,
            .max_sequences = 40,
            .max_step_tokens = 8192});
  const Sequence text = text_of(cache, 100'100);
  const KvCounters before = cache.counters();
  std::vector<double> milliseconds;
  for (int i = 0; i < 30; ++i) {
    const auto start = std::chrono::steady_clock::now();
    Encoder encoder = device.encoder();
    ASSERT_OK(cache.fork(encoder, text));
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
    ASSERT_OK(std::move(encoder).submit().value().wait());
    milliseconds.push_back(time.count());
  }
  std::ranges::sort(milliseconds);
  const double median = milliseconds[milliseconds.size() / 2];
  RecordProperty("milliseconds", std::to_string(median));
  EXPECT_LT(median, 1.0);
  const KvCounters after = cache.counters();
  // The first fork settled the text. Each copied the tokens of a page that is not full, and no sealed page.
  const std::uint64_t settled = (100'100 - 128) / 128 * 2;
  EXPECT_EQ(after.sealed.used, settled);
  EXPECT_EQ(after.sealed.shared, settled);
  EXPECT_EQ(after.seals, settled);
  EXPECT_EQ(after.copied_bytes - before.copied_bytes, 30U * (100'100 % 128) * 32 * 16 * 2 * 2);
}

TEST_F(KvCacheCalls, CarriesAMillionTokens) {
  KvGroup group = small_group();
  group.layers = {0};
  group.page = 128;
  KvCache cache = make({.groups = {group}, .max_tokens = 1'048'576, .max_step_tokens = 65536});
  const Sequence text = text_of(cache, 1'048'576);
  const KvView view = cache.view({&text, 1}, 0).value();
  EXPECT_EQ(view.lengths.front(), 1'048'576U);
  EXPECT_EQ(view.k.sequences.front()->places.size(), 8192U);
  Encoder encoder = device.encoder();
  EXPECT_OK(cache.truncate(encoder, text, 77'777));
  EXPECT_OK(std::move(encoder).submit());
  EXPECT_EQ(cache.counters().unseals, 2U);
  EXPECT_EQ(cache.counters().sealed.used, 2 * (77'777U / 128));
}

TEST_F(KvCacheCalls, AViewOutlivesTheStepThatSealsItsPages) {
  KvCache cache = make();
  const Sequence text = text_of(cache, 300);
  const KvView before = cache.view({&text, 1}, 0).value();
  std::vector<std::byte> old(before.k.dense.buffer.size_bytes());
  before.k.dense.buffer.read(old).value();

  Encoder encoder = device.encoder();
  KvStep step = cache.extend(encoder, text, 600).value();
  const std::vector<float> ones(16, 1.0F);
  Buffer source = device.allocate(64).value();
  source.write(std::as_bytes(std::span(ones))).value();
  View x = values(600);
  x.buffer = source;
  for (const std::uint32_t layer : {0U, 1U}) step.append(encoder, layer, x, x);
  ASSERT_OK(std::move(encoder).submit().value().wait());
  ASSERT_GT(cache.counters().seals, 0U);

  // Not one byte of a page that the view names has changed but for slots that were free.
  std::vector<std::byte> now(old.size());
  before.k.dense.buffer.read(now).value();
  const KvPages& pages = *before.k.sequences.front();
  const std::uint64_t page_bytes = before.k.dense.page_stride * 2;
  for (std::uint64_t page = pages.sealed_pages; (page + 1) * 64 <= 300; ++page) {
    const auto at = static_cast<std::ptrdiff_t>(pages.places[page - pages.first_page] * page_bytes);
    EXPECT_TRUE(
        std::equal(old.begin() + at, old.begin() + at + static_cast<std::ptrdiff_t>(page_bytes), now.begin() + at));
  }
}

TEST_F(KvCacheCalls, PagesWaitForEncodersThatMayStillTouchThem) {
  KvCache cache = make();
  const Sequence text = text_of(cache, 300);
  Encoder encoder = device.encoder();
  KvStep step = cache.extend(encoder, text, 2).value();
  ASSERT_OK(std::move(encoder).submit());
  Encoder first = device.encoder();
  append(first, step, {0});
  Encoder second = device.encoder();
  append(second, step, {1});
  const std::uint64_t used = cache.counters().dense.used;
  ASSERT_OK(cache.close(text));
  Encoder third = device.encoder();  // came later: nobody waits for it
  KvStep unrelated = cache.extend(third, cache.open_sequence().value(), 1).value();
  append(third, unrelated, {0, 1});
  EXPECT_EQ(cache.counters().dense.used, used + 2);
  ASSERT_OK(std::move(first).submit());
  EXPECT_EQ(cache.counters().dense.used, used + 2);
  {
    const Encoder dropped = std::move(second);
  }
  EXPECT_EQ(cache.counters().dense.used, 2U);
  EXPECT_EQ(cache.counters().sealed.used, 0U);
  ASSERT_OK(std::move(third).submit());
  EXPECT_EQ(cache.counters().tokens, 1U);
}

TEST_F(KvCacheCalls, OnlyOneEncoderAtATimeChangesTheCache) {
  KvCache cache = make();
  const Sequence text = text_of(cache, 10);
  const Sequence other = text_of(cache, 10);
  Encoder encoder = device.encoder();
  KvStep step = cache.extend(encoder, text, 1).value();
  {
    Encoder second = device.encoder();
    expect_error(cache.extend(second, other, 1), Errc::invalid_argument, {"not the one that changed the cache before"});
    append(second, step, {0});
    expect_error(second.status(), Errc::invalid_argument, {"extended in another encoder that is not submitted"});
  }
  append(encoder, step, {1});
  ASSERT_OK(std::move(encoder).submit());

  // Appending changes nothing, so that another encoder may change other texts.
  Encoder second = device.encoder();
  append(second, step, {0});
  Encoder third = device.encoder();
  ASSERT_OK(cache.truncate(third, other, 5));
  for (const Status& status : {Status(cache.extend(third, text, 1).error()), Status(cache.fork(third, text).error()),
                               cache.truncate(third, text, 10), cache.truncate(third, text, 0)}) {
    expect_error(status, Errc::invalid_argument, {"layer 0 was appended in another encoder that is not submitted"});
  }
  ASSERT_OK(std::move(second).submit());
  EXPECT_OK(cache.extend(third, text, 1));
}

// Steps of constant values, to see what is where.
class KvCacheValues : public KvCacheCalls {
 protected:
  void append(Encoder& encoder, KvStep& step, std::uint32_t layer, float value) {
    const std::vector<float> numbers(16, value);
    Buffer source = device.allocate(64).value();
    source.write(std::as_bytes(std::span(numbers))).value();
    View x = values(step.positions().size());
    x.buffer = source;
    step.append(encoder, layer, x, x);
  }

  // A step in a submission of its own.
  void extend(Sequence text, std::uint64_t tokens, float value) {
    Encoder encoder = device.encoder();
    KvStep step = cache.extend(encoder, text, tokens).value();
    for (const std::uint32_t layer : {0U, 1U}) append(encoder, step, layer, value);
    ASSERT_OK(std::move(encoder).submit());
  }

  // The first key's dim 0 of each token that is dense.
  std::vector<float> dense_keys(Sequence text) {
    const KvView view = cache.view({&text, 1}, 0).value();
    const KvPages& pages = *view.k.sequences.front();
    std::vector<std::byte> bytes(view.k.dense.buffer.size_bytes());
    view.k.dense.buffer.read(bytes).value();
    std::vector<float> keys;
    for (std::uint64_t position = pages.sealed_pages * 64; position < view.lengths.front(); ++position) {
      const std::uint64_t at = view.k.dense.offset +
                               pages.places[position / 64 - pages.first_page] * view.k.dense.page_stride +
                               position % 64 * view.k.dense.slot_stride;
      keys.push_back(f32_from_f16(static_cast<std::uint16_t>(load_bits(bytes, DType::f16, at))));
    }
    return keys;
  }

  KvCache cache = make();
};

TEST_F(KvCacheValues, NothingOfADroppedStepReachesTheTokensThatComeBack) {
  const Sequence text = cache.open_sequence().value();
  extend(text, 10, 1);
  std::optional<Encoder> dropped = device.encoder();
  ASSERT_OK(cache.truncate(*dropped, text, 5));
  KvStep step = cache.extend(*dropped, text, 5).value();
  Encoder other = device.encoder();
  append(other, step, 0, 7);
  expect_error(std::move(other).submit(), Errc::invalid_argument, {"extended in another encoder"});
  dropped.reset();
  EXPECT_EQ(dense_keys(text), std::vector<float>(10, 1));
}

TEST_F(KvCacheValues, AStepThatWasTakenBackWritesNothingLater) {
  const Sequence text = cache.open_sequence().value();
  extend(text, 10, 1);
  Encoder encoder = device.encoder();
  KvStep step = cache.extend(encoder, text, 3).value();
  ASSERT_OK(std::move(encoder).submit());
  Encoder late = device.encoder();
  append(late, step, 0, 7);
  {
    Encoder now = device.encoder();
    expect_error(cache.truncate(now, text, 10), Errc::invalid_argument, {"appended in another encoder"});
  }
  {
    const Encoder dropped = std::move(late);
  }
  Encoder again = device.encoder();
  ASSERT_OK(cache.truncate(again, text, 10));
  ASSERT_OK(std::move(again).submit());
  extend(text, 3, 2);
  Encoder too_late = device.encoder();
  append(too_late, step, 0, 7);
  expect_error(too_late.status(), Errc::invalid_argument, {"the step is over"});
  EXPECT_EQ(dense_keys(text), (std::vector<float>{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2}));
}

TEST_F(KvCacheValues, ATextThatComesBackIntoAStepLacksNoLayer) {
  const Sequence first = cache.open_sequence().value();
  const Sequence second = cache.open_sequence().value();
  for (const Sequence text : {first, second}) extend(text, 4, 1);
  Encoder encoder = device.encoder();
  const std::vector<KvExtension> extensions{{first, 2}, {second, 2}};
  KvStep step = cache.extend(encoder, extensions).value();
  ASSERT_OK(std::move(encoder).submit());
  std::optional<Encoder> dropped = device.encoder();
  ASSERT_OK(cache.truncate(*dropped, first, 4));
  {
    Encoder early = device.encoder();
    append(early, step, 0, 7);
    expect_error(early.status(), Errc::invalid_argument, {"taken back for a sequence in another encoder"});
  }
  dropped.reset();
  Encoder later = device.encoder();
  for (const std::uint32_t layer : {0U, 1U}) append(later, step, layer, 7);
  ASSERT_OK(std::move(later).submit());
  for (const Sequence text : {first, second}) EXPECT_EQ(dense_keys(text), (std::vector<float>{1, 1, 1, 1, 7, 7}));
}

TEST_F(KvCacheValues, AStepsViewFollowsWhatSettlesItsTexts) {
  const Sequence text = cache.open_sequence().value();
  Encoder encoder = device.encoder();
  KvStep step = cache.extend(encoder, text, 200).value();
  for (const std::uint32_t layer : {0U, 1U}) append(encoder, step, layer, 1);
  EXPECT_EQ(step.view(0)->k.sequences.front()->sealed_pages, 0U);
  ASSERT_OK(cache.settle(encoder));
  EXPECT_EQ(step.view(0)->k.sequences.front()->sealed_pages, 2U);
  ASSERT_OK(std::move(encoder).submit());
  extend(cache.open_sequence().value(), 5, 3);
  EXPECT_EQ(*step.view(0)->k.sequences.front(), *cache.view({&text, 1}, 0)->k.sequences.front());
}

TEST_F(KvCacheValues, ABatchGoesOnWithoutTextsThatWereClosedOrTakenBack) {
  std::vector<Sequence> texts;
  for (int i = 0; i < 3; ++i) texts.push_back(cache.open_sequence().value());
  for (const Sequence text : texts) extend(text, 4, 1);
  Encoder encoder = device.encoder();
  const std::vector<KvExtension> extensions{{texts[0], 1}, {texts[1], 2}, {texts[2], 3}};
  KvStep step = cache.extend(encoder, extensions).value();
  ASSERT_OK(std::move(encoder).submit());
  ASSERT_OK(cache.close(texts[1]));

  const std::vector<float> numbers{5, 6, 6, 7, 8, 9};
  std::vector<float> vectors;
  for (const float number : numbers) vectors.insert(vectors.end(), 16, number);
  Buffer source = device.allocate(vectors.size() * 4).value();
  source.write(std::as_bytes(std::span(vectors))).value();
  const View x = View::token_major(source, DType::f32, {.tokens = 6, .heads = 1, .dim = 16});
  Encoder rest = device.encoder();
  for (const std::uint32_t layer : {0U, 1U}) step.append(rest, layer, x, x);
  ASSERT_OK(std::move(rest).submit());
  expect_error(step.view(0), Errc::invalid_argument, {"over for a sequence"});
  EXPECT_EQ(dense_keys(texts[0]), (std::vector<float>{1, 1, 1, 1, 5}));
  EXPECT_EQ(dense_keys(texts[2]), (std::vector<float>{1, 1, 1, 1, 7, 8, 9}));
  extend(texts[2], 1, 2);
}

TEST_F(KvCacheCalls, ASlotThatIsOpenedAgainSurvivesWhatItsOldTextWasPartOf) {
  for (const bool forked : {true, false}) {
    KvCache cache = make();
    const Sequence text = text_of(cache, 300);
    std::optional<Encoder> encoder = device.encoder();
    const Sequence child = cache.fork(*encoder, text).value();
    const Sequence closed = forked ? child : text;
    ASSERT_OK(cache.close(closed));
    const Sequence fresh = cache.open_sequence().value();
    ASSERT_EQ(fresh.slot, closed.slot);
    encoder.reset();
    EXPECT_EQ(cache.length(fresh).value(), 0U);
    expect_error(cache.length(child), Errc::invalid_argument, {"closed"});
    EXPECT_OK(extend(cache, {{fresh, 1}}));
    if (forked) continue;
    // The slot of the fork that never was names its next text only.
    const Sequence next = cache.open_sequence().value();
    ASSERT_EQ(next.slot, child.slot);
    EXPECT_NE(next, child);
    expect_error(cache.length(child), Errc::invalid_argument, {"closed"});
  }
}

TEST_F(KvCacheCalls, OtherTextsAreSettledOnTheWay) {
  KvGroup group = small_group();
  group.window = 100;
  KvCache cache = make({.groups = {group}, .max_tokens = 4000, .max_sequences = 2, .max_step_tokens = 600});
  const Sequence idle = text_of(cache, 600);
  const Sequence other = cache.open_sequence().value();
  ASSERT_OK(extend(cache, {{other, 1}}));
  const KvPages pages = *cache.view({&idle, 1}, 0)->k.sequences.front();
  EXPECT_EQ(pages.first_page, (600U - 64 - 100 + 1) / 64);
  EXPECT_EQ(pages.sealed_pages, (600U - 64) / 64);
  EXPECT_EQ(cache.counters().seals, 2 * (pages.sealed_pages - pages.first_page)) << "not what left";
}

TEST_F(KvCacheCalls, SealingAndTakingBackMoveNoMoreThanTheyMust) {
  KvGroup group = small_group();
  group.tail = 0;
  KvCache cache = make({.groups = {group}, .max_tokens = 2000, .max_step_tokens = 900});
  const Sequence text = text_of(cache, 900);
  Encoder encoder = device.encoder();
  ASSERT_OK(cache.truncate(encoder, text, 100));
  ASSERT_OK(std::move(encoder).submit());
  EXPECT_EQ(cache.counters().seals, 2U * 2) << "of keys and of values the pages that stay";
  EXPECT_EQ(cache.counters().unseals, 2U);
  EXPECT_EQ(cache.counters().copied_bytes, 2U * 4 * 2 * 16 * 2) << "sinks: tokens, layers, dims, bytes";
}

TEST_F(KvCacheCalls, TokensCanBeTakenBackWhenPagesAreShort) {
  KvCache cache = make({.groups = {small_group()}, .max_tokens = 640, .max_step_tokens = 64});
  const Sequence text = cache.open_sequence().value();
  Status status;
  while (status.ok()) status = extend(cache, {{text, 50}});
  ASSERT_EQ(status.error().code, Errc::out_of_pages);
  const std::uint64_t length = cache.length(text).value();
  Encoder encoder = device.encoder();
  EXPECT_OK(cache.truncate(encoder, text, length - 3));
  EXPECT_OK(cache.truncate(encoder, text, 30));
  EXPECT_OK(std::move(encoder).submit());
  EXPECT_OK(extend(cache, {{text, 50}}));
}

TEST_F(KvCacheCalls, CloseInTheMiddleOfAChangeHoldsWhateverBecomesOfIt) {
  for (const bool submitted : {true, false}) {
    KvCache cache = make();
    const Sequence extended = text_of(cache, 300);
    const Sequence untouched = text_of(cache, 300);
    Encoder encoder = device.encoder();
    KvStep step = cache.extend(encoder, extended, 100).value();
    append(encoder, step, {0, 1});
    const Sequence child = cache.fork(encoder, extended).value();
    for (const Sequence text : {extended, untouched, child}) ASSERT_OK(cache.close(text));
    EXPECT_GT(cache.counters().sealed.used, 0U);
    if (submitted) {
      ASSERT_OK(std::move(encoder).submit());
    } else {
      const Encoder dropped = std::move(encoder);
    }
    const KvCounters after = cache.counters();
    EXPECT_EQ(after.sealed.used + after.dense.used + after.sinks.used + after.sequences, 0U);
  }
}

TEST_F(KvCacheCalls, AForkOfADroppedEncoderNamesNothing) {
  KvCache cache = make();
  const Sequence text = text_of(cache, 200);
  std::optional<Encoder> encoder = device.encoder();
  const Sequence child = cache.fork(*encoder, text).value();
  EXPECT_EQ(cache.length(child).value(), 200U);
  encoder.reset();
  expect_error(cache.length(child), Errc::invalid_argument, {"closed"});
  EXPECT_EQ(cache.counters().sequences, 1U);
  EXPECT_EQ(cache.counters().copied_bytes, 0U) << "what never ran is not counted";
}

TEST_F(KvCacheCalls, AWindowKeepsWhatATruncationInsideTheTailSees) {
  KvGroup group = small_group();
  group.window = 100;
  KvCache cache = make({.groups = {group}, .max_tokens = 2000, .max_step_tokens = 200});
  const Sequence text = text_of(cache, 900);
  ASSERT_OK(extend(cache, {{text, 1}}));
  const KvPages pages = *cache.view({&text, 1}, 0)->k.sequences.front();
  // By the definition: at 900 tokens, with 64 taken back, position 836 sees 737 and on, which page 11 begins before.
  EXPECT_EQ(pages.first_page, 11U);
  Encoder encoder = device.encoder();
  EXPECT_OK(cache.truncate(encoder, text, 836));
  expect_error(cache.truncate(encoder, text, 802), Errc::invalid_argument,
               {"0, or at least 803", "before position 704"});
  EXPECT_OK(cache.truncate(encoder, text, 803));
  EXPECT_OK(cache.truncate(encoder, text, 0));
  EXPECT_EQ(*cache.view({&text, 1}, 0)->k.sequences.front(), KvPages{});
}

TEST_F(KvCacheCalls, ValuesOutOfRangeAreCountedWhereTheyAreLost) {
  std::vector<float> numbers(16, 0.5F);
  numbers[3] = 1e6F;  // beyond f16
  numbers[4] = NAN;
  numbers[5] = -INFINITY;
  Buffer source = device.allocate(64).value();
  source.write(std::as_bytes(std::span(numbers))).value();
  for (const DType dense : {DType::f16, DType::bf16, DType::f32}) {
    KvGroup group = small_group();
    group.dense = dense;
    group.v = dense;
    KvCache cache = make({.groups = {group}, .max_tokens = 300});
    const Sequence text = cache.open_sequence().value();
    Encoder encoder = device.encoder();
    KvStep step = cache.extend(encoder, text, 200).value();
    View x = values(200);
    x.buffer = source;
    for (const std::uint32_t layer : {0U, 1U}) step.append(encoder, layer, x, x);
    EXPECT_OK(cache.settle(encoder));
    ASSERT_OK(std::move(encoder).submit());
    const KvNonFinite lost = cache.non_finite().value();
    EXPECT_EQ(lost.appended, 200U * 2 * 2 * (dense == DType::f16 ? 3 : 2)) << info(dense).name;
    EXPECT_EQ(lost.sealed, 128U * 2 * 3) << "keys of two pages, two layers";
  }
}

TEST_F(KvCacheCalls, ThreadsMayShareACache) {
  KvCache cache = make({.groups = {small_group()}, .max_tokens = 4000, .max_sequences = 4});
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      KvCache mine = cache;
      const Sequence text = mine.open_sequence().value();
      for (int steps = 0; steps < 100;) {
        const Status status = extend(mine, {{text, 3}});  // refused while another thread's encoder is open
        if (status.ok()) ++steps;
        (void)mine.counters();
      }
      EXPECT_EQ(mine.length(text).value(), 300U);
      EXPECT_OK(mine.close(text));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(cache.counters().dense.used + cache.counters().sealed.used, 0U);
}

TEST_F(KvCacheCalls, HandlesMayBeDroppedInAnyOrder) {
  std::optional<KvCache> cache = make();
  const Sequence text = text_of(*cache, 300);
  std::optional<Encoder> encoder = device.encoder();
  std::optional<KvStep> step = cache->extend(*encoder, text, 1).value();
  append(*encoder, *step, {0, 1});
  const KvView view = step->view(0).value();
  cache.reset();
  step.reset();
  ASSERT_OK(std::move(*encoder).submit().value().wait());
  encoder.reset();
  std::vector<std::byte> bytes(view.k.dense.buffer.size_bytes());
  EXPECT_OK(view.k.dense.buffer.read(bytes));
}

}  // namespace
}  // namespace rota::test
