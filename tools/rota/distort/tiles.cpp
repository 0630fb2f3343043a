#include "distort/tiles.h"

#include <algorithm>

// The one file of the tool where loops must be fast: the build gives it -O3.

namespace rota::tool {
namespace {

constexpr std::uint64_t kTileDims = 4;
constexpr std::uint64_t kTokensInCache = 64;  // values of so many tokens stay in the first cache

using Tile = double[kTileRows][kTileTokens];

}  // namespace

std::vector<float> tiled_keys(std::span<const float> keys, std::uint64_t dim) {
  const std::uint64_t tokens = keys.size() / dim;
  std::vector<float> tiled(whole_tiles(tokens) * dim);
  for (std::uint64_t token = 0; token < tokens; ++token) {
    float* const to = tiled.data() + token / kTileTokens * kTileTokens * dim + token % kTileTokens;
    const float* const from = keys.data() + token * dim;
    for (std::uint64_t at = 0; at < dim; ++at) to[at * kTileTokens] = from[at];
  }
  return tiled;
}

void find_logits(std::span<const double> queries, std::span<const float> tiled_keys, std::uint64_t end, Rows logits) {
  const std::uint64_t dim = queries.size() / kTileRows;
  for (std::uint64_t begin = 0; begin < end; begin += kTileTokens) {
    Tile sums = {};
    const float* keys = tiled_keys.data() + begin * dim;
    const double* query = queries.data();
    for (std::uint64_t at = 0; at < dim; ++at, keys += kTileTokens, query += kTileRows) {
      double wide[kTileTokens];
      for (std::uint64_t token = 0; token < kTileTokens; ++token) wide[token] = static_cast<double>(keys[token]);
      for (std::uint64_t row = 0; row < kTileRows; ++row) {
        for (std::uint64_t token = 0; token < kTileTokens; ++token) sums[row][token] += query[row] * wide[token];
      }
    }
    for (std::uint64_t row = 0; row < kTileRows; ++row) {
      std::copy_n(sums[row], kTileTokens, logits.first + row * logits.stride + begin);
    }
  }
}

void add_values(std::span<const float> values, std::uint64_t end, Rows weights, Rows outputs) {
  const std::uint64_t dim = end == 0 ? 0 : values.size() / end;
  for (std::uint64_t begin = 0; begin < end; begin += kTokensInCache) {
    const std::uint64_t last = std::min(begin + kTokensInCache, end);
    for (std::uint64_t at = 0; at < dim; at += kTileDims) {
      double sums[kTileRows][kTileDims];
      for (std::uint64_t row = 0; row < kTileRows; ++row) {
        std::copy_n(outputs.first + row * outputs.stride + at, kTileDims, sums[row]);
      }
      for (std::uint64_t token = begin; token < last; ++token) {
        double wide[kTileDims];
        const float* const value = values.data() + token * dim + at;
        for (std::uint64_t part = 0; part < kTileDims; ++part) wide[part] = static_cast<double>(value[part]);
        for (std::uint64_t row = 0; row < kTileRows; ++row) {
          const double weight = weights.first[row * weights.stride + token];
          for (std::uint64_t part = 0; part < kTileDims; ++part) sums[row][part] += weight * wide[part];
        }
      }
      for (std::uint64_t row = 0; row < kTileRows; ++row) {
        std::copy_n(sums[row], kTileDims, outputs.first + row * outputs.stride + at);
      }
    }
  }
}

}  // namespace rota::tool
