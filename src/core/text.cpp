#define FMT_HEADER_ONLY 1
#include "core/text.h"

#include <fmt/format.h>

namespace rota::core {

std::string formatted(fmt::string_view format, fmt::format_args args) { return fmt::vformat(format, args); }

}  // namespace rota::core
