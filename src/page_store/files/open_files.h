#pragma once

#include <memory>
#include <string>

#include "page_store/medium.h"

namespace rota::page_store {

// A folder, which is made if its parent is there.
Result<std::shared_ptr<Medium>> open_files(const std::string& path, const PageStoreOptions& options);

}  // namespace rota::page_store
