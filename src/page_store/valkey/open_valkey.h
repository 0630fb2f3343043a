#pragma once

#include <memory>

#include "page_store/medium.h"
#include "page_store/url.h"

namespace rota::page_store {

// A Redis or Valkey server, or the cluster of which it is a node.
Result<std::shared_ptr<Medium>> open_valkey(const Url& url, const PageStoreOptions& options);

}  // namespace rota::page_store
