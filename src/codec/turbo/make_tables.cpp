// Makes the numbers of the turbo codec: int8 levels of the Gaussian Lloyd-Max quantizers, what turns a length into
// a step, and the Hartley rows. They are part of the page format, so their hash is pinned below.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <numbers>
#include <optional>
#include <string>
#include <vector>

namespace {

constexpr std::uint64_t kPinnedHash = 0x13ec5d2d9bcfba56;

constexpr std::array kOddFactors{1, 3, 5, 7, 9, 11, 13, 15};
constexpr std::array kCandidates{0.9, 1.0, 1.1};  // times the root mean square
constexpr int kUniformBits = 8;
constexpr int kUniformTop = 127;
constexpr double kFar = 40;  // standard deviations: nothing lies beyond

double density(double x) { return std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi); }
double below(double x) { return std::erfc(-x / std::numbers::sqrt2) / 2; }

struct Cell {
  double weight, moment;  // of the normal distribution between the cell's edges
};

std::vector<Cell> cells_of(const std::vector<double>& levels) {
  std::vector<Cell> cells;
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const double from = i == 0 ? -kFar : (levels[i - 1] + levels[i]) / 2;
    const double to = i + 1 == levels.size() ? kFar : (levels[i] + levels[i + 1]) / 2;
    cells.push_back({below(to) - below(from), density(from) - density(to)});
  }
  return cells;
}

double mean_square_error(const std::vector<double>& levels) {
  const std::vector<Cell> cells = cells_of(levels);
  double error = 1;
  for (std::size_t i = 0; i < levels.size(); ++i) {
    error += levels[i] * (levels[i] * cells[i].weight - 2 * cells[i].moment);
  }
  return error;
}

// Lloyd's iteration, from the quantiles of N(0, 3), where it converges fast.
std::vector<double> lloyd(int count) {
  std::vector<double> levels;
  for (int i = 0; i < count; ++i) {
    double from = -kFar;
    double to = kFar;
    while (to - from > 1e-12) {
      const double middle = (from + to) / 2;
      (below(middle / std::numbers::sqrt3) < (i + 0.5) / count ? from : to) = middle;
    }
    levels.push_back(from);
  }
  double moved = 1;
  for (int round = 0; round < 100000 && moved > 1e-13; ++round) {
    const std::vector<Cell> cells = cells_of(levels);
    moved = 0;
    for (std::size_t i = 0; i < levels.size(); ++i) {
      const double centre = cells[i].moment / cells[i].weight;
      moved = std::max(moved, std::abs(centre - levels[i]));
      levels[i] = centre;
    }
  }
  for (std::size_t i = 0; i < levels.size() / 2; ++i) {
    const double magnitude = (levels[levels.size() - 1 - i] - levels[i]) / 2;
    levels[i] = -magnitude;
    levels[levels.size() - 1 - i] = magnitude;
  }
  return levels;
}

struct Table {
  int bits;
  std::vector<double> exact;  // before rounding, in standard deviations
  std::vector<int> levels;    // by code
  int unit = 0;               // of the levels, in 1e-5 standard deviations: short, so that no rounding can move it
};

// Candidates that are equal but for rounding must not change places from machine to machine.
bool clearly_less(double found, double least) { return found < least * (1 - 1e-6); }

double deviations(int unit) { return unit / 1e5; }

std::vector<double> scaled(const std::vector<int>& levels, int unit) {
  std::vector<double> values;
  for (const int level : levels) values.push_back(level * deviations(unit));
  return values;
}

Table rounded_table(int bits) {
  const std::vector<double> exact = lloyd(1 << bits);
  const int top = bits <= 4 ? 64 : 127;  // sums of two products of u8 and at most 64 fit int16
  Table best{.bits = bits, .exact = exact, .levels = {}};
  double least = std::numeric_limits<double>::max();
  for (int unit = 2500; unit < 7500; ++unit) {
    std::vector<int> levels;
    for (const double level : exact) levels.push_back(static_cast<int>(std::lround(level / deviations(unit))));
    if (levels.back() > top || std::ranges::adjacent_find(levels, std::greater_equal{}) != levels.end()) continue;
    const double error = mean_square_error(scaled(levels, unit));
    if (!clearly_less(error, least)) continue;
    least = error;
    best.levels = levels;
    best.unit = unit;
  }
  return best;
}

// Code 0 is not used: levels reach as far down as up.
Table uniform_table() {
  Table best{.bits = kUniformBits, .exact = {}, .levels = {}};
  std::vector<int> used;
  for (int level = -kUniformTop; level <= kUniformTop; ++level) used.push_back(level);
  double least = std::numeric_limits<double>::max();
  for (int unit = 2000; unit < 5000; unit += 10) {
    const double error = mean_square_error(scaled(used, unit));
    if (!clearly_less(error, least)) continue;
    least = error;
    best.unit = unit;
  }
  best.levels = std::move(used);
  best.levels.insert(best.levels.begin(), -kUniformTop - 1);
  return best;
}

