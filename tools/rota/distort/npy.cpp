#include "distort/npy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "rota/dtype.h"

namespace rota::tool {
namespace {

static_assert(std::endian::native == std::endian::little, "values are read as the file has them");

constexpr std::string_view kMagic{"\x93NUMPY", 6};
constexpr std::uint64_t kLengthOffset = kMagic.size() + 2;  // of the header's length, after the version
constexpr std::size_t kLongestQuote = 32;                   // of a file's own words in a message
constexpr auto kTooLarge = std::numeric_limits<std::uint64_t>::max();

// NumPy knows no bf16: what ml_dtypes has of it is saved as two bytes without a meaning.
constexpr NamedType kTypes[] = {{"<f2", NumberType::f16},  {"<f4", NumberType::f32},  {"<f8", NumberType::f64},
                                {"<V2", NumberType::bf16}, {"|V2", NumberType::bf16}, {"bfloat16", NumberType::bf16}};

// The header's dictionary, a Python literal. Knows just the words that such a header has.
class HeaderReader {
 public:
  explicit HeaderReader(std::string_view text) : rest_(text) {}

  Result<NpyHeader> read() {
    if (!take("{")) return no_dictionary();
    while (!take("}")) {
      if (Status entry = read_entry(); !entry) return entry.error();
      if (take(",")) continue;
      if (!take("}")) return no_dictionary();
      break;
    }
    skip_spaces();
    if (!shape_ || !type_ || !has_order_) return no_dictionary();
    if (rest_ != "\n") return wrong("the header does not end with its dictionary", "spaces and a line feed after it");
    return NpyHeader{*type_, *std::move(shape_)};
  }

 private:
  static Error no_dictionary() {
    return wrong("the header is no dictionary of descr, fortran_order and shape",
                 "{'descr': '<f2', 'fortran_order': False, 'shape': (...), }");
  }

  Status read_entry() {
    const auto key = take_quoted();
    if (!key || !take(":")) return no_dictionary();
    if (*key == "descr" && !type_) return read_type();
    if (*key == "fortran_order" && !std::exchange(has_order_, true)) return read_order();
    if (*key == "shape" && !shape_) return read_shape();
    return no_dictionary();
  }

  Status read_type() {
    const auto name = take_quoted();
    if (!name) return no_dictionary();
    for (const NamedType& known : kTypes) {
      if (known.name == *name) type_ = known.type;
    }
    if (type_) return {};
    return wrong(fmt::format("descr is '{}'", name->substr(0, kLongestQuote)),
                 "'<f2', '<f4' or '<f8', little-endian floats, or '<V2', bf16");
  }

  Status read_order() {
    if (take("False")) return {};
    return take("True") ? wrong("fortran_order is True", "False, C order, as numpy.ascontiguousarray makes it")
                        : no_dictionary();
  }

  Status read_shape() {
    if (!take("(")) return no_dictionary();
    std::vector<std::uint64_t> shape;
    while (!take(")")) {
      const auto size = take_number();
      if (!size) return wrong("shape is no tuple of numbers below 2^64", "(tokens, dim), say");
      shape.push_back(*size);
      const bool more = take(",");
      if (more) continue;
      // "(512)" is a number in Python, and no tuple.
      if (!take(")") || shape.size() == 1) return no_dictionary();
      break;
    }
    shape_ = std::move(shape);
    return {};
  }

  void skip_spaces() { rest_.remove_prefix(std::min(rest_.find_first_not_of(' '), rest_.size())); }

  bool take(std::string_view word) {
    skip_spaces();
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }

  std::optional<std::string_view> take_quoted() {
    if (!take("'")) return {};
    const std::size_t end = rest_.find('\'');
    if (end == std::string_view::npos) return {};
    const std::string_view text = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    return text;
  }

  std::optional<std::uint64_t> take_number() {
    skip_spaces();
    const std::size_t digits = std::min(rest_.find_first_not_of("0123456789"), rest_.size());
    if (digits == 0) return {};
    std::uint64_t number = 0;
    for (const char character : rest_.substr(0, digits)) {
      const auto digit = static_cast<std::uint64_t>(character - '0');
      if (number > (kTooLarge - digit) / 10) return {};
      number = number * 10 + digit;
    }
    rest_.remove_prefix(digits);
    return number;
  }

