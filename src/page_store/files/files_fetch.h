#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "page_store/files/folder.h"
#include "page_store/medium.h"

namespace rota::page_store::files {

// Whoever finds that an object is not what the index says tells it; `file` is the one that was found, if there was one.
using TellWrong = std::function<void(const ObjectName& name, FileId file)>;

std::unique_ptr<Fetch> fetch_files(std::shared_ptr<const Folder> folder, std::vector<Wanted> objects,
                                   TellWrong tell_wrong);

}  // namespace rota::page_store::files
