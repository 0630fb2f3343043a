#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/kernels.h"
#include "cli/options.h"
#include "cli/show.h"
#include "cli/table.h"
#include "cli/written.h"
#include "rota/selftest.h"
#include "rota/version.h"

namespace rota::tool {
namespace {

struct Options {
  bool self_test = false;
  bool kernels = false;
  std::string device{};  // empty: all
  Output output = Output::text;
};

Json finding(std::string_view device, std::string_view verdict, const std::string& detail) {
  return {{"device", device}, {"verdict", verdict}, {"detail", detail}};
}

// A row per case: JSON shows them all, text one line per op.
void add_self_tests(Device& subject, std::vector<Json>& rows) {
  Device reference = Device::open({.device = "cpu", .threads = 1}).value();
  for (const SelfTestResult& test : self_test(subject, reference).value()) {
    Json row =
        finding(subject.info().id, test.status ? "works" : "broken", test.status ? "" : test.status.error().message);
    row["op"] = test.op;
    row["case"] = test.what;
    row["error"] = test.error;
    row["bound"] = test.bound;
    rows.push_back(std::move(row));
  }
}

void examine(const DeviceInfo& info, const Options& options, std::vector<Json>& rows) {
  auto device = Device::open({.device = info.id});
  if (!device) {
    rows.push_back(finding(info.id, "broken", device.error().message));
    return;
  }
  rows.push_back(finding(info.id, "works", fmt::format("{} ({})", info.name, info.driver)));
  if (options.self_test) add_self_tests(*device, rows);
}

// The cases of one op on one device, which are neighbours, in one line: the one that is worst.
std::string op_line(std::span<const Json> cases) {
  const auto share = [](const Json& row) {
    const double bound = row.at("bound").get<double>();
    return bound == 0 ? row.at("error").get<double>() : row.at("error").get<double>() / bound;
  };
  const auto worst = std::ranges::max_element(cases, {}, share);
  const auto broken = std::ranges::find(cases, "broken", [](const Json& row) { return row.at("verdict"); });
  const std::string subject =
      fmt::format("{} {}", worst->at("device").get<std::string>(), worst->at("op").get<std::string>());
  if (broken != cases.end()) {
    return fmt::format("  {:<8} {:<18} {}\n", "broken", subject, broken->at("detail").get<std::string>());
  }
  const bool exact = worst->at("bound") == 0;
  return fmt::format("  {:<8} {:<18} {:>2} case{}, {}\n", "works", subject, cases.size(), cases.size() == 1 ? "" : "s",
                     exact ? std::string("every bit right")
                           : fmt::format("worst error {:.1e} of {:.1e} ({})", worst->at("error").get<double>(),
                                         worst->at("bound").get<double>(), worst->at("case").get<std::string>()));
}

void print_text(std::span<const Json> rows, const Options& options) {
  std::string text = fmt::format("rota {}\n", version().text);
  for (std::size_t at = 0; at < rows.size();) {
    const Json& row = rows[at];
    if (!row.contains("op")) {
      text += fmt::format("  {:<8} {:<18} {}\n", row.at("verdict").get<std::string>(),
                          row.at("device").get<std::string>(), row.at("detail").get<std::string>());
      if (row.contains("advice"))
        text += fmt::format("  {:<8} {:<18} {}\n", "", "", row.at("advice").get<std::string>());
      ++at;
      continue;
    }
    std::size_t end = at;
    while (end < rows.size() && rows[end].value("op", "") == row.at("op").get<std::string>()) ++end;
    text += op_line(rows.subspan(at, end - at));
    at = end;
  }
  if (!options.self_test) text += "To run every kernel on every device: rota doctor --selftest\n";
  write_out(text);
}

// Every device that was asked for; there is at least one, or a Failure.
std::vector<DeviceInfo> asked_devices(const Options& options, std::vector<Json>& missing) {
  std::vector<DeviceInfo> found;
  for (const BackendReport& report : list_backends().value()) {
    if (!report.status && options.device.empty()) {
      missing.push_back(finding(report.name, "missing", report.status.error().message));
      missing.back()["advice"] = report.advice;
    }
    for (const DeviceInfo& device : report.devices) {
      if (options.device.empty() || device.id == options.device) found.push_back(device);
    }
  }
  if (found.empty()) {
    throw Failure(Exit::no_such_device, fmt::format("there is no device \"{}\"", options.device), "rota devices");
  }
  return found;
}

Exit run(const Options& options, const Invocation& invocation) {
  std::vector<Json> missing;
  const std::vector<DeviceInfo> devices = asked_devices(options, missing);
  if (options.kernels) {
    Report report{.head = report_head("kernels", invocation), .table = support_table()};
    for (const DeviceInfo& info : devices) {
      Device device = Device::open({.device = info.id}).value();
      add_support(device, report.table);
    }
    print(report, options.output);
    return Exit::ok;
  }
  std::vector<Json> rows;
  for (const DeviceInfo& info : devices) examine(info, options, rows);
  std::ranges::move(missing, std::back_inserter(rows));
  const bool healthy = std::ranges::none_of(rows, [](const Json& row) { return row.at("verdict") == "broken"; });
  if (options.output == Output::text) {
    print_text(rows, options);
  } else {
    Report report{.head = report_head("doctor", invocation),
                  .table = {.columns = {{"device", "device"},
                                        {"verdict", "verdict"},
                                        {"op", "op"},
                                        {"case", "case"},
                                        {"error", "error", ".1e"},
                                        {"bound", "bound", ".1e"},
                                        {"detail", "detail"}},
                            .rows = std::move(rows)}};
    report.head["healthy"] = healthy;
    print(report, options.output);
  }
  return healthy ? Exit::ok : Exit::failed_check;
}

}  // namespace

void add_doctor(CLI::App& app, Invocation& invocation) {
  const auto options = std::make_shared<Options>();
  CLI::App& command = add_command(
      app, {.name = "doctor",
            .description = "Say what works here, what does not, and what to install",
            .footer = "Examples:\n"
                      "  rota doctor\n"
                      "  rota doctor --selftest --device vulkan:0\n"
                      "  rota doctor --selftest -o csv      every case, with the error found and its bound\n"
                      "  rota doctor --kernels -o md",
            .run = [&invocation, options] { invocation.exit = run(*options, invocation); }});
  add_flag(command, "--selftest", options->self_test,
           "Run every op with every codec on every device, and compare with the definition");
  add_flag(command, "--kernels", options->kernels, "Say which ops take which codecs at which head sizes");
  add_device(command, options->device, "Examine this device only, e.g. vulkan:0");
  add_output(command, options->output);
}

}  // namespace rota::tool
