#include "codec/turbo/turbo.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>
#include <numbers>
#include <random>
#include <set>

#include "codec/turbo/arithmetic.shared.h"
#include "codec/turbo/pack.h"
#include "harness/on_device.h"
#include "harness/source_file.h"
#include "rota_tables/turbo.h"

namespace rota::codec {
namespace {

constexpr std::array kWidths{2U, 3U, 4U, 5U, 6U, 8U};

double density(double x) { return std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi); }
double below(double x) { return std::erfc(-x / std::numbers::sqrt2) / 2; }

struct Cell {
  double from, to, level;

  double weight() const { return below(to) - below(from); }
  double mean() const { return (density(from) - density(to)) / weight(); }
  double error() const {  // of E[(x - level)^2] inside
    const double second = weight() - (to < 1e9 ? to * density(to) : 0) + (from > -1e9 ? from * density(from) : 0);
    return second - 2 * level * mean() * weight() + level * level * weight();
  }
};

std::vector<Cell> cells_of(const std::vector<double>& levels) {
  std::vector<Cell> cells;
  for (std::size_t i = 0; i < levels.size(); ++i) {
    cells.push_back({i == 0 ? -1e300 : (levels[i - 1] + levels[i]) / 2,
                     i + 1 == levels.size() ? 1e300 : (levels[i] + levels[i + 1]) / 2, levels[i]});
  }
  return cells;
}

double mean_square_error(const std::vector<double>& levels) {
  double error = 0;
  for (const Cell& cell : cells_of(levels)) error += cell.error();
  return error;
}

std::vector<double> exact_levels(std::uint32_t bits) {
  switch (bits) {
    case 2: return {tables::kExact2.begin(), tables::kExact2.end()};
    case 3: return {tables::kExact3.begin(), tables::kExact3.end()};
    case 4: return {tables::kExact4.begin(), tables::kExact4.end()};
    case 5: return {tables::kExact5.begin(), tables::kExact5.end()};
    default: return {tables::kExact6.begin(), tables::kExact6.end()};
  }
}

std::vector<double> stored_levels(std::uint32_t bits) {
  std::vector<double> levels;
  for (const std::int8_t level : levels_of(bits)) {
    if (level != -128) levels.push_back(level * unit_of(bits));
  }
  return levels;
}

TEST(TurboTables, AreLloydMaxBeforeRounding) {
  // The least mean square errors of a unit Gaussian, from the literature.
  constexpr std::array kLeast{0.11748, 0.03455, 0.00950, 0.002505, 0.0006442};
  for (std::uint32_t bits = 2; bits <= 6; ++bits) {
    const auto levels = exact_levels(bits);
    ASSERT_EQ(levels.size(), std::size_t{1} << bits);
    for (const Cell& cell : cells_of(levels)) EXPECT_NEAR(cell.mean(), cell.level, 1e-6) << bits;
    EXPECT_NEAR(mean_square_error(levels) / kLeast[bits - 2], 1, 1e-3) << bits;
  }
}

TEST(TurboTables, LoseLittleToIntegers) {
  // What whole numbers cost, in parts of the least error; docs/page-format.md says the same.
  constexpr std::array kLoss{0.0, 0.0004, 0.0022, 0.0059, 0.0284};
  for (std::uint32_t bits = 2; bits <= 6; ++bits) {
    const double loss = mean_square_error(stored_levels(bits)) / mean_square_error(exact_levels(bits)) - 1;
    EXPECT_GE(loss, -1e-9) << bits;
    EXPECT_NEAR(loss, kLoss[bits - 2], 1e-4) << bits;
  }
  EXPECT_NEAR(mean_square_error(stored_levels(8)), 8.85e-5, 1e-6);
}

TEST(TurboTables, HaveLevelsThatKernelsCanCountOn) {
  for (const std::uint32_t bits : kWidths) {
    const auto levels = levels_of(bits);
    ASSERT_EQ(levels.size(), std::size_t{1} << bits);
    const std::size_t first = bits == 8 ? 1 : 0;  // code 0 of 8 bits is not used
    for (std::size_t i = first; i < levels.size(); ++i) {
      EXPECT_EQ(levels[i], -levels[levels.size() - 1 - i + first]);
      if (i > 0) {
        EXPECT_LT(levels[i - 1], levels[i]);
      }
    }
    EXPECT_LE(levels.back(), bits <= 4 ? 64 : 127) << "u8 times level, two of them, must fit 16 bits up to 4 bits";
    const auto positive = levels.subspan(levels.size() / 2);
    for (std::size_t i = 1; i < positive.size() && bits != 8; ++i) {
      EXPECT_LE(static_cast<std::uint32_t>(positive[i - 1] + positive[i]), ops::kMaxTwice);
    }
    // The sum of magnitudes times levels, at its largest.
    EXPECT_LT(std::uint64_t{ops::kMaxMagnitude} * static_cast<std::uint64_t>(levels.back()) * ops::kMaxTurboDim,
              std::uint64_t{1} << 32);
  }
  for (const auto absent : {0U, 1U, 7U, 9U, 32U}) EXPECT_TRUE(levels_of(absent).empty());
}

TEST(TurboTables, HaveHartleyRowsThatCannotOverflow) {
  for (std::size_t index = 0; index < tables::kOddFactors.size(); ++index) {
    const std::uint64_t m = tables::kOddFactors[index];
    for (std::uint64_t a = 0; a < m; ++a) {
      std::int64_t sum = 0;
      for (std::uint64_t b = 0; b < m; ++b) sum += std::abs(tables::kHartley[index * 15 + a * b % m]);
      EXPECT_LT(sum * 65535 + (1 << 12), std::int64_t{1} << 31) << m;  // of mantissas
      const std::uint64_t size = ops::kMaxTurboDim / m;
      EXPECT_LT(sum * 128 * static_cast<std::int64_t>(size) + 32, std::int64_t{1} << 31) << m;  // of levels
    }
  }
}

TEST(TurboTables, HaveTheInversesOfTheDocument) {
  std::size_t at = 0;
  for (const double unit : tables::kUnits) {
    for (const std::uint32_t m : tables::kOddFactors) {
      for (const long double root : {1.0L, std::numbers::sqrt2_v<long double>}) {
        for (const long double candidate : {0.9L, 1.0L, 1.1L}) {
          const long double wanted =
              2 * std::sqrt(static_cast<long double>(m)) * root / (static_cast<long double>(unit) * candidate);
          const long double mantissa = std::ldexp(wanted, tables::kInverseExponents[at]);
          EXPECT_GE(tables::kInverseMantissas[at], 0x80000000U);
          EXPECT_LE(std::abs(mantissa - tables::kInverseMantissas[at]), 0.5L + 1e-5L);
          ++at;
        }
      }
    }
  }
  EXPECT_EQ(at, tables::kInverseMantissas.size());
}

TEST(TurboRotation, ServesTheHeadSizesThatItNames) {
  std::vector<std::uint32_t> sizes;
  for (std::uint32_t dim = 0; dim <= 4096; ++dim) {
    const auto shape = rotation_of(dim);
    std::uint32_t odd = dim;
    std::uint32_t even = 1;
    while (odd != 0 && odd % 2 == 0) {
      odd /= 2;
      even *= 2;
    }
    ASSERT_EQ(shape.has_value(), dim >= 16 && dim <= 1024 && odd <= 15 && even >= 16) << dim;
    if (!shape) continue;
    EXPECT_EQ(shape->m << shape->k, dim);
    sizes.push_back(dim);
  }
  EXPECT_EQ(sizes.size(), 32U);
  for (const std::uint32_t usual : {32U, 48U, 64U, 80U, 96U, 112U, 128U, 160U, 192U, 256U, 512U, 576U}) {
    EXPECT_TRUE(rotation_of(usual)) << usual;
  }
  EXPECT_FALSE(rotation_of(0xffffffffU));
}

TEST(TurboRotation, HasSignsThatLookLikeCoins) {
  for (const std::uint32_t seed : {Turbo{.bits = 4}.seed, 0U, 1U, 0xffffffffU}) {
    for (const KvSide side : {KvSide::keys, KvSide::values}) {
      int negated = 0;
      int like_the_next = 0;
      int like_the_other_side = 0;
      for (std::uint32_t i = 0; i < 1024; ++i) {
        negated += is_negated(seed, side, i) ? 1 : 0;
        like_the_next += is_negated(seed, side, i) == is_negated(seed, side, i + 1) ? 1 : 0;
        like_the_other_side += is_negated(seed, KvSide::keys, i) == is_negated(seed, KvSide::values, i) ? 1 : 0;
      }
      for (const int count : {negated, like_the_next, like_the_other_side}) EXPECT_NEAR(count, 512, 4 * 16) << seed;
    }
  }
}

// Every format but for seeds and scale rules, which do not change the layout.
std::vector<PageFormat> all_layouts() {
  std::vector<PageFormat> formats;
  for (std::uint32_t dim = 16; dim <= ops::kMaxTurboDim; dim += 16) {
    if (!rotation_of(dim)) continue;
    for (const std::uint32_t bits : kWidths) {
      for (const std::uint32_t tokens : {64U, 128U}) {
        formats.push_back({.codec = turbo(bits), .side = KvSide::values, .head_dim = dim, .tokens = tokens});
        formats.push_back({.codec = turbo(bits), .side = KvSide::keys, .head_dim = dim, .tokens = tokens});
        formats.push_back(
            {.codec = Turbo{.bits = bits, .key_mean = false}, .side = KvSide::keys, .head_dim = dim, .tokens = tokens});
      }
    }
  }
  return formats;
}

TEST(TurboPage, GivesEveryBitAPlaceOfItsOwnAndWastesNone) {
  for (const PageFormat& format : all_layouts()) {
    if (format.head_dim > 240) continue;
    const ops::PageLayout layout = layout_of(format);
    std::vector<bool> taken(8 * page_bytes(format));
    std::uint64_t codes_end = 0;
    for (std::uint32_t token = 0; token < layout.tokens; ++token) {
      for (std::uint32_t dim = 0; dim < layout.dim; ++dim) {
        for (std::uint32_t plane = 0; plane < ops::plane_count(layout.bits); ++plane) {
          const ops::CodePlace place = ops::code_place(layout, plane, token, dim);
          for (std::uint32_t bit = 0; bit < ops::plane_of(layout.bits, plane).bits; ++bit) {
            const std::uint64_t at = 8ULL * place.byte + place.low_bit + bit;
            ASSERT_LT(at, taken.size());
            ASSERT_FALSE(taken[at]);
            taken[at] = true;
            codes_end = std::max<std::uint64_t>(codes_end, place.byte + 1);
          }
        }
      }
    }
    for (std::uint32_t first = 0; first < layout.tokens; first += ops::kSliceTokens) {
      for (std::uint32_t plane = 0; plane < ops::plane_count(layout.bits); ++plane) {
        const std::uint32_t begin = ops::slice_offset(layout, first, plane);
        for (std::uint32_t i = 0; i < ops::kSliceTokens * layout.dim; ++i) {
          const auto place = ops::code_place(layout, plane, first + i / layout.dim, i % layout.dim);
          ASSERT_TRUE(place.byte >= begin && place.byte < begin + ops::slice_bytes(layout, plane));
        }
      }
    }
    const std::uint64_t side_bytes = (format.has_mean() ? (2 * layout.dim + 63) / 64 * 64 : 0) + 2 * layout.tokens;
    EXPECT_EQ(ops::tiles_offset(layout), side_bytes);
    EXPECT_EQ(side_bytes % 64, 0U);
    EXPECT_EQ(codes_end, page_bytes(format));
    EXPECT_EQ(page_bytes(format), side_bytes + layout.tokens * layout.dim * layout.bits / 8);
    EXPECT_EQ(static_cast<std::uint64_t>(std::ranges::count(taken, true)),
              std::uint64_t{layout.tokens} * layout.dim * layout.bits);
  }
}

TEST(TurboPage, IsPackedAndUnpackedTileByTile) {
  std::mt19937_64 random(7);
  for (const PageFormat& format : all_layouts()) {
    const ops::PageLayout layout = layout_of(format);
    std::vector<std::byte> page(page_bytes(format), std::byte{0xa5});
    const std::uint32_t tile = layout.tokens / 64 - 1;
    std::vector<std::uint8_t> codes(std::size_t{64} * layout.dim);
    for (std::uint8_t& code : codes) code = static_cast<std::uint8_t>(random() % (1U << layout.bits));
    const auto before = page;
    pack_tile(layout, tile, codes.data(), page.data());
    for (std::uint32_t token = 0; token < 64; ++token) {
      for (std::uint32_t dim = 0; dim < layout.dim; ++dim) {
        std::uint32_t code = 0;
        for (std::uint32_t index = 0; index < ops::plane_count(layout.bits); ++index) {
          const ops::Plane plane = ops::plane_of(layout.bits, index);
          const ops::CodePlace place = ops::code_place(layout, index, tile * 64 + token, dim);
          const std::uint32_t bits =
              std::to_integer<std::uint32_t>(page[place.byte]) >> place.low_bit & ((1U << plane.bits) - 1);
          code |= bits << plane.first_bit;
        }
        ASSERT_EQ(code, codes[std::size_t{token} * layout.dim + dim]);
      }
    }
    const auto untouched = static_cast<std::ptrdiff_t>(ops::plane_offset(layout, tile, 0));
    EXPECT_TRUE(std::equal(before.begin(), before.begin() + untouched, page.begin()));
    std::vector<std::uint8_t> found(codes.size(), 0xff);
    unpack_tile(layout, tile, page.data(), found.data());
    ASSERT_EQ(found, codes);
  }
}

double bits_per_value(const PageFormat& format) {
  return 8.0 * static_cast<double>(page_bytes(format)) / (double{1} * format.tokens * format.head_dim);
}

TEST(TurboPage, StoresWhatTheDocumentSays) {
  const PageFormat keys{.codec = turbo(4), .side = KvSide::keys, .head_dim = 128};
  const PageFormat values{.codec = turbo(4), .side = KvSide::values, .head_dim = 128};
  EXPECT_LE(bits_per_value(keys), 4.26);
  EXPECT_LE(bits_per_value(values), 4.13);

  const std::string document = test::read_text("docs/page-format.md");
  for (const std::uint32_t dim : {48U, 64U, 80U, 96U, 128U, 192U, 256U, 512U, 576U}) {
    std::string row = fmt::format("| {} |", dim);
    for (const std::uint32_t bits : kWidths) {
      for (const KvSide side : {KvSide::keys, KvSide::values}) {
        row += fmt::format(" {:.3f} |", bits_per_value({.codec = turbo(bits), .side = side, .head_dim = dim}));
      }
    }
    EXPECT_NE(document.find(row), std::string::npos) << "docs/page-format.md lacks\n" << row;
  }
}

TEST(TurboPage, RefusesFormatsThatDoNotExist) {
  const PageFormat good{.codec = turbo(4), .side = KvSide::keys, .head_dim = 128};
  EXPECT_OK(check(good));
  const auto refused = [&](const auto& spoil, std::string_view text) {
    PageFormat format = good;
    spoil(format);
    test::expect_error(check(format), Errc::invalid_argument, {text});
    EXPECT_EQ(page_bytes(format), 0U);
  };
  for (const std::uint32_t bits : {0U, 1U, 7U, 9U, 0xffffffffU}) {
    refused([&](PageFormat& f) { std::get<Turbo>(f.codec).bits = bits; }, "codec.bits is");
  }
  for (const std::uint32_t dim : {0U, 8U, 24U, 17 * 16U, 1025U, 2048U, 0x80000000U}) {
    refused([&](PageFormat& f) { f.head_dim = dim; }, "wanted m * 2^k from 16 to 1024, m odd and at most 15");
  }
  for (const std::uint32_t tokens : {0U, 1U, 32U, 96U, 256U}) {
    refused([&](PageFormat& f) { f.tokens = tokens; }, "wanted 64 or 128");
  }
  refused([](PageFormat& f) { std::get<Turbo>(f.codec).scale = static_cast<ScaleRule>(3); }, "codec.scale is 3");
  refused([](PageFormat& f) { f.side = static_cast<KvSide>(2); }, "side is 2; wanted keys or values");
}

TEST(TurboDescription, ComesBackAsItWas) {
  for (PageFormat format : all_layouts()) {
    for (const ScaleRule rule : {ScaleRule::rms, ScaleRule::least_squares, ScaleRule::search}) {
      std::get<Turbo>(format.codec).scale = rule;
      std::get<Turbo>(format.codec).seed = static_cast<std::uint32_t>(0x12345678 * (1 + static_cast<int>(rule)));
      const auto found = read_description(describe(format));
      ASSERT_OK(found);
      EXPECT_EQ(*found, format);
    }
  }
}

TEST(TurboDescription, IsTheDocumentsBytes) {
  const auto bytes = describe({.codec = Turbo{.bits = 5, .scale = ScaleRule::least_squares, .seed = 0x01020304},
                               .side = KvSide::values,
                               .head_dim = 576,
                               .tokens = 64});
  const std::array<int, kPageDescriptionBytes> wanted{'R', 'O', 'T',  'A', 1,  0, 1, 1, 5, 1,
                                                      0,   0,   0x40, 2,   64, 0, 4, 3, 2, 1};
  for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_EQ(std::to_integer<int>(bytes[i]), wanted[i]) << i;
}

TEST(TurboDescription, RefusesEveryOtherVersionAndWhateverIsNotOne) {
  const auto good = describe({.codec = turbo(4), .side = KvSide::keys, .head_dim = 128});
  const auto spoiled = [&](std::size_t at, int value) {
    auto bytes = good;
    bytes[at] = static_cast<std::byte>(value);
    return read_description(bytes);
  };
  test::expect_error(spoiled(4, 2), Errc::unsupported, {"version 2; this build reads version 1"});
  test::expect_error(spoiled(5, 1), Errc::unsupported, {"version 257"});
  test::expect_error(spoiled(6, 2), Errc::unsupported, {"codec 2; this build reads codec 1"});
  test::expect_error(spoiled(0, 'r'), Errc::io, {"does not begin with ROTA"});
  test::expect_error(spoiled(7, 2), Errc::io, {"side is 2"});
  test::expect_error(spoiled(8, 7), Errc::io, {"codec.bits is 7"});
  test::expect_error(spoiled(9, 3), Errc::io, {"codec.scale is 3"});
  test::expect_error(spoiled(10, 2), Errc::io, {"not as version 1 writes them"});
  test::expect_error(spoiled(12, 127), Errc::io, {"head_dim is 127"});
  test::expect_error(spoiled(15, 1), Errc::io, {"tokens is 384"});
  for (const std::size_t unused : {11U, 20U, 25U, 31U}) {
    test::expect_error(spoiled(unused, 1), Errc::io, {"not as version 1 writes them"});
  }
  for (const std::size_t size : {0U, 1U, 31U}) {
    test::expect_error(read_description(std::span(good).first(size)), Errc::io, {"wanted 32"});
  }
}

TEST(TurboDescription, OfAnyBytesIsRefusedOrExact) {
  EXPECT_TRUE(rc::check("bytes near a description", [] {
    auto bytes = describe({.codec = turbo(4), .side = KvSide::keys, .head_dim = 128});
    const int changes = *rc::gen::inRange(0, 4);
    for (int i = 0; i < changes; ++i) {
      bytes[*rc::gen::inRange<std::size_t>(0, bytes.size())] = static_cast<std::byte>(*rc::gen::inRange(0, 256));
    }
    const auto found = read_description(bytes);
    if (found) RC_ASSERT(describe(*found) == bytes);
  }));
}

}  // namespace
}  // namespace rota::codec
