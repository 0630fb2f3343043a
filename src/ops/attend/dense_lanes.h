// Part of attend_lanes.h. Dense keys and values, read as they are stored: rows of elements that lie side by side.

namespace rota::ops::ROTA_ISA {

// So many sums stay in registers.
inline constexpr std::uint32_t kDenseSums = kLanes == 16 ? 16 : 8;

template <DType T>
ROTA_LANES_INLINE F32s load_some(const std::byte* at, std::uint64_t left) noexcept {
  return left >= kLanes ? lanes::load<T>(at) : lanes::load<T>(at, lanes::Spread{left, info(T).bytes});
}

// Logits of four rows. They are fetched for the first vectors only.
template <DType T, std::uint32_t kVectors>
ROTA_LANES void dot_rows(const DenseRows& rows, std::uint64_t first, const DenseQueries& queries,
                         std::uint32_t vector) noexcept {
  constexpr std::uint64_t kBytes = info(T).bytes;
  const std::byte* const* const at = rows.at + first;
  const bool fetches = vector == 0;
  F32s sum[4][kVectors] = {};
  std::uint64_t d = 0;
  for (; d + kLanes <= rows.dim; d += kLanes) {
    if (fetches && d * kBytes % kLineBytes == 0) {
#pragma GCC unroll 4
      for (std::uint32_t i = 0; i < 4; ++i) fetch(at[kRowsAhead + i] + d * kBytes);
    }
    F32s key[4];
#pragma GCC unroll 4
    for (std::uint32_t i = 0; i < 4; ++i) key[i] = lanes::load<T>(at[i] + d * kBytes);
#pragma GCC unroll 4
    for (std::uint32_t v = 0; v < kVectors; ++v) {
      const auto query = lanes::load_bits<F32s>(queries.query[vector + v] + d);
#pragma GCC unroll 4
      for (std::uint32_t i = 0; i < 4; ++i) sum[i][v] = multiply_add(key[i], query, sum[i][v]);
    }
  }
  if (d < rows.dim) {
    for (std::uint32_t i = 0; i < 4; ++i) {
      const F32s key = load_some<T>(at[i] + d * kBytes, rows.dim - d);
#pragma GCC unroll 4
      for (std::uint32_t v = 0; v < kVectors; ++v) {
        sum[i][v] = multiply_add(key, lanes::load_bits<F32s>(queries.query[vector + v] + d), sum[i][v]);
      }
    }
  }
  const std::uint8_t* const place = rows.place + first;
#pragma GCC unroll 4
  for (std::uint32_t v = 0; v < kVectors; ++v) {
    const lanes::F32Quad logits =
        lanes::fold_four<lanes::Sum>(sum[0][v], sum[1][v], sum[2][v], sum[3][v]) * queries.units[vector + v];
    for (std::uint32_t i = 0; i < 4; ++i) queries.logits[vector + v][place[i]] = logits[i];
  }
}

template <DType T>
ROTA_LANES void dot_all_rows(const DenseRows& rows, const DenseQueries& queries) noexcept {
  for (std::uint64_t first = 0; first < rows.count; first += 4) {
    std::uint32_t at = 0;
    if constexpr (kDenseSums >= 16) {
      for (; at + 4 <= queries.vectors; at += 4) dot_rows<T, 4>(rows, first, queries, at);
    }
    for (; at + 2 <= queries.vectors; at += 2) dot_rows<T, 2>(rows, first, queries, at);
    if (at < queries.vectors) dot_rows<T, 1>(rows, first, queries, at);
  }
}

struct RowBlock {
  std::uint64_t first, last;
};

// outputs[vector] += weight * row, row after row, for some columns. The first columns and vectors fetch.
template <DType T, std::uint32_t kVectors, std::uint32_t kRegisters>
ROTA_LANES void add_columns(const DenseRows& rows, RowBlock block, const DenseWeights& weights, std::uint32_t vector,
                            std::uint64_t d) noexcept {
  constexpr std::uint64_t kBytes = info(T).bytes;
  F32s sum[kRegisters][kVectors];
#pragma GCC unroll 8
  for (std::uint32_t v = 0; v < kVectors; ++v) {
#pragma GCC unroll 8
    for (std::uint32_t i = 0; i < kRegisters; ++i) {
      sum[i][v] = lanes::load_bits<F32s>(weights.outputs[vector + v] + d + i * kLanes);
    }
  }
  const std::uint64_t left = rows.dim - d;
  const bool fetches = vector == 0 && d == 0;
  for (std::uint64_t row = block.first; row < block.last; ++row) {
    if (fetches) {
      for (std::uint64_t line = 0; line < rows.dim * kBytes; line += kLineBytes)
        fetch(rows.at[row + kRowsAhead] + line);
    }
    F32s value[kRegisters];
#pragma GCC unroll 8
    for (std::uint32_t i = 0; i < kRegisters; ++i) {
      const std::byte* const at = rows.at[row] + (d + i * kLanes) * kBytes;
      value[i] = kRegisters > 1 ? lanes::load<T>(at) : load_some<T>(at, left);
    }
    const std::uint8_t place = rows.place[row];
#pragma GCC unroll 8
    for (std::uint32_t v = 0; v < kVectors; ++v) {
      const F32s weight = F32s{} + weights.weights[vector + v][place];
#pragma GCC unroll 8
      for (std::uint32_t i = 0; i < kRegisters; ++i) sum[i][v] = multiply_add(value[i], weight, sum[i][v]);
    }
  }
#pragma GCC unroll 8
  for (std::uint32_t v = 0; v < kVectors; ++v) {
#pragma GCC unroll 8
    for (std::uint32_t i = 0; i < kRegisters; ++i) {
      lanes::store_bits(sum[i][v], weights.outputs[vector + v] + d + i * kLanes);
    }
  }
}

template <DType T, std::uint32_t kVectors>
ROTA_LANES void add_rows(const DenseRows& rows, RowBlock block, const DenseWeights& weights,
                         std::uint32_t vector) noexcept {
  constexpr std::uint32_t kRegisters = kDenseSums / kVectors < 8 ? kDenseSums / kVectors : 8;
  std::uint64_t d = 0;
  for (; d + kRegisters * kLanes <= rows.dim; d += kRegisters * kLanes) {
    add_columns<T, kVectors, kRegisters>(rows, block, weights, vector, d);
  }
  for (; d < rows.dim; d += kLanes) add_columns<T, kVectors, 1>(rows, block, weights, vector, d);
}

// By blocks of rows that the first cache holds while all columns and vectors are computed.
template <DType T>
ROTA_LANES void add_all_rows(const DenseRows& rows, const DenseWeights& weights) noexcept {
  constexpr std::uint64_t kBlockBytes = 8192;
  const std::uint64_t fitting = kBlockBytes / (rows.dim * info(T).bytes);
  const std::uint64_t block_rows = fitting < 4 ? 4 : fitting;
  for (RowBlock block{0, 0}; block.first < rows.count; block.first = block.last) {
    block.last = rows.count - block.first < block_rows ? rows.count : block.first + block_rows;
    std::uint32_t at = 0;
    for (; at + 4 <= weights.vectors; at += 4) add_rows<T, 4>(rows, block, weights, at);
    if (at + 2 <= weights.vectors) add_rows<T, 2>(rows, block, weights, at), at += 2;
    if (at < weights.vectors) add_rows<T, 1>(rows, block, weights, at);
  }
}

inline constexpr DenseLanes kDenseLanes{
    {dot_all_rows<DType::f32>, dot_all_rows<DType::f16>, dot_all_rows<DType::bf16>},
    {add_all_rows<DType::f32>, add_all_rows<DType::f16>, add_all_rows<DType::bf16>}};

}  // namespace rota::ops::ROTA_ISA
