#pragma once

#include <cstdint>
#include <span>
#include <vector>

// Attention's two products, by tiles of kTileRows queries and kTileTokens keys: f32 in, f64 computed. Each sum is over
// ascending dims, or tokens, whatever else is in the tile.

namespace rota::tool {

inline constexpr std::uint64_t kTileRows = 4, kTileTokens = 4;

constexpr std::uint64_t whole_tiles(std::uint64_t tokens) {
  return (tokens + kTileTokens - 1) / kTileTokens * kTileTokens;
}

// [token][dim] as [tile][dim][token of the tile]; the last tile is filled up with zeros.
std::vector<float> tiled_keys(std::span<const float> keys, std::uint64_t dim);

// Rows of numbers, one for each query of a tile.
struct Rows {
  double* first;
  std::uint64_t stride;
};

// logits[row][token] for tokens below `end`, a multiple of kTileTokens. Queries are [dim][row].
void find_logits(std::span<const double> queries, std::span<const float> tiled_keys, std::uint64_t end, Rows logits);

// outputs[row][at] += weights[row][token] * values[token][at], for tokens below `end`. values.size() is `end` times the
// numbers of a head, a multiple of 4.
void add_values(std::span<const float> values, std::uint64_t end, Rows weights, Rows outputs);

}  // namespace rota::tool
