#include "cli/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <span>
#include <string_view>

#include "cli/command.h"

namespace rota::tool {
namespace {

KvCodec known_codec(const std::string& name) {
  auto codec = codec_named(name);
  if (!codec) throw Failure(Exit::usage, codec.error().message, "rota doctor --kernels");
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

// Where CLI11 would take -1 for the largest number.
std::string whole_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos ? "" : "must be a whole number";
}

CLI::Option& take_one_of(CLI::Option& option, const std::vector<std::string>& choices) {
  return *option.type_name(joined(choices, "|"))->check([choices](const std::string& text) {
    if (std::ranges::find(choices, text) != choices.end()) return std::string();
    return fmt::format("\"{}\" is not one of {}", text, joined(choices, ", "));
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
  return *command.add_flag(names, flag, description);
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
  return take_one_of(*command.add_option(names, choice, choices.description), choices.names);
}

CLI::Option& add_choices(CLI::App& command, const std::string& names, std::vector<std::string>& chosen,
                         const Choices& choices) {
  return take_one_of(add_texts(command, names, chosen, {Several::with_commas, {choices.description, {}}}),
                     choices.names);
}

CLI::Option& add_number(CLI::App& command, const std::string& names, std::uint64_t& number,
                        const std::string& description) {
  return *command.add_option(names, number, description)->check(whole_number)->type_name("N");
}

CLI::Option& add_number(CLI::App& command, const std::string& names, std::optional<std::uint64_t>& number,
                        const std::string& description) {
  return *command.add_option(names, number, description)->check(whole_number)->type_name("N");
}

CLI::Option& add_numbers(CLI::App& command, const std::string& names, std::vector<std::uint64_t>& numbers,
                         const std::string& description) {
  return *command.add_option(names, numbers, description)
              ->delimiter(',')
              ->allow_extra_args(false)
              ->check(whole_number)
              ->type_name("N,...");
}

CLI::Option& add_real(CLI::App& command, const std::string& names, std::optional<double>& number,
                      const RealRange& range) {
  const auto in_range = [range](const std::string& text) {
    double value = 0;
    const bool is_number = CLI::detail::lexical_cast(text, value);
    if (is_number && value >= range.least && value <= range.most) return std::string();
    return fmt::format("\"{}\" is no number from {} to {}", text, range.least, range.most);
  };
  return *command.add_option(names, number, range.said.description)->check(in_range)->type_name(range.said.type);
}

CLI::Option& add_model(CLI::App& command, std::string& model) {
  return add_text(command, "-m,--model", model, {"Name of a known model, or path of a GGUF file", "MODEL"});
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
  take_one_of(*command.add_option_function<std::string>("-o,--output", take, "How to print it"), names);
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
