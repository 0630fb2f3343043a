#pragma once

#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/command_text.h"

// What was wrong with a command line, in the words of a command line: which option, what was found, what was wanted.

namespace rota::tool {

// What the parser says of it, which is a library's.
struct Misuse {
  std::string kind;                    // the name of its error
  std::string words;                   // "--memory: 1 required BYTES missing"
  std::vector<std::string> left_over;  // words that nothing takes
};

Failure failure_of(const Misuse& misuse, const CommandText& command);

// The library's "KvCacheSpec: groups[0].page is 100; wanted 64 or 128" names the option, if the number came by one.
struct InOptions {
  std::string message;
  bool by_option = false;
};

InOptions in_options(const std::string& message, const CommandText& command);

}  // namespace rota::tool
