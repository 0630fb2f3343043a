#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "page_store/files/open_files.h"

namespace rota::page_store::files {

// Times that tests shorten.
struct Pace {
  std::chrono::milliseconds uses_written_every = std::chrono::seconds(1);
  std::chrono::milliseconds used_again_after = std::chrono::seconds(60);  // younger uses are not written
};

Result<std::shared_ptr<Medium>> open(const std::string& path, const PageStoreOptions& options, const Pace& pace);

}  // namespace rota::page_store::files
