#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "rota/result.h"

// Where a store is: docs/store.md lists the forms.

namespace rota::page_store {

struct Url {
  enum class Kind : std::uint8_t { files, server };
  Kind kind = Kind::files;
  bool tls = false;
  std::string path = {};  // of files
  std::string user = {}, password = {}, host = {};
  std::uint16_t port = 6379;
  std::map<std::string, std::string, std::less<>> options = {};
};

// Percent signs and two digits are characters, in all but paths.
Result<Url> read_url(std::string_view text);

}  // namespace rota::page_store
