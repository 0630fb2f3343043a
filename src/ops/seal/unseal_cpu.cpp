#include <algorithm>
#include <array>
#include <cstring>

#include "codec/codecs.h"
#include "codec/dense/rows.h"
#include "codec/turbo/pack.h"
#include "ops/seal/page_places.h"
#include "ops/seal/seal.h"
#include "ops/seal/unseal_rows.h"

#define ROTA_SIMD_FILE "ops/seal/unseal_simd.h"
#include "core/for_each_isa.h"

namespace rota::ops {
namespace {

constexpr std::array<UnsealToken, core::kIsas.size()> kUnsealTokenByIsa{ROTA_BY_ISA(unseal_token)};

class PageUnsealer {
 public:
  PageUnsealer(const PageUnsealer&) = delete;
  PageUnsealer& operator=(const PageUnsealer&) = delete;

  PageUnsealer(const runtime::CpuCall& call, core::Isa isa) noexcept
      : p_(call.params_as<SealParams>()),
        dtype_(static_cast<DType>(call.constants[kUnsealConstantDense])),
        sealed_(reinterpret_cast<const std::uint32_t*>(call.bound[kUnsealBindingSealed])),
        dense_(call.bound[kUnsealBindingDense]),
        places_{p_, reinterpret_cast<const std::uint32_t*>(call.bound[kUnsealBindingPlan])},
        call_{p_, reinterpret_cast<const std::uint32_t*>(call.bound[kUnsealBindingTable]), levels_},
        from_f32_(codec::row_converter(DType::f32, dtype_, isa)),
        unseal_token_(kUnsealTokenByIsa[static_cast<std::size_t>(isa)]) {
    const std::uint32_t bits = p_.layout_.bits;
    for (std::uint32_t code = 0; code < 1U << bits; ++code) levels_[code] = codec::level_in(call_.table, bits, code);
    fill_negated(call_.table, p_.layout_.dim, scratch_.negated);
  }

  void unseal(std::uint64_t row) noexcept {
    const std::uint32_t* const entry = places_.entry(row);
    const auto* const page = reinterpret_cast<const std::byte*>(sealed_ + places_.sealed_word(row));
    const std::uint64_t first = places_.dense_element(row);
    const PageLayout& layout = p_.layout_;
    for (std::uint32_t i = 0; layout.has_mean != 0 && i < layout.dim; ++i) {
      mean_[i] = codec::finite_half(codec::load_half(page + 2 * std::size_t{i}));
    }
    for (std::uint32_t token = 0; token < entry[kTokens]; ++token) {
      const std::uint32_t t = token % kTileTokens;
      if (t == 0) codec::unpack_tile(layout, token / kTileTokens, page, scratch_.codes);
      const std::uint8_t* const codes = scratch_.codes + std::size_t{t} * layout.dim;
      const std::uint32_t scale = codec::load_half(page + scales_offset(layout) + 2 * std::size_t{token});
      const float factor = codec::finite_half(scale & ~kWithoutMean) * p_.unit;
      unseal_token_(call_, codes, factor, (scale & kWithoutMean) == 0 ? mean_ : kNoMean, scratch_);
      std::byte* const to = dense_ + (first + token * p_.dense.slot) * info(dtype_).bytes;
      from_f32_({reinterpret_cast<const std::byte*>(scratch_.values)}, {to, p_.dense.dim}, layout.dim);
    }
  }

 private:
  const SealParams p_;
  const DType dtype_;
  const std::uint32_t* const sealed_;
  std::byte* const dense_;
  const PagePlaces places_;
  const UnsealCall call_;
  const codec::ConvertRow from_f32_;
  const UnsealToken unseal_token_;
  std::int32_t levels_[256];  // by code
  float mean_[kMaxTurboDim] = {};
  UnsealScratch scratch_;
};

}  // namespace

// A row is one head of one page.
void unseal_cpu(const runtime::CpuCall& call, core::Isa isa) noexcept {
  auto& unsealer = call.emplace<PageUnsealer>(call, isa);
  for (std::uint64_t row = call.first_item; row < call.last_item; ++row) unsealer.unseal(row);
}

void unseal_cpu(const runtime::CpuCall& call) noexcept { unseal_cpu(call, core::best_isa()); }

}  // namespace rota::ops
