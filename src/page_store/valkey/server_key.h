#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "page_store/object.h"
#include "rota/result.h"

// Keys of objects on servers: <prefix>{<64 digits>}.<part>. Braces make parts of a page live in one slot of a cluster.

namespace rota::page_store {

std::string server_key(std::string_view prefix, const ObjectName& name);

// None: the key is no object's.
std::optional<ObjectName> read_server_key(std::string_view prefix, std::string_view key);

// What SCAN matches such keys by: letters of the prefix that mean more are taken as they are.
std::string key_pattern(std::string_view prefix);

Error not_there(const ObjectName& name);

}  // namespace rota::page_store
