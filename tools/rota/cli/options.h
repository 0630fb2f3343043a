#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rota/kv_spec.h"

// What commands take, named, checked and described once. CLI11 takes ten seconds to compile, wherever it is included:
// it is seen by options.cpp, command_text.cpp and parser.cpp, and by no command.

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace rota::tool {

enum class Output { text, md, csv, json, jsonl };

struct CommandSpec {
  std::string name, description, footer;
  std::function<void()> run;
};

CLI::App& add_command(CLI::App& app, const CommandSpec& spec);

// `names` are "-o,--output", or one without dashes for what is told by its place.

struct ValueText {
  std::string description;
  std::string type;  // what help calls the value
};

CLI::Option& add_flag(CLI::App& command, const std::string& names, bool& flag, const std::string& description);

CLI::Option& add_text(CLI::App& command, const std::string& names, std::string& text, const ValueText& said);

enum class Several { with_commas, given_again, as_words };

struct SeveralTexts {
  Several several;
  ValueText said;
};

CLI::Option& add_texts(CLI::App& command, const std::string& names, std::vector<std::string>& texts,
                       const SeveralTexts& how);

// Shown as "md|csv", and completed so.
struct Choices {
  std::vector<std::string> names;
  std::string description;
};

CLI::Option& add_choice(CLI::App& command, const std::string& names, std::string& choice, const Choices& choices);
CLI::Option& add_choices(CLI::App& command, const std::string& names, std::vector<std::string>& chosen,
                         const Choices& choices);

// Whole numbers.
CLI::Option& add_number(CLI::App& command, const std::string& names, std::uint64_t& number,
                        const std::string& description);
CLI::Option& add_number(CLI::App& command, const std::string& names, std::optional<std::uint64_t>& number,
                        const std::string& description);
CLI::Option& add_numbers(CLI::App& command, const std::string& names, std::vector<std::uint64_t>& numbers,
                         const std::string& description);

// Bytes, which may be written 8GiB or 4.5GB.
CLI::Option& add_bytes(CLI::App& command, const std::string& names, std::optional<std::uint64_t>& bytes,
                       const std::string& description);

// What -t says, if it is 1 to 1024; else throws a Failure that points to the command's help.
std::uint32_t thread_count(std::uint64_t asked, std::string_view command);

// Whole numbers of tokens, which may be written 128k or 1m: 1024s, and 1024s of them.
CLI::Option& add_tokens(CLI::App& command, const std::string& names, std::vector<std::uint64_t>& numbers,
                        const std::string& description);

struct RealRange {
  double least, most;
  ValueText said;
};

CLI::Option& add_real(CLI::App& command, const std::string& names, std::optional<double>& number,
                      const RealRange& range);

// -m, --model: what find_model() takes
CLI::Option& add_model(CLI::App& command, std::string& model);

CLI::Option& add_device(CLI::App& command, std::string& device, const std::string& description);

// -o, --output
void add_output(CLI::App& command, Output& output);

void require(CLI::Option& option);
void exclude(CLI::Option& one, CLI::Option& other);

struct CodecPair {
  KvCodec k, v;
};

struct CodecLists {
  std::vector<std::string> k, v;

  // The first of k with the first of v, and so on; a list of one goes with all of the other.
  std::vector<CodecPair> pairs() const;
};

// -ctk, --cache-type-k and -ctv, --cache-type-v
void add_codecs(CLI::App& command, CodecLists& codecs);

}  // namespace rota::tool
