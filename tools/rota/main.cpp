#include <fmt/format.h>

#include <cstdio>
#include <exception>

#include "command.h"
#include "rota/version.h"

namespace {

constexpr const char* kFooter = "Exit codes: 0 fine, 1 a check failed, 2 wrong usage, 3 no such device.";

int run(int argc, char** argv) {
  CLI::App app{"rota: a language model's KV cache, small, exact and fast to attend to", "rota"};
  app.set_version_flag("--version", "rota " ROTA_VERSION);
  app.footer(kFooter);
  app.require_subcommand(1);
  auto exit = rota::tool::Exit::ok;
  rota::tool::add_devices(app, exit);
  rota::tool::add_distort(app, exit);
  rota::tool::add_doctor(app, exit);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const bool asked_for_text = error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success);
    app.exit(error);
    return static_cast<int>(asked_for_text ? rota::tool::Exit::ok : rota::tool::Exit::usage);
  }
  return static_cast<int>(exit);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rota: %s\n", error.what());
    return static_cast<int>(rota::tool::Exit::failed_check);
  }
}
