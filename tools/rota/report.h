#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "rota/device.h"

// How devices are shown, by every command that shows them.

namespace rota::tool {

// "7.8 GiB"; exact below 1 KiB and for whole units.
std::string bytes_text(std::uint64_t bytes);

std::string device_text(const DeviceInfo& device);
nlohmann::ordered_json device_json(const DeviceInfo& device);

}  // namespace rota::tool