class Header {
 public:
  template <class Numbers>
  void integers(const std::string& declaration, const Numbers& numbers) {
    text_ += "inline constexpr " + declaration + "{";
    for (const auto number : numbers) {
      text_ += std::to_string(number) + ",";
      for (int byte = 0; byte < 8; ++byte) {  // FNV-1a
        hash_ = (hash_ ^ ((static_cast<std::uint64_t>(number) >> (8 * byte)) & 0xff)) * 0x100000001b3;
      }
    }
    text_ += "};\n";
  }

  void fractions(const std::string& declaration, const std::vector<double>& numbers) {
    text_ += "inline constexpr " + declaration + "{";
    for (const double number : numbers) {
      std::array<char, 32> digits{};
      static_cast<void>(std::snprintf(digits.data(), digits.size(), "%.17g,", number));
      text_ += digits.data();
    }
    text_ += "};\n";
  }

  std::uint64_t hash() const { return hash_; }
  const std::string& text() const { return text_; }

 private:
  std::string text_ =
      "// Made by make_tables.cpp. The integers are part of the page format.\n#pragma once\n\n"
      "#include <array>\n#include <cstdint>\n\nnamespace rota::codec::tables {\n\n";
  std::uint64_t hash_ = 0xcbf29ce484222325;
};

std::string array_of(const std::string& type, std::size_t size, const std::string& name) {
  return "std::array<" + type + ", " + std::to_string(size) + "> " + name;
}

std::vector<Table> all_tables() {
  std::vector<Table> tables;
  for (int bits = 2; bits <= 6; ++bits) tables.push_back(rounded_table(bits));
  tables.push_back(uniform_table());
  return tables;
}

void write_levels(const std::vector<Table>& tables, Header& header) {
  std::vector<int> bits;
  std::vector<double> units;
  for (const Table& table : tables) {
    bits.push_back(table.bits);
    units.push_back(deviations(table.unit));
    header.integers(array_of("std::int8_t", table.levels.size(), "kLevels" + std::to_string(table.bits)), table.levels);
    if (!table.exact.empty()) {
      header.fractions(array_of("double", table.exact.size(), "kExact" + std::to_string(table.bits)), table.exact);
    }
  }
  header.integers(array_of("std::uint32_t", bits.size(), "kBits"), bits);
  header.fractions(array_of("double", units.size(), "kUnits"), units);
}

struct Inverse {
  std::uint32_t mantissa;  // G
  int exponent;            // g
};

// As G * 2^-g. Nothing where another machine might round G to another integer.
std::optional<Inverse> inverse_of(double value) {
  int exponent = 0;
  const double mantissa = std::frexp(value, &exponent) * 0x1p32;
  if (std::abs(mantissa - std::floor(mantissa) - 0.5) < 1e-4) return std::nullopt;
  return Inverse{static_cast<std::uint32_t>(std::llround(mantissa)), 32 - exponent};
}

// 2 / step, but for the length and a power of two: 2 sqrt(m) {1, sqrt 2} / (unit * candidate). False where one of them
// cannot be written.
bool write_inverses(const std::vector<Table>& tables, Header& header) {
  std::vector<std::uint32_t> mantissas;
  std::vector<int> exponents;
  for (const Table& table : tables) {
    for (const int factor : kOddFactors) {
      for (const double parity : {1.0, std::numbers::sqrt2}) {
        for (const double candidate : kCandidates) {
          const auto inverse = inverse_of(2 * std::sqrt(factor) * parity / (deviations(table.unit) * candidate));
          if (!inverse) return false;
          mantissas.push_back(inverse->mantissa);
          exponents.push_back(inverse->exponent);
        }
      }
    }
  }
  header.integers(array_of("std::uint32_t", mantissas.size(), "kInverseMantissas"), mantissas);
  header.integers(array_of("std::uint8_t", exponents.size(), "kInverseExponents"), exponents);
  return true;
}

// cas(2 pi t / m) / sqrt(m), in 2^-13.
void write_hartley_rows(Header& header) {
  std::vector<int> hartley;
  for (const int factor : kOddFactors) {
    for (int t = 0; t < kOddFactors.back(); ++t) {
      const double angle = 2 * std::numbers::pi * t / factor;
      const double row = (std::cos(angle) + std::sin(angle)) / std::sqrt(factor) * 0x1p13;
      hartley.push_back(t < factor ? static_cast<int>(std::lround(row)) : 0);
    }
  }
  header.integers(array_of("std::int16_t", hartley.size(), "kHartley"), hartley);
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) {
    static_cast<void>(std::fputs("usage: make_tables <header>\n", stderr));
    return 2;
  }
  const std::vector<Table> tables = all_tables();
  Header header;
  header.integers(array_of("std::uint32_t", kOddFactors.size(), "kOddFactors"), kOddFactors);
  write_levels(tables, header);
  if (!write_inverses(tables, header)) {
    static_cast<void>(std::fputs("make_tables: a number lies between two integers\n", stderr));
    return 1;
  }
  write_hartley_rows(header);

  if (header.hash() != kPinnedHash) {
    static_cast<void>(std::fprintf(stderr, "make_tables: the tables hash to %#llx, and the page format says %#llx\n",
                                   static_cast<unsigned long long>(header.hash()),
                                   static_cast<unsigned long long>(kPinnedHash)));
    return 1;
  }
  std::ofstream file(arguments[1]);
  file << header.text() << "\n}  // namespace rota::codec::tables\n";
  file.close();
  return file ? 0 : 1;
}
