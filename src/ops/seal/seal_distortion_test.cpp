#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>

#include "harness/on_device.h"
#include "harness/pages.h"
#include "ops/seal/seal_reference.h"

// What the codec costs: how far restored values are from what was sealed, and what sealing them again changes.

namespace rota::ops {
namespace {

using reference::kHeadSizes;
using reference::kWidths;

// Pages of one head, sealed and restored on the CPU.
class Sealing {
 public:
  explicit Sealing(const PageFormat& format) : format_(format) {}

  // f16 values, [token][dim], a whole number of pages.
  std::vector<std::byte> seal(const std::vector<std::uint16_t>& values) {
    const std::uint64_t pages = values.size() / (std::uint64_t{format_.tokens} * format_.head_dim);
    Buffer dense = device_.allocate(values.size() * 2).value();
    dense.write(std::as_bytes(std::span(values))).value();
    Buffer sealed = device_.allocate(pages * page_bytes(format_)).value();
    Buffer counter = device_.allocate(8).value();
    counter.write(std::array<std::byte, 8>{}).value();
    std::vector<SealPage> moves;
    for (std::uint64_t page = 0; page < pages; ++page) moves.push_back({.from = page, .to = page});
    test::run_on(device_, [&](Encoder& encoder) {
      rota::seal(encoder, {.from = SlotView::token_major(dense, DType::f16, shape(pages)),
                           .to = SealedView::packed(sealed, format_, {.pages = pages, .heads = 1}),
                           .pages = moves,
                           .non_finite = {counter}});
    }).value();
    std::vector<std::byte> bytes(sealed.size_bytes());
    sealed.read(bytes).value();
    return bytes;
  }

  template <class Element>
  std::vector<Element> unseal(const std::vector<std::byte>& bytes) {
    const std::uint64_t pages = bytes.size() / page_bytes(format_);
    Buffer sealed = device_.allocate(bytes.size()).value();
    sealed.write(bytes).value();
    std::vector<Element> values(pages * format_.tokens * format_.head_dim);
    Buffer dense = device_.allocate(values.size() * sizeof(Element)).value();
    std::vector<UnsealPage> moves;
    for (std::uint64_t page = 0; page < pages; ++page) moves.push_back({.from = page, .to = page});
    test::run_on(device_, [&](Encoder& encoder) {
      rota::unseal(encoder,
                   {.from = SealedView::packed(sealed, format_, {.pages = pages, .heads = 1}),
                    .to = SlotView::token_major(dense, sizeof(Element) == 4 ? DType::f32 : DType::f16, shape(pages)),
                    .pages = moves});
    }).value();
    dense.read(std::as_writable_bytes(std::span(values))).value();
    return values;
  }

  // The mean over tokens of |restored - value|^2 / |value|^2.
  double distortion(const std::vector<std::uint16_t>& values) {
    const auto restored = unseal<float>(seal(values));
    double sum = 0;
    std::uint64_t tokens = 0;
    for (std::size_t token = 0; token < values.size(); token += format_.head_dim) {
      double error = 0;
      double energy = 0;
      for (std::size_t i = token; i < token + format_.head_dim; ++i) {
        const double value = static_cast<double>(f32_from_f16(values[i]));
        error += std::pow(static_cast<double>(restored[i]) - value, 2);
        energy += value * value;
      }
      if (energy == 0) continue;
      sum += error / energy;
      ++tokens;
    }
    return tokens == 0 ? 0 : sum / static_cast<double>(tokens);
  }

 private:
  SlotShape shape(std::uint64_t pages) const {
    return {.pages = pages, .page_slots = format_.tokens, .heads = 1, .dim = format_.head_dim};
  }

