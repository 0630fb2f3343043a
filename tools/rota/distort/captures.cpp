#include "distort/captures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>
#include <utility>

#include "cli/numbers.h"
#include "rota/codec.h"
#include "rota/view.h"

namespace rota::tool {
namespace {

// As seal reads NaN, infinity and what is beyond f16. Exact attention reads it so, too: else it had no result to
// compare with.
std::uint64_t make_finite(Array& array) {
  constexpr float kLargest = 65504;
  // Numbers below it are rounded down to the largest.
  constexpr float kOverflow = 65520;
  std::uint64_t changed = 0;
  for (float& value : array.values) {
    if (std::abs(value) < kOverflow) continue;
    ++changed;
    value = std::isnan(value) ? 0 : std::copysign(kLargest, value);
  }
  return changed;
}

void check_finite(const std::string& name, const Array& array) {
  const auto bad = std::ranges::find_if(array.values, [](float value) { return !std::isfinite(value); });
  if (bad == array.values.end()) return;
  throw BadResult(
      named(name, wrong(fmt::format("value {} is not finite", bad - array.values.begin()), "finite queries")));
}

// One KV head's queries, as [query head][token][dim].
std::vector<float> queries_of(const CaptureFiles& files, const Array& from, std::uint64_t kv_head) {
  const std::uint64_t dim = from.shape.back();
  const std::uint64_t tokens = from.values.size() / dim / files.query_heads;
  const std::uint64_t group = files.query_heads / files.kv_heads;
  const std::span all(from.values);
  if (!files.tokens_before_heads) {
    const std::span part = all.subspan(kv_head * group * tokens * dim, group * tokens * dim);
    return {part.begin(), part.end()};
  }
  std::vector<float> queries(group * tokens * dim);
  for (std::uint64_t head = 0; head < group; ++head) {
    for (std::uint64_t token = 0; token < tokens; ++token) {
      const std::span row = all.subspan((token * files.query_heads + kv_head * group + head) * dim, dim);
      std::ranges::copy(row, queries.begin() + static_cast<std::ptrdiff_t>((head * tokens + token) * dim));
    }
  }
  return queries;
}

std::uint64_t numbers_in(const ArrayFile& array) {
  std::uint64_t count = 1;
  for (const std::uint64_t size : array.header.shape) count = detail::saturating_multiply(count, size);
  return count;
}

// All numbers of its arrays, one of these as the file has it, and a head's own copy.
std::uint64_t reading_bytes(const CaptureFiles& files) {
  std::uint64_t numbers = 0, largest = 0;
  const auto add = [&](const ArrayFile& array) {
    numbers = saturating_add(numbers, numbers_in(array));
    largest = std::max(largest, detail::saturating_multiply(numbers_in(array), bytes_of(array.header.type)));
  };
  add(files.keys);
  add(files.values);
  if (files.queries) add(*files.queries);
  const std::uint64_t read = saturating_add(numbers, numbers / files.kv_heads);
  return saturating_add(detail::saturating_multiply(read, sizeof(float)), largest);
}

bool is_digit(char character) { return character >= '0' && character <= '9'; }
bool is_letter(char character) { return (character | 0x20) >= 'a' && (character | 0x20) <= 'z'; }

std::optional<std::uint64_t> number_at(std::string_view text) {
  constexpr std::size_t kMostDigits = 9;
  std::uint64_t number = 0;
  std::size_t digits = 0;
  for (; digits < text.size() && digits < kMostDigits && is_digit(text[digits]); ++digits) {
    number = number * 10 + static_cast<std::uint64_t>(text[digits] - '0');
  }
  return digits == 0 ? std::nullopt : std::optional(number);
}

// 3 of "model.layers.3" for "layers", of "Layer-3" for "layer", and of "L03_g1" for "l".
std::optional<std::uint64_t> number_after(std::string_view name, std::string_view word) {
  for (std::size_t at = 0; at + word.size() < name.size(); ++at) {
    if (at > 0 && is_letter(name[at - 1])) continue;
    const std::string_view here = name.substr(at, word.size());
    if (!std::ranges::equal(here, word, {}, [](char letter) { return static_cast<char>(letter | 0x20); })) continue;
    std::string_view rest = name.substr(at + word.size());
    if (std::string_view("._- /").find(rest.front()) != std::string_view::npos) rest.remove_prefix(1);
    if (const auto number = number_at(rest)) return number;
  }
  return {};
}

std::optional<std::uint64_t> first_number_after(std::string_view name, std::span<const std::string_view> words) {
  for (const std::string_view word : words) {
    if (const auto number = number_after(name, word)) return number;
  }
  return {};
}

}  // namespace

HeadName head_name(const std::string& name) {
  constexpr std::string_view kLayer[] = {"layers", "layer", "blk", "l"}, kHead[] = {"heads", "head", "kv", "g", "h"};
  HeadName head{name, first_number_after(name, kLayer), first_number_after(name, kHead)};
  const auto digit = std::ranges::find_if(name, is_digit);
  if (!head.layer && !head.head) head.layer = number_at(std::string_view(digit, name.end()));
  return head;
}

Status check_head_dim(std::uint64_t dim) {
  // What no format has room for is refused as the largest number is.
  const auto head_dim = static_cast<std::uint32_t>(std::min<std::uint64_t>(dim, UINT32_MAX));
  return check(PageFormat{.codec = turbo(4), .side = KvSide::keys, .head_dim = head_dim});
}

LargestFile largest_file(const Source& source) {
  LargestFile largest;
  for (const CaptureFiles& files : source.files) {
    const std::uint64_t bytes = reading_bytes(files);
    if (bytes > largest.bytes) largest = {files.keys.name, bytes};
  }
  return largest;
}

std::optional<Capture> CaptureReader::next() {
  if (file_ < source_.captures.size()) return source_.captures[file_++];
  if (file_ >= source_.files.size()) return {};
  const CaptureFiles& files = source_.files[file_];
  if (head_ == 0) open(files);
  Capture capture = head(files);
  if (++head_ == files.kv_heads) {
    head_ = 0;
    ++file_;
  }
  return capture;
}

void CaptureReader::open(const CaptureFiles& files) {
  keys_ = files.keys.read().value();
  values_ = files.values.read().value();
  queries_ = files.queries ? files.queries->read().value() : Array{};
  if (files.queries) check_finite(files.queries->name, queries_);
  changed_.non_finite_keys += make_finite(keys_);
  changed_.non_finite_values += make_finite(values_);
  changed_.rounded += keys_.rounded + values_.rounded + queries_.rounded;
}

Capture CaptureReader::head(const CaptureFiles& files) {
  Capture capture{.head = head_name(files.name), .key_name = files.keys.name, .value_name = files.values.name};
  if (files.kv_heads > 1) {
    capture.head.name = fmt::format("{} head {}", files.name, head_);
    capture.head.head = head_;
  }
  const std::uint64_t size = source_.tokens * source_.dim;
  const auto part = [&](const Array& from) {
    const std::span all = std::span(from.values).subspan(head_ * size, size);
    return std::vector<float>(all.begin(), all.end());
  };
  capture.keys = part(keys_);
  capture.values = part(values_);
  if (files.queries) capture.queries = queries_of(files, queries_, head_);
  return capture;
}

}  // namespace rota::tool
