#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>

#include "rota/export.h"
#include "rota/result.h"
#include "rota/token_run.h"

// How sealed pages store numbers. docs/page-format.md defines it to the byte.

namespace rota::inline ROTA_ABI {

// Keys and values have different layouts in a page, each made for its reader, and rotations with different signs.
enum class KvSide : std::uint8_t { keys, values };

// How seal() chooses a token's scale. Each rule errs less than the one before and costs more to seal; reading costs the
// same.
enum class ScaleRule : std::uint8_t {
  rms,            // the root mean square, times a constant of the table
  least_squares,  // the least-squares fit to the codes that `rms` gives
  search,         // as `least_squares`, with a better step: the best of three, or at 8 bits that of the largest value
};

// The codec of sealed pages. Each head vector is rotated, each value stored as one of 2^bits levels of a fixed table,
// and each token has one f16 scale.
struct Turbo {
  Required<std::uint32_t> bits;  // 2, 3, 4, 5, 6 or 8
  ScaleRule scale = ScaleRule::search;
  bool key_mean = true;             // subtract the mean of a page's keys before sealing, and store it in the page
  std::uint32_t seed = 0x726f7461;  // of the rotation's signs

  constexpr bool has_mean(KvSide side) const noexcept { return side == KvSide::keys && key_mean; }
  friend constexpr bool operator==(const Turbo&, const Turbo&) = default;
};

// The codec with `bits` bits, and the defaults above.
constexpr Turbo turbo(std::uint32_t bits) noexcept { return {.bits = bits}; }

// The codecs of sealed pages. CONTRIBUTING.md says how to add one.
using Codec = std::variant<Turbo>;

// The format of a page of one head: what its reader must know, and how it was sealed. Pages have no header.
struct PageFormat {
  Codec codec;
  Required<KvSide> side;
  Required<std::uint32_t> head_dim;  // 16 to 1024, and m * 2^k with m odd, m <= 15 and 2^k >= 16
  std::uint32_t tokens = 128;        // per page: 128 or 64

  constexpr std::uint32_t bits() const noexcept {
    return std::visit([](const auto& one) { return std::uint32_t{one.bits}; }, codec);
  }

  // Whether pages store a mean. Those of values never do.
  constexpr bool has_mean() const noexcept {
    return std::visit([&](const auto& one) { return one.has_mean(side); }, codec);
  }

  // Whether both formats give the same page for the same tokens. For values, `key_mean` does not matter.
  friend constexpr bool operator==(const PageFormat& a, const PageFormat& b) noexcept {
    const auto page_codec = [](const PageFormat& format) {
      Codec whole = format.codec;
      std::visit([&](auto& one) { one.key_mean = format.has_mean(); }, whole);
      return whole;
    };
    return a.side == b.side && a.head_dim == b.head_dim && a.tokens == b.tokens && page_codec(a) == page_codec(b);
  }
};

// An error if the format does not exist.
ROTA_API Status check(const PageFormat& format);

// The bytes of a page of one head, a multiple of 64. Zero for a format that check() refuses.
ROTA_API std::uint64_t page_bytes(const PageFormat& format) noexcept;

// The version that describe() writes.
inline constexpr std::uint16_t kPageFormatVersion = 1;

// The size of a description.
inline constexpr std::size_t kPageDescriptionBytes = 32;

// The format as bytes, which are stored with pages that leave the process and are part of a cache's identity.
// Precondition: check() accepts the format.
ROTA_API std::array<std::byte, kPageDescriptionBytes> describe(const PageFormat& format) noexcept;

// The format that describe() wrote. The bytes may come from anywhere: an unknown version is Errc::unsupported, and
// anything else that is no description is Errc::io.
ROTA_API Result<PageFormat> read_description(std::span<const std::byte> bytes);

}  // namespace rota::inline ROTA_ABI
