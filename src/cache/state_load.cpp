#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "cache/state.h"
#include "runtime/device_state.h"

// A sequence comes back:
//
//   read the header   lock: hold an entry   lock: take pages   wait for commands   write, verify   lock: it counts

namespace rota::cache {
namespace {

constexpr std::string_view kLoad = "KvCache::load";
constexpr std::uint64_t kThreadBytes = std::uint64_t{4} << 20;  // to load, for which a thread is worth starting

core::Refusal of_load_option(std::string_view field) { return {kLoad, {"options", {}, field}}; }

// The bytes of a reader from an offset on.
ByteSource source_of(const ByteReader& reader, std::uint64_t offset) {
  return [&reader, offset](std::span<std::byte> to) mutable -> Status {
    Status status = reader(offset, to);
    offset += to.size();
    return status;
  };
}

// Whether a part is of the tokens before `length`, a boundary of all pages or the end.
bool is_before(const SavedLayout& saved, const SavedPart& part, std::uint64_t length) {
  if (part.kind == SavedPart::Kind::note) return saved.saved.notes[part.of].position <= length;
  return part.page < saved.group_sides[part.of].rule.pages(length);
}

}  // namespace

// A sequence that is being loaded: pages that nobody else sees yet, and the entry that will have them.
class State::Loading {
 public:
  explicit Loading(State& owner) noexcept : owner_(owner) {}
  ~Loading() {
    const std::lock_guard lock(owner_.mutex_);
    owner_.pools_.release(taken);  // no command has named them
    if (is_new) owner_.sequences_.vacate(sequence.index);
    if (SequenceEntry* const entry = owner_.sequences_.find(sequence); entry != nullptr) entry->loads = Loads::no;
    owner_.ended_.notify_all();
  }
  Loading(const Loading&) = delete;
  Loading& operator=(const Loading&) = delete;

  Sequence sequence = {};
  bool is_new = false;  // and not loaded yet
  SequenceState before = {}, after = {};
  std::vector<PageUse> taken = {}, given = {};
  std::vector<KvNote> notes = {};

