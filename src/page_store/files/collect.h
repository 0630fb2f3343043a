#pragma once

#include <cstdint>

#include "page_store/files/shelf.h"

namespace rota::page_store::files {

// Makes rows and files agree: reads each file that has no row, whole, and looks at each that has one. Then evicts.
Result<StoreCollected> collect(const Shelf& shelf, Deadline deadline);

}  // namespace rota::page_store::files
