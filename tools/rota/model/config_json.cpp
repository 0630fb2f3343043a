#include "model/config_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace rota::tool {
namespace {

using Json = nlohmann::json;

// Looks at a text before anything of it is kept: how deep it nests, and where it stops being JSON.
class Examiner final : public nlohmann::json_sax<Json> {
 public:
  const std::string& wrong() const noexcept { return wrong_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(std::int64_t) override { return true; }
  bool number_unsigned(std::uint64_t) override { return true; }
  bool number_float(double, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(Json::binary_t&) override { return true; }
  bool key(std::string&) override { return true; }
  bool start_object(std::size_t) override { return deeper(); }
  bool start_array(std::size_t) override { return deeper(); }
  bool end_object() override { return --depth_ < kMostJsonNesting; }
  bool end_array() override { return --depth_ < kMostJsonNesting; }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    const bool ended = std::string_view(error.what()).find("unexpected end of input") != std::string_view::npos ||
                       std::string_view(error.what()).find("missing closing quote") != std::string_view::npos;
    wrong_ = ended ? std::string("is truncated: its JSON does not end")
                   : fmt::format("is no JSON at byte {}; wanted a config.json", position);
    return false;
  }

 private:
  bool deeper() {
    if (++depth_ <= kMostJsonNesting) return true;
    wrong_ = fmt::format("nests deeper than {}; wanted a config.json", kMostJsonNesting);
    return false;
  }

  std::size_t depth_ = 0;
  std::string wrong_{};
};

// Python writes Infinity and NaN, which JSON does not know, and models with a recurrent state have them in their files.
// No number that is read here may be one: outside of strings they become null.
std::string without_python_numbers(std::string_view text) {
  std::string made;
  bool in_string = false;
  while (!text.empty()) {
    std::size_t taken = 1;
    std::string_view kept = text.substr(0, 1);
    if (in_string && text.front() == '\\') {
      taken = std::min<std::size_t>(2, text.size());
      kept = text.substr(0, taken);
    } else if (text.front() == '"') {
      in_string = !in_string;
    } else if (!in_string) {
      for (const std::string_view word : {"-Infinity", "Infinity", "NaN"}) {
        if (!text.starts_with(word)) continue;
        taken = word.size();
        kept = "null";
        break;
      }
    }
    made += kept;
    text.remove_prefix(taken);
  }
  return made;
}

}  // namespace

Result<Json> parse_config_json(std::string_view written) {
  if (written.empty()) return Error{Errc::io, "is truncated: it has 0 bytes; wanted a config.json"};
  const std::string text = without_python_numbers(written);
  Examiner examiner;
  if (!Json::sax_parse(text, &examiner)) {
    const bool truncated = examiner.wrong().starts_with("is truncated");
    return Error{Errc::io,
                 truncated ? fmt::format("{} after {} bytes", examiner.wrong(), written.size()) : examiner.wrong()};
  }
  Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return Error{Errc::io, "is no JSON object; wanted a config.json"};
  return json;
}

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kLongest = 64;
  return fmt::format("\"{}{}\"", text.substr(0, kLongest), text.size() > kLongest ? "..." : "");
}

std::string value_text(const Json& value) {
  if (value.is_string()) return in_quotes(value.get_ref<const std::string&>());
  if (value.is_primitive()) return value.dump();
  return value.is_array() ? fmt::format("an array of {}", value.size()) : std::string("an object");
}

}  // namespace rota::tool
