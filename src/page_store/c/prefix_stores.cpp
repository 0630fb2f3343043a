#include <algorithm>
#include <cstring>

#include "c/convert.h"
#include "page_store/c/handles.h"
#include "page_store/c/milliseconds.h"
#include "page_store/c/structs.h"
#include "page_store/opened_sequence.h"

// Prefixes in a store.

using namespace rota::c;
using rota::Status;

namespace {

rota::Result<rota::PrefixStoreOptions> options_of(const Where& where, const rota_prefix_store_options* from) {
  rota_prefix_store_options taken;
  if (Status status = take(where, from, taken); !status) return status.error();
  if (Status status = check_given(where.in("weights"), taken.weights); !status) return status.error();
  const auto salt = list_of(where.in("salt"), static_cast<const std::byte*>(taken.salt), taken.salt_bytes);
  if (!salt) return salt.error();
  rota::PrefixStoreOptions options{.model = {.weights = taken.weights}};
  if (taken.rope != nullptr) options.model.rope = taken.rope;
  options.model.salt.assign(salt->begin(), salt->end());
  if (taken.deadline_ms != 0) options.deadline = milliseconds_of(taken.deadline_ms);
  options.max_queued_puts = taken.max_queued_puts;
  if (Status status = choose(where.in("needs_state"), taken.needs_state, options.needs_state); !status) {
    return status.error();
  }
  return options;
}

}  // namespace

rota_status rota_prefix_store_create(rota_page_store* store, rota_kv_cache* cache,
                                     const rota_prefix_store_options* options, rota_prefix_store** result) {
  return answer([&]() -> Status {
    const Where call{nullptr, "rota_prefix_store_create"};
    if (Status status = check_handle(call.in("store"), store); !status) return status;
    if (Status status = check_handle(call.in("cache"), cache); !status) return status;
    if (Status status = check_given(call.in("result"), result); !status) return status;
    const auto chosen = options_of(call.in("options"), options);
    if (!chosen) return chosen.error();
    auto made = rota::PrefixStore::create(store->store, cache->cache, chosen.value());
    if (!made) return made.error();
    *result = make<rota_prefix_store>(cache->cache, std::move(made).value()).release();
    return {};
  });
}

void rota_prefix_store_destroy(rota_prefix_store* store) { destroy("rota_prefix_store_destroy", "store", store); }

rota_status rota_prefix_store_page(const rota_prefix_store* store, uint64_t* tokens) {
  return answer([&]() -> Status {
    const Where call{nullptr, "rota_prefix_store_page"};
    if (Status status = check_handle(call.in("store"), store); !status) return status;
    if (Status status = check_given(call.in("tokens"), tokens); !status) return status;
    *tokens = store->store.page();
    return {};
  });
}

rota_status rota_prefix_store_match(rota_prefix_store* store, const int32_t* tokens, size_t count,
                                    rota_prefix_match** result) {
  return answer([&]() -> Status {
    const Where call{nullptr, "rota_prefix_store_match"};
    if (Status status = check_handle(call.in("store"), store); !status) return status;
    if (Status status = check_given(call.in("result"), result); !status) return status;
    const auto prompt = list_of(call.in("tokens"), tokens, count);
    if (!prompt) return prompt.error();
    auto match = store->store.match(prompt.value());
    if (!match) return match.error();
    *result = make<rota_prefix_match>(std::move(match).value()).release();
    return {};
  });
}

rota_status rota_prefix_match_tokens(const rota_prefix_match* match, uint64_t* tokens) {
  return answer([&]() -> Status {
    const Where call{nullptr, "rota_prefix_match_tokens"};
    if (Status status = check_handle(call.in("match"), match); !status) return status;
    if (Status status = check_given(call.in("tokens"), tokens); !status) return status;
    *tokens = match->match.tokens;
    return {};
  });
}

void rota_prefix_match_destroy(rota_prefix_match* match) { destroy("rota_prefix_match_destroy", "match", match); }