  std::string_view rest_;
  bool has_order_ = false;
  std::optional<NumberType> type_{};
  std::optional<std::vector<std::uint64_t>> shape_{};
};

std::uint64_t bytes_wanted(const NpyHeader& array) {
  std::uint64_t bytes = bytes_of(array.type);
  for (const std::uint64_t size : array.shape) {
    if (size != 0 && bytes > kTooLarge / size) return kTooLarge;
    bytes *= size;
  }
  return bytes;
}

float float_of(NumberType type, std::uint64_t bits) {
  const auto half = static_cast<std::uint16_t>(bits);
  if (type == NumberType::f16) return f32_from_f16(half);
  if (type == NumberType::bf16) return f32_from_bf16(half);
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
}

// Of f64, with a count of what was not exact.
Result<Array> rounded_array(const NpyHeader& header, std::span<const char> bytes) {
  Array array{header.shape, std::vector<float>(bytes.size() / sizeof(double))};
  for (std::size_t at = 0; at < array.values.size(); ++at) {
    double value = 0;
    std::memcpy(&value, bytes.data() + at * sizeof(double), sizeof(double));
    if (std::isfinite(value) && std::abs(value) > static_cast<double>(std::numeric_limits<float>::max())) {
      return wrong(fmt::format("value {} is {:g}", at, value), "numbers that f32 holds");
    }
    array.values[at] = static_cast<float>(value);
    if (!std::isnan(value) && static_cast<double>(array.values[at]) != value) ++array.rounded;
  }
  return array;
}

}  // namespace

std::uint64_t bytes_of(NumberType type) {
  switch (type) {
    case NumberType::f16:
    case NumberType::bf16: return 2;
    case NumberType::f32: return 4;
    case NumberType::f64: break;
  }
  return 8;
}

Result<NpyHeader> parse_npy_header(std::span<const char> head, std::uint64_t file_bytes) {
  const std::string_view text(head.data(), head.size());
  const std::uint8_t version = head.size() > kMagic.size() ? static_cast<std::uint8_t>(head[kMagic.size()]) : 0;
  const std::uint64_t length_bytes = version == 1 ? 2 : 4;
  const std::uint64_t begin = kLengthOffset + length_bytes;
  if (!text.starts_with(kMagic) || head.size() < begin || version < 1 || version > 3 || text[kMagic.size() + 1] != 0) {
    return wrong("does not begin as a NumPy array of version 1.0, 2.0 or 3.0 does", "a file of numpy.save");
  }
  const std::uint64_t bytes = little_endian(head.subspan(kLengthOffset, length_bytes));
  if (bytes > file_bytes - begin || bytes > head.size() - begin) {
    return wrong(fmt::format("the header's length is {}", bytes),
                 fmt::format("at most the {} bytes that follow", std::min(file_bytes, kLongestNpyHeader) - begin));
  }
  auto header = HeaderReader(text.substr(begin, bytes)).read();
  if (!header) return header.error();
  header->data_offset = begin + bytes;
  if (const Status status = check_bytes(*header, file_bytes - header->data_offset, "follow the header"); !status) {
    return status.error();
  }
  return header;
}

std::string shape_text(std::span<const std::uint64_t> shape) {
  constexpr std::size_t kShown = 4;
  const std::string_view end = shape.size() > kShown ? ", ..." : shape.size() == 1 ? "," : "";
  return fmt::format("({}{})", fmt::join(shape.first(std::min(shape.size(), kShown)), ", "), end);
}

Status check_bytes(const NpyHeader& array, std::uint64_t bytes, std::string_view before) {
  const std::uint64_t wanted = bytes_wanted(array);
  if (bytes == wanted && wanted != kTooLarge) return {};
  const std::string shape = shape_text(array.shape);
  return wrong(fmt::format("{} bytes {}", bytes, before), wanted == kTooLarge
                                                              ? fmt::format("more than 2^64 for its shape {}", shape)
                                                              : fmt::format("{} for its shape {}", wanted, shape));
}

Result<Array> array_of(const NpyHeader& header, std::span<const char> bytes) {
  if (header.type == NumberType::f64) return rounded_array(header, bytes);
  const std::size_t size = bytes_of(header.type);
  Array array{header.shape, std::vector<float>(bytes.size() / size)};
  for (std::size_t at = 0; at < array.values.size(); ++at) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, bytes.data() + at * size, size);
    array.values[at] = float_of(header.type, bits);
  }
  return array;
}

}  // namespace rota::tool
