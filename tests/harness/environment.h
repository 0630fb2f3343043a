#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>

namespace rota::test {

// What a variable of the environment asks for.
inline std::uint64_t number_from(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text != nullptr ? std::stoull(text) : otherwise;
}

}  // namespace rota::test
