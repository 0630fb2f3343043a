#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "rota/dtype.h"

// Dense elements as the formats define them, in f64 arithmetic: independent of what the library does.

namespace rota::test {

// An element's bits in the low bits of a word.
std::uint32_t load_bits(const std::vector<std::byte>& bytes, DType dtype, std::uint64_t index);
void save_bits(std::vector<std::byte>& bytes, DType dtype, std::uint64_t index, std::uint32_t bits);

// The number that an element is, and the element nearest to a number.
double value_of(std::uint32_t bits, DType dtype);
std::uint32_t bits_of(double value, DType dtype);

// The distance between a dtype's numbers near `value`.
double last_place(DType dtype, double value);

inline constexpr double kFlushed = 0x1p-125;  // what is lost where denormals are zero

// What an element of `from` becomes as an element of `to`.
std::uint32_t convert_bits(std::uint32_t bits, DType from, DType to);

// Every 16-bit pattern; for f32 every upper half with lower halves around each rounding point.
std::vector<std::uint32_t> telling_patterns(DType dtype);

// Elements of all kinds: plain, tiny, huge, denormal, zero, infinite, NaN.
std::vector<std::byte> random_elements(std::mt19937_64& random, DType dtype, std::uint64_t count);

// Finite numbers with heavy tails, zeros and denormals, none so large that the sum of two overflows f16.
double random_value(std::mt19937_64& random, DType dtype);

}  // namespace rota::test
