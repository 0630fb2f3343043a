#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "cli/command.h"
#include "cli/command_text.h"
#include "cli/lines.h"
#include "cli/names.h"
#include "cli/options.h"
#include "cli/written.h"
#include "rota/version.h"

// `rota help` and `rota version`: what many type before they know of --help and --version.

namespace rota::tool {

const CommandText& command_named(const CommandText& rota, const std::string& name) {
  std::vector<std::string> names;
  for (const CommandText& part : rota.commands) names.push_back(last_word(part.name));
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) throw no_such_command(name, names);
  return rota.commands[static_cast<std::size_t>(found - names.begin())];
}

std::string version_text() { return fmt::format("rota {}", version().text); }

void add_help(CLI::App& app, Invocation&) {
  const auto name = std::make_shared<std::string>();
  CLI::App& command =
      add_command(app, {.name = "help",
                        .description = "Say what a command does and takes",
                        .footer = "Examples:\n  rota help\n  rota help estimate",
                        .run = [&app, name] {
                          const CommandText rota = describe(app);
                          write_out(help_text(name->empty() ? rota : command_named(rota, *name), line_width()));
                        }});
  add_text(command, "COMMAND", *name, {"Which; else what rota itself does", "COMMAND"});
}

void add_version(CLI::App& app, Invocation&) {
  add_command(app, {.name = "version", .description = "Say which version this is", .footer = {}, .run = [] {
                      write_out(version_text() + "\n");
                    }});
}

}  // namespace rota::tool
