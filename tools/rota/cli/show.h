#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "rota/device.h"

// How things are shown, by every command that shows them.

namespace rota::tool {

// "7.8 GiB"; exact below 1 KiB and for whole units.
std::string bytes_text(std::uint64_t bytes);

// What a terminal would obey instead of showing, of a file or its name, is a question mark.
std::string one_line(std::string_view text);

// "valkey://user:***@host" of a word that is a URL with a password in it.
std::string without_password(const std::string& word);

std::string device_text(const DeviceInfo& device);
nlohmann::ordered_json device_json(const DeviceInfo& device);

}  // namespace rota::tool
