#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>

#include "rota/export.h"
#include "rota/result.h"
#include "rota/token_run.h"

// How sealed pages store numbers. docs/page-format.md has it to the byte.

namespace rota::inline ROTA_ABI {

// Keys and values lie differently in a page, as their readers want them, and their signs differ.
enum class KvSide : std::uint8_t { keys, values };

// How a token's scale is found. Each rule errs less than the one before; only sealing costs more.
enum class ScaleRule : std::uint8_t {
  rms,            // the root mean square, times the table's unit
  least_squares,  // the scale that fits the codes of the one above best
  search,         // the same for a better step: that of the best of three fits, or at 8 bits the largest value's
};

// Rotated head vectors, each value one of 2^bits levels of a fixed table, one f16 scale per token.
struct Turbo {
  Required<std::uint32_t> bits;  // 2, 3, 4, 5, 6 or 8
  ScaleRule scale = ScaleRule::search;
  bool key_mean = true;             // keys are sealed without their page's mean, which is stored beside them
  std::uint32_t seed = 0x726f7461;  // of the rotation's signs

  constexpr bool has_mean(KvSide side) const noexcept { return side == KvSide::keys && key_mean; }
  friend constexpr bool operator==(const Turbo&, const Turbo&) = default;
};

constexpr Turbo turbo(std::uint32_t bits) noexcept { return {.bits = bits}; }

// The codecs of sealed pages. CONTRIBUTING.md tells how to add one.
using Codec = std::variant<Turbo>;

// What a reader of a page must know, and how it was made. Pages themselves have no header.
struct PageFormat {
  Codec codec;
  Required<KvSide> side;
  Required<std::uint32_t> head_dim;  // m * 2^k from 16 to 1024, m odd and at most 15, 2^k at least 16
  std::uint32_t tokens = 128;        // or 64

  constexpr std::uint32_t bits() const noexcept {
    return std::visit([](const auto& codec_) { return std::uint32_t{codec_.bits}; }, codec);
  }
  constexpr bool has_mean() const noexcept {
    return std::visit([&](const auto& codec_) { return codec_.has_mean(side); }, codec);
  }
  // Whether the same tokens give the same page. Values have no mean, whatever key_mean says.
  friend constexpr bool operator==(const PageFormat& a, const PageFormat& b) noexcept {
    const auto page_codec = [](const PageFormat& format) {
      Codec codec = format.codec;
      std::visit([&](auto& codec_) { codec_.key_mean = format.has_mean(); }, codec);
      return codec;
    };
    return a.side == b.side && a.head_dim == b.head_dim && a.tokens == b.tokens && page_codec(a) == page_codec(b);
  }
};

// Refuses formats that do not exist.
ROTA_API Status check(const PageFormat& format);

// Bytes of one head's page: a multiple of 64. Zero for a format that check() refuses.
ROTA_API std::uint64_t page_bytes(const PageFormat& format) noexcept;

inline constexpr std::uint16_t kPageFormatVersion = 1;
inline constexpr std::size_t kPageDescriptionBytes = 32;

// What travels with pages that leave the process, and is part of a cache's identity. Of a format that check() takes.
ROTA_API std::array<std::byte, kPageDescriptionBytes> describe(const PageFormat& format) noexcept;

// The reverse, for bytes from anywhere: an unknown version is `unsupported`, all else that is not a description `io`.
ROTA_API Result<PageFormat> read_description(std::span<const std::byte> bytes);

}  // namespace rota::inline ROTA_ABI
