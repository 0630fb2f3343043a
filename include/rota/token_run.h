#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <type_traits>

#include "rota/export.h"

namespace rota::inline ROTA_ABI {

// A value that the caller must spell out: it has no default, so leaving it out does not compile.
template <class T>
class Required {
 public:
  // An integer does not take a fraction: 2.7 slots do not compile.
  template <std::convertible_to<T> Value>
    requires(!(std::is_floating_point_v<Value> && std::is_integral_v<T>))
  constexpr Required(Value value) : value_(static_cast<T>(value)) {}
  constexpr operator T() const { return value_; }

 private:
  T value_;
};

enum class WhenFull : std::uint8_t {
  wrap,    // a ring: a new token takes the oldest one's slot
  refuse,  // positions at or beyond the capacity are an error
};

// Where consecutive tokens of one sequence live: position p in slot p mod capacity, and slot s in slot
// s mod page_slots of page page_table[s / page_slots].
struct TokenRun {
  Required<std::uint64_t> tokens;
  Required<std::uint64_t> position;                // of the first token
  Required<std::uint64_t> capacity;                // slots
  std::span<const std::uint32_t> page_table = {};  // empty: the one page of a contiguous cache
  WhenFull when_full = WhenFull::wrap;
};

}  // namespace rota::inline ROTA_ABI
