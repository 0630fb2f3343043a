#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

// What the parser knows, as help, man pages and completions show it: all three are made from this.

namespace CLI {
class App;
}

namespace rota::tool {

// A name of more than one letter with one dash, as llama.cpp's users type it. The parser knows only the long one.
struct ShortName {
  std::string_view name, stands_for;
};

inline constexpr ShortName kShortNames[] = {
    {"-ctk", "--cache-type-k"}, {"-ctv", "--cache-type-v"}, {"-dev", "--device"},
    {"-np", "--parallel"},      {"-ub", "--ubatch-size"},
};

struct OptionText {
  std::vector<std::string> names;    // "-o", "--output"; of a positional its one name
  std::string value;                 // what it takes: "FILE", "md|csv"; empty for a flag
  std::vector<std::string> choices;  // if it takes one of these
  std::string description;
  bool required = false;
  bool repeated = false;  // may be given again; of a positional: takes several words
  bool given = false;     // on the command line that was parsed
};

struct CommandText {
  std::string name;  // "rota bench attend"
  std::string description, footer;
  std::vector<OptionText> positionals, options;
  std::vector<CommandText> commands;
};

// "bench" of "rota bench"
std::string last_word(const std::string& name);

CommandText describe(const CLI::App& app);

// "rota bench attend [OPTIONS]"
std::string usage_text(const CommandText& command);

// What --help prints, in lines of at most so many letters.
std::string help_text(const CommandText& command, std::size_t width);

// Of rota's commands, by its last word. Throws a Failure that names those that are spelled alike.
const CommandText& command_named(const CommandText& rota, const std::string& name);

// "rota 0.1.0"
std::string version_text();

// A man page, for section 1.
std::string man_page(const CommandText& command);

enum class Shell { bash, zsh, fish };

std::string completions(const CommandText& command, Shell shell);

}  // namespace rota::tool
