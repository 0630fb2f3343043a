#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>

#include "core/error.h"

// Checks that every op makes, each refused in the same words.

namespace rota::core {

// What kernels count in.
inline constexpr std::uint64_t kMaxIndex = std::numeric_limits<std::uint32_t>::max();

inline Status check_index(const Refusal& refusal, std::uint64_t found) {
  if (found <= kMaxIndex) return {};
  return refuse(refusal, found, "at most {}", kMaxIndex);
}

inline Status check_positive(const Refusal& refusal, std::uint64_t found) {
  if (found > 0) return {};
  return refuse(refusal, found, "at least 1");
}

struct Like {
  std::uint64_t value;
  Argument argument;
};

inline Status check_equal(const Refusal& refusal, std::uint64_t found, const Like& like) {
  if (found == like.value) return {};
  return refuse(refusal, found, "{}, as {} is", like.value, like.argument.text());
}

// Of several checks the first that failed. All are made, so none may rely on another.
inline Status first_error(std::initializer_list<Status> checks) {
  for (const Status& status : checks) {
    if (!status) return status;
  }
  return {};
}

}  // namespace rota::core
