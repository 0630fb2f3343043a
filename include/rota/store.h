#pragma once

#include <array>
#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rota/export.h"
#include "rota/kv_cache.h"
#include "rota/kv_spec.h"
#include "rota/result.h"

// Sealed pages outlive the process, and many share them. A library of its own: link rota::store. docs/store.md explains
// it, and defines keys and bytes.

namespace rota::page_store {
class Medium;
class Prefixes;
}  // namespace rota::page_store

namespace rota::inline ROTA_ABI {

// Names a page of a chain: a SHA-256 of all tokens up to the page's end, of the model and of the salt.
struct PageKey {
  std::array<std::byte, 32> bytes = {};

  friend constexpr auto operator<=>(const PageKey&, const PageKey&) = default;
};

// 64 digits.
ROTA_API std::string hex(const PageKey& key);
ROTA_API Result<PageKey> page_key(std::string_view hex);

// All that must agree for pages to be shared, besides the cache's groups.
struct PrefixModel {
  std::string weights;               // names the weights and their revision, best by a hash; not empty
  std::string rope = {};             // whatever else keys and values depend on, such as a scaled rope
  std::vector<std::byte> salt = {};  // of a tenant: only who knows it finds its pages; 16 random bytes or more
};

// The key of no tokens, from which chains begin. Groups may differ in their tails.
ROTA_API Result<PageKey> root_key(const PrefixModel& model, std::span<const KvGroup> groups);

// The key of the page with these tokens behind the page of `parent`.
ROTA_API Result<PageKey> next_key(const PageKey& parent, std::span<const std::int32_t> tokens);

// What is stored of a page, each part by itself: its pages in groups without a window, its pages in groups with one,
// which are wanted at a prefix' end alone, and the engine's own bytes for the prefix that ends with the page.
enum class StoredPart : std::uint8_t { pages, window, state };
inline constexpr std::array kStoredParts{StoredPart::pages, StoredPart::window, StoredPart::state};

ROTA_API std::string_view name(StoredPart part) noexcept;

// What a store knows of a page.
struct StoredPage {
  PageKey key = {}, parent = {};                    // of the first page the root's key
  std::uint64_t index = 0;                          // pages before it in its chain
  std::array<std::uint64_t, 3> part_bytes = {};     // by StoredPart, headers included; 0: not there
  std::chrono::system_clock::time_point used = {};  // the epoch where the store does not tell

  bool has(StoredPart part) const noexcept { return part_bytes[static_cast<std::size_t>(part)] > 0; }
  std::uint64_t bytes() const noexcept { return part_bytes[0] + part_bytes[1] + part_bytes[2]; }
};

// Of everything that is stored.
struct StoreStat {
  std::uint64_t pages = 0, bytes = 0;
  std::optional<std::uint64_t> max_bytes = {};  // none: no limit, or the server's own
  std::string medium = {};                      // in a word or two, such as "files" or "Valkey 8.0.1, cluster of 3"
};

// What collect() did.
struct StoreCollected {
  std::uint64_t evicted_pages = 0, evicted_bytes = 0;  // the least recently used, from the ends of their chains
  std::uint64_t adopted_pages = 0;                     // that were there, and not in the index
  std::uint64_t lost_pages = 0;                        // that were in the index, and not there
  std::uint64_t left_overs = 0;                        // files of writers that did not finish
};

struct PageStoreOptions {
  // Of a store of files: what is least recently used leaves beyond it. None: what another opener set, or no limit.
  std::optional<std::uint64_t> max_bytes = {};
  std::chrono::milliseconds deadline = std::chrono::seconds(2);  // to reach the store
};

// Pages by their keys: files of a folder, or a Redis or Valkey server or cluster. Copies share one. Every member may be
// called from any thread, and returns by its deadline; the error is then Errc::io, as for all that a store does wrong.
//
//   file:PATH                                           a folder, which is made if its parent is there
//   valkey://[USER[:PASSWORD]@]HOST[:PORT][?OPTIONS]     or redis://; a server, or any node of a cluster
//   valkeys://...                                        the same with TLS, or rediss://
//
// Options are ca=FILE, cert=FILE, key=FILE (PEM), password_file=FILE, prefix=TEXT of keys ("rota:"), ttl=SECONDS.
class ROTA_API PageStore {
 public:
  static Result<PageStore> open(std::string_view url, const PageStoreOptions& options = {});

  using Deadline = std::chrono::steady_clock::time_point;

  // What is there of each key, in their order; a page without parts is not there.
  Result<std::vector<StoredPage>> find(std::span<const PageKey> keys, Deadline deadline) const;

  // A part's bytes, once their checksum is verified.
  Result<std::vector<std::byte>> get(const PageKey& key, StoredPart part, Deadline deadline) const;

