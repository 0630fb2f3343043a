#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cache.h"

namespace rota::eval {

// What the command line asks for.
struct Options {
  std::string model, text;
  std::vector<Cache> caches;  // the base first, unless pauses are measured

  bool quality = true, speed = true;
  bool as_is = false;  // quality with weights as the file has them
  std::uint32_t tokens = 2048, chunks = 3, ubatch = 64;
  std::vector<std::uint32_t> depths{0, 2048, 8192};  // in rising order
  std::uint32_t rounds = 10, threads = 1;

  // Steps that are timed one by one, instead of all else.
  struct Steps {
    std::uint32_t from, to;
  };
  std::optional<Steps> pause;
  std::uint32_t repeats = 3;

  bool json = false;
  std::string to;       // a file; empty: stdout
  std::string command;  // as it was given
};

// Nothing if only help was asked for. Throws Failure.
std::optional<Options> read_options(int count, char** arguments);

const char* help();

}  // namespace rota::eval