rota_status rota_prefix_store_load(rota_prefix_store* store, const rota_prefix_match* match, rota_sequence* sequence,
                                   uint64_t* tokens, rota_byte_sink write_state, void* user) {
  return answer([&]() -> Status {
    const Where call{nullptr, "rota_prefix_store_load"};
    if (Status status = check_handle(call.in("store"), store); !status) return status;
    if (Status status = check_handle(call.in("match"), match); !status) return status;
    if (Status status = check_given(call.in("sequence"), sequence); !status) return status;
    if (Status status = check_given(call.in("tokens"), tokens); !status) return status;
    const auto loaded = store->store.load(match->match);
    if (!loaded) return loaded.error();
    rota::page_store::OpenedSequence opened(store->cache, loaded->sequence);
    if (write_state != nullptr && !loaded->state.empty()) {
      const int refused = write_state(user, loaded->state.data(), loaded->state.size());
      if (refused != 0) {
        return refuse(call.in("write_state's result"), std::to_string(refused), "0", rota::Errc::io);
      }
    }
    *sequence = c_sequence(loaded->sequence);
    opened.give();
    *tokens = loaded->tokens;
    return {};
  });
}

rota_status rota_prefix_store_put(rota_prefix_store* store, rota_sequence sequence, const int32_t* tokens,
                                  size_t count) {
  return answer([&]() -> Status {
    const Where call{nullptr, "rota_prefix_store_put"};
    if (Status status = check_handle(call.in("store"), store); !status) return status;
    const auto all = list_of(call.in("tokens"), tokens, count);
    if (!all) return all.error();
    return store->store.put(sequence_of(sequence), all.value());
  });
}

rota_status rota_prefix_store_put_state(rota_prefix_store* store, const int32_t* tokens, size_t count,
                                        const void* state, size_t bytes) {
  return answer([&]() -> Status {
    const Where call{nullptr, "rota_prefix_store_put_state"};
    if (Status status = check_handle(call.in("store"), store); !status) return status;
    const auto all = list_of(call.in("tokens"), tokens, count);
    if (!all) return all.error();
    const auto of_them = list_of(call.in("state"), static_cast<const std::byte*>(state), bytes);
    if (!of_them) return of_them.error();
    return store->store.put_state(all.value(), of_them.value());
  });
}

rota_status rota_prefix_store_flush(rota_prefix_store* store, uint64_t at_most_ms) {
  return answer([&]() -> Status {
    const Where call{nullptr, "rota_prefix_store_flush"};
    if (Status status = check_handle(call.in("store"), store); !status) return status;
    return store->store.flush(milliseconds_of(at_most_ms));
  });
}

rota_status rota_prefix_store_counters(const rota_prefix_store* store, rota_prefix_counters* result) {
  return answer([&]() -> Status {
    const Where call{nullptr, "rota_prefix_store_counters"};
    if (Status status = check_handle(call.in("store"), store); !status) return status;
    if (Status status = check_result(call.in("result"), result); !status) return status;
    const rota::PrefixCounters from = store->store.counters();
    put({sizeof(rota_prefix_counters), from.matched, from.missed, from.loaded, from.loaded_bytes, from.failed_loads,
         from.stored, from.stored_bytes, from.already_stored, from.dropped_puts, from.queued_puts, from.failed_calls},
        result);
    return {};
  });
}

rota_status rota_prefix_store_last_error(const rota_prefix_store* store, char* text, size_t bytes) {
  return answer([&]() -> Status {
    const Where call{nullptr, "rota_prefix_store_last_error"};
    if (Status status = check_handle(call.in("store"), store); !status) return status;
    if (Status status = check_given(call.in("text"), text); !status) return status;
    if (bytes == 0) return refuse(call.in("bytes"), "0", "at least 1");
    const std::string error = store->store.counters().last_error;
    const std::size_t size = std::min(error.size(), bytes - 1);
    std::memcpy(text, error.data(), size);
    text[size] = '\0';
    return {};
  });
}
