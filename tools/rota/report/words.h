#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// Numbers and names as the page writes them.

namespace rota::tool {

// Text as XML and HTML hold it, in elements and in attributes. What they must not hold becomes U+FFFD.
std::string escaped(std::string_view text);

// No longer than `most` characters; what is cut ends in "…".
std::string cut(std::string_view text, std::size_t most);

// "0.0123", "16,384", "1.2×10⁻⁷": whole parts in full, else `digits` that count.
std::string number_text(double value, int digits = 3);
// "" for what is not known.
std::string number_text(const std::optional<double>& value);
std::string number_text(const std::optional<std::uint64_t>& value);

// "10⁻⁷"
std::string power_of_ten(int exponent);

// "4.7%"
std::string percent(double part);
// Of a part that matters for what it lacks: 0.99996 is "99.996%", and only 1 is "100%".
std::string kept_percent(double part);

// A number that others are judged by.
struct Threshold {
  enum class Side { at_least, at_most };
  double at;
  Side side;
  bool holds(double value) const { return side == Side::at_least ? value >= at : value <= at; }
};
// The fewest digits, `digits` or more, with which the number that is read is on the value's side of the threshold.
int digits_to_tell(double value, int digits, const Threshold& threshold);

// "87% of f16's speed", "1.2 times f16's speed"; where both are the same to 2 digits, "f16's speed" alone.
std::string share_of(double ratio, std::string_view whole);
// "2.2 times as fast as f16", "as fast as f16", "at 80% of f16's speed".
std::string speed_text(double ratio, std::string_view base);
// Whether a ratio is 1 to the 2 digits that sentences give it.
bool is_about_one(double ratio);

// "1 row", "16,384 rows".
std::string counted(std::uint64_t count, std::string_view noun);
// "1 bit", "4.31 bits".
std::string bits_text(double bits);
std::string time_text(double ms);

std::string joined(const std::vector<std::string>& parts, std::string_view separator);

// "turbo4", or "turbo4 / turbo2" where K and V differ.
std::string codec_pair(const std::string& k, const std::string& v);

// Codecs in the order in which people think of them: dense ones first, then turbo2, turbo3, ...
bool codec_less(std::string_view a, std::string_view b);

}  // namespace rota::tool
