#include "cli/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <span>
#include <string_view>

#include "cli/command.h"
#include "cli/command_text.h"
#include "cli/names.h"
#include "cli/numbers.h"

namespace rota::tool {
namespace {

KvCodec known_codec(const std::string& name) {
  auto codec = codec_named(name);
  if (!codec) throw Failure(Exit::usage, codec.error().message + codec_hint(name), "rota doctor --kernels");
  return *codec;
}

struct NamedOutput {
  const char* name;
  Output output;
};

constexpr NamedOutput kOutputs[] = {
    {"text", Output::text}, {"md", Output::md}, {"csv", Output::csv}, {"json", Output::json}, {"jsonl", Output::jsonl}};

std::string joined(const std::vector<std::string>& words, std::string_view between) {
  return fmt::format("{}", fmt::join(words, between));
}

// "-c" of "-c,--ctx-size", "-ub" of "--ubatch-size": as an option is typed most often.
std::string typed_name(const std::string& names) {
  const std::string first = names.substr(0, names.find(','));
  const auto known = std::ranges::find(kShortNames, first, &ShortName::stands_for);
  return known == std::ranges::end(kShortNames) ? first : std::string(known->name);
}

// A check of CLI11's that says all: it would put its own words before what a check returns.
[[noreturn]] void refuse(const std::string& names, const std::string& found, std::string_view wanted) {
  throw Failure(Exit::usage, fmt::format("{} is \"{}\"; wanted {}", typed_name(names), found, wanted));
}

// Digits alone, where CLI11 would take -1 for the largest number.
auto whole_number(const std::string& names) {
  return [names](const std::string& text) {
    if (!parsed_whole(text)) refuse(names, text, "a whole number below 2^64");
    return std::string();
  };
}

// "128k" as "131072": contexts are counted in 1024s.
std::string plain_tokens(const std::string& names, const std::string& text) {
  const char unit = text.empty() ? '\0' : text.back();
  const unsigned shift = unit == 'k' || unit == 'K' ? 10 : unit == 'm' || unit == 'M' ? 20 : 0;
  const auto number = parsed_whole(std::string_view(text).substr(0, text.size() - (shift > 0 ? 1 : 0)));
  if (!number || (*number << shift) >> shift != *number) {
    refuse(names, text, "a whole number of tokens below 2^64, such as 8192, 128k or 1m");
  }
  return std::to_string(*number << shift);
}

CLI::Option& take_one_of(CLI::Option& option, const std::string& names, const std::vector<std::string>& choices) {
  return *option.type_name(joined(choices, "|"))->check([names, choices](const std::string& text) {
    if (std::ranges::find(choices, text) == choices.end()) {
      auto near = names_like(text, choices);
      near.resize(std::min<std::size_t>(near.size(), 1));
      const bool are_codecs =
          std::ranges::all_of(choices, [](const std::string& name) { return codec_named(name).ok(); });
      refuse(names, text, "one of " + joined(choices, ", ") + (are_codecs ? codec_hint(text) : did_you_mean(near)));
    }
    return std::string();
  });
}

}  // namespace

CLI::App& add_command(CLI::App& app, const CommandSpec& spec) {
  CLI::App& command = *app.add_subcommand(spec.name, spec.description);
  command.footer(spec.footer);
  command.callback(spec.run);
  return command;
}

CLI::Option& add_flag(CLI::App& command, const std::string& names, bool& flag, const std::string& description) {
  return *command.add_flag(names, flag, description)->disable_flag_override();
}

CLI::Option& add_text(CLI::App& command, const std::string& names, std::string& text, const ValueText& said) {
  return *command.add_option(names, text, said.description)->type_name(said.type);
}

CLI::Option& add_texts(CLI::App& command, const std::string& names, std::vector<std::string>& texts,
                       const SeveralTexts& how) {
  CLI::Option& option = *command.add_option(names, texts, how.said.description)->type_name(how.said.type);
  if (how.several == Several::with_commas) option.delimiter(',');
  if (how.several != Several::as_words) option.allow_extra_args(false);
  return option;
}

CLI::Option& add_choice(CLI::App& command, const std::string& names, std::string& choice, const Choices& choices) {
  return take_one_of(*command.add_option(names, choice, choices.description), names, choices.names);
}

CLI::Option& add_choices(CLI::App& command, const std::string& names, std::vector<std::string>& chosen,
                         const Choices& choices) {
  return take_one_of(add_texts(command, names, chosen, {Several::with_commas, {choices.description, {}}}), names,
                     choices.names);
}

CLI::Option& add_number(CLI::App& command, const std::string& names, std::uint64_t& number,
                        const std::string& description) {
  return *command.add_option(names, number, description)->check(whole_number(names))->type_name("N");
}

CLI::Option& add_number(CLI::App& command, const std::string& names, std::optional<std::uint64_t>& number,
                        const std::string& description) {
  return *command.add_option(names, number, description)->check(whole_number(names))->type_name("N");
}

CLI::Option& add_numbers(CLI::App& command, const std::string& names, std::vector<std::uint64_t>& numbers,
                         const std::string& description) {
  return *command.add_option(names, numbers, description)
              ->delimiter(',')
              ->allow_extra_args(false)
              ->check(whole_number(names))
              ->type_name("N,...");
}

CLI::Option& add_bytes(CLI::App& command, const std::string& names, std::optional<std::uint64_t>& bytes,
                       const std::string& description) {
  const auto plain = [names](const std::string& text) {
    const auto number = parsed_bytes(text);
    if (!number) refuse(names, text, kWantedBytes);
    return std::to_string(*number);
  };
  return *command.add_option(names, bytes, description)->transform(plain)->type_name("SIZE");
}

CLI::Option& add_tokens(CLI::App& command, const std::string& names, std::vector<std::uint64_t>& numbers,
                        const std::string& description) {
  return *command.add_option(names, numbers, description)
              ->delimiter(',')
              ->allow_extra_args(false)
              ->transform([names](const std::string& text) { return plain_tokens(names, text); })
              ->type_name("N,...");
}

CLI::Option& add_real(CLI::App& command, const std::string& names, std::optional<double>& number,
                      const RealRange& range) {
  const auto in_range = [names, range](const std::string& text) {
    double value = 0;
    const bool is_number = CLI::detail::lexical_cast(text, value);
    const bool fits = is_number && value >= range.least && value <= range.most;
    if (!fits) refuse(names, text, fmt::format("a number from {} to {}", range.least, range.most));
    return std::string();
  };
  return *command.add_option(names, number, range.said.description)->check(in_range)->type_name(range.said.type);
}

CLI::Option& add_model(CLI::App& command, std::string& model) {
  return add_text(command, "-m,--model", model,
                  {"Name of a known model, or path of a GGUF file or of Hugging Face's config.json", "MODEL"});
}

CLI::Option& add_device(CLI::App& command, std::string& device, const std::string& description) {
  return add_text(command, "--device", device, {description, "ID"});
}

void add_output(CLI::App& command, Output& output) {
  std::vector<std::string> names;
  for (const NamedOutput& known : kOutputs) names.emplace_back(known.name);
  const auto take = [&output](const std::string& name) {
    output = std::ranges::find(kOutputs, name, &NamedOutput::name)->output;  // checked before
  };
  constexpr const char* kNames = "-o,--output";
  take_one_of(*command.add_option_function<std::string>(kNames, take, "How to print it"), kNames, names);
}

void require(CLI::Option& option) { option.required(); }
void exclude(CLI::Option& one, CLI::Option& other) { one.excludes(&other); }

std::vector<CodecPair> CodecLists::pairs() const {
  if (k.size() != v.size() && k.size() != 1 && v.size() != 1) {
    const std::size_t both = std::min(k.size(), v.size());
    throw Failure(Exit::usage,
                  fmt::format("-ctk names {} codecs and -ctv {}: the first of one goes with the first of the "
                              "other, so name as many, or one",
                              k.size(), v.size()),
                  fmt::format("the same with -ctk {} -ctv {}", fmt::join(std::span(k).first(both), ","),
                              fmt::join(std::span(v).first(both), ",")));
  }
  std::vector<CodecPair> made;
  for (std::size_t at = 0; at < std::max(k.size(), v.size()); ++at) {
    made.push_back({known_codec(k[k.size() == 1 ? 0 : at]), known_codec(v[v.size() == 1 ? 0 : at])});
  }
  return made;
}

std::uint32_t thread_count(std::uint64_t asked, std::string_view command) {
  if (asked >= 1 && asked <= 1024) return static_cast<std::uint32_t>(asked);
  throw Failure(Exit::usage, fmt::format("-t is {}; wanted 1 to 1024", asked), fmt::format("rota {} --help", command));
}

void add_codecs(CLI::App& command, CodecLists& codecs) {
  const auto add = [&](const char* name, std::vector<std::string>& list, const char* what) {
    add_texts(
        command, name, list,
        {Several::with_commas, {fmt::format("Codecs of {}: f16, bf16, f32 or turbo2 to turbo8", what), "CODEC,..."}});
  };
  add("--cache-type-k", codecs.k, "keys");
  add("--cache-type-v", codecs.v, "values, each for one of -ctk");
}

}  // namespace rota::tool
