#include "page_store/prefixes.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "core/bounded.h"
#include "core/error.h"
#include "core/start_thread.h"
#include "page_store/joined.h"

namespace rota::page_store {
namespace {

constexpr std::size_t kProbes = 16;           // of one question to the medium
constexpr std::uint64_t kSegmentBlocks = 32;  // that are loaded together: what came before them stays if they fail

}  // namespace

Result<std::shared_ptr<Prefixes>> Prefixes::create(std::shared_ptr<Medium> medium, KvCache cache,
                                                   const PrefixStoreOptions& options) {
  const std::vector<KvGroup>& groups = cache.spec().groups;
  auto root = root_key(options.model, groups);
  if (!root) return root.error();
  auto form = BlockForm::of(groups);
  if (!form) return form.error();
  if (options.deadline.count() <= 0) {
    return core::refuse({"PrefixStore::create", {"options", {}, "deadline"}}, options.deadline.count(),
                        "more than 0 milliseconds");
  }
  PrefixStoreOptions chosen = options;
  chosen.deadline = core::bounded(options.deadline);
  const std::shared_ptr<Prefixes> prefixes(
      new Prefixes(Setup{std::move(medium), std::move(cache), std::move(chosen), std::move(form).value(), *root}),
      core::DeleteOrLeave());
  prefixes->worker_ = core::start_thread([raw = prefixes.get()] { raw->work(); });
  if (!prefixes->worker_.joinable()) {
    return Error{Errc::out_of_memory, "PrefixStore::create: the system refuses a thread that stores pages"};
  }
  return prefixes;
}

Prefixes::Prefixes(Setup setup)
    : medium_(std::move(setup.medium)),
      cache_(std::move(setup.cache)),
      options_(std::move(setup.options)),
      form_(std::move(setup.form)),
      root_(setup.root),
      chains_(cache_.spec().max_sequences) {}

Prefixes::~Prefixes() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    queued_.notify_all();
  }
  if (worker_.joinable()) worker_.join();
}

void Prefixes::failed_in_part(const Error& error) noexcept {
  const std::lock_guard lock(mutex_);
  ++counters_.failed_calls;
  static_cast<void>(core::guarded([&]() -> Status {
    last_error_ = error.message;
    return {};
  }));
}

void Prefixes::failed(const Error& error) noexcept {
  failed_in_part(error);
  medium_->pause().begin();
}

PrefixCounters Prefixes::counters() const noexcept {
  const std::lock_guard lock(mutex_);
  PrefixCounters counters = counters_;
  static_cast<void>(core::guarded([&]() -> Status {
    counters.last_error = last_error_;
    return {};
  }));
  counters.queued_puts = queue_.size() + (is_working_ ? 1 : 0);
  return counters;
}

Result<std::vector<StoredPage>> Prefixes::find(std::span<const PageKey> keys) {
  auto found = medium_->find_reachable(keys, deadline());
  if (!found) return found.error();
  if (found->unasked) failed_in_part(*found->unasked);
  return std::move(found->pages);
}

// Chains have no gaps unless pages were lost: a few questions find where one ends.
Result<std::uint64_t> Prefixes::stored_blocks(std::span<const PageKey> keys) {
  std::uint64_t stored = 0, missing = keys.size() + 1;  // blocks before `stored` are there, block `missing` - 1 is not
  while (stored + 1 < missing) {
    std::vector<PageKey> probes;
    std::vector<std::uint64_t> counts;
    const std::uint64_t left = missing - 1 - stored, asked = std::min<std::uint64_t>(left, kProbes);
    for (std::uint64_t i = 1; i <= asked; ++i) {
      counts.push_back(stored + left * i / asked);
      probes.push_back(keys[counts.back() - 1]);
    }
    auto found = find(probes);
    if (!found) return found.error();
    for (std::size_t i = 0; i < found->size(); ++i) {
      if (!(*found)[i].has(StoredPart::pages)) {
        missing = counts[i];
        break;
      }
      stored = counts[i];
    }
  }
  return stored;
}

