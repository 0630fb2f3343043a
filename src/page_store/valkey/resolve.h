#pragma once

#include <netdb.h>
#include <sys/socket.h>

#include <vector>

#include "page_store/valkey/command.h"
#include "page_store/valkey/waiting.h"

namespace rota::page_store {

struct Place {
  sockaddr_storage address = {};
  socklen_t bytes = 0;
};

// Where a host is, in the order in which to try. Errc::io when it is unknown or late.
Result<std::vector<Place>> places_of(const Address& address, const Until& until);

}  // namespace rota::page_store
