#include "cli/names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>
#include <tuple>

#include "rota/kv_spec.h"

namespace rota::tool {
namespace {

// What other programs, or people, call an option of these commands.
struct Alias {
  std::string_view word, option;
};

constexpr auto kAliases = std::to_array<Alias>({{"batch-size", "--ubatch-size"},
                                                {"cache-dtype", "--cache-type-k"},
                                                {"context", "--ctx-size"},
                                                {"context-length", "--ctx-size"},
                                                {"context-size", "--ctx-size"},
                                                {"ctx", "--ctx-size"},
                                                {"format", "--output"},
                                                {"gpu", "--device"},
                                                {"kv-cache-dtype", "--cache-type-k"},
                                                {"max-model-len", "--ctx-size"},
                                                {"max-num-seqs", "--parallel"},
                                                {"models", "--list-models"},
                                                {"n-ctx", "--ctx-size"},
                                                {"n-layers", "--layers"},
                                                {"num-key-value-heads", "--kv-heads"},
                                                {"page-size", "--page"},
                                                {"ram", "--memory"},
                                                {"seqs", "--parallel"},
                                                {"sliding-window", "--window"},
                                                {"vram", "--memory"}});

std::string bare(std::string_view option) {
  std::string word = lower(std::string(option.substr(0, option.find('='))));
  std::ranges::replace(word, '_', '-');
  return word.substr(std::min(word.find_first_not_of('-'), word.size()));
}

// The first number in a name of another program's format: its bits.
std::optional<unsigned> bits_in(std::string_view name) {
  const std::size_t at = name.find_first_of("0123456789");
  if (at == std::string_view::npos) return {};
  unsigned bits = 0;
  const auto [end, error] = std::from_chars(name.data() + at, name.data() + name.size(), bits);
  return error == std::errc{} ? std::optional(bits) : std::nullopt;
}

// The one with as many bits, else the next larger, else the largest.
unsigned sealed_bits(unsigned wanted) {
  unsigned best = 0;
  for (const NamedCodec& known : kCodecs) {
    const auto* const turbo = std::get_if<Turbo>(&known.codec);
    if (turbo == nullptr) continue;
    const unsigned bits = turbo->bits;
    if (best == 0 || (best < wanted ? bits > best : bits >= wanted && bits < best)) best = bits;
  }
  return best;
}

// Letters and digits alone: people write "gemma3", and others "gemma-3-27b-it".
std::string squashed(std::string_view name) {
  std::string made;
  for (const char letter : lower(std::string(name))) {
    if ((letter >= 'a' && letter <= 'z') || (letter >= '0' && letter <= '9')) made += letter;
  }
  return made;
}

}  // namespace

std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> table(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) table[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) table[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t changed = table[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      table[i][j] = std::min({changed, table[i - 1][j] + 1, table[i][j - 1] + 1});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) table[i][j] = std::min(table[i][j], table[i - 2][j - 2] + 1);
    }
  }
  return table[a.size()][b.size()];
}

std::string lower(std::string text) {
  for (char& letter : text) letter = letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
  return text;
}

std::vector<std::string> names_like(const std::string& name, const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 5, kLongest = 256;  // letters of a name that is worth comparing
  constexpr std::size_t kPart = 3;                  // letters that tell something
  const std::string wanted = squashed(name.substr(0, kLongest));
  // How far it is, and how many letters of a known name are in it: of those that are as near, the longest is meant.
  std::vector<std::tuple<std::size_t, std::size_t, std::string>> near;
  for (const std::string& known : names) {
    const std::string bare = squashed(known);
    const bool is_part = wanted.size() >= kPart && bare.find(wanted) != std::string::npos;
    const bool has_part = bare.size() > kPart && wanted.find(bare) != std::string::npos;
    const std::size_t far = is_part || has_part ? 0 : distance(wanted, bare);
    if (far <= std::max<std::size_t>(1, bare.size() / 3))
      near.emplace_back(far, has_part ? kLongest - bare.size() : kLongest, known);
  }
  std::ranges::sort(near);
  std::vector<std::string> found;
  for (const auto& [far, rest, known] : near) {
    if (found.size() < kMost) found.push_back(known);
  }
  return found;
}

std::string did_you_mean(const std::vector<std::string>& near) {
  return near.empty() ? "" : fmt::format("; did you mean {}?", fmt::join(near, ", "));
}

std::string option_like(std::string_view typed, const std::vector<std::string>& options) {
  const std::string wanted = bare(typed.substr(0, 64));
  std::string best;
  std::size_t least = std::numeric_limits<std::size_t>::max();
  const auto consider = [&](std::string_view word, const std::string& option) {
    const bool begins = wanted.size() >= 3 && word.starts_with(wanted);
    const std::size_t far = begins ? 0 : distance(wanted, word);
    if (far > word.size() / 3 || far >= least) return;
    least = far;
    best = option;
  };
  for (const std::string& option : options) consider(bare(option), option);
  for (const Alias& alias : kAliases) {
    const std::string option(alias.option);
    if (std::ranges::find(options, option) != options.end()) consider(alias.word, option);
  }
  return best;
}

std::string codec_hint(std::string_view name) {
  const std::string wanted = lower(std::string(name.substr(0, 64)));
  const auto bits = bits_in(wanted);
  if (bits && *bits > 0 && *bits <= 9) {
    const unsigned nearest = sealed_bits(*bits);
    const bool misspelled = distance(wanted, fmt::format("turbo{}", nearest)) <= 2 || nearest != *bits;
    return misspelled ? fmt::format("; did you mean turbo{}?", nearest)
                      : fmt::format("; turbo{} has as many bits", nearest);
  }
  if (bits == 16U || bits == 32U) {
    const bool brain = *bits == 16 && wanted.starts_with('b');
    return fmt::format("; did you mean {}{}?", brain ? "bf" : "f", *bits);
  }
  std::vector<std::string> names;
  for (const NamedCodec& known : kCodecs) names.emplace_back(known.name);
  auto near = names_like(wanted, names);
  near.resize(std::min<std::size_t>(near.size(), 1));
  return did_you_mean(near);
}

Failure no_such_command(const std::string& name, const std::vector<std::string>& commands) {
  const auto near = names_like(name, commands);
  return {Exit::usage, fmt::format("there is no command \"{}\"{}", name, did_you_mean(near)),
          near.empty() ? "rota --help" : fmt::format("rota {} --help", near.front())};
}

}  // namespace rota::tool
