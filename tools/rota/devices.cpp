#include <fmt/format.h>

#include <memory>

#include "command.h"
#include "report.h"

namespace rota::tool {
namespace {

Exit run(bool as_json) {
  const auto reports = list_backends().value();
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const BackendReport& report : reports) {
    for (const DeviceInfo& device : report.devices) {
      if (as_json) {
        json.push_back(device_json(device));
      } else {
        fmt::print("{}", device_text(device));
      }
    }
    // What is missing goes where a pipe does not lose it and a parser does not trip over it.
    if (!report.status) fmt::print(stderr, "{} has no devices: {}\n", report.name, report.status.error().message);
  }
  if (as_json) fmt::print("{}\n", json.dump(2));
  return Exit::ok;
}

}  // namespace

void add_devices(CLI::App& app, Exit& exit) {
  CLI::App* const command = app.add_subcommand("devices", "List the devices that rota can use here");
  const auto as_json = std::make_shared<bool>(false);
  command->add_flag("--json", *as_json, "Print JSON");
  command->callback([&exit, as_json] { exit = run(*as_json); });
}

}  // namespace rota::tool
