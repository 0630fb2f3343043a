#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "codec/dense/rows.h"
#include "codec/turbo/arithmetic.shared.h"
#include "codec/turbo/pack.h"
#include "ops/seal/page_places.h"
#include "ops/seal/seal.h"
#include "ops/seal/seal_rows.h"
#include "runtime/counter.h"

#define ROTA_SIMD_FILE "ops/seal/seal_simd.h"
#include "core/for_each_isa.h"

namespace rota::ops {
namespace {

constexpr std::array<SealRows, core::kIsas.size()> kSealRowsByIsa{ROTA_BY_ISA(kSealRows)};

void store_half(std::uint32_t bits, std::byte* at) noexcept {
  const auto half = static_cast<std::uint16_t>(bits);
  std::memcpy(at, &half, sizeof(half));
}

// Seals one head's page after the other of a call.
class PageSealer {
 public:
  PageSealer(const PageSealer&) = delete;
  PageSealer& operator=(const PageSealer&) = delete;

  PageSealer(const runtime::CpuCall& call, core::Isa isa) noexcept
      : p_(call.params_as<SealParams>()),
        dtype_(static_cast<DType>(call.constants[kSealConstantDense])),
        dense_(call.bound[kSealBindingDense]),
        sealed_(reinterpret_cast<std::uint32_t*>(call.bound[kSealBindingSealed])),
        places_{p_, reinterpret_cast<const std::uint32_t*>(call.bound[kSealBindingPlan])},
        cells_(reinterpret_cast<const std::uint32_t*>(call.bound[kSealBindingTable]), p_.layout_.bits),
        call_{p_, reinterpret_cast<const std::uint32_t*>(call.bound[kSealBindingTable]), cells_, negated_, mean_},
        to_half_(codec::row_converter(dtype_, DType::f16, isa)),
        count_non_finite_(codec::non_finite_counter(DType::f16, isa)),
        rows_(kSealRowsByIsa[static_cast<std::size_t>(isa)]),
        seal_tokens_(rows_.seal_tokens[p_.layout_.bits - (p_.layout_.bits == kUniformBits ? 3 : 2)]) {
    fill_negated(call_.table, p_.layout_.dim, negated_);
  }

  // Meanwhile the values of row `next` are fetched: hardware does not see them where a token's heads follow each other.
  void seal(std::uint64_t row, std::uint64_t next) noexcept {
    const std::uint32_t* const entry = places_.entry(row);
    first_ = places_.dense_element(row);
    next_first_ = places_.dense_element(next);
    auto* const page = reinterpret_cast<std::byte*>(sealed_ + places_.sealed_word(row));
    const PageLayout& layout = p_.layout_;
    if (layout.has_mean != 0) seal_mean(entry[kSinks], entry[kTokens], page);
    for (std::uint32_t tile = 0; tile < layout.tokens / kTileTokens; ++tile) {
      const std::uint32_t first = tile * kTileTokens;
      const std::uint32_t live = std::clamp(entry[kTokens], first, first + kTileTokens) - first;
      for (std::uint32_t t = 0; t < live; t += kTokensTogether) seal_together(first + t, live - t, page);
      std::memset(codes_ + std::size_t{live} * layout.dim, 0, std::size_t{kTileTokens - live} * layout.dim);
      std::memset(page + scales_offset(layout) + 2 * std::size_t{first + live}, 0, 2 * std::size_t{kTileTokens - live});
      codec::pack_tile(layout, tile, codes_, page);
    }
  }

  std::uint64_t non_finite() const noexcept { return non_finite_; }

 private:
  void seal_together(std::uint32_t token, std::uint64_t left, std::byte* page) noexcept {
    const std::uint64_t count = std::min(left, kTokensTogether);
    const std::byte* rows[kTokensTogether];
    std::uint32_t scales[kTokensTogether];
    for (std::uint64_t t = 0; t < count; ++t) {
      fetch(token + t);
      rows[t] = finite_row(token + t, scratch_[t].row, non_finite_);
    }
    seal_tokens_(call_, {rows, count, scratch_, codes_ + token % kTileTokens * std::size_t{p_.layout_.dim}, scales});
    for (std::uint64_t t = 0; t < count; ++t) store_half(scales[t], page + scales_offset(p_.layout_) + 2 * (token + t));
  }

