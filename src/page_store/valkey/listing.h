#pragma once

#include <functional>
#include <memory>

#include "page_store/medium.h"
#include "page_store/valkey/servers.h"

namespace rota::page_store {

// What is there of each page; its parent and its index are not told.
Result<FoundPages> find_on(const std::shared_ptr<Servers>& servers, std::span<const PageKey> keys, Deadline deadline);

// Every page of every master, each once.
Status list_on(const std::shared_ptr<Servers>& servers, const std::function<Status(const StoredPage&)>& each,
               Deadline deadline);

Result<StoreStat> stat_of(const std::shared_ptr<Servers>& servers, Deadline deadline);

}  // namespace rota::page_store
