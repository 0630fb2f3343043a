#include "npy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <fstream>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

namespace rota::tool {
namespace {

static_assert(std::endian::native == std::endian::little, "values are read as the file has them");

constexpr std::string_view kMagicAndVersion{"\x93NUMPY\x01\x00", 8};
constexpr std::uint64_t kPreludeBytes = kMagicAndVersion.size() + 2;  // and the header's length
constexpr std::size_t kLongestQuote = 32;                             // of a file's own words in a message
constexpr auto kTooLarge = std::numeric_limits<std::uint64_t>::max();

// What is wrong, and what was wanted; the file's name comes to it where it is known.
Error wrong(std::string what, std::string_view wanted) {
  return {Errc::io, fmt::format("{}; wanted {}", std::move(what), wanted)};
}

// The header's dictionary, a Python literal. Knows just the words that such a header has.
class HeaderReader {
 public:
  explicit HeaderReader(std::string_view text) : rest_(text) {}

  // The shape; all else has only one value that is read here.
  Result<std::vector<std::uint64_t>> read() {
    if (!take("{")) return no_dictionary();
    while (!take("}")) {
      if (Status entry = read_entry(); !entry) return entry.error();
      if (take(",")) continue;
      if (!take("}")) return no_dictionary();
      break;
    }
    if (!shape_ || !has_type_ || !has_order_) return no_dictionary();
    skip_spaces();
    if (rest_ != "\n") return wrong("the header does not end with its dictionary", "spaces and a line feed after it");
    return *std::move(shape_);
  }

 private:
  static Error no_dictionary() {
    return wrong("the header is no dictionary of descr, fortran_order and shape",
                 "{'descr': '<f2', 'fortran_order': False, 'shape': (...), }");
  }

  Status read_entry() {
    const auto key = take_quoted();
    if (!key || !take(":")) return no_dictionary();
    if (*key == "descr" && !std::exchange(has_type_, true)) return read_type();
    if (*key == "fortran_order" && !std::exchange(has_order_, true)) return read_order();
    if (*key == "shape" && !shape_) return read_shape();
    return no_dictionary();
  }

  Status read_type() {
    const auto type = take_quoted();
    if (!type) return no_dictionary();
    if (*type == "<f2") return {};
    return wrong(fmt::format("descr is '{}'", type->substr(0, kLongestQuote)), "'<f2', little-endian f16");
  }

  Status read_order() {
    if (take("False")) return {};
    return take("True") ? wrong("fortran_order is True", "False, C order") : no_dictionary();
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
  bool has_type_ = false, has_order_ = false;
  std::optional<std::vector<std::uint64_t>> shape_{};
};

std::uint64_t bytes_of(std::span<const std::uint64_t> shape) {
  std::uint64_t bytes = sizeof(std::uint16_t);
  for (const std::uint64_t size : shape) {
    if (size != 0 && bytes > kTooLarge / size) return kTooLarge;
    bytes *= size;
  }
  return bytes;
}

bool read_exactly(std::istream& file, char* to, std::uint64_t bytes) {
  if (bytes > static_cast<std::uint64_t>(std::numeric_limits<std::streamsize>::max())) return false;
  return static_cast<bool>(file.read(to, static_cast<std::streamsize>(bytes)));
}

Result<std::string> read_header(std::istream& file, std::uint64_t file_bytes) {
  std::array<char, kPreludeBytes> prelude{};
  if (file_bytes < prelude.size() || !read_exactly(file, prelude.data(), prelude.size()) ||
      !std::string_view(prelude.data(), prelude.size()).starts_with(kMagicAndVersion)) {
    return wrong("does not begin as a NumPy array of version 1.0 does", "a file of numpy.save");
  }
  const auto low = static_cast<std::uint8_t>(prelude[kMagicAndVersion.size()]);
  const auto high = static_cast<std::uint8_t>(prelude[kMagicAndVersion.size() + 1]);
  const std::uint64_t header_bytes = low + 256U * high;
  std::string header(header_bytes, ' ');
  if (header_bytes > file_bytes - prelude.size() || !read_exactly(file, header.data(), header_bytes)) {
    return wrong(fmt::format("the header's length is {}", header_bytes),
                 fmt::format("at most the {} bytes that follow", file_bytes - prelude.size()));
  }
  return header;
}

Result<HalfArray> read_array(std::istream& file, std::uint64_t file_bytes) {
  const auto header = read_header(file, file_bytes);
  if (!header) return header.error();
  auto shape = HeaderReader(*header).read();
  if (!shape) return shape.error();
  const std::uint64_t wanted_bytes = bytes_of(*shape);
  const std::uint64_t found_bytes = file_bytes - kPreludeBytes - header->size();
  if (found_bytes != wanted_bytes) {
    return wrong(fmt::format("{} bytes follow the header", found_bytes),
                 wanted_bytes == kTooLarge ? fmt::format("more than 2^64 for its shape {}", shape_text(*shape))
                                           : fmt::format("{} for its shape {}", wanted_bytes, shape_text(*shape)));
  }
  HalfArray array{std::move(*shape), std::vector<std::uint16_t>(found_bytes / sizeof(std::uint16_t))};
  if (!read_exactly(file, reinterpret_cast<char*>(array.values.data()), found_bytes)) {
    return wrong("ends while it is read", fmt::format("{} bytes after the header", found_bytes));
  }
  return array;
}

}  // namespace

std::string shape_text(std::span<const std::uint64_t> shape) {
  constexpr std::size_t kShown = 4;
  const std::string_view end = shape.size() > kShown ? ", ..." : shape.size() == 1 ? "," : "";
  return fmt::format("({}{})", fmt::join(shape.first(std::min(shape.size(), kShown)), ", "), end);
}

Result<HalfArray> read_npy(const std::filesystem::path& path) {
  const auto named = [&](const Error& error) {
    return Error{error.code, fmt::format("{}: {}", path.string(), error.message)};
  };
  std::error_code failure;
  if (!std::filesystem::is_regular_file(path, failure)) return named(wrong("is not there or no file", "a .npy file"));
  const std::uint64_t file_bytes = std::filesystem::file_size(path, failure);
  if (failure) return named(wrong(failure.message(), "a .npy file"));
  std::ifstream file(path, std::ios::binary);
  if (!file) return named(wrong("cannot be opened", "a file that may be read"));
  auto array = read_array(file, file_bytes);
  if (!array) return named(array.error());
  return array;
}

}  // namespace rota::tool
