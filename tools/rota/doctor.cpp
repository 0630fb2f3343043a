#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "command.h"
#include "report.h"
#include "rota/selftest.h"
#include "rota/version.h"

namespace rota::tool {
namespace {

struct Options {
  bool self_test = false;
  bool as_json = false;
  std::string device{};  // empty: all
};

struct Finding {
  enum class Verdict { works, missing, broken };
  std::string subject;
  Verdict verdict;
  std::string detail;
  std::string advice = {};
};

std::string_view name(Finding::Verdict verdict) {
  switch (verdict) {
    case Finding::Verdict::works: return "works";
    case Finding::Verdict::missing: return "missing";
    case Finding::Verdict::broken: return "broken";
  }
  return "?";
}

void add_self_tests(const DeviceInfo& info, Device& subject, std::vector<Finding>& findings) {
  Device reference = Device::open({.device = "cpu", .threads = 1}).value();
  for (const SelfTestResult& test : self_test(subject, reference).value()) {
    findings.push_back({fmt::format("{} {}", info.id, test.op),
                        test.status ? Finding::Verdict::works : Finding::Verdict::broken,
                        test.status ? "gives the defined result" : test.status.error().message});
  }
}

void examine_device(const DeviceInfo& info, const Options& options, std::vector<Finding>& findings) {
  auto device = Device::open({.device = info.id});
  if (!device) {
    findings.push_back({info.id, Finding::Verdict::broken, device.error().message});
    return;
  }
  findings.push_back({info.id, Finding::Verdict::works, fmt::format("{} ({})", info.name, info.driver)});
  if (options.self_test) add_self_tests(info, *device, findings);
}

void print_text(const std::vector<Finding>& findings, const Options& options) {
  fmt::print("rota {}\n", ROTA_VERSION);
  for (const Finding& finding : findings) {
    fmt::print("  {:<8} {:<16} {}\n", name(finding.verdict), finding.subject, finding.detail);
    if (!finding.advice.empty()) fmt::print("  {:<8} {:<16} {}\n", "", "", finding.advice);
  }
  if (!options.self_test) fmt::print("To run every kernel on every device: rota doctor --selftest\n");
}

void print_json(const std::vector<Finding>& findings, bool healthy) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Finding& finding : findings) {
    nlohmann::ordered_json row{
        {"subject", finding.subject}, {"verdict", name(finding.verdict)}, {"detail", finding.detail}};
    if (!finding.advice.empty()) row["advice"] = finding.advice;
    rows.push_back(std::move(row));
  }
  const nlohmann::ordered_json json{{"version", ROTA_VERSION}, {"healthy", healthy}, {"findings", rows}};
  fmt::print("{}\n", json.dump(2));
}

Exit run(const Options& options) {
  std::vector<Finding> findings;
  bool found = false;
  for (const BackendReport& report : list_backends().value()) {
    if (!report.status && options.device.empty()) {
      findings.push_back({report.name, Finding::Verdict::missing, report.status.error().message, report.advice});
    }
    for (const DeviceInfo& device : report.devices) {
      if (!options.device.empty() && device.id != options.device) continue;
      found = true;
      examine_device(device, options, findings);
    }
  }
  if (!found) {
    fmt::print(stderr, "rota doctor: there is no device \"{}\"; \"rota devices\" lists what is here\n", options.device);
    return Exit::no_such_device;
  }
  bool healthy = true;
  for (const Finding& finding : findings) healthy = healthy && finding.verdict != Finding::Verdict::broken;
  if (options.as_json) {
    print_json(findings, healthy);
  } else {
    print_text(findings, options);
  }
  return healthy ? Exit::ok : Exit::failed_check;
}

}  // namespace

void add_doctor(CLI::App& app, Exit& exit) {
  CLI::App* const command = app.add_subcommand("doctor", "Say what works here, what does not, and what to install");
  const auto options = std::make_shared<Options>();
  command->add_flag("--selftest", options->self_test, "Run every kernel on every device and compare with the CPU");
  command->add_option("--device", options->device, "Examine this device only, e.g. vulkan:0");
  command->add_flag("--json", options->as_json, "Print JSON");
  command->callback([&exit, options] { exit = run(*options); });
}

}  // namespace rota::tool
