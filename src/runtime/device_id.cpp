#include "runtime/device_id.h"

#include <algorithm>
#include <charconv>
#include <system_error>

#include "core/text.h"

namespace rota::runtime {

std::string device_id(std::string_view backend, std::size_t index) { return core::text("{}:{}", backend, index); }

Result<std::size_t> device_index(std::string_view backend, std::string_view id) {
  if (id == backend) return std::size_t{0};
  std::size_t index = 0;
  const std::string_view digits = id.substr(std::min(id.size(), backend.size() + 1));
  const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  if (digits.empty() || code != std::errc{} || end != digits.data() + digits.size()) {
    return Error{Errc::no_device, core::text("open: \"{}\" is no device; wanted {}:<index>", id, backend)};
  }
  return index;
}

Error no_such_device(std::string_view id, std::string_view driver, std::uint64_t offered) {
  return {Errc::no_device,
          core::text("open: there is no \"{}\"; {} offers {} device{}", id, driver, offered, offered == 1 ? "" : "s")};
}

}  // namespace rota::runtime
