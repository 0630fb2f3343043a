#include "distort/arrays.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "cli/show.h"
#include "rota/dtype.h"

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

struct Described {
  DType dtype = DType::f16;
  std::vector<std::uint64_t> shape{};
};

// The header's dictionary, a Python literal. Knows just the words that such a header has.
class HeaderReader {
 public:
  explicit HeaderReader(std::string_view text) : rest_(text) {}

  Result<Described> read() {
    if (!take("{")) return no_dictionary();
    while (!take("}")) {
      if (Status entry = read_entry(); !entry) return entry.error();
      if (take(",")) continue;
      if (!take("}")) return no_dictionary();
      break;
    }
    skip_spaces();
    if (!shape_ || !dtype_ || !has_order_) return no_dictionary();
    if (rest_ != "\n") return wrong("the header does not end with its dictionary", "spaces and a line feed after it");
    return Described{*dtype_, *std::move(shape_)};
  }

 private:
  static Error no_dictionary() {
    return wrong("the header is no dictionary of descr, fortran_order and shape",
                 "{'descr': '<f2', 'fortran_order': False, 'shape': (...), }");
  }

  Status read_entry() {
    const auto key = take_quoted();
    if (!key || !take(":")) return no_dictionary();
    if (*key == "descr" && !dtype_) return read_type();
    if (*key == "fortran_order" && !std::exchange(has_order_, true)) return read_order();
    if (*key == "shape" && !shape_) return read_shape();
    return no_dictionary();
  }

  Status read_type() {
    const auto type = take_quoted();
    if (!type) return no_dictionary();
    if (*type == "<f2") dtype_ = DType::f16;
    if (*type == "<f4") dtype_ = DType::f32;
    if (dtype_) return {};
    return wrong(fmt::format("descr is '{}'", type->substr(0, kLongestQuote)), "'<f2' or '<f4', little-endian floats");
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
  bool has_order_ = false;
  std::optional<DType> dtype_{};
  std::optional<std::vector<std::uint64_t>> shape_{};
};

std::uint64_t bytes_of(const Described& array) {
  std::uint64_t bytes = info(array.dtype).bytes;
  for (const std::uint64_t size : array.shape) {
    if (size != 0 && bytes > kTooLarge / size) return kTooLarge;
    bytes *= size;
  }
  return bytes;
}

bool read_exactly(std::istream& file, char* to, std::uint64_t bytes) {
  if (bytes > static_cast<std::uint64_t>(std::numeric_limits<std::streamsize>::max())) return false;
  return static_cast<bool>(file.read(to, static_cast<std::streamsize>(bytes)));
}

std::vector<float> floats_of(DType dtype, std::span<const char> bytes) {
  const std::size_t size = info(dtype).bytes;
  std::vector<float> floats(bytes.size() / size);
  for (std::size_t at = 0; at < floats.size(); ++at) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, bytes.data() + at * size, size);
    const auto half = static_cast<std::uint16_t>(bits);
    floats[at] = dtype == DType::f32   ? std::bit_cast<float>(bits)
                 : dtype == DType::f16 ? f32_from_f16(half)
                                       : f32_from_bf16(half);
  }
  return floats;
}

// What follows in the file, which is all that is left of it.
Result<Array> read_values(std::istream& file, std::uint64_t left_bytes, Described array, std::string_view before) {
  const std::uint64_t wanted_bytes = bytes_of(array);
  if (left_bytes != wanted_bytes) {
    const std::string shape = shape_text(array.shape);
    return wrong(fmt::format("{} bytes {}", left_bytes, before),
                 wanted_bytes == kTooLarge ? fmt::format("more than 2^64 for its shape {}", shape)
                                           : fmt::format("{} for its shape {}", wanted_bytes, shape));
  }
  std::vector<char> bytes(left_bytes);
  if (!read_exactly(file, bytes.data(), bytes.size())) {
    return wrong("ends while it is read", fmt::format("{} bytes of numbers", left_bytes));
  }
  return Array{std::move(array.shape), floats_of(array.dtype, bytes)};
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

Result<Array> read_npy_from(std::istream& file, std::uint64_t file_bytes) {
  const auto header = read_header(file, file_bytes);
  if (!header) return header.error();
  auto described = HeaderReader(*header).read();
  if (!described) return described.error();
  return read_values(file, file_bytes - kPreludeBytes - header->size(), *std::move(described), "follow the header");
}

// Opens the file, has it read, and puts its name before what was wrong.
template <class Read>
auto with_file(const std::filesystem::path& path, std::string_view wanted, Read read)
    -> decltype(read(std::declval<std::istream&>(), std::uint64_t{})) {
  const auto named = [&](const Error& error) {
    return Error{error.code, fmt::format("{}: {}", path.string(), error.message)};
  };
  std::error_code failure;
  if (!std::filesystem::is_regular_file(path, failure)) return named(wrong("is not there or no file", wanted));
  const std::uint64_t file_bytes = std::filesystem::file_size(path, failure);
  if (failure) return named(wrong(failure.message(), wanted));
  std::ifstream file(path, std::ios::binary);
  if (!file) return named(wrong("cannot be opened", "a file that may be read"));
  auto result = read(file, file_bytes);
  if (!result) return named(result.error());
  return result;
}

Result<Described> read_description(std::istream& file, std::uint64_t file_bytes) {
  constexpr std::string_view kWanted = R"({"dtype": "f16", "shape": [512, 64]})";
  constexpr std::uint64_t kLargest = 1U << 20;
  if (file_bytes > kLargest) return wrong(fmt::format("has {}", bytes_text(file_bytes)), kWanted);
  const auto json = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return wrong("is no JSON object", kWanted);
  const auto dtype = json.find("dtype");
  const auto shape = json.find("shape");
  Described array;
  const auto named = [&](const DTypeInfo& type) { return dtype != json.end() && *dtype == type.name; };
  const auto* const known = std::ranges::find_if(kDTypes, named);
  if (known == kDTypes.end()) return wrong("dtype is not one of f16, bf16 and f32", kWanted);
  array.dtype = known->dtype;
  if (shape == json.end() || !shape->is_array()) return wrong("shape is no list", kWanted);
  for (const auto& size : *shape) {
    if (!size.is_number_unsigned()) return wrong("shape is no list of whole numbers below 2^64", kWanted);
    array.shape.push_back(size.get<std::uint64_t>());
  }
  return array;
}

}  // namespace

std::string shape_text(std::span<const std::uint64_t> shape) {
  constexpr std::size_t kShown = 4;
  const std::string_view end = shape.size() > kShown ? ", ..." : shape.size() == 1 ? "," : "";
  return fmt::format("({}{})", fmt::join(shape.first(std::min(shape.size(), kShown)), ", "), end);
}

Result<Array> read_npy(const std::filesystem::path& path) { return with_file(path, "a .npy file", read_npy_from); }

Result<Array> read_raw(const std::filesystem::path& path) {
  std::filesystem::path json = path;
  json.replace_extension(".json");
  auto described = with_file(json, "what the .raw file beside it holds", read_description);
  if (!described) return described.error();
  return with_file(path, "a .raw file", [&](std::istream& file, std::uint64_t file_bytes) {
    return read_values(file, file_bytes, *std::move(described), "are in it");
  });
}

}  // namespace rota::tool
