#include "codec/codecs.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "codec/refused.h"
#include "codec/turbo/turbo.h"
#include "core/error.h"
#include "core/little_endian.h"

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

// Each codec that a page may have been sealed by.
template <class Call, std::size_t... kIndex>
void for_each_codec(const Call& call, std::index_sequence<kIndex...>) {
  (call(std::variant_alternative_t<kIndex, Codec>{.bits = 0}), ...);
}

template <class Call>
void for_each_codec(const Call& call) {
  for_each_codec(call, std::make_index_sequence<std::variant_size_v<Codec>>());
}

}  // namespace

Status check(const PageFormat& format) {
  return core::guarded([&]() -> Status {
    const auto by_codec = [&](const auto& one) { return codec::check(one, format); };
    if (Status status = std::visit(by_codec, format.codec); !status) return status;
    if (format.side != KvSide::keys && format.side != KvSide::values) {
      return codec::refused("side", static_cast<unsigned>(KvSide{format.side}), "keys or values");
    }
    if (format.tokens != ops::kTileTokens && format.tokens != 2 * ops::kTileTokens) {
      return codec::refused("tokens", format.tokens, "{} or {}", ops::kTileTokens, 2 * ops::kTileTokens);
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
  core::put_little_endian(all.subspan(kVersionAt, 2), kPageFormatVersion);
  const codec::Description own = std::visit([](const auto& one) { return codec::description_of(one); }, format.codec);
  core::put_little_endian(all.subspan(kCodecAt, 1), own.codec);
  core::put_little_endian(all.subspan(kSideAt, 1), static_cast<std::uint32_t>(KvSide{format.side}));
  core::put_little_endian(all.subspan(kBitsAt, 1), own.bits);
  core::put_little_endian(all.subspan(kScaleAt, 1), own.scale);
  core::put_little_endian(all.subspan(kMeanAt, 1), format.has_mean() ? 1 : 0);
  core::put_little_endian(all.subspan(kHeadDimAt, 2), format.head_dim);
  core::put_little_endian(all.subspan(kTokensAt, 2), format.tokens);
  core::put_little_endian(all.subspan(kSeedAt, 4), own.seed);
  return bytes;
}

Result<PageFormat> read_description(std::span<const std::byte> bytes) {
  return core::guarded([&]() -> Result<PageFormat> {
    const auto bad = [](const std::string& what) { return Error{Errc::io, "page description: " + what}; };
    if (bytes.size() != kPageDescriptionBytes) {
      return bad(core::text("{} bytes long; wanted {}", bytes.size(), kPageDescriptionBytes));
    }
    if (std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) return bad("does not begin with ROTA");
    const auto number = [&](std::size_t at, std::size_t size) {
      return static_cast<std::uint32_t>(core::little_endian(bytes.subspan(at, size)));
    };
    if (number(kVersionAt, 2) != kPageFormatVersion) {
      return Error{Errc::unsupported, core::text("page description: version {}; this build reads version {}",
                                                 number(kVersionAt, 2), kPageFormatVersion)};
    }
    const codec::Description own{.codec = number(kCodecAt, 1),
                                 .bits = number(kBitsAt, 1),
                                 .scale = number(kScaleAt, 1),
                                 .mean = number(kMeanAt, 1),
                                 .seed = number(kSeedAt, 4)};
    std::optional<Codec> codec;
    std::string known;
    for_each_codec([&](auto one) {
      const codec::Description any = codec::description_of(one);
      known += core::text("{}codec {} ({})", known.empty() ? "" : ", ", any.codec, codec::name_of(one));
      if (any.codec != own.codec) return;
      codec::read(own, one);
      codec = one;
    });
    if (!codec) {
      return Error{Errc::unsupported, core::text("page description: codec {}; this build reads {}", own.codec, known)};
    }
    const PageFormat format{.codec = *codec,
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

ops::PageLayout layout_of(const PageFormat& format) noexcept {
  return {.side = format.side == KvSide::keys ? ops::kKeys : ops::kValues,
          .bits = format.bits(),
          .dim = format.head_dim,
          .tokens = format.tokens,
          .has_mean = format.has_mean() ? 1U : 0U};
}

ops::RotationShape rotation_of(const PageFormat& format) noexcept {
  return std::visit([&](const auto& codec) { return rotation_of(codec, format.head_dim); }, format.codec);
}

std::uint32_t scale_rule_of(const PageFormat& format) noexcept {
  return std::visit([](const auto& codec) { return scale_rule_of(codec); }, format.codec);
}

Table table_of(const PageFormat& format) noexcept {
  return std::visit([&](const auto& codec) { return table_of(codec, format); }, format.codec);
}

double normal_error_of(const PageFormat& format) noexcept {
  return std::visit([](const auto& codec) { return normal_error_of(codec); }, format.codec);
}

}  // namespace rota::codec
