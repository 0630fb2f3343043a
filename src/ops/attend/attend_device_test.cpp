#include <gtest/gtest.h>

#include <random>

#include "harness/on_device.h"
#include "ops/attend/attend_reference.h"

namespace rota::test {
namespace {

using ops::reference::attend_by_definition;
using ops::reference::RowResult;

struct Case {
  KvCodec k = DType::f16, v = DType::f16;
  std::uint32_t head_dim = 64, value_dim = 64, kv_heads = 2, group = 2;
  std::vector<std::uint64_t> lengths = {33};
  std::vector<std::uint64_t> rows = {1};
  std::optional<std::uint64_t> window = {};
  std::uint64_t tail = 64, sinks = 4;
};

class AttendOnDevice : public OnDevice {
 protected:
  View random_view(std::uint64_t tokens, std::uint64_t heads, std::uint64_t dim, DType dtype = DType::f32) {
    std::normal_distribution<double> normal;
    std::vector<std::byte> bytes(tokens * heads * dim * info(dtype).bytes);
    for (std::uint64_t i = 0; i < tokens * heads * dim; ++i) save_bits(bytes, dtype, i, bits_of(normal(random), dtype));
    Buffer buffer = device.allocate(std::max<std::uint64_t>(bytes.size(), 4)).value();
    buffer.write(bytes).value();
    return View::token_major(buffer, dtype, {tokens, heads, dim});
  }

  MutView empty_view(std::uint64_t tokens, std::uint64_t heads, std::uint64_t dim, DType dtype = DType::f32) {
    Buffer buffer = device.allocate(std::max<std::uint64_t>(tokens * heads * dim * info(dtype).bytes, 4)).value();
    buffer.write(std::vector<std::byte>(buffer.size_bytes(), std::byte{0xff})).value();
    return MutView::token_major(buffer, dtype, {tokens, heads, dim});
  }

  // A cache of one layer, with texts of the case's lengths.
  KvView fill(const Case& what) {
    std::uint64_t tokens = 0;
    for (const std::uint64_t length : what.lengths) tokens += length;
    KvGroup group{.layers = {0},
                  .kv_heads = what.kv_heads,
                  .head_dim = what.head_dim,
                  .value_dim = what.value_dim,
                  .k = what.k,
                  .v = what.v,
                  .tail = what.tail,
                  .sinks = what.sinks,
                  .window = what.window};
    cache = KvCache::create(device, {.groups = {group},
                                     .max_tokens = tokens,
                                     .max_sequences = static_cast<std::uint32_t>(what.lengths.size()),
                                     .max_step_tokens = tokens})
                .value();
    std::vector<Sequence> texts;
    for (const std::uint64_t length : what.lengths) {
      texts.push_back(cache->open_sequence().value());
      for (const std::uint64_t part : {length - 1, std::uint64_t{1}}) {
        if (part == 0) continue;
        const View k = random_view(part, what.kv_heads, what.head_dim);
        const View v = random_view(part, what.kv_heads, what.value_dim);
        Encoder encoder = device.encoder();
        cache->extend(encoder, texts.back(), part).value().append(encoder, 0, k, v);
        std::move(encoder).submit().value().wait().value();
      }
    }
    return cache->view(texts, 0).value();
  }

  void run(const Attend& call) {
    ASSERT_OK(runtime::run_on(device, [&](Encoder& encoder) { attend(encoder, call); }));
  }

  // Relative to the length of what the definition gives.
  double error_of(const Attend& call) {
    const auto wanted = attend_by_definition(call);
    std::vector<std::byte> bytes(call.out.buffer.size_bytes());
    call.out.buffer.read(bytes).value();
    double worst = 0;
    for (std::uint64_t token = 0; token < call.out.shape.tokens; ++token) {
      for (std::uint64_t head = 0; head < call.out.shape.heads; ++head) {
        double error = 0;
        double energy = 0;
        for (std::uint64_t d = 0; d < call.out.shape.dim; ++d) {
          const std::uint64_t at =
              call.out.offset + token * call.out.token_stride + head * call.out.head_stride + d * call.out.dim_stride;
          const double found = value_of(load_bits(bytes, call.out.dtype, at), call.out.dtype);
          error += std::pow(found - wanted[token][head].out[d], 2);
          energy += std::pow(wanted[token][head].out[d], 2);
        }
        if (!(error <= 1e-10 * energy)) ++wrong;
        worst = std::max(worst, energy > 0 ? std::sqrt(error / energy) : std::sqrt(error));
      }
    }
    return worst;
  }

  void expect_defined(const Case& what) {
    const KvView kv = fill(what);
    std::uint64_t tokens = 0;
    for (const std::uint64_t rows : what.rows) tokens += rows;
    const std::uint64_t heads = std::uint64_t{what.kv_heads} * what.group;
    const View q = random_view(tokens, heads, what.head_dim);
    const Attend call{.q = q,
                      .kv = kv,
                      .out = empty_view(tokens, heads, what.value_dim),
                      .scale = 1 / std::sqrt(static_cast<double>(what.head_dim)),
                      .rows = what.rows};
    run(call);
    EXPECT_LT(error_of(call), 1e-5);
  }

  std::optional<KvCache> cache;
  std::mt19937_64 random{9};
  std::uint64_t wrong = 0;
};

TEST_F(AttendOnDevice, DenseKeysAndValues) {
  for (const std::uint64_t length : {1U, 31U, 32U, 33U, 513U, 1025U}) {
    expect_defined({.lengths = {length}});
  }
}

TEST_F(AttendOnDevice, SealedKeysAndValues) {
  for (const std::uint64_t length : {1U, 31U, 200U, 513U, 1025U}) {
    for (const std::uint32_t bits : {2U, 3U, 4U, 5U, 6U, 8U}) {
      expect_defined({.k = turbo(bits), .v = turbo(bits), .lengths = {length}});
    }
  }
}

TEST_F(AttendOnDevice, EveryHeadSize) {
  for (const std::uint32_t dim : {32U, 48U, 64U, 80U, 96U, 112U, 128U, 160U, 192U, 256U, 512U, 576U}) {
    expect_defined({.k = turbo(4), .v = turbo(4), .head_dim = dim, .value_dim = dim, .lengths = {330}});
  }
}

TEST_F(AttendOnDevice, ManyTextsManyRows) {
  expect_defined({.k = turbo(4),
                  .v = DType::bf16,
                  .head_dim = 192,
                  .value_dim = 128,
                  .group = 3,
                  .lengths = {700, 3, 64, 129},
                  .rows = {17, 1, 64, 5}});
}

TEST_F(AttendOnDevice, AWindowIsExactlySoManyKeys) {
  expect_defined({.k = turbo(4), .v = turbo(4), .lengths = {900, 20}, .rows = {5, 2}, .window = 130});
}

}  // namespace
}  // namespace rota::test
