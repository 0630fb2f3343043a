#pragma once

#include <fmt/core.h>

#include <string>

namespace rota::core {

std::string formatted(fmt::string_view format, fmt::format_args args);

// As fmt::format, but its machinery is compiled once, in text.cpp, and not into every file that words an error.
template <class... Args>
std::string text(fmt::format_string<Args...> format, Args&&... args) {
  return formatted(format, fmt::make_format_args(args...));
}

}  // namespace rota::core