  // Returns when the part will be there whatever becomes of this process.
  Status put(const StoredPage& page, StoredPart part, std::span<const std::byte> bytes, Deadline deadline) const;

  // Removes all parts of a page; not the pages behind it.
  Status remove(const PageKey& key, Deadline deadline) const;

  // Every page, in no order, until `each` gives an error, which is the answer then. Pages that come or go meanwhile may
  // be missing.
  Status list(const std::function<Status(const StoredPage&)>& each, Deadline deadline) const;

  Result<StoreStat> stat(Deadline deadline) const;

  // Makes the index agree with what is there, and evicts what is beyond the limit. Of servers this is their own.
  Result<StoreCollected> collect(Deadline deadline) const;

 private:
  friend class PrefixStore;
  explicit PageStore(std::shared_ptr<page_store::Medium> medium) noexcept : medium_(std::move(medium)) {}

  std::shared_ptr<page_store::Medium> medium_;
};

struct PrefixStoreOptions {
  PrefixModel model;
  // The longest that match() and load() wait for the store while nothing comes, and put() in the background.
  std::chrono::milliseconds deadline = std::chrono::seconds(1);
  std::uint64_t max_queued_puts = 64;  // beyond it put() drops what it is given, and counts that
  bool needs_state = false;            // a prefix without the engine's state is of no use, as in hybrid models
};

// How much of a prompt is stored.
struct PrefixMatch {
  std::uint64_t tokens = 0;
  std::vector<PageKey> keys = {};  // of its pages
};

struct PrefixLoaded {
  Sequence sequence;
  std::uint64_t tokens = 0;           // of the sequence; 0: nothing could be loaded, and it is a new one
  std::vector<std::byte> state = {};  // the engine's, of these tokens
};

// What became of calls. Numbers of pages, unless they say otherwise.
struct PrefixCounters {
  std::uint64_t matched = 0, missed = 0;  // asked for by match(): whole pages of prompts
  std::uint64_t loaded = 0, loaded_bytes = 0;
  std::uint64_t failed_loads = 0;  // matched, and then gone, wrong or late
  std::uint64_t stored = 0, stored_bytes = 0;
  std::uint64_t already_stored = 0;  // by others
  std::uint64_t dropped_puts = 0;    // given to put() and not stored: the queue was full, or the store failed
  std::uint64_t queued_puts = 0;     // now
  std::uint64_t failed_calls = 0;    // of the store: errors, and deadlines that passed
  std::string last_error = {};       // of those
};

// Prefixes of a cache's sequences in a store. Copies share one. Every member may be called from any thread.
//
//   match(prompt)   how much of it is stored            store.load(match)   a sequence with that much
//   ... the engine computes the rest ...                store.put(sequence, tokens)   what is sealed by now, behind it
//
// A store that is slow, full, wrong or gone makes matches shorter and drops puts, which the counters tell. It is no
// error.
class ROTA_API PrefixStore {
 public:
  static Result<PrefixStore> create(PageStore store, KvCache cache, const PrefixStoreOptions& options);

  // The longest stored prefix, in whole pages. A model needs at least one token more to go on: leave out the last.
  Result<PrefixMatch> match(std::span<const std::int32_t> tokens) const;

  // Opens a sequence with the matched prefix, or with as much of it as came in time. Its pages are all sealed. An error
  // is the cache's, such as Errc::out_of_pages.
  Result<PrefixLoaded> load(const PrefixMatch& match) const;

  // Stores pages of the sequence that are sealed and were not given before, behind the caller: pages are held until
  // they were copied, and the sequence may go on or be closed. `tokens` are those of the sequence from its first on, at
  // least as many as it has sealed. Call it after every step: where no page is new it costs a look. Errc::busy while an
  // open encoder has changed the sequence.
  Status put(Sequence sequence, std::span<const std::int32_t> tokens) const;

  // Stores the engine's state after exactly so many tokens, a multiple of page(). Unlike a
  // page it is given once: `state` is copied, and lost if it cannot be stored.
  Status put_state(std::span<const std::int32_t> tokens, std::span<const std::byte> state) const;

  // Returns when all that was put is stored or dropped, or Errc::busy after `at_most`.
  Status flush(std::chrono::milliseconds at_most) const;

  std::uint64_t page() const noexcept;  // tokens of a stored page
  PrefixCounters counters() const;

 private:
  explicit PrefixStore(std::shared_ptr<page_store::Prefixes> prefixes) noexcept : prefixes_(std::move(prefixes)) {}

  std::shared_ptr<page_store::Prefixes> prefixes_;
};

}  // namespace rota::inline ROTA_ABI
