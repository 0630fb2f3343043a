#include <algorithm>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "page_store/prefixes.h"

// What is put, and the thread that stores it.

namespace rota::page_store {
namespace {

constexpr std::string_view kPut = "PrefixStore::put", kPutState = "PrefixStore::put_state";

}  // namespace

Prefixes::Chain& Prefixes::chain_of(Sequence sequence) {
  Chain& chain = chains_[sequence.index];
  if (chain.generation != sequence.generation) chain = {.generation = sequence.generation};
  return chain;
}

void Prefixes::enqueue(Job job) {
  queue_.push_back(std::move(job));
  queued_.notify_one();
}

Status Prefixes::put(Sequence sequence, std::span<const std::int32_t> tokens) {
  auto sealed = cache_.sealed_length(sequence);
  if (!sealed) return sealed.error();
  if (tokens.size() < *sealed) {
    return core::refuse({kPut, {"tokens.size()"}}, tokens.size(), "at least the {} tokens that are sealed", *sealed);
  }
  const std::uint64_t blocks = *sealed / form_.tokens();
  const std::lock_guard lock(mutex_);
  Chain& chain = chain_of(sequence);
  if (is_down()) return {};
  // Tokens may have been taken back since, and others have come. Comparing them costs less than hashing.
  const auto pages = tokens.first(static_cast<std::size_t>(*sealed));
  if (blocks == chain.given && std::ranges::equal(chain.tokens, pages)) return {};
  auto keys = keys_of(pages);
  if (!keys) return keys.error();
  const auto same = std::ranges::mismatch(chain.keys, *keys).in1 - chain.keys.begin();
  chain.given = std::min(chain.given, static_cast<std::uint64_t>(same));
  chain.keys = std::move(keys).value();
  chain.tokens.assign(pages.begin(), pages.end());
  if (blocks == chain.given) return {};
  if (queue_.size() >= options_.max_queued_puts) {
    counters_.dropped_puts += blocks - chain.given;
    return {};
  }
  auto snapshot = cache_.snapshot(sequence, chain.given * form_.tokens(), blocks * form_.tokens());
  if (!snapshot) return snapshot.error();
  PutPages put{.sequence = sequence, .first = chain.given, .snapshot = std::move(snapshot).value()};
  put.keys.push_back(chain.given == 0 ? root_ : chain.keys[static_cast<std::size_t>(chain.given - 1)]);
  put.keys.insert(put.keys.end(), chain.keys.begin() + static_cast<std::ptrdiff_t>(chain.given), chain.keys.end());
  enqueue(std::move(put));
  chain.given = blocks;
  return {};
}

Status Prefixes::put_state(std::span<const std::int32_t> tokens, std::span<const std::byte> state) {
  if (tokens.empty() || tokens.size() % form_.tokens() != 0) {
    return core::refuse({kPutState, {"tokens.size()"}}, tokens.size(), "a multiple of the {} tokens of a page",
                        form_.tokens());
  }
  auto keys = keys_of(tokens);
  if (!keys) return keys.error();
  const std::lock_guard lock(mutex_);
  if (is_down() || queue_.size() >= options_.max_queued_puts) {
    ++counters_.dropped_puts;
    return {};
  }
  enqueue(PutState{.header = {.name = {keys->back(), StoredPart::state},
                              .parent = keys->size() == 1 ? root_ : (*keys)[keys->size() - 2],
                              .index = keys->size() - 1,
                              .payload_bytes = state.size(),
                              .payload_sum = payload_sum(state)},
                   .state = {state.begin(), state.end()}});
  return {};
}

Status Prefixes::flush(std::chrono::milliseconds at_most) {
  std::unique_lock lock(mutex_);
  if (idle_.wait_for(lock, at_most, [&] { return queue_.empty() && !is_working_; })) return {};
  return Error{Errc::busy, core::text("PrefixStore::flush: {} puts are not done after {} ms",
                                      queue_.size() + (is_working_ ? 1 : 0), at_most.count())};
}

void Prefixes::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    queued_.wait(lock, [&] { return ends_ || !queue_.empty(); });
    if (ends_) return;
    Job job = std::move(queue_.front());
    queue_.pop_front();
    is_working_ = true;
    lock.unlock();
    Status status = core::guarded([&]() -> Status {
      std::visit([&](auto& one) { run(one); }, job);
      return {};
    });
    if (!status) failed(status.error());
    {
      const Job ended = std::move(job);
    }  // lets go of pages, without the lock
    lock.lock();
    is_working_ = false;
    idle_.notify_all();
  }
}

// Takes a snapshot's bytes, part by part, and stores each block as it is whole.
class Prefixes::BlockWriter {
 public:
  BlockWriter(Prefixes& owner, const PutPages& put, KvSavedLayout layout)
      : owner_(owner), put_(put), layout_(std::move(layout)), block_(put.first) {}

  // Of which blocks what is stored already.
  Status ask() {
    auto found = owner_.medium_->find(std::span(put_.keys).subspan(1), owner_.deadline());
    if (!found) return found.error();
    found_ = std::move(found).value();
    return {};
  }

  bool has_work() const {
    return std::ranges::any_of(found_, [&](const StoredPage& page) {
      return !page.has(StoredPart::pages) || (owner_.form_.has_windows() && !page.has(StoredPart::window));
    });
  }