  void fetch(std::uint64_t token) const noexcept {
    const std::byte* const row = dense_ + (next_first_ + token * p_.dense.slot) * info(dtype_).bytes;
    for (std::uint64_t at = 0; at < std::uint64_t{p_.layout_.dim} * info(dtype_).bytes; at += 64) {
      __builtin_prefetch(row + at, 0, 2);
    }
  }

  // A token's values as f16 side by side, NaN as 0 and infinities as the largest number.
  const std::byte* finite_row(std::uint64_t token, std::uint16_t* scratch, std::uint64_t& non_finite) noexcept {
    const std::uint64_t dim = p_.layout_.dim;
    const std::byte* row = dense_ + (first_ + token * p_.dense.slot) * info(dtype_).bytes;
    auto* const copy = reinterpret_cast<std::byte*>(scratch);
    if (dtype_ != DType::f16 || p_.dense.dim != 1) {
      to_half_({row, p_.dense.dim}, {copy}, dim);
      row = copy;
    }
    const std::uint64_t found = count_non_finite_({row}, dim);
    if (found == 0) return row;
    non_finite += found;
    std::memmove(copy, row, dim * sizeof(std::uint16_t));
    for (std::uint64_t i = 0; i < dim; ++i) {
      std::uint16_t& half = scratch[i];
      const unsigned magnitude = half & 0x7fffU;
      if (magnitude < 0x7c00) continue;
      half = static_cast<std::uint16_t>(magnitude == 0x7c00 ? (half & 0x8000U) | 0x7bffU : 0);
    }
    return copy;
  }

  void seal_mean(std::uint32_t first, std::uint32_t last, std::byte* page) noexcept {
    const std::uint32_t dim = p_.layout_.dim;
    std::fill_n(mean_, dim, 0.0);
    std::uint64_t counted_elsewhere = 0;
    for (std::uint32_t token = first; token < last; ++token) {
      rows_.add_row(finite_row(token, scratch_[0].row, counted_elsewhere), dim, mean_);
    }
    for (std::uint32_t i = 0; i < dim; ++i) {
      const auto sum = static_cast<std::int64_t>(mean_[i] * 0x1p24);
      const Limbs limbs{static_cast<int>(sum >> 20), static_cast<int>(sum & 0xfffff)};
      const std::uint32_t half = first < last ? mean_from(limbs, last - first) : 0;
      store_half(half, page + 2 * std::size_t{i});
      mean_[i] = static_cast<double>(f32_from_f16(static_cast<std::uint16_t>(half)));
    }
    std::memset(page + 2 * std::size_t{dim}, 0, scales_offset(p_.layout_) - 2 * std::size_t{dim});
  }

  const SealParams p_;
  const DType dtype_;
  const std::byte* const dense_;
  std::uint32_t* const sealed_;
  const PagePlaces places_;
  const LevelCells cells_;
  const SealCall call_;
  const codec::ConvertRow to_half_;
  const codec::CountRow count_non_finite_;
  const SealRows& rows_;
  const SealRows::SealTokens seal_tokens_;
  std::uint64_t first_ = 0;  // element of the page
  std::uint64_t next_first_ = 0;
  std::uint64_t non_finite_ = 0;
  alignas(64) std::int32_t negated_[kMaxTurboDim];
  alignas(64) double mean_[kMaxTurboDim];
  alignas(64) std::uint8_t codes_[kTileTokens * std::size_t{kMaxTurboDim} + kSlack];
  TokenScratch scratch_[kTokensTogether];
};

}  // namespace

// A row is one head of one page.
void seal_cpu(const runtime::CpuCall& call, core::Isa isa) noexcept {
  auto& sealer = call.emplace<PageSealer>(call, isa);
  for (std::uint64_t row = call.first_item; row < call.last_item; ++row) {
    sealer.seal(row, call.after(row));
  }
  const std::size_t counter = call.params_as<SealParams>().counter;
  runtime::add_to_counter(call.bound[kSealBindingCounter] + sizeof(uint) * counter, sealer.non_finite());
}

void seal_cpu(const runtime::CpuCall& call) noexcept { seal_cpu(call, core::best_isa()); }

}  // namespace rota::ops
