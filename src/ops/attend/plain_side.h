#pragma once

#include "codec/dense/rows.h"
#include "ops/attend/online_softmax.h"
#include "ops/attend/page_means.h"
#include "ops/attend/side_memory.h"

// Keys and values as numbers of f32, whatever they are: where the caller asks for f32 arithmetic, and of dense memory
// whose elements do not lie side by side. Slow, and simple enough to believe.

namespace rota::ops {

class PlainRows {
 public:
  static constexpr std::uint64_t kRowsAtOnce = 16;

  explicit PlainRows(const SideMemory& memory) noexcept;

  // Levels are written down here, not when a kernel is made: most kernels take no rows from here.
  void begin_tile() noexcept;

  // How many of `keys` may be read at once from `key` on.
  static std::uint64_t count(std::uint64_t key, const KeyRange& keys) noexcept {
    const std::uint64_t left = keys.end - key, fitting = kRowsAtOnce - key % kRowsAtOnce;
    return left < fitting ? left : fitting;
  }
  // Padded rows. Sealed ones are levels; token_scale() has their scales.
  const float* read(const SequenceHead& of, std::uint64_t key, std::uint64_t count) noexcept;
  float token_scale(std::uint64_t i) const noexcept { return token_scales_[i]; }
  bool with_mean(std::uint64_t i) const noexcept { return with_mean_[i]; }

 private:
  void unpack(const SequenceHead& of, std::uint64_t key) noexcept;

  const SideMemory& memory_;
  const codec::ConvertRow to_f32_;
  std::uint64_t tile_ = ~std::uint64_t{0};
  const std::byte* page_ = nullptr;
  float levels_[256];  // by code
  float token_scales_[kRowsAtOnce];
  bool with_mean_[kRowsAtOnce];
  alignas(64) float rows_[kRowsAtOnce * kMaxAttendDim];
  std::uint8_t codes_[kTileTokens * kMaxAttendDim];
};
static_assert(kTileTokens % PlainRows::kRowsAtOnce == 0 && kKeyBlock % kTileTokens == 0);

class PlainKeys {
 public:
  PlainKeys(const SideMemory& memory, const AttendSimd& simd, PageMeans& means) noexcept
      : memory_(memory), simd_(simd), means_(means), rows_(memory) {}

  void begin_tile() noexcept { rows_.begin_tile(); }
  void find_logits(const HeadBlock& block, const QueryVectors& vectors, OnlineSoftmax& softmax) noexcept;

 private:
  const SideMemory& memory_;
  const AttendSimd& simd_;
  PageMeans& means_;
  PlainRows rows_;
};

class PlainValues {
 public:
  PlainValues(const SideMemory& memory, const AttendSimd& simd) noexcept
      : memory_(memory), simd_(simd), rows_(memory) {}

  void begin_tile() noexcept { rows_.begin_tile(); }
  void add(const HeadBlock& block, const QueryVectors& vectors, OnlineSoftmax& softmax) noexcept;

 private:
  const SideMemory& memory_;
  const AttendSimd& simd_;
  PlainRows rows_;
};

}  // namespace rota::ops
