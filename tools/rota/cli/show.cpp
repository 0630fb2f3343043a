#include "cli/show.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "cli/written.h"

namespace rota::tool {
namespace {

bool is_gpu(const DeviceInfo& device) { return device.kind != DeviceKind::cpu; }

}  // namespace

std::string bytes_text(std::uint64_t bytes) {
  constexpr std::array kUnits{"bytes", "KiB", "MiB", "GiB", "TiB", "PiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  const bool whole = value == static_cast<double>(static_cast<std::uint64_t>(value));
  return fmt::format("{:.{}f} {}", value, whole ? 0 : 1, kUnits[unit]);
}

std::string one_line(std::string_view text) {
  std::string line = shown(text);
  std::ranges::replace_if(line, [](char letter) { return letter == '\n' || letter == '\t'; }, '?');
  return line;
}

std::string without_password(const std::string& word) {
  const std::size_t scheme = word.find("://");
  if (scheme == std::string::npos) return word;
  const std::size_t begin = scheme + 3, end = std::min(word.find('?', begin), word.size());
  std::size_t at = word.substr(0, end).rfind('@');
  if (at == std::string::npos) at = word.rfind('@');  // a question mark may be of the password
  const std::size_t colon = word.find(':', begin);
  if (at == std::string::npos || at < begin || colon >= at) return word;
  return word.substr(0, colon + 1) + "***" + word.substr(at);
}

std::string device_text(const DeviceInfo& device) {
  std::string text = fmt::format("{:<9} {}\n", device.id, device.name);
  const auto line = [&](std::string_view label, const std::string& value) {
    text += fmt::format("          {:<10} {}\n", label, value);
  };
  line("kind", std::string(name(device.kind)));
  line("driver", device.driver);
  line("memory", bytes_text(device.memory_bytes));
  if (is_gpu(device)) {
    line("limits", fmt::format("{} per buffer, {} per view, workgroup {}, shared {}, subgroup {}",
                               bytes_text(device.limits.max_buffer_bytes), bytes_text(device.limits.max_binding_bytes),
                               device.limits.max_workgroup_size, bytes_text(device.limits.shared_memory_bytes),
                               device.limits.subgroup_size));
  } else {
    line("threads", std::to_string(device.threads));
  }
  line("features", fmt::format("{}", fmt::join(device.features, " ")));
  return text;
}

nlohmann::ordered_json device_json(const DeviceInfo& device) {
  nlohmann::ordered_json json{{"id", device.id},
                              {"name", device.name},
                              {"kind", name(device.kind)},
                              {"driver", device.driver},
                              {"memory_bytes", device.memory_bytes},
                              {"features", device.features}};
  if (is_gpu(device)) {
    json["limits"] = {
        {"max_buffer_bytes", device.limits.max_buffer_bytes},
        {"max_binding_bytes", device.limits.max_binding_bytes},
        {"max_workgroup_size", device.limits.max_workgroup_size},
        {"shared_memory_bytes", device.limits.shared_memory_bytes},
        {"subgroup_size", device.limits.subgroup_size},
        {"cores", device.limits.cores == 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(device.limits.cores)},
        {"lane_registers", device.limits.lane_registers}};
  } else {
    json["threads"] = device.threads;
  }
  return json;
}

}  // namespace rota::tool
