#pragma once

#include <string_view>
#include <utility>

#include "core/error.h"

namespace rota::codec {

// What check() says of a format's field.
template <class Found, class... Args>
Error refused(std::string_view field, const Found& found, fmt::format_string<Args...> wanted, Args&&... args) {
  return core::refuse({"page format", {field}}, found, wanted, std::forward<Args>(args)...);
}

}  // namespace rota::codec
