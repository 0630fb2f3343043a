#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "rota/device.h"

// How things are shown, by every command that shows them.

namespace rota::tool {

// "7.8 GiB"; exact below 1 KiB and for whole units.
std::string bytes_text(std::uint64_t bytes);

// Control characters, of a file or its name, would end the line or move a terminal's cursor.
std::string one_line(std::string text);

std::string device_text(const DeviceInfo& device);
nlohmann::ordered_json device_json(const DeviceInfo& device);

}  // namespace rota::tool
