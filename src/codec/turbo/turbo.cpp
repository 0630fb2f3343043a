#include "codec/turbo/turbo.h"

#include <algorithm>
#include <bit>

#include "codec/refused.h"
#include "rota_tables/turbo.h"

namespace rota::codec {
namespace {

constexpr std::uint32_t kLeastHadamard = 16;

std::size_t table_index(std::uint32_t bits) noexcept {
  return static_cast<std::size_t>(std::ranges::find(tables::kBits, bits) - tables::kBits.begin());
}

}  // namespace

std::optional<ops::RotationShape> rotation_of(std::uint32_t head_dim) noexcept {
  if (head_dim == 0 || head_dim > ops::kMaxTurboDim) return {};
  const auto k = static_cast<std::uint32_t>(std::countr_zero(head_dim));
  const std::uint32_t m = head_dim >> k;
  if (m > tables::kOddFactors.back() || (1U << k) < kLeastHadamard) return {};
  return ops::RotationShape{m, k};
}

bool is_negated(std::uint32_t seed, KvSide side, std::uint32_t i) noexcept {
  const std::uint32_t index = side == KvSide::keys ? i : i + ops::kMaxTurboDim;
  std::uint32_t mixed = seed ^ (index * 0x9e3779b9U);
  mixed = (mixed ^ (mixed >> 16)) * 0x21f0aaadU;
  mixed = (mixed ^ (mixed >> 15)) * 0xd35a2d97U;
  return ((mixed ^ (mixed >> 15)) >> 31) != 0;
}

std::span<const std::int8_t> levels_of(std::uint32_t bits) noexcept {
  switch (bits) {
    case 2: return tables::kLevels2;
    case 3: return tables::kLevels3;
    case 4: return tables::kLevels4;
    case 5: return tables::kLevels5;
    case 6: return tables::kLevels6;
    case 8: return tables::kLevels8;
    default: return {};
  }
}

double unit_of(std::uint32_t bits) noexcept { return tables::kUnits[table_index(bits)]; }

Status check(const Turbo& codec, const PageFormat& format) {
  if (levels_of(codec.bits).empty()) return refused("codec.bits", std::uint32_t{codec.bits}, "2, 3, 4, 5, 6 or 8");
  if (codec.scale > ScaleRule::search) {
    return refused("codec.scale", static_cast<unsigned>(codec.scale), "rms, least_squares or search");
  }
  if (!rotation_of(format.head_dim)) {
    return refused("head_dim", std::uint32_t{format.head_dim},
                   "m * 2^k from 16 to {}, m odd and at most {}, 2^k at least 16", ops::kMaxTurboDim,
                   tables::kOddFactors.back());
  }
  return {};
}

Description description_of(const Turbo& codec) noexcept {
  return {.codec = 1,
          .bits = codec.bits,
          .scale = static_cast<std::uint32_t>(codec.scale),
          .mean = codec.key_mean ? 1U : 0U,
          .seed = codec.seed};
}

void read(const Description& from, Turbo& codec) noexcept {
  codec = {
      .bits = from.bits, .scale = static_cast<ScaleRule>(from.scale), .key_mean = from.mean != 0, .seed = from.seed};
}

ops::RotationShape rotation_of(const Turbo& /*codec*/, std::uint32_t head_dim) noexcept {
  return rotation_of(head_dim).value_or(ops::RotationShape{1, 4});
}

std::uint32_t scale_rule_of(const Turbo& codec) noexcept { return static_cast<std::uint32_t>(codec.scale); }

double normal_error_of(const Turbo& codec) noexcept {
  switch (codec.bits) {
    case 2: return 0.1175;
    case 3: return 0.0346;
    case 4: return 0.00953;
    case 5: return 0.00252;
    case 6: return 0.000663;
    default: return 0.0000884;
  }
}

Table table_of(const Turbo& codec, const PageFormat& format) noexcept {
  Table table{};
  const std::uint32_t bits = codec.bits;
  const ops::RotationShape shape = rotation_of(codec, format.head_dim);
  for (std::uint32_t i = 0; i < format.head_dim; ++i) {
    if (is_negated(codec.seed, format.side, i)) table[ops::kSigns + i / 32] |= 1U << (i % 32);
  }
  const std::size_t factor = shape.m / 2;
  for (std::size_t t = 0; t < shape.m; ++t) {
    table[ops::kHartleyRow + t] =
        static_cast<std::uint32_t>(std::int32_t{tables::kHartley[factor * tables::kOddFactors.back() + t]});
  }
  const std::size_t row = (table_index(bits) * tables::kOddFactors.size() + factor) * 2 + shape.k % 2;
  for (std::size_t c = 0; c < ops::kCandidates; ++c) {
    table[ops::kInverses + 2 * c] = tables::kInverseMantissas[row * ops::kCandidates + c];
    table[ops::kInverses + 2 * c + 1] = tables::kInverseExponents[row * ops::kCandidates + c];
  }
  if (bits == ops::kUniformBits) return table;  // uniform: its magnitudes need no table
  const auto positive = levels_of(bits).subspan(std::size_t{1} << (bits - 1));
  const auto magnitudes = std::span(table).subspan<ops::kMagnitudes>();
  std::ranges::copy(positive, magnitudes.begin());
  for (std::size_t j = 1; j < positive.size(); ++j) table[ops::kEdges + j - 1] = magnitudes[j - 1] + magnitudes[j];
  return table;
}

}  // namespace rota::codec
