#include "c/convert.h"
#include "c/record.h"

namespace rota::c {
namespace {

static_assert(static_cast<std::uint32_t>(Pairing::halves) == ROTA_PAIR_HALVES &&
              static_cast<std::uint32_t>(Pairing::interleaved) == ROTA_PAIR_INTERLEAVED &&
              static_cast<std::uint32_t>(Pairing::section_halves) == ROTA_PAIR_SECTION_HALVES);
static_assert(static_cast<std::uint32_t>(SectionOrder::contiguous) == ROTA_SECTIONS_CONTIGUOUS &&
              static_cast<std::uint32_t>(SectionOrder::interleaved) == ROTA_SECTIONS_INTERLEAVED);
static_assert(static_cast<std::uint32_t>(SectionFrequencies::shared) == ROTA_FREQUENCIES_SHARED &&
              static_cast<std::uint32_t>(SectionFrequencies::own) == ROTA_FREQUENCIES_OWN);
static_assert(static_cast<std::uint32_t>(YarnRamp::whole_pairs) == ROTA_YARN_WHOLE_PAIRS &&
              static_cast<std::uint32_t>(YarnRamp::exact) == ROTA_YARN_EXACT);

// The defaults of C are those of C++.
constexpr bool same_rotary_defaults() {
  const rota_rotary c = ROTA_ROTARY_INIT;
  const Rotary rotary{.pairing = Pairing::halves, .theta = 1};
  return rotary.rope_dim == if_not_zero(c.rope_dim) && rotary.turning_pairs == if_not_none(c.turning_pairs) &&
         rotary.exponent_dim == if_not_zero(c.exponent_dim) && rotary.factors.empty() && c.factor_count == 0 &&
         !(rotary.interpolation < c.interpolation) && !(rotary.interpolation > c.interpolation) && !rotary.yarn &&
         !rotary.magnitude && !if_not_zero(c.magnitude) && !rotary.sections;
}
static_assert(same_rotary_defaults());

constexpr bool same(double a, double b) noexcept { return !(a < b) && !(a > b); }
constexpr rota_yarn kYarn = ROTA_YARN_INIT;
constexpr Yarn kDefaultYarn{.factor = 1, .original_context = 1};
static_assert(same(kYarn.beta_fast, kDefaultYarn.beta_fast) && same(kYarn.beta_slow, kDefaultYarn.beta_slow) &&
              same(kYarn.extrapolation, kDefaultYarn.extrapolation) &&
              kYarn.ramp == static_cast<std::uint32_t>(kDefaultYarn.ramp));

Result<Yarn> yarn_of(const Where& where, const rota_yarn* from) {
  rota_yarn taken;
  if (Status status = take(where, from, taken); !status) return status.error();
  Yarn yarn{.factor = taken.factor,
            .original_context = taken.original_context,
            .beta_fast = taken.beta_fast,
            .beta_slow = taken.beta_slow,
            .extrapolation = taken.extrapolation};
  if (Status status = choose(where.in("ramp"), taken.ramp, 2, yarn.ramp); !status) return status.error();
  return yarn;
}

Result<RopeSections> sections_of(const Where& where, const rota_rope_sections* from) {
  rota_rope_sections taken;
  if (Status status = take(where, from, taken); !status) return status.error();
  const auto pairs = list_of(where.in("pairs"), taken.pairs, taken.axis_count);
  if (!pairs) return pairs.error();
  SectionOrder order{};
  SectionFrequencies frequencies{};
  if (Status status = choose(where.in("order"), taken.order, 2, order); !status) return status.error();
  if (Status status = choose(where.in("frequencies"), taken.frequencies, 2, frequencies); !status) {
    return status.error();
  }
  return RopeSections{.pairs = {pairs->begin(), pairs->end()}, .order = order, .frequencies = frequencies};
}

Status norm_of(const Where& where, const rota_head_norm* from, std::optional<HeadNorm>& to) {
  if (from == nullptr) return {};
  rota_head_norm taken;
  if (Status status = take(where, from, taken); !status) return status;
  HeadNorm& norm = to.emplace(HeadNorm{.epsilon = taken.epsilon, .weight_offset = taken.weight_offset});
  return view_of(where.in("weight"), taken.weight, norm.weight);
}

}  // namespace

Result<Rotary> rotary_of(const Where& where, const rota_rotary* from) {
  rota_rotary taken;
  if (Status status = take(where, from, taken); !status) return status.error();
  Pairing pairing{};
  if (Status status = choose(where.in("pairing"), taken.pairing, 3, pairing); !status) return status.error();
  const auto factors = list_of(where.in("factors"), taken.factors, taken.factor_count);
  if (!factors) return factors.error();
  Rotary rotary{.pairing = pairing,
                .theta = taken.theta,
                .rope_dim = if_not_zero(taken.rope_dim),
                .turning_pairs = if_not_none(taken.turning_pairs),
                .exponent_dim = if_not_zero(taken.exponent_dim),
                .factors = {factors->begin(), factors->end()},
                .interpolation = taken.interpolation,
                .magnitude = if_not_zero(taken.magnitude)};
  if (taken.yarn != nullptr) {
    const auto yarn = yarn_of(where.in("yarn"), taken.yarn);
    if (!yarn) return yarn.error();
    rotary.yarn = yarn.value();
  }
  if (taken.sections != nullptr) {
    const auto sections = sections_of(where.in("sections"), taken.sections);
    if (!sections) return sections.error();
    rotary.sections = sections.value();
  }
  return rotary;
}

}  // namespace rota::c

using namespace rota::c;
using rota::Status;

rota_status rota_rope(rota_encoder* encoder, const rota_rope_call* call) {
  return record("rota_rope", encoder, [&](const Where& here) -> Status {
    const Where where = here.in("call");
    rota_rope_call taken;
    if (Status status = take(where, call, taken); !status) return status;
    auto& tensors = encoder->scratch.tensors;
    Status read = each(where.in("tensors"), taken.tensors, taken.tensor_count,
                       [&](const Where& at, const rota_rope_tensor& tensor) -> Status {
                         auto& [from, to, norm] = tensors.emplace_back();
                         if (Status status = view_of(at.in("from"), tensor.from, from); !status) return status;
                         if (Status status = view_of(at.in("to"), tensor.to, to); !status) return status;
                         return norm_of(at.in("norm"), tensor.norm, norm);
                       });
    if (!read) return read;
    const auto positions = list_of(where.in("positions"), taken.positions, taken.position_count);
    if (!positions) return positions.error();
    const auto rotary = rotary_of(where.in("rotary"), taken.rotary);
    if (!rotary) return rotary.error();
    rota::rope(encoder->encoder, {.tensors = tensors, .positions = positions.value(), .rotary = rotary.value()});
    return {};
  });
}
