#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <type_traits>

#include "rota/export.h"

namespace rota::inline ROTA_ABI {

// A value without a default: leaving it out does not compile.
template <class T>
class Required {
 public:
  // A floating-point value does not become an integer: 2.7 slots do not compile.
  template <std::convertible_to<T> Value>
    requires(!(std::is_floating_point_v<Value> && std::is_integral_v<T>))
  constexpr Required(Value value) : value_(static_cast<T>(value)) {}
  constexpr operator T() const { return value_; }

 private:
  T value_;
};

// What happens to a token whose position is not below the capacity.
enum class WhenFull : std::uint8_t {
  wrap,    // it takes the slot of the oldest token: a ring
  refuse,  // it is an error
};

// Where consecutive tokens of one sequence are stored: position p in the sequence's slot p mod capacity, and the
// sequence's slot s in slot s mod page_slots of page page_table[s / page_slots].
struct TokenRun {
  Required<std::uint64_t> tokens;
  Required<std::uint64_t> position;                // of the first token
  Required<std::uint64_t> capacity;                // slots
  std::span<const std::uint32_t> page_table = {};  // physical pages; empty: page 0 of a contiguous cache
  WhenFull when_full = WhenFull::wrap;
};

}  // namespace rota::inline ROTA_ABI
