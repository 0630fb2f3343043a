#include "report/words.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <tuple>
#include <utility>

#include "cli/characters.h"
#include "cli/numbers.h"
#include "report/ticks.h"

namespace rota::tool {
namespace {

std::string without_trailing_zeros(std::string digits) {
  if (digits.find('.') == std::string::npos) return digits;
  digits.erase(digits.find_last_not_of('0') + 1);
  if (digits.ends_with('.')) digits.pop_back();
  return digits;
}

std::size_t digit_run(std::string_view text, std::size_t at) {
  std::size_t end = at;
  while (end < text.size() && text[end] >= '0' && text[end] <= '9') ++end;
  return end - at;
}

}  // namespace

std::string power_of_ten(int exponent) {
  constexpr std::array kDigits{"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"};
  std::string text = "10";
  for (const char c : std::to_string(exponent)) text += c == '-' ? "⁻" : kDigits.at(static_cast<std::size_t>(c - '0'));
  return text;
}

std::string escaped(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const auto [code, bytes] = first_character(text);
    switch (code) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '"': result += "&quot;"; break;
      case '\'': result += "&#39;"; break;
      default: result += may_be_shown(code) ? text.substr(0, bytes) : "\xef\xbf\xbd";
    }
    text.remove_prefix(bytes);
  }
  return result;
}

std::string cut(std::string_view text, std::size_t most) {
  std::size_t at = 0, count = 0;
  while (at < text.size() && count + 1 < most) {
    at += first_character(text.substr(at)).bytes;
    ++count;
  }
  if (length_of(text.substr(at)) <= 1) return std::string(text);
  return std::string(text.substr(0, at)) + "…";
}

std::string number_text(double value, int digits) {
  if (value == 0) return "0";
  const double size = std::abs(value);
  if (size >= 1e-3 && size < 1e9) {
    const int decimals = std::max(0, digits - 1 - decade_below(size));
    return with_commas(without_trailing_zeros(fmt::format("{:.{}f}", value, decimals)));
  }
  const std::string text = fmt::format("{:.{}e}", value, digits - 1);
  const std::size_t split = text.find('e');
  const std::string mantissa = without_trailing_zeros(text.substr(0, split));
  const std::string power = power_of_ten(std::stoi(text.substr(split + 1)));
  return mantissa == "1" ? power : mantissa + "×" + power;
}

std::string time_text(double ms) {
  if (ms < 0.1) return number_text(ms * 1e3) + " µs";
  return ms < 1e4 ? number_text(ms) + " ms" : number_text(ms / 1e3) + " s";
}

std::string percent(double part) { return fmt::format("{}%", number_text(100 * part, 2)); }

std::string kept_percent(double part) {
  constexpr int kMostDigits = 9;
  std::string text;
  for (int digits = 3; digits <= kMostDigits; ++digits) {
    text = number_text(100 * part, digits);
    if (text != "100" || part == 1) break;
  }
  return text + "%";
}

int digits_to_tell(double value, int digits, const Threshold& threshold) {
  const int most = std::numeric_limits<double>::max_digits10;
  const auto reads_right = [&](int count) {
    const double read = std::strtod(fmt::format("{:.{}e}", value, count - 1).c_str(), nullptr);
    return threshold.holds(read) == threshold.holds(value);
  };
  while (digits < most && !reads_right(digits)) ++digits;
  return digits;
}

bool is_about_one(double ratio) { return ratio < 1 ? percent(ratio) == "100%" : number_text(ratio, 2) == "1"; }

std::string share_of(double ratio, std::string_view whole) {
  if (is_about_one(ratio)) return std::string(whole);
  return ratio > 1 ? fmt::format("{} times {}", number_text(ratio, 2), whole)
                   : fmt::format("{} of {}", percent(ratio), whole);
}

std::string speed_text(double ratio, std::string_view base) {
  if (is_about_one(ratio)) return fmt::format("as fast as {}", base);
  return ratio > 1 ? fmt::format("{} times as fast as {}", number_text(ratio, 2), base)
                   : fmt::format("at {} of {}'s speed", percent(ratio), base);
}

std::string number_text(const std::optional<double>& value) { return value ? number_text(*value) : ""; }

std::string number_text(const std::optional<std::uint64_t>& value) {
  return value ? fmt::format("{}", number_text(static_cast<double>(*value), 17)) : "";
}

std::string joined(const std::vector<std::string>& parts, std::string_view separator) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : std::string(separator)) + part;
  return text;
}

std::string codec_pair(const std::string& k, const std::string& v) { return k == v ? k : k + " / " + v; }

std::string counted(std::uint64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", number_text(std::optional(count)), noun, count == 1 ? "" : "s");
}

std::string bits_text(double bits) {
  const std::string text = number_text(bits);
  return text + (text == "1" ? " bit" : " bits");
}

bool codec_less(std::string_view a, std::string_view b) {
  const auto is_dense = [](std::string_view name) { return name == "f32" || name == "f16" || name == "bf16"; };
  if (is_dense(a) != is_dense(b)) return is_dense(a);
  std::size_t at = 0, other = 0;
  while (at < a.size() && other < b.size()) {
    const std::size_t run = digit_run(a, at), other_run = digit_run(b, other);
    if (run != 0 && other_run != 0) {
      const auto digits = std::pair(a.substr(at, run), b.substr(other, other_run));
      if (digits.first != digits.second) return std::tuple(run, digits.first) < std::tuple(other_run, digits.second);
      at += run;
      other += other_run;
    } else {
      if (a[at] != b[other]) return a[at] < b[other];
      ++at;
      ++other;
    }
  }
  return a.size() - at < b.size() - other;
}

}  // namespace rota::tool
