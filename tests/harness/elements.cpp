#include "harness/elements.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace rota::test {
namespace {

struct Format {
  int exponent_bits, mantissa_bits;

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  std::uint32_t exponent_mask() const { return (1U << exponent_bits) - 1; }
  std::uint32_t mantissa_mask() const { return (1U << mantissa_bits) - 1; }
  std::uint32_t sign_bit() const { return 1U << (exponent_bits + mantissa_bits); }
};

Format format_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return {8, 23};
    case DType::f16: return {5, 10};
    case DType::bf16: return {8, 7};
  }
  return {};
}

bool is_nan(std::uint32_t bits, const Format& f) {
  return (bits >> f.mantissa_bits & f.exponent_mask()) == f.exponent_mask() && (bits & f.mantissa_mask()) != 0;
}

double number_of(std::uint32_t bits, const Format& f) {
  const auto exponent = static_cast<int>(bits >> f.mantissa_bits & f.exponent_mask());
  const auto mantissa = static_cast<double>(bits & f.mantissa_mask());
  double magnitude = 0;
  if (exponent == static_cast<int>(f.exponent_mask())) {
    magnitude = std::numeric_limits<double>::infinity();
  } else if (exponent == 0) {
    magnitude = std::ldexp(mantissa, 1 - f.bias() - f.mantissa_bits);
  } else {
    magnitude = std::ldexp(mantissa + std::ldexp(1.0, f.mantissa_bits), exponent - f.bias() - f.mantissa_bits);
  }
  return (bits & f.sign_bit()) != 0 ? -magnitude : magnitude;
}

// To nearest, ties to even, by the definition: the neighbours are multiples of the last place.
std::uint32_t nearest_to(double value, const Format& f) {
  const std::uint32_t sign = std::signbit(value) ? f.sign_bit() : 0;
  const double magnitude = std::fabs(value);
  const std::uint32_t infinity = f.exponent_mask() << f.mantissa_bits;
  if (std::isinf(magnitude)) return sign | infinity;
  if (magnitude == 0) return sign;
  const int exponent = std::max(std::ilogb(magnitude), 1 - f.bias());
  const double steps = std::nearbyint(std::ldexp(magnitude, f.mantissa_bits - exponent));
  const double rounded = std::ldexp(steps, exponent - f.mantissa_bits);
  if (rounded >= std::ldexp(1.0, f.bias() + 1)) return sign | infinity;
  const auto whole = static_cast<std::uint32_t>(steps);
  const std::uint32_t hidden = 1U << f.mantissa_bits;
  if (whole < hidden) return sign | whole;  // denormal
  return sign | ((static_cast<std::uint32_t>(exponent + f.bias()) << f.mantissa_bits) + (whole - hidden));
}

}  // namespace

std::uint32_t load_bits(const std::vector<std::byte>& bytes, DType dtype, std::uint64_t index) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, bytes.data() + index * info(dtype).bytes, info(dtype).bytes);
  return bits;
}

void save_bits(std::vector<std::byte>& bytes, DType dtype, std::uint64_t index, std::uint32_t bits) {
  std::memcpy(bytes.data() + index * info(dtype).bytes, &bits, info(dtype).bytes);
}

double value_of(std::uint32_t bits, DType dtype) {
  const Format f = format_of(dtype);
  return is_nan(bits, f) ? std::numeric_limits<double>::quiet_NaN() : number_of(bits, f);
}

std::uint32_t bits_of(double value, DType dtype) {
  const Format f = format_of(dtype);
  if (!std::isnan(value)) return nearest_to(value, f);
  return (f.exponent_mask() << f.mantissa_bits) | (1U << (f.mantissa_bits - 1));
}

double last_place(DType dtype, double value) {
  const Format f = format_of(dtype);
  const int exponent = value == 0 ? 1 - f.bias() : std::max(std::ilogb(value), 1 - f.bias());
  return std::ldexp(1.0, exponent - f.mantissa_bits);
}

std::uint32_t convert_bits(std::uint32_t bits, DType from, DType to) {
  if (from == to) return bits;
  const Format in = format_of(from);
  const Format out = format_of(to);
  if (!is_nan(bits, in)) return nearest_to(number_of(bits, in), out);
  // NaN: sign and the top of the payload, made quiet, except that a bf16 widens as it is.
  const std::uint32_t sign = (bits & in.sign_bit()) != 0 ? out.sign_bit() : 0;
  const std::uint32_t payload = bits & in.mantissa_mask();
  const int shift = out.mantissa_bits - in.mantissa_bits;
  const std::uint32_t moved = shift >= 0 ? payload << shift : payload >> -shift;
  const bool widened = from == DType::bf16 && to == DType::f32;
  const std::uint32_t quiet = widened ? 0 : 1U << (out.mantissa_bits - 1);
  return sign | (out.exponent_mask() << out.mantissa_bits) | moved | quiet;
}

std::vector<std::uint32_t> telling_patterns(DType dtype) {
  std::vector<std::uint32_t> patterns;
  for (std::uint32_t upper = 0; upper < 0x10000; ++upper) {
    if (dtype != DType::f32) {
      patterns.push_back(upper);
      continue;
    }
    for (const std::uint32_t lower : {0x0000U, 0x0001U, 0x0fffU, 0x1000U, 0x1001U, 0x2fffU, 0x3000U, 0x3001U, 0x7fffU,
                                      0x8000U, 0x8001U, 0xefffU, 0xf000U, 0xf001U, 0xffffU}) {
      patterns.push_back(upper << 16 | lower);
    }
  }
  return patterns;
}

std::vector<std::byte> random_elements(std::mt19937_64& random, DType dtype, std::uint64_t count) {
  std::vector<std::byte> bytes(count * info(dtype).bytes);
  const Format f = format_of(dtype);
  std::normal_distribution<double> plain(0, 1);
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto any = static_cast<std::uint32_t>(random());
    std::uint32_t bits = 0;
    switch (random() % 8) {
      case 0: bits = any; break;                                                            // anything, NaN included
      case 1: bits = any & f.mantissa_mask(); break;                                        // denormal
      case 2: bits = (f.exponent_mask() << f.mantissa_bits) | (any & f.sign_bit()); break;  // infinite
      case 3: bits = any & f.sign_bit(); break;                                             // zero
      default: bits = nearest_to(std::ldexp(plain(random), static_cast<int>(random() % 40) - 20), f); break;
    }
    save_bits(bytes, dtype, i, bits);
  }
  return bytes;
}

double random_value(std::mt19937_64& random, DType dtype) {
  const double plain = std::normal_distribution<double>()(random);
  switch (random() % 16) {
    case 0: return 0;
    case 1: return std::clamp(plain * 5000, -30000.0, 30000.0);
    case 2: return plain * (dtype == DType::f16 ? 0x1p-20 : 0x1p-130);
    case 3: return plain * 0x1p-10;
    default: return plain;
  }
}

}  // namespace rota::test
