#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/attend/query_vectors.h"
#include "ops/attend/side_memory.h"

namespace rota::ops {

// What queries make of a sealed page's mean: one product for all its keys.
class PageMeans {
 public:
  PageMeans(const SideMemory& memory, const AttendSimd& simd) noexcept : memory_(memory), simd_(simd) {}

  void begin_tile() noexcept { page_ = kNone; }

  // Of the page that has `key`, for each vector; 0 where pages have no mean.
  const float* products(const QueryVectors& vectors, const SequenceHead& of, std::uint64_t key) noexcept {
    if (memory_.sealed_page(key) != page_) find(vectors, of, key);
    return products_;
  }

 private:
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};

  void find(const QueryVectors& vectors, const SequenceHead& of, std::uint64_t key) noexcept {
    page_ = memory_.sealed_page(key);
    const std::byte* const mean = memory_.mean(of, key);
    if (mean == nullptr) {
      std::fill_n(products_, vectors.count(), 0.0F);
      return;
    }
    for (std::uint32_t first = 0; first < vectors.count(); first += 4) {
      const float* queries[4];
      for (std::uint32_t j = 0; j < 4; ++j) queries[j] = vectors.query(vectors.one_of_four(first + j));
      simd_.tile.dot_mean(queries, mean, memory_.dim(), products_ + first);
    }
  }

  const SideMemory& memory_;
  const AttendSimd& simd_;
  std::uint64_t page_ = kNone;
  float products_[core::round_up(kCpuVectors, 4U)];
};

}  // namespace rota::ops
