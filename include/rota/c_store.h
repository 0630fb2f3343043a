#pragma once

// The page store (librota-store) for C11, C++17 and every language that calls C: rota/store.h under the same words.
// docs/store.md explains it. Statuses, messages, handles and structs follow the rules at the top of rota/c.h. Every
// handle serves any number of threads at once.

// NOLINTBEGIN(modernize-*, readability-identifier-naming): this is C.

#include "rota/c.h"

#ifdef __cplusplus
extern "C" {
#endif

// Handles.
typedef struct rota_page_store rota_page_store;
typedef struct rota_prefix_store rota_prefix_store;
typedef struct rota_prefix_match rota_prefix_match;

// What rota_struct_init() does, for the structs of this header.
ROTA_C_API rota_status rota_page_store_struct_init(const char* name, void* structure, size_t struct_size);

typedef struct rota_page_store_options {
  size_t struct_size;
  uint64_t max_bytes;    // of files; ROTA_NONE: what another opener set, or no limit. The smallest struct ends here
  uint64_t deadline_ms;  // to reach the store; 0: 2 seconds
} rota_page_store_options;
#define ROTA_PAGE_STORE_OPTIONS_INIT {sizeof(rota_page_store_options), ROTA_NONE, 0}

// Pages by their keys: a folder ("file:PATH"), or a Redis or Valkey server or cluster ("valkey://HOST"). `options` may
// be NULL. The caller destroys the store; what was made from it keeps it.
ROTA_C_API rota_status rota_page_store_open(const char* url, const rota_page_store_options* options,
                                            rota_page_store** result);
ROTA_C_API void rota_page_store_destroy(rota_page_store* store);

typedef struct rota_prefix_store_options {
  size_t struct_size;
  const char* weights;  // names the weights and their revision, best by a hash; not "". The smallest struct ends here
  const char* rope;     // whatever else keys and values depend on, such as a scaled rope; NULL: ""
  const void* salt;     // of a tenant: only who knows it finds its pages; 16 random bytes or more. NULL: none
  size_t salt_bytes;
  uint64_t deadline_ms;      // that a call waits while nothing comes from the store; 0: 1 second
  uint64_t max_queued_puts;  // beyond it rota_prefix_store_put() drops what it is given, and counts that
  uint32_t needs_state;      // a prefix without the engine's state is of no use, as in hybrid models
  uint32_t reserved;         // 0
} rota_prefix_store_options;
#define ROTA_PREFIX_STORE_OPTIONS_INIT {sizeof(rota_prefix_store_options), NULL, NULL, NULL, 0, 0, 64, 0, 0}

// Prefixes of a cache's sequences in a store. It keeps both; the caller destroys it. A store that is slow, full, wrong
// or gone makes matches shorter and drops puts, which the counters tell: it is no error.
ROTA_C_API rota_status rota_prefix_store_create(rota_page_store* store, rota_kv_cache* cache,
                                                const rota_prefix_store_options* options, rota_prefix_store** result);

// Waits for the put that is being stored, and drops those that are queued: see rota_prefix_store_flush().
ROTA_C_API void rota_prefix_store_destroy(rota_prefix_store* store);

// Tokens of a stored page.
ROTA_C_API rota_status rota_prefix_store_page(const rota_prefix_store* store, uint64_t* tokens);

// The longest stored prefix, in whole pages; it may have none. A model needs at least one token more to go on: leave
// out the last. The caller destroys the match.
ROTA_C_API rota_status rota_prefix_store_match(rota_prefix_store* store, const int32_t* tokens, size_t count,
                                               rota_prefix_match** result);
ROTA_C_API rota_status rota_prefix_match_tokens(const rota_prefix_match* match, uint64_t* tokens);
ROTA_C_API void rota_prefix_match_destroy(rota_prefix_match* match);

// Opens a sequence with the matched prefix, or with as much of it as came in time: `tokens`, and 0 is a new sequence.
// `write_state` gets the engine's state of these tokens, once, if there is one; NULL: it is not wanted. If it refuses,
// no sequence is left open.
ROTA_C_API rota_status rota_prefix_store_load(rota_prefix_store* store, const rota_prefix_match* match,
                                              rota_sequence* sequence, uint64_t* tokens, rota_byte_sink write_state,
                                              void* user);

// Stores pages of the sequence that are sealed and were not given before, behind the caller. `tokens` are those of the
// sequence from its first on, at least as many as it has sealed. Call it after every step: where no page is new it
// costs a look. ROTA_BUSY while an open encoder has changed the sequence.
ROTA_C_API rota_status rota_prefix_store_put(rota_prefix_store* store, rota_sequence sequence, const int32_t* tokens,
                                             size_t count);

// Stores the engine's state after exactly so many tokens, a multiple of rota_prefix_store_page(). It is copied, and
// lost if it cannot be stored.
ROTA_C_API rota_status rota_prefix_store_put_state(rota_prefix_store* store, const int32_t* tokens, size_t count,
                                                   const void* state, size_t bytes);

// Returns when all that was put is stored or dropped, or ROTA_BUSY after the time.
ROTA_C_API rota_status rota_prefix_store_flush(rota_prefix_store* store, uint64_t at_most_ms);

// What became of calls. Numbers of pages, unless they say otherwise.
typedef struct rota_prefix_counters {
  size_t struct_size;
  uint64_t matched, missed;  // asked for by rota_prefix_store_match(): whole pages of prompts
  uint64_t loaded, loaded_bytes;
  uint64_t failed_loads;  // matched, and then gone, wrong or late
  uint64_t stored, stored_bytes;
  uint64_t already_stored;  // by others
  uint64_t dropped_puts;    // given and not stored: the queue was full, or the store failed
  uint64_t queued_puts;     // now
  uint64_t failed_calls;    // of the store: errors, and deadlines that passed
} rota_prefix_counters;
#define ROTA_PREFIX_COUNTERS_INIT {sizeof(rota_prefix_counters), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

ROTA_C_API rota_status rota_prefix_store_counters(const rota_prefix_store* store, rota_prefix_counters* result);

// The sentence of the store's last failed call, "" if there was none: at most `bytes` - 1 of its characters, and a 0.
ROTA_C_API rota_status rota_prefix_store_last_error(const rota_prefix_store* store, char* text, size_t bytes);

#ifdef __cplusplus
}
#endif

// NOLINTEND(modernize-*, readability-identifier-naming)
