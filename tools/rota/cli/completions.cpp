#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <memory>

#include "cli/command.h"
#include "cli/command_text.h"
#include "cli/options.h"
#include "cli/written.h"
#include "rota/kv_spec.h"

// Completions of three shells, made from the parser.

namespace rota::tool {
namespace {

// What stands for a value: words, or a command that prints them.
struct Candidates {
  std::string words{};
  std::string asked{};  // a shell command; empty if the words are all
  bool files = false;
  bool list = false;  // several, with commas between
};

bool is_positional(const OptionText& option) { return option.names.front().front() != '-'; }

Candidates candidates(const OptionText& option) {
  if (!option.choices.empty()) return {.words = fmt::format("{}", fmt::join(option.choices, " "))};
  if (option.value == "CODEC,...") {
    std::string words;
    for (const NamedCodec& codec : kCodecs) words += (words.empty() ? "" : " ") + std::string(codec.name);
    return {.words = words, .list = true};
  }
  if (option.value == "ID") return {.asked = "rota devices -o csv 2>/dev/null | sed 1d | cut -d, -f1"};
  if (option.value == "MODEL") {
    return {.asked = "rota estimate --list-models -o csv 2>/dev/null | sed 1d | cut -d, -f1", .files = true};
  }
  return {.files =
              option.value == "FILE" || option.value == "FOLDER" || (is_positional(option) && option.value == "TEXT")};
}

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

// Those that take a word.
std::vector<std::string> valued_names(const CommandText& command) {
  std::vector<std::string> names;
  for (const OptionText& option : command.options) {
    if (!option.value.empty()) names.insert(names.end(), option.names.begin(), option.names.end());
  }
  return names;
}

std::string bash_reply(const Candidates& found) {
  std::string text;
  if (!found.words.empty()) text += fmt::format("{} {}; ", found.list ? "_rota_list" : "_rota_words", found.words);
  if (!found.asked.empty()) text += fmt::format("_rota_words $({}); ", found.asked);
  if (found.files) text += "_rota_files; ";
  return text;
}

std::string bash_case(const CommandText& command) {
  std::string text = fmt::format("    {})\n      case $prev in\n", last_word(command.name));
  for (const OptionText& option : command.options) {
    if (option.value.empty()) continue;
    text += fmt::format("        {}) {}return ;;\n", fmt::join(option.names, "|"), bash_reply(candidates(option)));
  }
  text += "      esac\n      [[ $joined ]] && return\n";
  text += fmt::format("      if [[ $cur == -* ]]; then _rota_words {}; return; fi\n",
                      fmt::join(option_names(command), " "));
  if (!command.positionals.empty()) {
    text += fmt::format("      case $(_rota_place {}) in\n", fmt::join(valued_names(command), " "));
    for (std::size_t at = 0; at < command.positionals.size(); ++at) {
      const OptionText& positional = command.positionals[at];
      text += fmt::format("        {}) {};;\n", positional.repeated ? "*" : std::to_string(at),
                          bash_reply(candidates(positional)));
    }
    text += "      esac\n";
  }
  return text + "      ;;\n";
}

// bash breaks words at : and = as well, so the line is read anew, and what stands before the last of them is cut off.
constexpr const char* kBashHead = R"(# bash completion for rota; made by "rota completions bash"
_rota_words() { mapfile -t COMPREPLY < <(compgen -W "$*" -- "$cur"); }
_rota_list() {
  local head=
  [[ $cur == *,* ]] && head=${cur%,*},
  mapfile -t COMPREPLY < <(compgen -P "$head" -W "$*" -- "${cur##*,}")
}
_rota_files() {
  compopt -o filenames 2>/dev/null
  mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "$cur")
}
# How many positional words stand before the cursor, if the options $@ take a word each.
_rota_place() {
  local at place=0
  for ((at = 2; at < ${#words[@]} - 1; at++)); do
    if [[ " $* " == *" ${words[at]} "* ]]; then ((at++))
    elif [[ ${words[at]} != -* ]]; then ((place++))
    fi
  done
  echo $place
}
_rota() {
  local line=${COMP_LINE:0:COMP_POINT} words cur prev joined=
  read -ra words <<<"$line"
  [[ $line == *[[:space:]] ]] && words+=("")
  cur=${words[-1]} prev=${words[-2]} COMPREPLY=()
  if [[ $cur == --*=* ]]; then joined=1 prev=${cur%%=*} cur=${cur#*=}; fi
  _rota_find
  if [[ $COMP_WORDBREAKS == *:* ]]; then
    local cut=${cur%"${cur##*[:=]}"}
    COMPREPLY=("${COMPREPLY[@]#"$cut"}")
  fi
}
_rota_find() {
)";

std::string bash_text(const CommandText& rota) {
  std::string text = kBashHead;
  text += fmt::format("  if ((${{#words[@]}} == 2)); then\n    if [[ $cur == -* ]]; then _rota_words {}\n",
                      fmt::join(option_names(rota), " "));
  text += fmt::format("    else _rota_words {}; fi\n    return\n  fi\n", fmt::join(names_of(rota.commands), " "));
  text += "  case ${words[1]} in\n";
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
  if (found.list) return "_sequence -d compadd - " + found.words;
  if (!found.words.empty()) return "(" + found.words + ")";
  return found.files ? "_files" : " ";
}

// A long name may be joined with its value by =.
std::string zsh_name(const OptionText& option, const std::string& name) {
  return !option.value.empty() && name.starts_with("--") ? name + "=" : name;
}

std::string zsh_option(const OptionText& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.names) names.push_back(zsh_name(option, name));
  std::string text = option.repeated ? "'*'" : fmt::format("'({})'", fmt::join(option.names, " "));
  text += names.size() == 1 ? names.front() : fmt::format("{{{}}}", fmt::join(names, ","));
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
      text += fmt::format(" \\\n            '{}:{}:{}'", positional.repeated ? "*" : "",
                          zsh_quoted(positional.names.front()), zsh_action(positional));
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

std::string fish_values(const Candidates& found) {
  if (!found.asked.empty()) return " -a '(" + found.asked + ")'";
  if (found.words.empty()) return "";
  return found.list ? fmt::format(" -a '(__fish_append , {})'", found.words) : " -a " + fish_quoted(found.words);
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
    text += (found.files ? " -r -F" : " -x") + fish_values(found);
  }
  return text + " -d " + fish_quoted(option.description) + "\n";
}

// Offered while as many positional words are there as stand before it.
std::string fish_positional(const CommandText& command, std::size_t at) {
  const OptionText& positional = command.positionals[at];
  const Candidates found = candidates(positional);
  return fmt::format("complete -c rota -n '__rota_place {} {} {} {}'{}{} -d {}\n", last_word(command.name),
                     positional.repeated ? "-ge" : "-eq", at, fmt::join(valued_names(command), " "),
                     found.files ? " -F" : "", fish_values(found), fish_quoted(positional.names.front()));
}

constexpr const char* kFishHead = R"(# fish completion for rota; made by "rota completions fish"
# Whether the command is $argv[1], and its positional words before the cursor are as many as $argv[2..3] say, if
# the options $argv[4..] take a word each.
function __rota_place
    set -l words (commandline -opc)
    test "$words[2]" = $argv[1]; or return 1
    set -l place 0
    set -l skip 0
    for word in $words[3..]
        if test $skip = 1
            set skip 0
        else if contains -- $word $argv[4..]
            set skip 1
        else if not string match -q -- '-*' $word
            set place (math $place + 1)
        end
    end
    test $place $argv[2] $argv[3]
end
complete -c rota -f
)";

std::string fish_text(const CommandText& rota) {
  std::string text = kFishHead;
  for (const OptionText& option : rota.options) text += fish_option("__fish_use_subcommand", option);
  for (const CommandText& command : rota.commands) {
    const std::string name = last_word(command.name);
    text +=
        fmt::format("complete -c rota -n __fish_use_subcommand -a {} -d {}\n", name, fish_quoted(command.description));
    for (const OptionText& option : command.options) text += fish_option("'__rota_place " + name + " -ge 0'", option);
    for (std::size_t at = 0; at < command.positionals.size(); ++at) text += fish_positional(command, at);
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
  static const std::map<std::string, Shell> shells{{"bash", Shell::bash}, {"zsh", Shell::zsh}, {"fish", Shell::fish}};
  const auto shell = std::make_shared<std::string>();
  CLI::App& command =
      add_command(app, {.name = "completions",
                        .description = "Print what completes rota's commands in a shell",
                        .footer = "Examples:\n"
                                  "  source <(rota completions bash)\n"
                                  "  rota completions fish > ~/.config/fish/completions/rota.fish",
                        .run = [&app, shell] { write_out(completions(describe(app), shells.at(*shell))); }});
  require(add_choice(command, "SHELL", *shell, {{"bash", "zsh", "fish"}, "Whose: bash, zsh or fish"}));
}

}  // namespace rota::tool
