#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "core/isa.h"
#include "core/text.h"
#include "ops/attend/attend_kernels.h"

// Products of the largest bytes that there may be, on every instruction set that runs here: sums are exact.

namespace rota::ops {
namespace {

constexpr std::uint32_t kDim = 128;
constexpr std::uint16_t kHalfOfOne = 0x3c00;

// One tile of levels, and numbers that leave sums as they are.
struct DecodedTile {
  DecodedTile() {
    std::ranges::fill(scales, kHalfOfOne);
    tiles.at[0] = {
        .low = levels, .high = levels, .scales = reinterpret_cast<const std::byte*>(scales), .prefetches = {}};
    tiles.count = 1;
    tiles.dim = kDim;
    tiles.table = table;
  }
  DecodedTile(const DecodedTile&) = delete;
  DecodedTile& operator=(const DecodedTile&) = delete;

  // What stands for a token's dim: four dims of 16 tokens to a line of keys, four tokens of 16 dims to one of values.
  std::byte& key(std::uint64_t token, std::uint64_t dim) {
    return levels[(token / 16 * (kDim / 4) + dim / 4) * kLineBytes + token % 16 * 4 + dim % 4];
  }
  std::byte& value(std::uint64_t token, std::uint64_t dim) {
    return levels[(token / 4 * (kDim / 16) + dim / 16) * kLineBytes + dim % 16 * 4 + token % 4];
  }

  alignas(64) std::byte levels[kTileTokens * kDim];
  alignas(64) std::uint16_t scales[kTileTokens];
  alignas(64) std::uint8_t table[64] = {};
  Tiles tiles{};
};

// What is multiplied: by which instructions, of which bytes, for how many vectors.
struct Tried {
  core::Isa isa;
  std::uint32_t width;
  int most_level, most_query;
  std::uint32_t vectors;
  bool alike;  // all bytes at their most