  PageFormat format_;
  Device device_ = Device::open({.device = "cpu", .threads = 2}).value();
};

// The error of a table on one coordinate of a vector of length sqrt(dim), uniform on its sphere: what a vector divided
// by its own root mean square is. For large dims it is the normal distribution.
double error_on_sphere(std::uint32_t bits, std::uint32_t dim) {
  const auto levels = codec::levels_of(bits);
  const double unit = codec::unit_of(bits);
  const double radius = std::sqrt(static_cast<double>(dim));
  constexpr int kSteps = 200000;
  double weight = 0;
  double error = 0;
  std::size_t nearest = bits == 8 ? 1 : 0;
  for (int i = 0; i < kSteps; ++i) {
    const double x = radius * (2 * (i + 0.5) / kSteps - 1);
    while (nearest + 1 < levels.size() && 2 * x > (levels[nearest] + levels[nearest + 1]) * unit) ++nearest;
    const double density = std::pow(1 - x * x / dim, (dim - 3) / 2.0);
    weight += density;
    error += density * std::pow(x - levels[nearest] * unit, 2);
  }
  return error / weight;
}

std::vector<std::uint16_t> many_pages(test::PageKind kind, std::uint32_t dim, std::uint64_t values) {
  std::mt19937_64 random(dim * 7 + static_cast<unsigned>(kind));
  std::vector<std::uint16_t> pages;
  while (pages.size() < values) {
    const auto page = test::draw_page(random, kind, 128, dim);
    pages.insert(pages.end(), page.begin(), page.end());
  }
  return pages;
}

TEST(SealDistortion, OfGaussiansIsTheTheorysForEveryWidthAndHeadSize) {
  constexpr std::array kTable{0.117482, 0.0345614, 0.00952201, 0.00251938, 0.000662514, 8.83094e-05};
  for (const std::uint32_t dim : kHeadSizes) {
    // What lies beyond the last level of 8 bits is rare: it takes more values to meet enough of it.
    const auto many = many_pages(test::PageKind::gaussian, dim, 4000000);
    const std::vector few(many.begin(),
                          many.begin() + static_cast<std::ptrdiff_t>(many.size() / 8 / (128 * dim) * 128 * dim));
    for (std::size_t width = 0; width < kWidths.size(); ++width) {
      const auto& values = kWidths[width] == 8 ? many : few;
      const auto distortion = [&](ScaleRule rule) {
        return Sealing({.codec = Turbo{.bits = kWidths[width], .scale = rule}, .side = KvSide::values, .head_dim = dim})
            .distortion(values);
      };
      const double plain = distortion(ScaleRule::rms);
      const auto label = fmt::format("{} bits, head size {}", kWidths[width], dim);
      EXPECT_NEAR(plain / error_on_sphere(kWidths[width], dim), 1, 0.02) << label;
      if (dim >= 128 && kWidths[width] <= 4) {
        EXPECT_NEAR(plain / kTable[width], 1, 0.02) << label;
      }
      // Each rule errs less than the one before.
      const double fitted = distortion(ScaleRule::least_squares);
      const double searched = distortion(ScaleRule::search);
      EXPECT_LT(fitted, plain) << label;
      EXPECT_LT(searched, fitted) << label;
      if (kWidths[width] == 4) {
        const double gain = 1 - searched / plain;
        const double wanted = dim == 64 ? 0.19 : dim == 128 ? 0.13 : dim == 256 ? 0.08 : gain;
        EXPECT_NEAR(gain, wanted, 0.02) << label;
        EXPECT_GT(gain, 0.02) << label;
      }
    }
  }
}

TEST(SealDistortion, OfOtherDistributionsIsNoWorse) {
  for (const std::uint32_t dim : {64U, 80U, 96U, 128U, 256U, 576U}) {
    for (const std::uint32_t bits : kWidths) {
      for (const auto kind : {test::PageKind::laplace, test::PageKind::student, test::PageKind::spike,
                              test::PageKind::constant, test::PageKind::one_value, test::PageKind::denormal}) {
        Sealing codec({.codec = turbo(bits), .side = KvSide::values, .head_dim = dim});
        // These rotate to a few values, not to all: one draw may fall badly.
        const bool few =
            kind == test::PageKind::spike || kind == test::PageKind::constant || kind == test::PageKind::one_value;
        // Scales of one or two steps of the smallest f16 numbers.
        const double rounding = kind == test::PageKind::denormal ? 0.12 : kind == test::PageKind::one_value ? 0.02 : 0;
        const double bound = (few ? 2 : 1.02) * error_on_sphere(bits, dim) + rounding;
        EXPECT_LT(codec.distortion(many_pages(kind, dim, 40000)), bound)
            << bits << " bits, head size " << dim << ", kind " << static_cast<int>(kind);
      }
    }
  }
}

TEST(SealDistortion, OfKeysFallsWithTheMeanRemoved) {
  for (const std::uint32_t dim : {64U, 96U, 128U}) {
    const auto values = many_pages(test::PageKind::far_mean, dim, 40000);
    const auto distortion = [&](bool key_mean) {
      return Sealing({.codec = Turbo{.bits = 4, .key_mean = key_mean}, .side = KvSide::keys, .head_dim = dim})
          .distortion(values);
    };
    EXPECT_LT(distortion(true), 0.01 * distortion(false)) << dim;
  }
}

TEST(SealDistortion, OfSmallKeysAmongLargeOnesIsTheirOwn) {
  // Tokens without the others' mean are sealed with it left in them.
  constexpr std::uint32_t kDim = 128;
  const auto values = many_pages(test::PageKind::sink_like, kDim, 40000);
  Sealing codec({.codec = turbo(4), .side = KvSide::keys, .head_dim = kDim});
  const auto restored = codec.unseal<float>(codec.seal(values));
  for (std::size_t token = 0; token < values.size() / kDim; ++token) {
    if (token % 128 % 9 != 1) continue;
    double error = 0;
    double energy = 0;
    for (std::size_t i = token * kDim; i < (token + 1) * kDim; ++i) {
      const double value = static_cast<double>(f32_from_f16(values[i]));
      error += std::pow(static_cast<double>(restored[i]) - value, 2);
      energy += value * value;
    }
    EXPECT_LT(error, 0.02 * energy) << token;
  }
}

// How much of a page a second sealing changes: bytes per token.
double changed_by_sealing_twice(std::uint32_t bits, ScaleRule rule, test::PageKind kind) {
  std::uint64_t changed = 0;
  std::uint64_t tokens = 0;
  for (const std::uint32_t dim : kHeadSizes) {
    if (dim < 32) continue;
    for (const KvSide side : {KvSide::keys, KvSide::values}) {
      Sealing codec({.codec = Turbo{.bits = bits, .scale = rule, .key_mean = false}, .side = side, .head_dim = dim});
      const auto once = codec.seal(many_pages(kind, dim, 100000));
      const auto twice = codec.seal(codec.unseal<std::uint16_t>(once));
      for (std::size_t i = 0; i < once.size(); ++i) changed += once[i] != twice[i] ? 1U : 0U;
      tokens += once.size() / page_bytes({.codec = turbo(bits), .side = KvSide::values, .head_dim = dim}) * 128;
    }
  }
  return static_cast<double>(changed) / static_cast<double>(tokens);
}

TEST(SealTwice, ChangesNextToNothingWithoutAMean) {
  for (const std::uint32_t bits : kWidths) {
    const double gaussian = changed_by_sealing_twice(bits, ScaleRule::search, test::PageKind::gaussian);
    const double student = changed_by_sealing_twice(bits, ScaleRule::search, test::PageKind::student);
    EXPECT_LE(gaussian, bits == 8 ? 0.03 : 0.003) << bits;
    EXPECT_LE(student, bits == 8 ? 0.03 : 0.006) << bits;
  }
}

}  // namespace
}  // namespace rota::ops
