#pragma once

#include <exception>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/callers_thread.h"
#include "core/text.h"
#include "rota/result.h"

namespace rota::core {

// Every refusal of an argument is worded here: who refuses, what, what was found, what was wanted.
struct Argument {
  std::string_view name;               // "bytes", or with an index "pairs"
  std::optional<std::size_t> index{};  // pairs[1]
  std::string_view field{};            // pairs[1].to
  std::string_view subfield{};         // pairs[1].to.shape.dim

  std::string text() const;
};

struct Refusal {
  std::string_view op;
  Argument argument;
};

template <class Found, class... Args>
Error refuse(const Refusal& refusal, const Found& found, fmt::format_string<Args...> wanted, Args&&... args) {
  return {Errc::invalid_argument, text("{}: {} is {}; wanted {}", refusal.op, refusal.argument.text(), found,
                                       text(wanted, std::forward<Args>(args)...))};
}

// Short enough to need no memory, which is just what is missing then.
inline Error out_of_memory() noexcept { return {Errc::out_of_memory, "out of memory"}; }

// The edge of the library: what is thrown inside comes back as an Error.
template <class Body>
auto guarded(Body&& body) noexcept -> decltype(body()) {
  const NoCancellation whole;
  try {
    return std::forward<Body>(body)();
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  } catch (...) {
    return Error{Errc::internal, "internal error"};
  }
}

}  // namespace rota::core