  Status take(std::span<const std::byte> bytes) {
    const std::size_t header = layout_.header.size();
    if (at_ < header) {
      const std::size_t size = std::min<std::size_t>(bytes.size(), header - static_cast<std::size_t>(at_));
      at_ += size;
      bytes = bytes.subspan(size);
    }
    while (!bytes.empty()) {
      const KvSavedPart& part = layout_.parts[number_];
      const std::uint64_t block = owner_.form_.block_of(part);
      if (block > block_) {
        if (Status status = store_block(); !status) return status;
        continue;
      }
      const std::uint64_t in_part = at_ - part.offset;
      const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size(), part.bytes - in_part));
      const PartPlace place = owner_.form_.place_of(part);
      Object& object = block < block_ ? late_ : objects_[static_cast<std::size_t>(place.object)];
      object.payload.resize(static_cast<std::size_t>(owner_.form_.payload_bytes(block, place.object)));
      std::memcpy(object.payload.data() + place.offset + in_part, bytes.data(), size);
      object.filled_bytes += size;
      at_ += size;
      bytes = bytes.subspan(size);
      if (at_ < part.offset + part.bytes) continue;
      std::memset(object.payload.data() + place.offset + part.bytes - 4, 0, 4);  // the part's number
      ++number_;
    }
    return {};
  }

  // After the last bytes.
  Status end() {
    while (block_ < put_.first + found_.size()) {
      if (Status status = store_block(); !status) return status;
    }
    if (late_.filled_bytes == 0) return {};
    return store(0, StoredPart::pages, late_).status;
  }

  std::uint64_t block() const noexcept { return block_; }

 private:
  struct Object {
    std::vector<std::byte> payload = {};
    std::uint64_t filled_bytes = 0;
  };
  struct Stored {
    Status status = {};
    std::uint64_t bytes = 0;
  };

  // Unless it is there, or parts of it are not.
  Stored store(std::uint64_t block, StoredPart part, const Object& object) const {
    const auto index = static_cast<std::size_t>(block - put_.first);
    const bool is_whole = object.filled_bytes == owner_.form_.payload_bytes(block, part);
    if (!is_whole || found_[index].has(part)) return {};
    const auto payload = std::span(object.payload).first(static_cast<std::size_t>(object.filled_bytes));
    const ObjectHeader header{.name = {put_.keys[index + 1], part},
                              .parent = put_.keys[index],
                              .index = block,
                              .payload_bytes = payload.size(),
                              .payload_sum = payload_sum(payload)};
    return {owner_.medium_->put(header, payload, owner_.deadline()), kObjectHeaderBytes + payload.size()};
  }

  Status store_block() {
    Object& pages = objects_[static_cast<std::size_t>(StoredPart::pages)];
    Object& window = objects_[static_cast<std::size_t>(StoredPart::window)];
    // The window first: where the pages are, a prefix may end.
    std::uint64_t bytes = 0;
    for (const auto& [part, object] : {std::pair(StoredPart::window, &window), std::pair(StoredPart::pages, &pages)}) {
      if (part == StoredPart::window && object->filled_bytes == 0) continue;
      const Stored stored = store(block_, part, *object);
      if (!stored.status) return stored.status;
      bytes += stored.bytes;
    }
    // Sinks that are kept come with the first page that the window sees.
    if (block_ == 0 && pages.filled_bytes < owner_.form_.payload_bytes(0, StoredPart::pages))
      late_ = std::exchange(pages, {});
    pages.filled_bytes = window.filled_bytes = 0;
    ++block_;
    const std::lock_guard lock(owner_.mutex_);
    if (owner_.ends_) return Error{Errc::busy, "the store is closed"};
    ++(bytes > 0 ? owner_.counters_.stored : owner_.counters_.already_stored);
    owner_.counters_.stored_bytes += bytes;
    return {};
  }

  Prefixes& owner_;
  const PutPages& put_;
  const KvSavedLayout layout_;
  std::vector<StoredPage> found_;
  std::uint64_t block_;            // that is being filled
  std::uint64_t at_ = 0;           // in the saved bytes
  std::size_t number_ = 0;         // of the part that comes next
  std::array<Object, 2> objects_;  // of the block, by StoredPart
  Object late_;                    // pages of block 0 that are not whole yet
};

void Prefixes::run(PutPages& put) {
  auto layout = lay_out_saved(put.snapshot.saved());
  if (!layout) return failed(layout.error());
  BlockWriter writer(*this, put, std::move(layout).value());
  Status status = writer.ask();
  if (status && writer.has_work()) {
    status = std::move(put.snapshot).save([&](std::span<const std::byte> bytes) { return writer.take(bytes); });
    if (status) status = writer.end();
  } else if (status) {
    const std::lock_guard lock(mutex_);
    counters_.already_stored += put.keys.size() - 1;
  }
  if (status) return succeeded();
  failed(status.error());
  give_again(put, writer.block());
}

// What was not stored, if its sequence is still there when put() is called again.
void Prefixes::give_again(const PutPages& put, std::uint64_t from_block) {
  const std::lock_guard lock(mutex_);
  counters_.dropped_puts += put.first + put.keys.size() - 1 - from_block;
  Chain& chain = chains_[put.sequence.index];
  if (chain.generation != put.sequence.generation) return;
  chain.given = std::min(chain.given, from_block);
}

void Prefixes::run(PutState& put) {
  if (Status status = medium_->put(put.header, put.state, deadline()); !status) {
    failed(status.error());
    const std::lock_guard lock(mutex_);
    ++counters_.dropped_puts;
    return;
  }
  succeeded();
  const std::lock_guard lock(mutex_);
  counters_.stored_bytes += put.state.size();
}

// What is wrong is removed by whoever finds it so.
void Prefixes::run(Verify& verify) {
  for (const ObjectName& name : verify.objects) (void)medium_->get(name, deadline());
}

}  // namespace rota::page_store
