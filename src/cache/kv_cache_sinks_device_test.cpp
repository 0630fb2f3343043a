#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "cache/kv_cache_saved_reference.h"
#include "harness/numbers.h"
#include "harness/on_device.h"
#include "rota/rota.h"

// Sinks that stay beyond a window: a query sees them, and the newest keys.

namespace rota::test {
namespace {

class KvCacheKeptSinks : public OnDevice {
 protected:
  static constexpr std::uint64_t kDim = 32, kWindow = 100, kSinks = 5, kNumbers = 4000, kLongest = 200;
  static constexpr std::uint32_t kLayers = 2;

  struct Kind {
    KvCodec k, v;
    LayerOrder order;
    std::uint64_t tail;
    double tolerance;
  };

  // What a sequence is: the numbers of its tokens.
  struct Model {
    Sequence sequence;
    std::vector<std::uint64_t> tokens = {};
  };

  static std::vector<float> draw(std::uint64_t seed) { return normal_numbers(seed, kNumbers * kDim); }
  // Token t of layer l is number t + l.
  static View tokens_of(const Buffer& buffer, std::uint64_t first, std::uint64_t count) {
    View view = View::token_major(buffer, DType::f32, {.tokens = count, .heads = 1, .dim = kDim});
    view.offset = first * kDim;
    return view;
  }

  KvCache make(const Kind& kind) {
    return KvCache::create(device, {.groups = {{.layers = first_layers(kLayers),
                                                .kv_heads = 1,
                                                .head_dim = kDim,
                                                .k = kind.k,
                                                .v = kind.v,
                                                .dense = DType::f32,
                                                .page = 64,
                                                .tail = kind.tail,
                                                .sinks = kSinks,
                                                .window = kWindow,
                                                .keep_sinks = true}},
                                    .max_tokens = 6000,
                                    .max_sequences = 3,
                                    .max_step_tokens = kLongest,
                                    .layer_order = kind.order})
        .value();
  }

  // By the definition, of the query at a position.
  std::vector<double> wanted(const Model& model, std::uint64_t position, std::uint32_t layer) const {
    std::vector<double> out(kDim);
    double sum = 0;
    for (std::uint64_t key = 0; key <= position; ++key) {
      if (key >= kSinks && position - key >= kWindow) continue;
      const std::uint64_t at = (model.tokens[key] + layer) * kDim;
      double logit = 0;
      for (std::uint64_t d = 0; d < kDim; ++d)
        logit += static_cast<double>(q[position % kLongest * kDim + d]) * static_cast<double>(k[at + d]);
      const double weight = std::exp(0.2 * logit);
      sum += weight;
      for (std::uint64_t d = 0; d < kDim; ++d) out[d] += weight * static_cast<double>(v[at + d]);
    }
    for (double& number : out) number /= sum;
    return out;
  }

  struct Asked {
    Buffer out;
    std::uint64_t first, count;  // positions
    std::uint32_t layer;
  };
  Asked attend_to(Encoder& encoder, const KvView& view, std::uint64_t count, std::uint32_t layer) {
    const std::uint64_t first = view.lengths.front() - count;
    Asked asked{device.allocate(count * kDim * sizeof(float)).value(), first, count, layer};
    std::vector<float> queries;
    for (std::uint64_t p = first; p < first + count; ++p) {
      queries.insert(queries.end(), q.begin() + static_cast<std::ptrdiff_t>(p % kLongest * kDim),
                     q.begin() + static_cast<std::ptrdiff_t>((p % kLongest + 1) * kDim));
    }
    attend(encoder, {.q = tokens_of(upload(device, queries), 0, count),
                     .kv = view,
                     .out = MutView::token_major(asked.out, DType::f32, {.tokens = count, .heads = 1, .dim = kDim}),
                     .scale = 0.2,
                     .query_tokens = {&asked.count, 1}});
    return asked;
  }
  void expect_as_defined(const Asked& asked, const Model& model, double tolerance) {
    std::vector<float> found(asked.count * kDim);
    ASSERT_OK(asked.out.read(std::as_writable_bytes(std::span(found))));
    for (std::uint64_t i = 0; i < asked.count; ++i) {
      const std::vector<double> exact = wanted(model, asked.first + i, asked.layer);
      double worst = 0;
      for (std::uint64_t d = 0; d < kDim; ++d) {
        worst = std::max(worst, std::abs(static_cast<double>(found[i * kDim + d]) - exact[d]));
      }
      ASSERT_LT(worst, tolerance) << "position " << asked.first + i << ", layer " << asked.layer;
    }
  }

  // A step, attended to layer by layer.
  void extend(KvCache& cache, Model& model, std::uint64_t count, double tolerance) {
    const std::uint64_t first = random() % (kNumbers - kLongest - kLayers);
    for (std::uint64_t i = 0; i < count; ++i) model.tokens.push_back(first + i);
    Encoder encoder = device.encoder();
    KvStep step = cache.extend(encoder, model.sequence, count).value();
    std::vector<Asked> asked;
    for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
      step.append(encoder, layer, tokens_of(k_buffer, first + layer, count), tokens_of(v_buffer, first + layer, count));
      asked.push_back(attend_to(encoder, step.view(layer).value(), count, layer));
    }
    ASSERT_OK(std::move(encoder).submit().value().wait());
    for (const Asked& one : asked) expect_as_defined(one, model, tolerance);
  }

  // Some of the newest tokens are taken back, or all, if the window allows it.
  void truncate(KvCache& cache, Model& model) {
    const std::uint64_t length = random() % 3 == 0 ? random() % (kSinks + 3) : random() % (model.tokens.size() + 1);
    Encoder encoder = device.encoder();
    const Status status = cache.truncate(encoder, model.sequence, std::min<std::uint64_t>(length, model.tokens.size()));
    if (status) model.tokens.resize(cache.length(model.sequence).value());
    ASSERT_OK(std::move(encoder).submit());
  }

