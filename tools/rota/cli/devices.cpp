#include <fmt/format.h>

#include <memory>

#include "cli/command.h"
#include "cli/options.h"
#include "cli/show.h"
#include "cli/table.h"
#include "cli/written.h"

namespace rota::tool {
namespace {

void run(Output output) {
  Report report{.head = Json::object(),
                .table = {{{"id", "device"},
                           {"name", "name"},
                           {"kind", "kind"},
                           {"driver", "driver"},
                           {"memory_bytes", "memory", "bytes"}}}};
  for (const BackendReport& backend : list_backends().value()) {
    for (const DeviceInfo& device : backend.devices) {
      report.table.rows.push_back(device_json(device));
      if (output == Output::text) write_out(device_text(device));
    }
    // What is missing goes where a pipe does not lose it and a parser does not trip over it.
    if (!backend.status)
      write_error(fmt::format("{} has no devices: {}\n", backend.name, backend.status.error().message));
  }
  if (output != Output::text) print(report, output);
}

}  // namespace

void add_devices(CLI::App& app, Invocation&) {
  const auto output = std::make_shared<Output>(Output::text);
  CLI::App& command = add_command(app, {.name = "devices",
                                        .description = "List the devices that rota can use here",
                                        .footer = "Examples:\n  rota devices\n  rota devices -o json",
                                        .run = [output] { run(*output); }});
  add_output(command, *output);
}

}  // namespace rota::tool
