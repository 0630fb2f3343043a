#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

// What descriptions of models may say, whatever file they come from.

namespace rota::tool {

inline constexpr std::uint64_t kMostHeads = 65536, kMostDim = 65536;

// What is wrong with a description. Goes no further than the function that reads it.
struct Unsound {
  std::string message;
};

[[noreturn]] inline void refuse(std::string_view key, std::string_view found, std::string_view wanted) {
  throw Unsound{fmt::format("{} is {}; wanted {}", key, found, wanted)};
}

}  // namespace rota::tool
