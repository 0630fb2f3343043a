#include "options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>

#include "command.h"

namespace rota::tool {
namespace {

KvCodec known_codec(const std::string& name) {
  auto codec = codec_named(name);
  if (!codec) throw Failure(Exit::usage, codec.error().message, "rota doctor --kernels");
  return *codec;
}

}  // namespace

std::string whole_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos ? "" : "must be a whole number";
}

CLI::Option* take_one_of(CLI::Option* option, const std::vector<std::string>& choices) {
  return option->type_name(fmt::format("{}", fmt::join(choices, "|")))->check([choices](const std::string& text) {
    if (std::ranges::find(choices, text) != choices.end()) return std::string();
    return fmt::format("\"{}\" is not one of {}", text, fmt::join(choices, ", "));
  });
}

CLI::Option* add_numbers(CLI::App& command, const std::string& names, std::vector<std::uint64_t>& numbers,
                         const std::string& description) {
  return command.add_option(names, numbers, description)
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(whole_number)
      ->type_name("N,...");
}

CLI::Option* add_model(CLI::App& command, std::string& model) {
  return command.add_option("-m,--model", model, "Name of a known model, or path of a GGUF file")->type_name("MODEL");
}

CLI::Option* add_device(CLI::App& command, std::string& device, const std::string& description) {
  return command.add_option("--device", device, description)->type_name("ID");
}

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
    command.add_option(name, list, fmt::format("Codecs of {}: f16, bf16, f32 or turbo2 to turbo8", what))
        ->delimiter(',')
        ->allow_extra_args(false)
        ->type_name("CODEC,...");
  };
  add("--cache-type-k", codecs.k, "keys");
  add("--cache-type-v", codecs.v, "values, each for one of -ctk");
}

}  // namespace rota::tool