  const TileSimd& simd() const { return attend_simd(isa).tile; }
  std::uint32_t terms() const { return terms_of(width); }
  // What levels of a side are larger by.
  int more(std::uint32_t side) const { return simd().order.more[side][terms() - 1]; }
  std::size_t kernel() const { return static_cast<std::size_t>(std::countr_zero(vectors)); }
  // Sums of two terms are rounded.
  double tolerance() const { return terms() == 1 ? 0 : 64; }
  std::string name() const {
    return core::text("{}, {} terms, {} vectors, {}", core::name_of(isa), terms(), vectors, alike ? "alike" : "drawn");
  }
};

std::vector<Tried> all_tried() {
  std::vector<Tried> all;
  for (const core::Isa isa : core::kIsas) {
    if (!core::runs_here(isa)) continue;
    for (const bool alike : {false, true}) {
      for (std::uint32_t vectors = 1; vectors <= 8; vectors *= 2) {
        all.push_back({isa, kDecoded, 64, 127, vectors, alike});
        if (vectors > 1) all.push_back({isa, kDecodedTwice, 127, 127, vectors, alike});
      }
    }
  }
  return all;
}

// Where a vector's byte lies in its block: of a dim of queries, or of a token of weights.
std::size_t place_of(const Tried& tried, std::size_t vector, std::size_t at, bool in_rows) {
  if (in_rows) return vector * kTileTokens + at;
  const std::uint32_t together = tried.simd().order.quads_together;
  const QuadPlaces places{1, together, std::uint64_t{4} * std::max(together, 1U) * tried.vectors};
  return places.stride / tried.vectors * vector + places.of(at / 4) + at % 4;
}

// What kernels may read behind the last byte.
constexpr std::size_t kBeyond = 16;

// Of `lowest` to `highest`, and often one of these.
int draw(std::minstd_rand& random, int lowest, int highest) {
  const auto kind = random() % 4;
  if (kind == 0) return lowest + static_cast<int>(random() % static_cast<unsigned>(highest - lowest + 1));
  return kind == 1 ? lowest : highest;
}

TEST(TileProducts, OfKeysAreExact) {
  std::minstd_rand random(1);
  for (const Tried& tried : all_tried()) {
    const int more = tried.more(kKeys);
    const std::uint32_t size = tried.vectors;
    DecodedTile tile;
    std::vector<int> queries(std::size_t{size} * kDim);  // [vector][dim]
    std::vector<std::byte> bytes(queries.size() + kBeyond);
    for (std::size_t i = 0; i < queries.size(); ++i) {
      queries[i] = tried.alike ? tried.most_query : draw(random, -tried.most_query, tried.most_query);
      bytes[place_of(tried, i / kDim, i % kDim, false)] = static_cast<std::byte>(queries[i]);
    }
    std::vector<int> levels(std::size_t{kTileTokens} * kDim);  // [token][dim], as they are multiplied
    for (std::size_t i = 0; i < levels.size(); ++i) {
      levels[i] = more + (tried.alike ? tried.most_level : draw(random, -tried.most_level, tried.most_level));
      tile.key(i / kDim, i % kDim) = static_cast<std::byte>(levels[i]);
    }
    const std::vector<std::int32_t> starts(size, 0);
    const std::vector<float> scales(size, 1.0F), means(size, 0.0F);
    std::vector<float> logits(std::size_t{size} * kKeyBlock);
    tried.simd().dot_keys[tried.width][tried.kernel()](
        tile.tiles, {bytes.data(), starts.data(), scales.data(), means.data(), size, logits.data()}, 0);
    const auto sum_of = [&](std::size_t vector, std::size_t token) {
      return std::inner_product(&queries[vector * kDim], &queries[vector * kDim] + kDim, &levels[token * kDim], 0.0);
    };
    for (std::size_t q = 0; q < size / tried.terms(); ++q) {
      for (std::size_t token = 0; token < kTileTokens; ++token) {
        const double sum =
            tried.terms() == 1 ? sum_of(q, token) : 256 * sum_of(2 * q, token) + sum_of(2 * q + 1, token);
        ASSERT_NEAR(logits[q * kKeyBlock + token], sum, tried.tolerance()) << tried.name() << ", token " << token;
      }
    }
  }
}

TEST(TileProducts, OfValuesAreExact) {
  std::minstd_rand random(2);
  for (const Tried& tried : all_tried()) {
    const std::uint32_t size = tried.vectors;
    DecodedTile tile;
    std::vector<int> levels(std::size_t{kTileTokens} * kDim);  // [dim][token]
    for (std::size_t i = 0; i < levels.size(); ++i) {
      levels[i] = tried.alike ? -tried.most_level : draw(random, -tried.most_level, tried.most_level);
      tile.value(i % kTileTokens, i / kTileTokens) = static_cast<std::byte>(levels[i] + tried.more(kValues));
    }
    std::vector<int> weights(std::size_t{size} * kTileTokens);  // [vector][token]
    std::vector<std::byte> bytes(weights.size() + kBeyond);
    std::vector<std::int32_t> starts(size);
    const bool in_rows = tried.simd().order.quads_together == 0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      weights[i] = tried.alike ? 255 : draw(random, 0, 255);
      bytes[place_of(tried, i / kTileTokens, i % kTileTokens, in_rows)] = static_cast<std::byte>(weights[i]);
      starts[i / kTileTokens] -= tried.more(kValues) * weights[i];
    }
    const std::vector<float> scales(size, 1.0F);
    std::vector<float> outputs(std::size_t{size} * kDim, 0.0F);
    tried.simd().add_values[tried.width][tried.kernel()](
        tile.tiles, {bytes.data(), scales.data(), size, outputs.data(), kDim, starts.data()}, 0);
    const auto sum_of = [&](std::size_t vector, std::size_t d) {
      const int* const first = &weights[vector * kTileTokens];
      return std::inner_product(first, first + kTileTokens, &levels[d * kTileTokens], 0.0);
    };
    for (std::size_t q = 0; q < size / tried.terms(); ++q) {
      for (std::size_t d = 0; d < kDim; ++d) {
        const double sum = tried.terms() == 1 ? sum_of(q, d) : 256 * sum_of(2 * q, d) + sum_of(2 * q + 1, d);
        ASSERT_NEAR(outputs[q * kDim + d], sum, tried.tolerance()) << tried.name() << ", dim " << d;
      }
    }
  }
}

}  // namespace
}  // namespace rota::ops