// Of those, the ones before the first that was lost, and the most at whose end the window and the engine's state are.
Result<std::uint64_t> Prefixes::usable_blocks(std::span<const PageKey> keys) {
  auto stored = stored_blocks(keys);
  const bool is_each_asked = keys.size() <= kProbes;
  if (!stored || *stored == 0 || (is_each_asked && !form_.has_windows() && !options_.needs_state)) return stored;
  auto found = find(keys.first(static_cast<std::size_t>(*stored)));
  if (!found) return found.error();
  const auto is_usable = [&](std::uint64_t blocks) {
    if (options_.needs_state && !(*found)[blocks - 1].has(StoredPart::state)) return false;
    for (std::uint64_t i = form_.first_window_block(blocks); i < blocks; ++i) {
      if (!(*found)[i].has(StoredPart::window)) return false;
    }
    return true;
  };
  const auto lost = std::ranges::find_if(*found, [](const StoredPage& page) { return !page.has(StoredPart::pages); });
  auto blocks = static_cast<std::uint64_t>(lost - found->begin());
  while (blocks > 0 && !is_usable(blocks)) --blocks;
  return blocks;
}

Result<std::vector<PageKey>> Prefixes::keys_of(std::span<const std::int32_t> tokens) const {
  std::vector<PageKey> keys;
  const auto page = static_cast<std::size_t>(form_.tokens());
  for (; tokens.size() >= page; tokens = tokens.subspan(page)) {
    auto key = next_key(keys.empty() ? root_ : keys.back(), tokens.first(page));
    if (!key) return key.error();
    keys.push_back(*key);
  }
  return keys;
}

Result<PrefixMatch> Prefixes::match(std::span<const std::int32_t> tokens) {
  auto keys = keys_of(tokens);
  if (!keys) return keys.error();
  const std::uint64_t whole = keys->size();
  PrefixMatch match{.keys = std::move(keys).value()};
  std::uint64_t blocks = 0;
  if (whole > 0 && !medium_->pause().is_on()) {
    auto usable = usable_blocks(match.keys);
    if (usable) {
      blocks = *usable;  // which does not say that it can serve them, too
    } else {
      failed(usable.error());
    }
  }
  match.keys.resize(static_cast<std::size_t>(blocks));
  match.tokens = blocks * form_.tokens();
  if (blocks > 0) medium_->use(match.keys);
  const std::lock_guard lock(mutex_);
  counters_.matched += blocks;
  counters_.missed += whole - blocks;
  return match;
}

// Objects in the order in which a load reads them.
std::vector<Wanted> Prefixes::wanted_for(const PrefixMatch& match, std::uint64_t blocks) const {
  std::vector<Wanted> wanted;
  const std::uint64_t first_window = form_.first_window_block(blocks);
  for (std::uint64_t i = 0; i < blocks; ++i) {
    wanted.push_back({{match.keys[i], StoredPart::pages}, form_.payload_bytes(i, StoredPart::pages)});
    if (i >= first_window) {
      wanted.push_back({{match.keys[i], StoredPart::window}, form_.payload_bytes(i, StoredPart::window)});
    }
  }
  return wanted;
}

// As many blocks as came, which are counted in `blocks`. An error is the cache's.
Status Prefixes::load_blocks(const PrefixMatch& match, OpenedSequence& sequence, std::uint64_t& blocks) {
  const std::uint64_t all = match.keys.size(), first_window = form_.first_window_block(all);
  const std::vector<Wanted> wanted = wanted_for(match, all);
  auto fetch = medium_->fetch(wanted, options_.deadline);
  if (!fetch) {
    failed(fetch.error());
    return {};
  }
  const auto object_of = [&](std::uint64_t block, StoredPart part) {
    const std::uint64_t windows_before = block - std::min(block, first_window);
    return static_cast<std::size_t>(block + windows_before + (part == StoredPart::window ? 1 : 0));
  };
  const std::uint64_t step = form_.has_windows() ? all : kSegmentBlocks;  // a shorter prefix needs other windows
  for (std::uint64_t begin = 0; begin < all; begin += step) {
    const std::uint64_t end = std::min(all, begin + step);
    auto joined = Joined::of(form_, begin, end, object_of);
    if (!joined) return joined.error();
    const ByteReader reader = [&](std::uint64_t offset, std::span<std::byte> to) {
      return joined->read(**fetch, offset, to);
    };
    auto loaded = cache_.load(reader, {.onto = sequence.get()});
    if (loaded) {
      sequence.set(loaded->sequence);
      blocks = end;
      continue;
    }
    const bool is_stores = loaded.error().code == Errc::io || loaded.error().code == Errc::unsupported;
    if (!is_stores) return loaded.error();
    failed(loaded.error());
    // Whichever object is wrong is found, and removed, behind the engine.
    std::vector<ObjectName> objects;
    for (std::size_t i = object_of(begin, StoredPart::pages);
         i < wanted.size() && i <= object_of(end, StoredPart::pages); ++i) {
      objects.push_back(wanted[i].name);
    }
    verify(std::move(objects));
    const std::lock_guard lock(mutex_);
    counters_.failed_loads += all - begin;
    return {};
  }
  medium_->pause().end();
  return {};
}

