// Part of attend_simd.h. Dense keys and values, read as they are stored: rows of elements that lie side by side.

#if !defined(ROTA_ISA)
#include "ops/attend/rows_simd.h"
#endif

namespace rota::ops::ROTA_ISA {

// So many sums stay in registers.
inline constexpr std::uint32_t kDenseSums = simd::kVectorRegisters / 2;

template <DType T>
ROTA_SIMD_INLINE F32s load_some(const std::byte* at, std::uint64_t left) noexcept {
  return left >= kLanes ? simd::load<T>(at) : simd::load<T>(at, simd::Spread{left, info(T).bytes});
}

struct RowBlock {
  std::uint64_t first, last;
};

inline constexpr std::uint64_t kQuarter = kKeyBlock / 4;

// Rows that the first cache holds while all vectors are computed; a multiple of four.
inline constexpr std::uint64_t kBlockBytes = 8192;
ROTA_SIMD_INLINE std::uint64_t block_rows(std::uint64_t row_bytes) noexcept {
  const std::uint64_t fitting = kBlockBytes / row_bytes / 4 * 4;
  return fitting < 4 ? 4 : fitting;
}

// Vectors are multiplied in blocks of these sizes, largest first: as many sums of four rows as there are registers.
inline constexpr std::uint32_t kMostQueries = kDenseSums / 4;
ROTA_SIMD_INLINE std::uint32_t query_block(std::uint32_t left) noexcept {
  return left >= kMostQueries ? kMostQueries : left >= 2 ? 2 : 1;
}

ROTA_SIMD void pack_queries(const float* const* queries, std::uint32_t vectors, std::uint64_t dim,
                            float* packed) noexcept {
  for (std::uint32_t first = 0, size = 0; first < vectors; first += size) {
    size = query_block(vectors - first);
    for (std::uint64_t d = 0; d < dim; d += kLanes) {
      for (std::uint32_t v = 0; v < size; ++v, packed += kLanes) {
        simd::store_bits(simd::load_bits<F32s>(queries[first + v] + d), packed);
      }
    }
  }
}

template <std::uint32_t kVectors>
ROTA_SIMD_INLINE void multiply_keys(const F32s (&key)[4], const float* query, F32s (&sum)[4][kVectors]) noexcept {
#pragma GCC unroll 4
  for (std::uint32_t v = 0; v < kVectors; ++v) {
    const auto numbers = simd::load_bits<F32s>(query + v * kLanes);
#pragma GCC unroll 4
    for (std::uint32_t i = 0; i < 4; ++i) sum[i][v] = multiply_add(key[i], numbers, sum[i][v]);
  }
}

// Logits of a block of rows, four at a time. The first vectors prefetch.
template <DType T, std::uint32_t kVectors>
ROTA_SIMD void dot_rows(const DenseRows& rows, RowBlock block, const DenseQueries& queries,
                        std::uint32_t vector) noexcept {
  constexpr std::uint64_t kBytes = info(T).bytes;
  constexpr std::uint64_t kLineRegisters = kLineBytes / (kLanes * kBytes) < 1 ? 1 : kLineBytes / (kLanes * kBytes);
  constexpr std::uint64_t kLineDims = kLineRegisters * kLanes;
  const std::uint64_t dim = rows.dim;
  const float* const packed = queries.packed + vector * ((dim + kPadFloats - 1) / kPadFloats * kPadFloats);
  float* const logits = queries.logits + std::uint64_t{vector} * kKeyBlock;
  for (std::uint64_t row = block.first; row < block.last; row += 4) {
    const std::byte* const* const at = rows.at + row;
    const std::uint64_t more = block.last - row - 1;  // of the four, the last one again where there are fewer
    const std::byte* const key_at[4] = {at[0], at[least(1, more)], at[least(2, more)], at[least(3, more)]};
    const std::byte* const* const next = rows.prefetches + row / 4;
    const std::byte* const prefetches[4] = {next[0], next[kQuarter], next[2 * kQuarter], next[3 * kQuarter]};
    F32s sum[4][kVectors] = {};
    const float* query = packed;
    std::uint64_t d = 0;
    for (; d + kLineDims <= dim; d += kLineDims) {
      if (vector == 0) {
#pragma GCC unroll 4
        for (const std::byte* const prefetched_row : prefetches) prefetch(prefetched_row + d * kBytes);
      }
#pragma GCC unroll 4
      for (std::uint64_t nth = 0; nth < kLineRegisters; ++nth) {
        F32s key[4];
#pragma GCC unroll 4
        for (std::uint32_t i = 0; i < 4; ++i) key[i] = simd::load<T>(key_at[i] + (d + nth * kLanes) * kBytes);
        multiply_keys(key, query, sum);
        query += kVectors * kLanes;
      }
    }
    for (; d < dim; d += kLanes) {
      F32s key[4];
      for (std::uint32_t i = 0; i < 4; ++i) key[i] = load_some<T>(key_at[i] + d * kBytes, dim - d);
      multiply_keys(key, query, sum);
      query += kVectors * kLanes;
    }
#pragma GCC unroll 4
    for (std::uint32_t v = 0; v < kVectors; ++v) {
      const simd::F32Quad four =
          simd::fold_four<simd::Sum>(sum[0][v], sum[1][v], sum[2][v], sum[3][v]) * queries.logit_scales[vector + v];
      float* const to = logits + std::uint64_t{v} * kKeyBlock + row;
      if (more >= 3) {
        simd::store_bits(four, to);
      } else {
        for (std::uint64_t i = 0; i <= more; ++i) to[i] = four[i];
      }
    }
  }
}

template <DType T>
ROTA_SIMD void dot_all_rows(const DenseRows& rows, const DenseQueries& queries) noexcept {
  const std::uint64_t together = block_rows(rows.dim * info(T).bytes);
  for (RowBlock block{rows.first, 0}; block.first < rows.last; block.first = block.last) {
    block.last = least(block.first + together, rows.last);
    for (std::uint32_t at = 0, size = 0; at < queries.vectors; at += size) {
      size = query_block(queries.vectors - at);
      if (size == 4) {
        if constexpr (kMostQueries >= 4) dot_rows<T, 4>(rows, block, queries, at);
      } else if (size == 2) {
        dot_rows<T, 2>(rows, block, queries, at);
      } else {
        dot_rows<T, 1>(rows, block, queries, at);
      }
    }
  }
}

// Which columns are added: for vectors from `vector` on, from dim `first` on.
struct DenseColumns {
  std::uint32_t vector;
  std::uint64_t first;
};

// outputs[vector] += weight * row, row after row, for some columns. The first vectors prefetch.
template <DType T, std::uint32_t kVectors, std::uint32_t kRegisters>
ROTA_SIMD void add_columns(const DenseRows& rows, RowBlock block, const DenseWeights& weights,
                           DenseColumns columns) noexcept {
  const auto [vector, d] = columns;
  constexpr std::uint64_t kBytes = info(T).bytes;
  F32s sum[kRegisters][kVectors];
#pragma GCC unroll 8
  for (std::uint32_t v = 0; v < kVectors; ++v) {
#pragma GCC unroll 8
    for (std::uint32_t i = 0; i < kRegisters; ++i) {
      sum[i][v] = simd::load_bits<F32s>(weights.outputs[vector + v] + d + i * kLanes);
    }
  }
  const std::uint64_t left = rows.dim - d;
  const float* const weight_of = weights.weights + std::uint64_t{vector} * kKeyBlock;
  for (std::uint64_t row = block.first; row < block.last; ++row) {
    if (vector == 0) {
      const std::byte* const prefetches = rows.prefetches[row % 4 * kQuarter + row / 4] + d * kBytes;
#pragma GCC unroll 8
      for (std::uint64_t line = 0; line < kRegisters * kLanes * kBytes; line += kLineBytes) prefetch(prefetches + line);
    }
    F32s value[kRegisters];
#pragma GCC unroll 8
    for (std::uint32_t i = 0; i < kRegisters; ++i) {
      const std::byte* const at = rows.at[row] + (d + i * kLanes) * kBytes;
      value[i] = kRegisters > 1 ? simd::load<T>(at) : load_some<T>(at, left);
    }
#pragma GCC unroll 8
    for (std::uint32_t v = 0; v < kVectors; ++v) {
      const F32s weight = simd::all(weight_of[std::uint64_t{v} * kKeyBlock + row]);
#pragma GCC unroll 8
      for (std::uint32_t i = 0; i < kRegisters; ++i) sum[i][v] = multiply_add(value[i], weight, sum[i][v]);
    }
  }
#pragma GCC unroll 8
  for (std::uint32_t v = 0; v < kVectors; ++v) {
#pragma GCC unroll 8
    for (std::uint32_t i = 0; i < kRegisters; ++i) {
      simd::store_bits(sum[i][v], weights.outputs[vector + v] + d + i * kLanes);
    }
  }
}

template <DType T, std::uint32_t kVectors>
ROTA_SIMD void add_rows(const DenseRows& rows, RowBlock block, const DenseWeights& weights,
                        std::uint32_t vector) noexcept {
  constexpr std::uint32_t kRegisters = kDenseSums / kVectors < 8 ? kDenseSums / kVectors : 8;
  std::uint64_t d = 0;
  for (; d + kRegisters * kLanes <= rows.dim; d += kRegisters * kLanes) {
    add_columns<T, kVectors, kRegisters>(rows, block, weights, {vector, d});
  }
  for (; d < rows.dim; d += kLanes) add_columns<T, kVectors, 1>(rows, block, weights, {vector, d});
}

template <DType T>
ROTA_SIMD void add_all_rows(const DenseRows& rows, const DenseWeights& weights) noexcept {
  const std::uint64_t together = block_rows(rows.dim * info(T).bytes);
  for (RowBlock block{rows.first, 0}; block.first < rows.last; block.first = block.last) {
    block.last = least(block.first + together, rows.last);
    std::uint32_t at = 0;
    for (; at + 4 <= weights.vectors; at += 4) add_rows<T, 4>(rows, block, weights, at);
    if (at + 2 <= weights.vectors) add_rows<T, 2>(rows, block, weights, at), at += 2;
    if (at < weights.vectors) add_rows<T, 1>(rows, block, weights, at);
  }
}

inline constexpr DenseSimd kDenseSimd{pack_queries,
                                      {dot_all_rows<DType::f32>, dot_all_rows<DType::f16>, dot_all_rows<DType::bf16>},
                                      {add_all_rows<DType::f32>, add_all_rows<DType::f16>, add_all_rows<DType::bf16>}};

}  // namespace rota::ops::ROTA_ISA
