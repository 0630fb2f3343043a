#pragma once

#include "c/structs.h"
#include "rota/c_store.h"

// The structs of rota/c_store.h, by the rules of those of rota/c.h.

namespace rota::c {

#define ROTA_C_STORE_STRUCTS(X)                                                                            \
  X(rota_page_store_options, offsetof(rota_page_store_options, deadline_ms), ROTA_PAGE_STORE_OPTIONS_INIT) \
  X(rota_prefix_store_options, offsetof(rota_prefix_store_options, rope), ROTA_PREFIX_STORE_OPTIONS_INIT)  \
  X(rota_prefix_counters, 96, ROTA_PREFIX_COUNTERS_INIT)
ROTA_C_STORE_STRUCTS(ROTA_C_STRUCT)

}  // namespace rota::c
