#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <memory>

#include "command.h"
#include "command_text.h"
#include "options.h"
#include "rota/kv_spec.h"

// Completions of three shells, made from the parser.

namespace rota::tool {
namespace {

// What stands for an option's value: words, or a command that prints them.
struct Candidates {
  std::string words{};
  std::string asked{};  // a shell command; empty if the words are all
  bool files = false;
};

Candidates candidates(const OptionText& option) {
  if (!option.choices.empty()) return {.words = fmt::format("{}", fmt::join(option.choices, " "))};
  if (option.value == "CODEC,...") {
    std::string words;
    for (const NamedCodec& codec : kCodecs) words += (words.empty() ? "" : " ") + std::string(codec.name);
    return {.words = words};
  }
  if (option.value == "ID") return {.asked = "rota devices -o csv 2>/dev/null | sed 1d | cut -d, -f1"};
  if (option.value == "MODEL") {
    return {.asked = "rota estimate --list-models -o csv 2>/dev/null | sed 1d | cut -d, -f1", .files = true};
  }
  return {.files = option.value == "FILE" || option.value == "FOLDER"};
}

std::string last_word(const std::string& name) { return name.substr(name.rfind(' ') + 1); }

std::vector<std::string> names_of(const std::vector<CommandText>& commands) {
  std::vector<std::string> names;
  for (const CommandText& command : commands) names.push_back(last_word(command.name));
  return names;
}

std::vector<std::string> option_names(const CommandText& command) {
  std::vector<std::string> names;
  for (const OptionText& option : command.options) names.insert(names.end(), option.names.begin(), option.names.end());
  return names;
}

std::string bash_words(const Candidates& found) {
  return found.asked.empty() ? found.words : found.words + "$(" + found.asked + ")";
}

// Lists are completed behind their last comma.
std::string bash_reply(const Candidates& found) {
  std::string text;
  const std::string words = bash_words(found);
  if (!words.empty()) {
    text += fmt::format("COMPREPLY+=($(compgen -P \"$list\" -W \"{}\" -- \"$last\")); ", words);
  }
  if (found.files) text += "compopt -o filenames; COMPREPLY+=($(compgen -f -- \"$cur\")); ";
  return text;
}

std::string bash_case(const CommandText& command) {
  std::string text = fmt::format("    {})\n      case $prev in\n", last_word(command.name));
  for (const OptionText& option : command.options) {
    if (option.value.empty()) continue;
    text += fmt::format("        {}) {}return ;;\n", fmt::join(option.names, "|"), bash_reply(candidates(option)));
  }
  text += "      esac\n";
  std::string words;
  for (const OptionText& positional : command.positionals) words += bash_reply(candidates(positional));
  text += fmt::format("      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W \"{}\" -- \"$cur\"))\n",
                      fmt::join(option_names(command), " "));
  text += fmt::format("      else {}:; fi ;;\n", words);
  return text;
}

std::string bash_text(const CommandText& rota) {
  std::string text =
      "# bash completion for rota; made by \"rota completions bash\"\n"
      "_rota() {\n"
      "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]} list= last\n"
      "  [[ $cur == *,* ]] && list=${cur%,*},\n"
      "  last=${cur##*,}\n"
      "  COMPREPLY=()\n"
      "  if ((COMP_CWORD == 1)); then\n";
  text += fmt::format("    COMPREPLY=($(compgen -W \"{} {}\" -- \"$cur\"))\n    return\n  fi\n",
                      fmt::join(names_of(rota.commands), " "), fmt::join(option_names(rota), " "));
  text += "  case $command in\n";
  for (const CommandText& command : rota.commands) text += bash_case(command);
  return text + "  esac\n}\ncomplete -F _rota rota\n";
}

// In single quotes, inside a specification of _arguments.
std::string zsh_quoted(std::string_view text) {
  std::string made;
  for (const char letter : text) {
    if (letter == '\'') {
      made += "'\\''";
    } else if (letter == '[' || letter == ']' || letter == ':' || letter == '\\') {
      made += std::string("\\") + letter;
    } else {
      made += letter;
    }
  }
  return made;
}

std::string zsh_action(const OptionText& option) {
  const Candidates found = candidates(option);
  if (!found.asked.empty()) return fmt::format("{{compadd -- $({}){}}}", found.asked, found.files ? "; _files" : "");
  if (option.value == "CODEC,...") return fmt::format("_values -s , codec {}", found.words);
  if (!found.words.empty()) return "(" + found.words + ")";
  return found.files ? "_files" : " ";
}

std::string zsh_option(const OptionText& option) {
  std::string text = fmt::format("'({})'", fmt::join(option.names, " "));
  text += option.names.size() == 1 ? option.names.front() : fmt::format("{{{}}}", fmt::join(option.names, ","));
  text += fmt::format("'[{}]", zsh_quoted(option.description));
  if (!option.value.empty()) text += fmt::format(":{}:{}", zsh_quoted(option.value), zsh_action(option));
  return text + "'";
}

std::string zsh_text(const CommandText& rota) {
  std::string text = "#compdef rota\n# zsh completion for rota; made by \"rota completions zsh\"\n_rota() {\n";
  text += "  local curcontext=$curcontext state line\n  local -a commands\n  commands=(\n";
  for (const CommandText& command : rota.commands) {
    text += fmt::format("    '{}:{}'\n", last_word(command.name), zsh_quoted(command.description));
  }
  text += "  )\n  _arguments -C";
  for (const OptionText& option : rota.options) text += " \\\n    " + zsh_option(option);
  text += " \\\n    '1: :->command' '*:: :->rest'\n";
  text += "  case $state in\n    command) _describe command commands ;;\n    rest)\n      case $line[1] in\n";
  for (const CommandText& command : rota.commands) {
    text += fmt::format("        {})\n          _arguments", last_word(command.name));
    for (const OptionText& option : command.options) text += " \\\n            " + zsh_option(option);
    for (const OptionText& positional : command.positionals) {
      text += fmt::format(" \\\n            '*:{}:{}'", zsh_quoted(positional.names.front()), zsh_action(positional));
    }
    text += " ;;\n";
  }
  return text + "      esac ;;\n  esac\n}\n_rota \"$@\"\n";
}

std::string fish_quoted(std::string_view text) {
  std::string made = "'";
  for (const char letter : text)
    made += letter == '\'' || letter == '\\' ? std::string("\\") + letter : std::string(1, letter);
  return made + "'";
}

std::string fish_values(const Candidates& found, bool is_list) {
  if (!found.asked.empty()) return " -a '(" + found.asked + ")'";
  if (found.words.empty()) return "";
  return is_list ? fmt::format(" -a '(__fish_append , {})'", found.words) : " -a " + fish_quoted(found.words);
}

std::string fish_option(const std::string& condition, const OptionText& option) {
  std::string text = "complete -c rota -n " + condition;
  for (const std::string& name : option.names) {
    if (name.starts_with("--")) {
      text += " -l " + name.substr(2);
    } else {
      text += (name.size() == 2 ? " -s " : " -o ") + name.substr(1);
    }
  }
  if (!option.value.empty()) {
    const Candidates found = candidates(option);
    text += (found.files ? " -r -F" : " -x") + fish_values(found, option.value == "CODEC,...");
  }
  return text + " -d " + fish_quoted(option.description) + "\n";
}

std::string fish_text(const CommandText& rota) {
  std::string text = "# fish completion for rota; made by \"rota completions fish\"\ncomplete -c rota -f\n";
  for (const OptionText& option : rota.options) text += fish_option("__fish_use_subcommand", option);
  for (const CommandText& command : rota.commands) {
    const std::string name = last_word(command.name);
    text +=
        fmt::format("complete -c rota -n __fish_use_subcommand -a {} -d {}\n", name, fish_quoted(command.description));
    const std::string condition = "'__fish_seen_subcommand_from " + name + "'";
    for (const OptionText& option : command.options) text += fish_option(condition, option);
    for (const OptionText& positional : command.positionals) {
      const Candidates found = candidates(positional);
      text +=
          fmt::format("complete -c rota -n {}{}{}\n", condition, found.files ? " -F" : "", fish_values(found, false));
    }
  }
  return text;
}

}  // namespace

std::string completions(const CommandText& command, Shell shell) {
  switch (shell) {
    case Shell::bash: return bash_text(command);
    case Shell::zsh: return zsh_text(command);
    case Shell::fish: return fish_text(command);
  }
  return {};
}

void add_completions(CLI::App& app, Invocation&) {
  CLI::App* const command = app.add_subcommand("completions", "Print what completes rota's commands in a shell");
  const auto shell = std::make_shared<std::string>();
  take_one_of(command->add_option("SHELL", *shell, "Whose: bash, zsh or fish")->required(), {"bash", "zsh", "fish"});
  command->footer(
      "Examples:\n  source <(rota completions bash)\n  rota completions fish > ~/.config/fish/completions/rota.fish");
  command->callback([&app, shell] {
    static const std::map<std::string, Shell> kShells{
        {"bash", Shell::bash}, {"zsh", Shell::zsh}, {"fish", Shell::fish}};
    fmt::print("{}", completions(describe(app), kShells.at(*shell)));
  });
}

}  // namespace rota::tool