 private:
  State& owner_;
};

Result<KvLoaded> State::load(const ByteSource& source, const KvLoadOptions& options) {
  if (!source) return core::refuse({kLoad, {"source"}}, "empty", "a function that gives bytes");
  auto saved = read_saved_layout(source);
  if (!saved) return saved.error();
  return load(*saved, options, [&](Loading& loading) { return load_parts(*saved, source, loading); });
}

Result<KvLoaded> State::load(const ByteReader& reader, const KvLoadOptions& options) {
  if (!reader) return core::refuse({kLoad, {"reader"}}, "empty", "a function that gives bytes");
  auto saved = read_saved_layout(source_of(reader, 0));
  if (!saved) return saved.error();
  return load(*saved, options, [&](Loading& loading) { return load_parts(*saved, reader, loading); });
}

Result<KvLoaded> State::load(std::span<const std::byte> bytes, const KvLoadOptions& options) {
  const ByteReader reader = [bytes](std::uint64_t offset, std::span<std::byte> to) -> Status {
    if (offset > bytes.size() || to.size() > bytes.size() - offset) {
      return Error{Errc::io, core::text("{} bytes are there, and {} are wanted: the rest was cut off", bytes.size(),
                                        offset + to.size())};
    }
    if (!to.empty()) std::memcpy(to.data(), bytes.data() + offset, to.size());
    return {};
  };
  return load(reader, options);
}

// `fill(Loading&) -> Status` writes the pages.
template <class Fill>
Result<KvLoaded> State::load(const SavedLayout& saved, const KvLoadOptions& options, const Fill& fill) {
  if (Status status = check_to_load(saved, options); !status) return status.error();
  Loading loading(*this);
  const std::uint64_t length = options.tokens.value_or(saved.saved.end);
  for (const KvSavedNote& note : saved.saved.notes) {
    if (note.position <= length) loading.notes.push_back({note.position});
  }
  if (Status status = begin_load(options.onto, saved.saved.begin, loading); !status) return status.error();
  if (Status status = take_pages(saved, length, loading); !status) return status.error();
  // Commands in flight may still use the pages for those who had them before.
  if (Status status = wait_for_commands(); !status) return status.error();
  if (Status status = fill(loading); !status) return status.error();
  if (Status status = end_load(loading); !status) return status.error();
  return KvLoaded{loading.sequence, length, std::move(loading.notes)};
}

Status State::check_to_load(const SavedLayout& saved, const KvLoadOptions& options) const {
  if (Status status = check_same_groups(kLoad, saved, spec_, layout_); !status) return status;
  const std::uint64_t end = options.tokens.value_or(saved.saved.end);
  const core::Refusal of_tokens = of_load_option("tokens");
  if (end < saved.saved.begin || end > saved.saved.end) {
    return core::refuse(of_tokens, end, "{} to {}, as the saved sequence has", saved.saved.begin, saved.saved.end);
  }
  if (end != saved.saved.end) {
    if (Status status = check_boundary(of_tokens, end); !status) return status;
  }
  if (!options.onto && saved.saved.begin > 0) {
    return core::refuse(of_load_option("onto"), "none", "a sequence of {} tokens, from where on the saved one goes on",
                        saved.saved.begin);
  }
  return {};
}

Status State::begin_load(const std::optional<Sequence>& onto, std::uint64_t begin, Loading& loading) {
  const std::lock_guard lock(mutex_);
  if (!onto) {
    loading.before = {.group_sides = std::vector<Pages>(layout_.group_sides.size(), no_pages_)};
    SequenceState empty = loading.before;
    auto index = sequences_.free_entry();
    if (!index) return index.error();
    SequenceEntry& entry = sequences_.occupy(*index);
    entry.state = std::move(empty);
    entry.loads = Loads::anew;
    loading.sequence = sequences_.handle(*index);
    loading.is_new = true;
    return {};
  }
  const core::Refusal of_sequence = of_load_option("onto");
  auto index = sequences_.find(of_sequence, *onto);
  if (!index) return index.error();
  SequenceEntry& entry = sequences_[*index];
  const Transaction nobody(nullptr, nullptr);
  if (auto free = sequences_.find_to_change(of_sequence, *onto, nobody); !free) return free.error();
  if (Status status = check_finished(of_sequence, entry.state, nobody); !status) return status;
  if (entry.state.transition) {
    return core::refuse(of_sequence, "not settled after its last step", "a sequence that was loaded, or a fork");
  }
  if (entry.state.length != begin) {
    return core::refuse(of_sequence, core::text("{} tokens long", entry.state.length),
                        "{}, where the saved part begins", begin);
  }
  loading.before = entry.state;
  loading.sequence = *onto;
  entry.loads = Loads::onto;
  return {};
}

// What becomes of one group side, or why it cannot be.
Result<Change::LoadedSide> State::loaded_side(const SavedLayout& saved, std::size_t group_side, std::uint64_t length,
                                              const KvPages& old) const {
  const PageRule& rule = layout_.group_sides[group_side].rule;
  const KvSavedSide& side = saved.side(group_side);
  if (length == saved.saved.begin || layout_.group_sides[group_side].in_keys) {
    return Change::LoadedSide{old.first_page, old.sealed_pages};
  }
  const std::uint64_t begin = saved.saved.begin / rule.page;
  const std::uint64_t sealed = std::max(std::min(side.sealed_pages, length / rule.page), old.sealed_pages);
  if (rule.seals && sealed > begin && old.sealed_pages < begin) {
    return core::refuse(of_load_option("onto"), "dense at its end",
                        "all of its pages sealed, since those that follow are");
  }
  // Where a part of the tail is sealed, there is no room for what only tokens see that are taken back.
  const bool tail_is_sealed = rule.seals && sealed > rule.sealed_pages(length);
  const std::uint64_t seen = rule.first_seen_page(length - 1);
  const std::uint64_t there = side.first_page > begin ? side.first_page : old.first_page;
  const std::uint64_t first = std::max(there, tail_is_sealed ? seen : rule.first_page(length));
  if (first > seen) {
    return core::refuse(of_load_option("tokens"), length,
                        "more: {} have lost what lies before position {}, and a window of {} would see it",
                        layout_.group_sides[group_side].name(), first * rule.page, rule.window.value_or(0));
  }
  return Change::LoadedSide{first, sealed};
}

Status State::take_pages(const SavedLayout& saved, std::uint64_t length, Loading& loading) {
  std::vector<Change::LoadedSide> sides;
  for (std::size_t i = 0; i < layout_.group_sides.size(); ++i) {
    auto side = loaded_side(saved, i, length, *loading.before.group_sides[i]);
    if (!side) return side.error();
    sides.push_back(*side);
  }
  const std::lock_guard lock(mutex_);
  pools_.tend();
  const std::vector<PageUse> none;
  Change change(layout_, pools_, none);
  auto after = change.loaded(loading.before, length, sides);
  const Status status = after ? change.commit() : after.error();
  if (!status) return change.lacks_pages() ? shortage(status.error(), nullptr) : status.error();
  loading.after = std::move(after).value();
  loading.after.step.reset();
  loading.given = change.given();
  loading.taken = change.taken();
  change.keep();
  return {};
}

Status State::load_parts(const SavedLayout& saved, const ByteSource& source, Loading& loading) const {
  SavedParts parts(saved);
  for (auto part = parts.next(); part && is_before(saved, *part, loading.after.length); part = parts.next()) {
    if (Status status = load_part(saved, *part, source, loading); !status) return status;
  }
  return {};
}

// Parts are where the header says: threads of the device share them out. The error is that of the first that is wrong.
Status State::load_parts(const SavedLayout& saved, const ByteReader& reader, Loading& loading) const {
  struct Placed {
    SavedPart part;
    std::uint64_t at;
    Status status = {};
  };
  std::vector<Placed> all;
  SavedParts parts(saved);
  std::uint64_t at = saved.saved.header_bytes;
  for (auto part = parts.next(); part && is_before(saved, *part, loading.after.length); part = parts.next()) {
    all.push_back({*part, at});
    at += bytes_with_sum(*part);
  }
  std::atomic<std::size_t> next = 0;
  std::atomic<bool> failed = false;
  const auto take_some = [&] {
    for (std::size_t i = next++; i < all.size() && !failed; i = next++) {
      all[i].status =
          core::guarded([&] { return load_part(saved, all[i].part, source_of(reader, all[i].at), loading); });
      if (!all[i].status) failed = true;
    }
  };
  device_->backend().run_beside_commands(std::min<std::uint64_t>(all.size(), at / kThreadBytes) + 1, take_some);
  for (const Placed& placed : all) {
    if (!placed.status) return placed.status;
  }
  return {};
}

Status State::load_part(const SavedLayout& saved, const SavedPart& part, const ByteSource& source,
                        Loading& loading) const {
  SavedPartReader reader(saved, part, source);
  Status status;
  if (part.kind == SavedPart::Kind::note) {
    auto bytes = reader.read_all();
    if (!bytes) return bytes.error();
    loading.notes[part.of].bytes = std::move(bytes).value();
  } else {
    const KvPages& pages = *loading.after.group_sides[part.of];
    const bool wanted = part.kind == SavedPart::Kind::sinks ? pages.sinks.has_value() : part.page >= pages.first_page;
    status = wanted ? load_page(part, reader, loading) : reader.skip();
  }
  return status ? reader.end() : status;
}

// A CPU's memory is filled in place; a GPU's may be slow for the host to read, and is written once.
Status State::load_page(const SavedPart& part, SavedPartReader& reader, const Loading& loading) const {
  const PageUse page = part.page_in(*loading.after.group_sides[part.of]);
  const bool in_place = device_->info().kind == DeviceKind::cpu;
  std::vector<std::byte> room(in_place ? 0
                                       : static_cast<std::size_t>(std::min(GroupSideMemory::kPieceBytes, part.bytes)));
  return memory_[part.of].for_each_range(page, part.tokens, [&](const Buffer& buffer, core::ByteRange range) -> Status {
    const auto size = static_cast<std::size_t>(range.size());
    runtime::Memory& memory = *runtime::Inside::of(buffer)->memory();
    if (in_place) return reader.read({memory.host() + range.begin, size});
    const auto bytes = std::span(room).first(size);
    if (Status status = reader.read(bytes); !status) return status;
    return device_->backend().write(memory, range.begin, bytes);
  });
}

Status State::end_load(Loading& loading) {
  const std::lock_guard lock(mutex_);
  const core::Refusal of_sequence = of_load_option("onto");
  auto index = sequences_.find(of_sequence, loading.sequence);
  if (!index) return index.error();  // closed meanwhile; other calls found it busy
  SequenceEntry& entry = sequences_[*index];
  transactions_.prepare_give_back();
  transactions_.give_back(std::move(loading.given));
  entry.state = std::move(loading.after);
  sequences_.list_if_due(*index);
  loading.taken.clear();
  loading.is_new = false;
  return {};
}

}  // namespace rota::cache
