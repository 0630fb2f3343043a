#include "cli/wrong_usage.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "cli/names.h"

namespace rota::tool {
namespace {

const OptionText* find_option(const CommandText& command, std::string_view name) {
  for (const auto* options : {&command.options, &command.positionals}) {
    for (const OptionText& option : *options) {
      if (std::ranges::find(option.names, name) != option.names.end()) return &option;
    }
  }
  return nullptr;
}

// As it is typed most often.
std::string short_name(const CommandText& command, const std::string& name) {
  const OptionText* const option = find_option(command, name);
  return option == nullptr ? name : option->names.front();
}

std::vector<std::string> option_names(const CommandText& command) {
  std::vector<std::string> names;
  for (const OptionText& option : command.options) {
    names.insert(names.end(), option.names.rbegin(), option.names.rend());  // long ones win
  }
  return names;
}

Failure not_expected(const std::string& word, const CommandText& command) {
  if (word.starts_with('-') && word.size() > 1) {
    const std::string typed = word.substr(0, word.find('='));
    const std::string meant = option_like(word, option_names(command));
    if (meant == typed) {
      return {Exit::usage,
              fmt::format("{} stands before its command; wanted it behind: {}", typed, usage_text(command))};
    }
    return {Exit::usage, fmt::format("there is no option \"{}\"{}", typed,
                                     did_you_mean(meant.empty() ? std::vector<std::string>{} : std::vector{meant}))};
  }
  return {Exit::usage, fmt::format("\"{}\" is not expected; wanted {}", word, usage_text(command))};
}

// How often, or with how many values, an option came.
Failure wrong_count(const Misuse& misuse, const CommandText& command) {
  const std::string& words = misuse.words;
  const std::string name = words.substr(0, words.find_first_of(": "));
  if (words.find("flag override") != std::string::npos) {
    return {Exit::usage, fmt::format("--{} takes no value; wanted it alone", name)};
  }
  const OptionText* const option = find_option(command, name);
  const std::string shown = short_name(command, name);
  if (words.find("missing") != std::string::npos) {
    return {Exit::usage, fmt::format("{} has no value; wanted {} {}", shown, shown,
                                     option == nullptr || option->value.empty() ? "VALUE" : option->value)};
  }
  if (words.find("At Most") != std::string::npos) {
    return {Exit::usage, fmt::format("{} is given {} times; wanted it once", shown, last_word(words))};
  }
  return {Exit::usage, words};
}

// The library's name of what an option says, where that is not the option's own.
struct Field {
  std::string_view field, option;
};

constexpr auto kFields = std::to_array<Field>({{"k", "--cache-type-k"},
                                               {"max_sequences", "--parallel"},
                                               {"max_step_tokens", "--ubatch-size"},
                                               {"max_tokens", "--ctx-size"},
                                               {"v", "--cache-type-v"}});

std::string option_of(std::string_view field) {
  const auto known = std::ranges::find(kFields, field, &Field::field);
  if (known != kFields.end()) return std::string(known->option);
  std::string option = "--" + std::string(field);
  std::ranges::replace(option, '_', '-');
  return option;
}

bool is_given(const CommandText& command, std::string_view name) {
  const OptionText* const option = find_option(command, name);
  return option != nullptr && option->given;
}

}  // namespace

Failure failure_of(const Misuse& misuse, const CommandText& command) {
  // What is missing may just have been misspelled.
  const auto mistyped =
      std::ranges::find_if(misuse.left_over, [](const std::string& word) { return word.size() > 1 && word[0] == '-'; });
  if (mistyped != misuse.left_over.end()) return not_expected(*mistyped, command);
  const std::string& words = misuse.words;
  if (words.starts_with("The following arg") && !misuse.left_over.empty()) {
    return not_expected(misuse.left_over.front(), command);
  }
  constexpr std::string_view kRequired = " is required", kExcludes = " excludes ";
  if (misuse.kind == "RequiredError" && !command.commands.empty()) {
    std::vector<std::string> names;
    for (const CommandText& part : command.commands) names.push_back(last_word(part.name));
    return {Exit::usage, fmt::format("no command is named; wanted one of {}", fmt::join(names, ", "))};
  }
  if (misuse.kind == "RequiredError" && words.ends_with(kRequired)) {
    const std::string name = words.substr(0, words.size() - kRequired.size());
    return {Exit::usage, fmt::format("{} is missing; wanted {}", short_name(command, name), usage_text(command))};
  }
  if (const std::size_t at = words.find(kExcludes); misuse.kind == "ExcludesError" && at != std::string::npos) {
    return {Exit::usage,
            fmt::format("{} and {} exclude each other; wanted one of them", short_name(command, words.substr(0, at)),
                        short_name(command, words.substr(at + kExcludes.size())))};
  }
  if (misuse.kind == "ArgumentMismatch") return wrong_count(misuse, command);
  return {Exit::usage, words};
}

InOptions in_options(const std::string& message, const CommandText& command) {
  const std::size_t is = message.find(" is ");
  if (is == std::string::npos) return {message};
  const std::size_t before = message.find_last_of(".: ", is - 1);
  const std::string field = message.substr(before == std::string::npos ? 0 : before + 1, is - before - 1);
  const std::string option = option_of(field), rest = message.substr(is);
  if (field == "max_tokens" && is_given(command, "--parallel")) return {"-c times -np" + rest, true};
  if (is_given(command, option)) return {short_name(command, option) + rest, true};
  constexpr std::string_view kSpec = "KvCacheSpec: ";
  return {message.starts_with(kSpec) ? field + rest : message};
}

}  // namespace rota::tool
