#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

#include "rota/c.h"
#include "rota/result.h"

// Errors as C has them: a number, and a sentence that the thread keeps.

namespace rota::c {

inline constexpr std::size_t kNoIndex = std::numeric_limits<std::size_t>::max();

// What a refusal is about: the call, or one of its arguments, with what is inside: "rota_store", "call", "pairs[1]".
struct Where {
  const Where* outer = nullptr;  // null for the call itself
  const char* name = "";
  std::size_t index = kNoIndex;

  Where in(const char* member) const noexcept { return {this, member}; }
  Where at(std::size_t element) const noexcept { return {outer, name, element}; }
  std::string text() const;  // "rota_store: call.pairs[1]"
};

// Worded as the refusals of the C++ interface: who refuses, what, what was found, what was wanted.
// Of texts one after the other. In `"text" + std::string()` g++ 12 for AArch64 sees overruns that are not there.
std::string joined(std::initializer_list<std::string_view> texts);

Error refuse(const Where& where, std::string_view found, std::string_view wanted, Errc code = Errc::invalid_argument);

// An error if the caller gave no place for a result, or none of what a call cannot do without.
template <class T>
Status check_given(const Where& where, T* pointer) {
  if (pointer == nullptr) return refuse(where, "NULL", std::is_function_v<T> ? "a function" : "an address");
  return {};
}

Status check_index(const Where& where, std::size_t index, std::size_t count);

// The error's number.
constexpr rota_status status_of(Errc code) noexcept {
  return static_cast<rota_status>(static_cast<std::uint32_t>(code) + 1);
}

// The status, after the thread has kept its message.
rota_status told(const Status& status) noexcept;

// Runs the body; what is thrown becomes an Error. These two fit into a string without memory.
template <class Body>
auto attempt(Body&& body) noexcept -> decltype(body()) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return Error{Errc::out_of_memory, "out of memory"};
  } catch (const std::length_error&) {
    return Error{Errc::out_of_memory, "out of memory"};
  } catch (...) {
    return Error{Errc::internal, "internal error"};
  }
}

// The body of every call that returns a status: a Status from something that may throw.
template <class Body>
rota_status answer(Body&& body) noexcept {
  return told(attempt(body));
}

// A number that must be one of `count` enumerators, which begin at 0 in C as in C++.
template <class Enum, class Number>
Status choose(const Where& where, Number number, std::uint32_t count, Enum& chosen) {
  const auto value = static_cast<std::uint32_t>(number);
  if (value >= count) {
    return refuse(where, std::to_string(value), joined({"at most ", std::to_string(count - 1)}));
  }
  chosen = static_cast<Enum>(value);
  return {};
}

inline Status choose(const Where& where, std::uint32_t number, bool& chosen) {
  return choose(where, number, 2, chosen);
}

}  // namespace rota::c
