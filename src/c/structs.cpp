#include "c/structs.h"

#include <algorithm>
#include <string>

// Compiled into librota-store as well: nothing here is exported.

namespace rota::c {
namespace {

// No struct will be larger: beyond it, struct_size was never set.
constexpr std::size_t kLargest = 4096;

bool all_zero(const std::byte* bytes, std::size_t size) noexcept {
  return std::all_of(bytes, bytes + size, [](std::byte byte) { return byte == std::byte{0}; });
}

Status check_number(const Where& where, std::size_t size, const Rules& rules) {
  if (size >= rules.smallest && size <= kLargest && size % rules.alignment == 0) return {};
  return refuse(where.in("struct_size"), std::to_string(size),
                std::to_string(rules.size) + ", that of " + rules.name + ", or of another version from " +
                    std::to_string(rules.smallest) + " on");
}

}  // namespace

std::size_t size_of_struct(const void* structure) noexcept {
  std::size_t size = 0;
  std::memcpy(&size, structure, sizeof(size));
  return size;
}

Status check_size(const Where& where, const void* structure, const Rules& rules) {
  if (Status status = check_given(where, structure); !status) return status;
  return check_number(where, size_of_struct(structure), rules);
}

Status take_bytes(const Where& where, const void* from, const Rules& rules, void* to) {
  if (Status status = check_size(where, from, rules); !status) return status;
  const std::size_t size = size_of_struct(from);
  if (size > rules.size && !all_zero(static_cast<const std::byte*>(from) + rules.size, size - rules.size)) {
    return refuse(where.in("struct_size"),
                  std::to_string(size) + ", with members that this library does not know and that are not 0",
                  joined({"what a ", rules.name, " of ", std::to_string(rules.size), " bytes can say"}),
                  Errc::unsupported);
  }
  std::memcpy(to, rules.defaults, rules.size);
  std::memcpy(to, from, std::min(size, rules.size));
  return {};
}

void put_bytes(const void* value, const Rules& rules, void* to) noexcept {
  const std::size_t size = size_of_struct(to);
  const std::size_t common = std::min(size, rules.size);
  auto* const bytes = static_cast<std::byte*>(to);
  std::memcpy(bytes, value, common);
  std::memset(bytes + common, 0, size - common);
  std::memcpy(bytes, &size, sizeof(size));
}

Status check_apart(const Where& element, std::size_t size, std::size_t first_size) {
  if (size == first_size) return {};
  return refuse(element.in("struct_size"), std::to_string(size), std::to_string(first_size) + ", as of the first");
}

Status init_struct(const Where& call, const StructList& known, const char* name, void* structure, std::size_t size) {
  if (Status status = check_given(call.in("name"), name); !status) return status;
  const auto rules =
      std::ranges::find_if(known.rules, [&](const Rules& one) { return one.name == std::string_view(name); });
  if (rules == known.rules.end()) {
    return refuse(call.in("name"), joined({"\"", name, "\""}), joined({"a struct of ", known.header}));
  }
  const Where place = call.in("structure");
  if (Status status = check_given(place, structure); !status) return status;
  if (Status status = check_number(place, size, *rules); !status) return status;
  std::memcpy(structure, &size, sizeof(size));
  put_bytes(rules->defaults, *rules, structure);
  return {};
}

}  // namespace rota::c
