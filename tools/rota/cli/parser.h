#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cli/command.h"

namespace rota::tool {

// Every command. The parser refers to `invocation`.
std::unique_ptr<CLI::App> make_parser(Invocation& invocation);

// Parses, runs the command, and says on stderr what went wrong.
Exit run(std::vector<std::string> arguments);

}  // namespace rota::tool