Status Prefixes::load_state(const PrefixMatch& match, PrefixLoaded& loaded) {
  auto state = medium_->get({match.keys.back(), StoredPart::state}, deadline());
  if (!state) return state.error();
  loaded.state = std::move(state).value();
  return {};
}

Result<PrefixLoaded> Prefixes::load(const PrefixMatch& match) {
  if (match.tokens != match.keys.size() * form_.tokens()) {
    return core::refuse({"PrefixStore::load", {"match", {}, "tokens"}}, match.tokens,
                        "{}, of {} pages: what match() gave", match.keys.size() * form_.tokens(), match.keys.size());
  }
  PrefixLoaded loaded;
  std::uint64_t blocks = 0;
  std::vector<PageKey> keys = match.keys;  // before there is a sequence: to close it wants memory, too
  OpenedSequence sequence(cache_);
  Status state;
  if (options_.needs_state && !match.keys.empty()) {
    state = load_state(match, loaded);
    if (!state) {
      failed(state.error());
      verify({{match.keys.back(), StoredPart::state}});
    }
  }
  if (!match.keys.empty() && state) {
    if (Status status = load_blocks(match, sequence, blocks); !status) return status.error();
  }
  if (options_.needs_state && blocks < match.keys.size()) {  // there is no state of fewer tokens
    sequence.close();
    loaded.state.clear();
    blocks = 0;
  }
  if (const std::optional<Sequence> known = sequence.get()) {
    loaded.sequence = *known;
  } else {
    auto opened = cache_.open_sequence();
    if (!opened) return opened.error();
    sequence.set(*opened);
    loaded.sequence = *opened;
  }
  loaded.tokens = blocks * form_.tokens();
  const std::lock_guard lock(mutex_);
  Chain& chain = chain_of(loaded.sequence);
  keys.resize(static_cast<std::size_t>(blocks));
  chain.keys = std::move(keys);
  chain.given = chain.tried = blocks;
  counters_.loaded += blocks;
  for (std::uint64_t i = 0; i < blocks; ++i) {
    counters_.loaded_bytes += form_.payload_bytes(i, StoredPart::pages);
    if (i >= form_.first_window_block(blocks)) counters_.loaded_bytes += form_.payload_bytes(i, StoredPart::window);
  }
  sequence.give();
  return loaded;
}

}  // namespace rota::page_store

namespace {

// A child of fork() has no thread that would store anything, and for good what mutexes were held.
template <class Run>
auto in_its_process(const rota::page_store::Prefixes& prefixes, Run&& run) -> decltype(run()) {
  return rota::core::guarded([&]() -> decltype(run()) {
    if (prefixes.is_here()) return run();
    return rota::Error{rota::Errc::io,
                       "PrefixStore: was created before fork(), in the parent process; a child creates its own"};
  });
}

}  // namespace

namespace rota::inline ROTA_ABI {

Result<PrefixStore> PrefixStore::create(PageStore store, KvCache cache, const PrefixStoreOptions& options) {
  return core::guarded([&]() -> Result<PrefixStore> {
    auto prefixes = page_store::Prefixes::create(std::move(store.medium_), std::move(cache), options);
    if (!prefixes) return prefixes.error();
    return PrefixStore(std::move(prefixes).value());
  });
}

Result<PrefixMatch> PrefixStore::match(std::span<const std::int32_t> tokens) const {
  return in_its_process(*prefixes_, [&] { return prefixes_->match(tokens); });
}

Result<PrefixLoaded> PrefixStore::load(const PrefixMatch& match) const {
  return in_its_process(*prefixes_, [&] { return prefixes_->load(match); });
}

Status PrefixStore::put(Sequence sequence, std::span<const std::int32_t> tokens) const {
  return in_its_process(*prefixes_, [&] { return prefixes_->put(sequence, tokens); });
}

Status PrefixStore::put_state(std::span<const std::int32_t> tokens, std::span<const std::byte> state) const {
  return in_its_process(*prefixes_, [&] { return prefixes_->put_state(tokens, state); });
}

Status PrefixStore::flush(std::chrono::milliseconds at_most) const {
  return in_its_process(*prefixes_, [&] { return prefixes_->flush(at_most); });
}

std::uint64_t PrefixStore::page() const noexcept { return prefixes_->page(); }

PrefixCounters PrefixStore::counters() const { return prefixes_->is_here() ? prefixes_->counters() : PrefixCounters{}; }

}  // namespace rota::inline ROTA_ABI
