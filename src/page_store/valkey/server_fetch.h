#pragma once

#include <memory>
#include <vector>

#include "page_store/medium.h"
#include "page_store/valkey/servers.h"

namespace rota::page_store {

// Objects from servers. A thread of its own receives ahead of its readers, so far and no further.
Result<std::unique_ptr<Fetch>> fetch_from(std::shared_ptr<Servers> servers, std::vector<Wanted> objects,
                                          std::chrono::milliseconds patience);

}  // namespace rota::page_store
