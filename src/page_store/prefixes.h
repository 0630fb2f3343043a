#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "core/process.h"
#include "page_store/block_form.h"
#include "page_store/medium.h"
#include "page_store/opened_sequence.h"
#include "rota/kv_cache.h"
#include "rota/store.h"

// What the handles of one PrefixStore share.
//
//   engine's threads                    one thread of the store's own
//   match   hash, ask the medium
//   load    read from the medium
//   put     hash, hold pages  ------->  copy a block, let go of it, store it; then the next
//
// A block that could not be stored is given again by a later put, as long as its sequence lives: once another page is
// sealed, or if the store as a whole had failed, once it is asked again. A store that fails is left alone for a while,
// twice as long each time: put() and match() return at once meanwhile. Whether it was the store that failed a load, or
// an object of it that was missing or wrong, is found out behind the engine. One of many servers that fails makes
// holes.

namespace rota::page_store {

class Prefixes : public core::OfProcess {
 public:
  struct Setup {
    std::shared_ptr<Medium> medium;
    KvCache cache;
    PrefixStoreOptions options;
    BlockForm form;
    PageKey root;
  };
  explicit Prefixes(Setup setup);
  static Result<std::shared_ptr<Prefixes>> create(std::shared_ptr<Medium> medium, KvCache cache,
                                                  const PrefixStoreOptions& options);
  ~Prefixes();
  Prefixes(const Prefixes&) = delete;
  Prefixes& operator=(const Prefixes&) = delete;

  Result<PrefixMatch> match(std::span<const std::int32_t> tokens);
  Result<PrefixLoaded> load(const PrefixMatch& match);
  Status put(Sequence sequence, std::span<const std::int32_t> tokens);
  Status put_state(std::span<const std::int32_t> tokens, std::span<const std::byte> state);
  Status flush(std::chrono::milliseconds at_most);
  std::uint64_t page() const noexcept { return form_.tokens(); }
  PrefixCounters counters() const noexcept;

 private:
  // A sequence as far as it was given to put().
  struct Chain {
    std::uint32_t generation = 0;
    std::vector<PageKey> keys = {};
    std::vector<std::int32_t> tokens = {};  // of these keys, where they were told
    std::uint64_t given = 0;                // blocks
    std::uint64_t tried = 0;                // at that length put() has nothing more to do
  };
  // Blocks of a sequence from `first` on.
  struct PutPages {
    Sequence sequence;
    std::uint64_t first = 0;
    std::vector<PageKey> keys = {};  // one more than there are blocks: the first is the parent
    KvSnapshot snapshot;
  };
  struct PutState {
    ObjectHeader header;
    std::vector<std::byte> state;
  };
  struct Verify {
    std::vector<ObjectName> objects;
  };
  using Job = std::variant<PutPages, PutState, Verify>;

  // Of the whole pages of `tokens`.
  Result<std::vector<PageKey>> keys_of(std::span<const std::int32_t> tokens) const;
  Deadline deadline() const { return Clock::now() + options_.deadline; }

  // Precondition of these: the mutex is held.
  Chain& chain_of(Sequence sequence);
  void enqueue(Job job);

  // The store did not serve a part of what it was asked for, or nothing: then it is left alone for a while.
  void failed_in_part(const Error& error) noexcept;
  void failed(const Error& error) noexcept;

  // As far as the store can be asked.
  Result<std::vector<StoredPage>> find(std::span<const PageKey> keys);
  Result<std::uint64_t> stored_blocks(std::span<const PageKey> keys);
  Result<std::uint64_t> usable_blocks(std::span<const PageKey> keys);
  Status load_blocks(const PrefixMatch& match, OpenedSequence& sequence, std::uint64_t& blocks);
  Status load_state(const PrefixMatch& match, PrefixLoaded& loaded);
  std::vector<Wanted> wanted_for(const PrefixMatch& match, std::uint64_t blocks) const;

  void work();
  void verify(std::vector<ObjectName> objects);
  void run(PutPages& put);
  void run(PutState& put);
  void run(Verify& verify);
  class BlockWriter;
  struct Left {
    std::uint64_t first = 0, blocks = 0;
  };
  enum class Again : std::uint8_t { with_next_page, soon };
  void give_again(const PutPages& put, const Left& left, Again again) noexcept;

  const std::shared_ptr<Medium> medium_;
  KvCache cache_;
  const PrefixStoreOptions options_;
  const BlockForm form_;
  const PageKey root_;

  mutable std::mutex mutex_;
  std::condition_variable queued_, idle_;
  std::vector<Chain> chains_;  // by the sequence's index: as many as the cache has
  std::deque<Job> queue_;
  PrefixCounters counters_;
  std::string last_error_;  // not in the counters: to copy it may take memory that is not there
  bool is_working_ = false, ends_ = false;
  std::thread worker_;
};

}  // namespace rota::page_store
