#pragma once

#include <CLI/CLI.hpp>

namespace rota::tool {

// What every command exits with.
enum class Exit : int {
  ok = 0,
  failed_check = 1,
  usage = 2,
  no_such_device = 3,
};

// Each adds one subcommand to the parser; it stores its exit code in `exit` when it runs.
void add_devices(CLI::App& app, Exit& exit);
void add_distort(CLI::App& app, Exit& exit);
void add_doctor(CLI::App& app, Exit& exit);

}  // namespace rota::tool
