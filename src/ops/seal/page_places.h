#pragma once

#include <cstdint>

#include "ops/seal/seal.params.h"

namespace rota::ops {

// Where the CPU kernels of `seal` and `unseal` find a row: one head of one page of the plan.
struct PagePlaces {
  const SealParams& params;
  const std::uint32_t* plan;

  const std::uint32_t* entry(std::uint64_t row) const noexcept {
    return plan + (params.first_page + row / params.heads) * kPageWords;
  }
  std::uint64_t dense_element(std::uint64_t row) const noexcept {
    return params.dense.offset + entry(row)[kDensePage] * params.dense.page + row % params.heads * params.dense.head;
  }
  std::uint64_t sealed_word(std::uint64_t row) const noexcept {
    return params.sealed_offset + entry(row)[kSealedPage] * params.sealed_page +
           row % params.heads * params.sealed_head;
  }
};

// -1 for each dim that the rotation negates, else 0.
inline void fill_negated(const std::uint32_t* table, std::uint32_t dim, std::int32_t* negated) noexcept {
  for (std::uint32_t i = 0; i < dim; ++i) {
    negated[i] = -static_cast<std::int32_t>(table[kSigns + i / 32] >> (i % 32) & 1U);
  }
}

}  // namespace rota::ops
