#include "page_store/valkey/server_key.h"

#include "core/text.h"

namespace rota::page_store {

std::string server_key(std::string_view prefix, const ObjectName& name) {
  return core::text("{}{{{}}}.{}", prefix, hex(name.key), rota::name(name.part));
}

std::optional<ObjectName> read_server_key(std::string_view prefix, std::string_view key) {
  constexpr std::size_t kDigits = 64;
  if (!key.starts_with(prefix)) return {};
  key.remove_prefix(prefix.size());
  if (key.size() < kDigits + 3 || key.front() != '{' || key.substr(kDigits + 1, 2) != "}.") return {};
  const auto page = page_key(key.substr(1, kDigits));
  if (!page) return {};
  for (const StoredPart part : kStoredParts) {
    if (key.substr(kDigits + 3) == rota::name(part)) return ObjectName{.key = *page, .part = part};
  }
  return {};
}

std::string key_pattern(std::string_view prefix) {
  std::string pattern;
  for (const char letter : prefix) {
    if (std::string_view("*?[]\\^-").find(letter) != std::string_view::npos) pattern += '\\';
    pattern += letter;
  }
  return pattern + "{*";
}

Error not_there(const ObjectName& name) { return {Errc::io, core::text("stored object: {} is not there", text(name))}; }

}  // namespace rota::page_store
