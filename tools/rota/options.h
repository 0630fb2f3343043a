#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "rota/kv_spec.h"

// Options that commands share, so that they are named, checked and described once.

namespace rota::tool {

// For numbers, where CLI11 would take -1 for the largest one, and for lists of them.
std::string whole_number(const std::string& text);

// Shown as "md|csv", and completed so.
CLI::Option* take_one_of(CLI::Option* option, const std::vector<std::string>& choices);

// A whole number, or several with commas between.
template <class Number>  // std::uint64_t, or an optional one
CLI::Option* add_number(CLI::App& command, const std::string& names, Number& number, const std::string& description) {
  return command.add_option(names, number, description)->check(whole_number)->type_name("N");
}

CLI::Option* add_numbers(CLI::App& command, const std::string& names, std::vector<std::uint64_t>& numbers,
                         const std::string& description);

// -m, --model: what find_model() takes
CLI::Option* add_model(CLI::App& command, std::string& model);

CLI::Option* add_device(CLI::App& command, std::string& device, const std::string& description);

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
