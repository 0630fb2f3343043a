#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "core/bounded.h"
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

// Before all that is put: until it is done, the store is left alone.
void Prefixes::verify(std::vector<ObjectName> objects) {
  const std::lock_guard lock(mutex_);
  queue_.emplace_front(Verify{std::move(objects)});
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
  if (medium_->pause().is_on()) return {};
  // Tokens may have been taken back since, and others have come. Comparing them costs less than hashing.
  const auto pages = tokens.first(static_cast<std::size_t>(*sealed));
  if (blocks == chain.tried && std::ranges::equal(chain.tokens, pages)) return {};
  auto keys = keys_of(pages);
  if (!keys) return keys.error();
  const auto same = std::ranges::mismatch(chain.keys, *keys).in1 - chain.keys.begin();
  chain.given = std::min(chain.given, static_cast<std::uint64_t>(same));
  chain.keys = std::move(keys).value();
  chain.tokens.assign(pages.begin(), pages.end());
  chain.tried = blocks;
  if (blocks == chain.given) return {};
  if (queue_.size() >= options_.max_queued_puts) {
    counters_.dropped_puts += blocks - chain.given;
    chain.tried = 0;
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
  if (medium_->pause().is_on() || queue_.size() >= options_.max_queued_puts) {
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
  if (idle_.wait_for(lock, core::bounded(at_most), [&] { return queue_.empty() && !is_working_; })) return {};
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
    std::visit([&](auto& one) { run(one); }, job);
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
    auto found = owner_.find(std::span(put_.keys).subspan(1));
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
    const Stored stored = store(0, StoredPart::pages, late_);
    late_.filled_bytes = 0;
    return take_stock(0, stored);
  }

  // What is not stored yet. Without its first block, which may come late, the rest is not found.
  Left left() const noexcept {
    const bool is_late = late_.filled_bytes > 0;
    const std::uint64_t to_come = put_.first + put_.keys.size() - 1 - block_ + (is_late ? 1 : 0);
    return {std::min(first_missed_, is_late ? 0 : block_), missed_ + to_come};
  }

  // Blocks that the store did not take, while it took others.
  const std::optional<Error>& miss() const noexcept { return miss_; }
  bool has_served() const noexcept { return served_ > 0; }

 private:
  struct Object {
    std::vector<std::byte> payload = {};
    std::uint64_t filled_bytes = 0;
  };
  struct Stored {
    Status status = {};
    std::uint64_t bytes = 0;
    bool is_in_time = true;
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
    const Deadline until = owner_.deadline();
    Status status = owner_.medium_->put(header, payload, until);
    return {std::move(status), kObjectHeaderBytes + payload.size(), Clock::now() < until};
  }

  Status store_block() {
    Object& pages = objects_[static_cast<std::size_t>(StoredPart::pages)];
    Object& window = objects_[static_cast<std::size_t>(StoredPart::window)];
    // The window first: where the pages are, a prefix may end.
    Stored stored;
    for (const auto& [part, object] : {std::pair(StoredPart::window, &window), std::pair(StoredPart::pages, &pages)}) {
      if ((part == StoredPart::window && object->filled_bytes == 0) || !stored.status) continue;
      Stored one = store(block_, part, *object);
      one.bytes += stored.bytes;
      stored = std::move(one);
    }
    // Sinks that are kept come with the first page that the window sees.
    const bool is_late = block_ == 0 && pages.filled_bytes < owner_.form_.payload_bytes(0, StoredPart::pages);
    if (is_late) late_ = std::exchange(pages, {});
    pages.filled_bytes = window.filled_bytes = 0;
    const std::uint64_t block = block_++;
    return is_late && stored.status ? Status() : take_stock(block, stored);
  }

  // A store that did not answer in time is not asked for more. Where one of its servers fails, others may not.
  Status take_stock(std::uint64_t block, const Stored& stored) {
    if (!stored.status) {
      first_missed_ = std::min(first_missed_, block);
      ++missed_;
      miss_ = stored.status.error();
      return stored.is_in_time ? Status() : stored.status;
    }
    ++served_;
    const std::lock_guard lock(owner_.mutex_);
    if (owner_.ends_) return Error{Errc::busy, "the store is closed"};
    ++(stored.bytes > 0 ? owner_.counters_.stored : owner_.counters_.already_stored);
    owner_.counters_.stored_bytes += stored.bytes;
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
  std::uint64_t served_ = 0, missed_ = 0, first_missed_ = ~std::uint64_t{0};
  std::optional<Error> miss_;
};

void Prefixes::run(PutPages& put) {
  const Left all{put.first, put.keys.size() - 1};
  if (medium_->pause().is_on()) return give_again(put, all, Again::soon);
  std::optional<BlockWriter> writer;
  const Status status = core::guarded([&]() -> Status {
    auto layout = lay_out_saved(put.snapshot.saved());
    if (!layout) return layout.error();
    writer.emplace(*this, put, std::move(layout).value());
    if (Status asked = writer->ask(); !asked) return asked;
    if (!writer->has_work()) {
      const std::lock_guard lock(mutex_);
      counters_.already_stored += all.blocks;
      return {};
    }
    const auto take = [&](std::span<const std::byte> bytes) { return writer->take(bytes); };
    if (Status saved = std::move(put.snapshot).save(take); !saved) return saved;
    return writer->end();
  });
  const std::optional<Error> miss = writer ? writer->miss() : std::nullopt;
  if (status && (!miss || writer->has_served())) {
    medium_->pause().end();
    if (!miss) return;
    failed_in_part(*miss);
    return give_again(put, writer->left(), Again::with_next_page);
  }
  failed(status ? *miss : status.error());
  give_again(put, writer ? writer->left() : all, Again::soon);
}

// What was not stored, if its sequence is still there when put() is called again.
void Prefixes::give_again(const PutPages& put, const Left& left, Again again) noexcept {
  const std::lock_guard lock(mutex_);
  counters_.dropped_puts += left.blocks;
  Chain& chain = chains_[put.sequence.index];
  if (chain.generation != put.sequence.generation) return;
  chain.given = std::min(chain.given, left.first);
  if (again == Again::soon) chain.tried = 0;
}

void Prefixes::run(PutState& put) {
  const bool is_asked = !medium_->pause().is_on();
  Status status;
  if (is_asked) {
    status = core::guarded([&] { return medium_->put(put.header, put.state, deadline()); });
    if (status) {
      medium_->pause().end();
    } else {
      failed(status.error());
    }
  }
  const std::lock_guard lock(mutex_);
  if (is_asked && status) {
    counters_.stored_bytes += put.state.size();
  } else {
    ++counters_.dropped_puts;
  }
}

// What is wrong is removed by whoever finds it so. A store that answers in time was not what failed.
void Prefixes::run(Verify& verify) {
  const Status status = core::guarded([&]() -> Status {
    for (const ObjectName& name : verify.objects) {
      const Deadline until = deadline();
      const auto got = medium_->get(name, until);
      if (!got && Clock::now() >= until) return got.error();
    }
    const auto found = medium_->find({&verify.objects.front().key, 1}, deadline());
    return found ? Status() : found.error();
  });
  if (status) return medium_->pause().end();
  failed(status.error());
}

}  // namespace rota::page_store
