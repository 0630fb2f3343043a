#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "rota/result.h"

namespace rota::runtime {

// Of a backend with several devices: "<name>:<index>".
std::string device_id(std::string_view backend, std::size_t index);

// And back; "<name>" alone is the first.
Result<std::size_t> device_index(std::string_view backend, std::string_view id);

// `offered` devices are there, by `driver`.
Error no_such_device(std::string_view id, std::string_view driver, std::uint64_t offered);

}  // namespace rota::runtime