  void fork(KvCache& cache, std::vector<Model>& models) {
    Encoder encoder = device.encoder();
    const Model& parent = models[random() % models.size()];
    Model child{cache.fork(encoder, parent.sequence).value(), parent.tokens};
    ASSERT_OK(std::move(encoder).submit());
    models.push_back(std::move(child));
  }

  // Leaves, and comes back beside itself.
  void save_and_load(KvCache& cache, std::vector<Model>& models) {
    const Model& model = models[random() % models.size()];
    const KvLoaded loaded = cache.load(cache::reference::saved_bytes(cache, model.sequence).value()).value();
    ASSERT_EQ(loaded.length, model.tokens.size());
    models.push_back({loaded.sequence, model.tokens});
  }

  void run(const Kind& kind, int steps) {
    KvCache cache = make(kind);
    std::vector<Model> models{{cache.open_sequence().value()}};
    for (int i = 0; i < steps && !HasFatalFailure(); ++i) {
      Model& model = models[random() % models.size()];
      const auto choice = random() % 12;
      if (choice == 0) {
        truncate(cache, model);
      } else if (choice == 1 && models.size() < 3) {
        random() % 2 == 0 ? fork(cache, models) : save_and_load(cache, models);
      } else if (choice == 2 && models.size() > 1) {
        ASSERT_OK(cache.close(models.back().sequence));
        models.pop_back();
      } else if (model.tokens.size() < 1500) {
        extend(cache, model, random() % 3 == 0 ? 1 + random() % kLongest : 1 + random() % 4, kind.tolerance);
      }
    }
    for (const Model& model : models) ASSERT_OK(cache.close(model.sequence));
    const KvCounters counters = cache.counters();
    EXPECT_EQ(counters.bytes_used(), 0U) << "pages leak";
  }

  std::mt19937_64 random{11};
  const std::vector<float> q = draw(1), k = draw(2), v = draw(3);
  const Buffer k_buffer = upload(device, k), v_buffer = upload(device, v);
};

TEST_F(KvCacheKeptSinks, AreSeenByEveryQueryWhateverBecomesOfTheSequence) {
  const KvCodec f32 = DType::f32;
  for (const Kind& kind :
       {Kind{f32, f32, LayerOrder::in_turn, 16, 1e-4}, Kind{f32, f32, LayerOrder::together, 0, 1e-4},
        Kind{turbo(8), turbo(8), LayerOrder::in_turn, 0, 0.08}, Kind{turbo(8), f32, LayerOrder::together, 64, 0.08},
        Kind{f32, turbo(8), LayerOrder::in_turn, 64, 0.08}}) {
    run(kind, device.info().kind == DeviceKind::cpu ? 60 : 30);
    if (HasFatalFailure()) return;
  }
}

// Both write sinks that the other does not have.
TEST_F(KvCacheKeptSinks, AreAForksOwnWhileSomeAreToCome) {
  constexpr double kTolerance = 1e-4;
  KvCache cache = make({DType::f32, DType::f32, LayerOrder::in_turn, 0, kTolerance});
  std::vector<Model> models{{cache.open_sequence().value()}};
  extend(cache, models[0], kSinks - 3, kTolerance);
  fork(cache, models);
  for (const std::uint64_t count : {std::uint64_t{1}, std::uint64_t{3}, kLongest, std::uint64_t{1}}) {
    for (Model& model : models) extend(cache, model, count, kTolerance);
  }
  EXPECT_EQ(cache.counters().sinks.used, 4U) << "keys and values of two";
  fork(cache, models);
  EXPECT_EQ(cache.counters().sinks.used, 4U);
  EXPECT_EQ(cache.counters().sinks.shared, 2U) << "sinks that are all there are shared";
}

TEST_F(KvCacheKeptSinks, AreSavedAndLoaded) {
  constexpr double kTolerance = 1e-4;
  for (const std::uint64_t length : {std::uint64_t{0}, std::uint64_t{1}, kSinks - 1, kSinks, std::uint64_t{64},
                                     std::uint64_t{150}, std::uint64_t{900}}) {
    KvCache cache = make({DType::f32, DType::f32, LayerOrder::in_turn, 0, kTolerance});
    std::vector<Model> models{{cache.open_sequence().value()}};
    for (std::uint64_t left = length; left > 0; left -= std::min(left, kLongest)) {
      extend(cache, models[0], std::min(left, kLongest), kTolerance);
    }
    save_and_load(cache, models);
    ASSERT_OK(cache.close(models[0].sequence));
    for (const std::uint64_t count : {std::uint64_t{1}, std::uint64_t{3}, kLongest}) {
      extend(cache, models[1], count, kTolerance);
    }
  }
}

TEST_F(KvCacheKeptSinks, ABadDescriptionIsRefused) {
  const KvGroup good{.layers = {0}, .kv_heads = 1, .head_dim = 64, .window = 100, .keep_sinks = true};
  const auto refused = [&](const KvGroup& group) {
    expect_error(KvCache::create(device, {.groups = {group}, .max_tokens = 1000}), Errc::invalid_argument,
                 {"groups[0].keep_sinks is true", "1 to 64 sinks"});
  };
  EXPECT_OK(KvCache::create(device, {.groups = {good}, .max_tokens = 1000}));
  KvGroup bad = good;
  bad.window.reset();
  refused(bad);
  bad = good;
  bad.sinks = 0;
  refused(bad);
  bad.sinks = 65;
  refused(bad);
  bad = good;
  bad.v_in_k = true;
  refused(bad);
}

}  // namespace
}  // namespace rota::test
