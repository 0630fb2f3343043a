#include <array>

#include "page_store/c/handles.h"
#include "page_store/c/milliseconds.h"
#include "page_store/c/structs.h"

// Stores of pages.

using namespace rota::c;
using rota::Status;

namespace {

static_assert(!rota::PageStoreOptions{}.max_bytes);

rota::Result<rota::PageStoreOptions> options_of(const Where& where, const rota_page_store_options* from) {
  rota_page_store_options taken = ROTA_PAGE_STORE_OPTIONS_INIT;
  if (from != nullptr) {
    if (Status status = take(where, from, taken); !status) return status.error();
  }
  rota::PageStoreOptions options;
  if (taken.max_bytes != ROTA_NONE) options.max_bytes = taken.max_bytes;
  if (taken.deadline_ms != 0) options.deadline = milliseconds_of(taken.deadline_ms);
  return options;
}

}  // namespace

rota_status rota_page_store_struct_init(const char* name, void* structure, size_t struct_size) {
  static constexpr std::array kRules{ROTA_C_STORE_STRUCTS(ROTA_C_RULES)};
  return answer([&]() -> Status {
    return init_struct({nullptr, "rota_page_store_struct_init"}, {"rota/c_store.h", kRules}, name, structure,
                       struct_size);
  });
}

rota_status rota_page_store_open(const char* url, const rota_page_store_options* options, rota_page_store** result) {
  return answer([&]() -> Status {
    const Where call{nullptr, "rota_page_store_open"};
    if (Status status = check_given(call.in("url"), url); !status) return status;
    if (Status status = check_given(call.in("result"), result); !status) return status;
    const auto chosen = options_of(call.in("options"), options);
    if (!chosen) return chosen.error();
    auto store = rota::PageStore::open(url, chosen.value());
    if (!store) return store.error();
    *result = make<rota_page_store>(std::move(store).value()).release();
    return {};
  });
}

void rota_page_store_destroy(rota_page_store* store) { destroy("rota_page_store_destroy", "store", store); }
