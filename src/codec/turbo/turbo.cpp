#include "codec/turbo/turbo.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "core/error.h"
#include "rota_tables/turbo.h"

namespace rota::inline ROTA_ABI {
namespace {

// The description's bytes. docs/page-format.md has the same table.
constexpr std::array<char, 4> kMagic{'R', 'O', 'T', 'A'};
constexpr std::size_t kVersionAt = 4;  // 16 bits
constexpr std::size_t kCodecAt = 6;
constexpr std::size_t kSideAt = 7;
constexpr std::size_t kBitsAt = 8;
constexpr std::size_t kScaleAt = 9;
constexpr std::size_t kMeanAt = 10;
constexpr std::size_t kHeadDimAt = 12;  // 16 bits
constexpr std::size_t kTokensAt = 14;   // 16 bits
constexpr std::size_t kSeedAt = 16;     // 32 bits
constexpr std::uint8_t kTurboCodec = 1;

std::uint32_t little_endian(std::span<const std::byte> bytes) noexcept {
  std::uint32_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) value = value << 8 | std::to_integer<std::uint32_t>(bytes[i]);
  return value;
}

void put_little_endian(std::span<std::byte> bytes, std::uint32_t value) noexcept {
  for (std::byte& byte : bytes) {
    byte = static_cast<std::byte>(value & 0xff);
    value >>= 8;
  }
}

template <class Found, class... Args>
Error refused(std::string_view field, const Found& found, fmt::format_string<Args...> wanted, Args&&... args) {
  return core::refuse({"page format", {field}}, found, wanted, std::forward<Args>(args)...);
}

}  // namespace

Status check(const PageFormat& format) {
  return core::guarded([&]() -> Status {
    const Turbo& codec = format.codec;
    if (codec::levels_of(codec.bits).empty()) {
      return refused("codec.bits", std::uint32_t{codec.bits}, "2, 3, 4, 5, 6 or 8");
    }
    if (codec.scale > ScaleRule::search) {
      return refused("codec.scale", static_cast<unsigned>(codec.scale), "rms, least_squares or search");
    }
    if (format.side != KvSide::keys && format.side != KvSide::values) {
      return refused("side", static_cast<unsigned>(KvSide{format.side}), "keys or values");
    }
    if (!codec::rotation_of(format.head_dim)) {
      return refused("head_dim", std::uint32_t{format.head_dim},
                     "m * 2^k from 16 to {}, m odd and at most {}, 2^k at least 16", ops::kMaxTurboDim,
                     codec::tables::kOddFactors.back());
    }
    if (format.tokens != ops::kTileTokens && format.tokens != 2 * ops::kTileTokens) {
      return refused("tokens", format.tokens, "{} or {}", ops::kTileTokens, 2 * ops::kTileTokens);
    }
    return {};
  });
}

std::uint64_t page_bytes(const PageFormat& format) noexcept {
  return check(format) ? ops::layout_bytes(codec::layout_of(format)) : 0;
}

std::array<std::byte, kPageDescriptionBytes> describe(const PageFormat& format) noexcept {
  std::array<std::byte, kPageDescriptionBytes> bytes{};
  const std::span all(bytes);
  std::memcpy(bytes.data(), kMagic.data(), kMagic.size());
  put_little_endian(all.subspan(kVersionAt, 2), kPageFormatVersion);
  put_little_endian(all.subspan(kCodecAt, 1), kTurboCodec);
  put_little_endian(all.subspan(kSideAt, 1), static_cast<std::uint32_t>(KvSide{format.side}));
  put_little_endian(all.subspan(kBitsAt, 1), format.codec.bits);
  put_little_endian(all.subspan(kScaleAt, 1), static_cast<std::uint32_t>(format.codec.scale));
  put_little_endian(all.subspan(kMeanAt, 1), format.has_mean() ? 1 : 0);
  put_little_endian(all.subspan(kHeadDimAt, 2), format.head_dim);
  put_little_endian(all.subspan(kTokensAt, 2), format.tokens);
  put_little_endian(all.subspan(kSeedAt, 4), format.codec.seed);
  return bytes;
}

Result<PageFormat> read_description(std::span<const std::byte> bytes) {
  return core::guarded([&]() -> Result<PageFormat> {
    const auto bad = [](const std::string& what) { return Error{Errc::io, "page description: " + what}; };
    if (bytes.size() != kPageDescriptionBytes) {
      return bad(core::text("{} bytes long; wanted {}", bytes.size(), kPageDescriptionBytes));
    }
    if (std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) return bad("does not begin with ROTA");
    const auto number = [&](std::size_t at, std::size_t size) { return little_endian(bytes.subspan(at, size)); };
    if (number(kVersionAt, 2) != kPageFormatVersion) {
      return Error{Errc::unsupported, core::text("page description: version {}; this build reads version {}",
                                                 number(kVersionAt, 2), kPageFormatVersion)};
    }
    if (number(kCodecAt, 1) != kTurboCodec) {
      return Error{Errc::unsupported, core::text("page description: codec {}; this build reads codec {} (turbo)",
                                                 number(kCodecAt, 1), kTurboCodec)};
    }
    const PageFormat format{.codec = {.bits = number(kBitsAt, 1),
                                      .scale = static_cast<ScaleRule>(number(kScaleAt, 1)),
                                      .key_mean = number(kMeanAt, 1) != 0,
                                      .seed = number(kSeedAt, 4)},
                            .side = static_cast<KvSide>(number(kSideAt, 1)),
                            .head_dim = number(kHeadDimAt, 2),
                            .tokens = number(kTokensAt, 2)};
    if (const Status status = check(format); !status) return bad(status.error().message);
    // Whatever is not said by the fields must be as we write it: the next version may give it a meaning.
    const auto written = describe(format);
    if (!std::ranges::equal(bytes, written)) return bad("some bytes are not as version 1 writes them");
    return format;
  });
}

}  // namespace rota::inline ROTA_ABI

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

ops::PageLayout layout_of(const PageFormat& format) noexcept {
  return {.side = format.side == KvSide::keys ? ops::kKeys : ops::kValues,
          .bits = format.codec.bits,
          .dim = format.head_dim,
          .tokens = format.tokens,
          .has_mean = format.has_mean() ? 1U : 0U};
}

std::array<std::uint32_t, ops::kTableWords> kernel_table(const PageFormat& format) noexcept {
  std::array<std::uint32_t, ops::kTableWords> table{};
  const std::uint32_t bits = format.codec.bits;
  const ops::RotationShape shape = rotation_of(format.head_dim).value_or(ops::RotationShape{1, 4});
  for (std::uint32_t i = 0; i < format.head_dim; ++i) {
    if (is_negated(format.codec.seed, format.side, i)) table[ops::kSigns + i / 32] |= 1U << (i % 32);
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
