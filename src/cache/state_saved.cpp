#include <algorithm>
#include <atomic>
#include <utility>

#include "cache/state.h"
#include "runtime/device_state.h"

// Sequences leave and return as bytes. Neither holds the mutex while bytes move:
//
//   save   lock: settle the sequence, use its pages once more   submit, read pages, give bytes   lock: end the uses
//   load   read the header   lock: take pages, and an entry      write pages, verify             lock: the state counts

namespace rota::cache {
namespace {

constexpr std::string_view kSave = "KvCache::save";
constexpr std::string_view kLoad = "KvCache::load";
constexpr std::uint64_t kThreadBytes = std::uint64_t{4} << 20;  // to load, for which a thread is worth starting
constexpr std::size_t kPiece = std::size_t{1} << 18;            // bytes, which a core's cache holds

Status check_boundary(const core::Refusal& refusal, std::uint64_t position, std::span<const GroupSide> group_sides) {
  for (const GroupSide& group_side : group_sides) {
    if (position % group_side.rule.page == 0) continue;
    return core::refuse(refusal, position, "a multiple of the {} tokens of a page", group_side.rule.page);
  }
  return {};
}

// The pool's page that a part is of.
PageUse use_of(const SavedPart& part, const KvPages& pages) {
  if (part.kind == SavedPart::Kind::sinks) return {part.of, PoolKind::sinks, *pages.sinks};
  return {part.of, part.pool, pages.page_table[part.page - pages.first_page]};
}

// Whether a part is of the tokens before `length`, a boundary of all pages or the end.
bool is_before(const SavedLayout& saved, const SavedPart& part, std::uint64_t length) {
  if (part.kind == SavedPart::Kind::note) return saved.saved.notes[part.of].position <= length;
  return part.page < saved.group_sides[part.of].rule.pages(length);
}

}  // namespace

// A state whose pages stay as they are, whatever becomes of its sequence.
class State::Pinned {
 public:
  // Precondition: the mutex is held.
  Pinned(State& owner, const SequenceState& state) : owner_(owner), state_(state), uses_(uses_of(state)) {
    for (const PageUse& use : uses_) owner_.pools_[use.group_side].of(use.kind).share(use.page);
  }
  ~Pinned() {
    const std::lock_guard lock(owner_.mutex_);
    release(owner_.pools_, uses_);  // commands that touch the pages have uses of their own
  }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

  const SequenceState& state() const noexcept { return state_; }

 private:
  State& owner_;
  const SequenceState state_;
  const std::vector<PageUse> uses_;
};

Status State::save(Sequence sequence, const ByteSink& sink, const KvSaveOptions& options) {
  Encoder encoder = runtime::Inside::device(device_).encoder();
  std::optional<Pinned> pinned;
  {
    const std::lock_guard lock(mutex_);
    if (Status status = settle_to_save(encoder, sequence); !status) return status;
    pinned.emplace(*this, sequences_[sequence.index].state);
  }
  if (auto fence = std::move(encoder).submit(); !fence) return fence.error();
  auto layout = saved_layout(pinned->state(), options);
  if (!layout) return layout.error();
  if (Status status = sink(saved_header(*layout)); !status) return status;
  SavedWriter writer(sink);
  SavedParts parts(*layout);
  while (const auto part = parts.next()) {
    Status status = part->kind == SavedPart::Kind::note ? writer.write(options.notes[part->of].bytes)
                                                        : save_part(*part, pinned->state(), writer);
    if (status) status = writer.end(*part);
    if (!status) return status;
  }
  return {};
}

Result<SavedLayout> State::saved_layout(const SequenceState& state, const KvSaveOptions& options) const {
  const std::uint64_t end = options.end.value_or(state.length);
  if (end > state.length) {
    return core::refuse({kSave, {"options", {}, "end"}}, end, "at most the {} tokens of the sequence", state.length);
  }
  if (options.begin > end) return core::refuse({kSave, {"options", {}, "begin"}}, options.begin, "at most {}", end);
  if (Status status = check_boundary({kSave, {"options", {}, "begin"}}, options.begin, layout_.group_sides); !status) {
    return status.error();
  }
  if (options.end) {
    const Status status = check_boundary({kSave, {"options", {}, "end"}}, end, layout_.group_sides);
    if (!status) return status.error();
  }
  SavedLayout layout{.saved = {.begin = options.begin, .end = end}, .group_sides = layout_.group_sides};
  for (const KvGroup& group : spec_.groups) layout.saved.groups.push_back({.group = group});
  for (std::size_t i = 0; i < layout.group_sides.size(); ++i) {
    if (layout_.group_sides[i].in_keys) continue;
    const PageRule& rule = layout_.group_sides[i].rule;
    const KvPages& pages = *state.group_sides[i];
    if (options.end && rule.seals && pages.sealed_pages < end / rule.page) {
      return core::refuse({kSave, {"options", {}, "end"}}, end, "at most {}: later pages of {} are not sealed yet",
                          pages.sealed_pages * rule.page, layout_.group_sides[i].name());
    }
    layout.side(i) = {.first_page = std::min(std::max(pages.first_page, options.begin / rule.page), rule.pages(end)),
                      .sealed_pages = rule.seals ? std::min(pages.sealed_pages, end / rule.page) : 0,
                      .end_page = rule.pages(end)};
  }
  std::uint64_t before = options.begin;
  for (std::size_t i = 0; i < options.notes.size(); ++i) {
    const std::uint64_t position = options.notes[i].position;
    const core::Refusal refusal{kSave, {"options.notes", i, "position"}};
    if (position < before || position > end) return core::refuse(refusal, position, "{} to {}", before, end);
    if (position != end) {
      if (Status status = check_boundary(refusal, position, layout_.group_sides); !status) return status.error();
    }
    layout.saved.notes.push_back({position, options.notes[i].bytes.size()});
    before = position;
  }
  if (Status status = cache::complete(layout); !status) return status.error();
  return layout;
}

Status State::save_part(const SavedPart& part, const SequenceState& state, SavedWriter& writer) const {
  const PageUse page = use_of(part, *state.group_sides[part.of]);
  std::vector<std::byte> piece(static_cast<std::size_t>(std::min<std::uint64_t>(kPiece, part.bytes)));
  return memory_[part.of].for_each_range(page, part.tokens, [&](const Buffer& buffer, core::ByteRange range) -> Status {
    for (; range.size() > 0; range.begin += std::min<std::uint64_t>(piece.size(), range.size())) {
      const auto bytes = std::span(piece).first(std::min<std::uint64_t>(piece.size(), range.size()));
      if (Status status = buffer.read(bytes, range.begin); !status) return status;
      if (Status status = writer.write(bytes); !status) return status;
    }
    return {};
  });
}

// A sequence that is being loaded: pages that nobody else sees yet, and the entry that will have them.
class State::Loading {
 public:
  explicit Loading(State& owner) noexcept : owner_(owner) {}
  ~Loading() {
    const std::lock_guard lock(owner_.mutex_);
    release(owner_.pools_, taken);  // no command has named them
    if (is_new) owner_.sequences_.vacate(sequence.index);
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
  auto saved = read_saved_layout(source);
  if (!saved) return saved.error();
  return load(*saved, options, [&](Loading& loading) { return load_parts(*saved, source, loading); });
}

Result<KvLoaded> State::load(std::span<const std::byte> bytes, const KvLoadOptions& options) {
  auto saved = read_saved_layout(source_of(bytes));
  if (!saved) return saved.error();
  if (saved->saved.bytes > bytes.size()) {
    return Error{Errc::io, core::text("saved sequence: {} bytes long, and {} are there: the rest was cut off",
                                      saved->saved.bytes, bytes.size())};
  }
  return load(*saved, options, [&](Loading& loading) { return load_parts(*saved, bytes, loading); });
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
  for (const GroupSideMemory& memory : memory_) {
    if (Status status = memory.wait_to_write(); !status) return status.error();
  }
  if (Status status = fill(loading); !status) return status.error();
  if (Status status = end_load(loading); !status) return status.error();
  return KvLoaded{loading.sequence, length, std::move(loading.notes)};
}

Status State::check_to_load(const SavedLayout& saved, const KvLoadOptions& options) const {
  if (Status status = check_same_groups(kLoad, saved, spec_, layout_); !status) return status;
  const std::uint64_t end = options.tokens.value_or(saved.saved.end);
  const core::Refusal of_tokens{kLoad, {"options", {}, "tokens"}};
  if (end < saved.saved.begin || end > saved.saved.end) {
    return core::refuse(of_tokens, end, "{} to {}, as the saved sequence has", saved.saved.begin, saved.saved.end);
  }
  if (end != saved.saved.end) {
    if (Status status = check_boundary(of_tokens, end, layout_.group_sides); !status) return status;
  }
  if (!options.onto && saved.saved.begin > 0) {
    return core::refuse({kLoad, {"options", {}, "onto"}}, "none",
                        "a sequence of {} tokens, from where on the saved one goes on", saved.saved.begin);
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
    sequences_.occupy(*index).state = std::move(empty);
    loading.sequence = sequences_.handle(*index);
    loading.is_new = true;
    return {};
  }
  const core::Refusal of_sequence{kLoad, {"options", {}, "onto"}};
  auto index = sequences_.find(of_sequence, *onto);
  if (!index) return index.error();
  const SequenceEntry& entry = sequences_[*index];
  if (entry.changed_in != nullptr) {
    return busy(core::refuse(of_sequence, "changed in an encoder that is not submitted yet",
                             "that encoder's end before: wait() tells when"));
  }
  const auto& step = entry.state.step;
  if (entry.state.transition || (step && !std::ranges::all_of(step->appended, &LayerMark::submitted))) {
    return core::refuse(of_sequence, "in a step", "a sequence that was loaded, or a fork");
  }
  if (entry.state.length != begin) {
    return core::refuse(of_sequence, core::text("{} tokens long", entry.state.length),
                        "{}, where the saved part begins", begin);
  }
  loading.sequence = *onto;
  loading.before = entry.state;
  return {};
}

// What becomes of one group side, or why it cannot be.
Result<Change::LoadedSide> State::loaded_side(const SavedLayout& saved, std::size_t group_side, std::uint64_t length,
                                              const KvPages& old) const {
  const PageRule& rule = layout_.group_sides[group_side].rule;
  const KvSavedSide& side = saved.side(group_side);
  if (length == saved.saved.begin || layout_.group_sides[group_side].in_keys)
    return Change::LoadedSide{old.first_page, old.sealed_pages};
  const std::uint64_t begin = saved.saved.begin / rule.page;
  const std::uint64_t sealed = std::max(std::min(side.sealed_pages, length / rule.page), old.sealed_pages);
  if (rule.seals && sealed > begin && old.sealed_pages < begin) {
    return core::refuse({kLoad, {"options", {}, "onto"}}, "dense at its end",
                        "all of its pages sealed, since those that follow are");
  }
  std::uint64_t first = side.first_page > begin ? side.first_page : old.first_page;
  first = std::max(first, rule.first_page(length));
  if (first > rule.first_seen_page(length)) {
    return core::refuse({kLoad, {"options", {}, "tokens"}}, length,
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
  const std::vector<PageUse> none;
  Change change(layout_, pools_, none);
  auto after = change.loaded(loading.before, length, sides);
  if (!after) return after.error();
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
Status State::load_parts(const SavedLayout& saved, std::span<const std::byte> bytes, Loading& loading) const {
  struct Placed {
    SavedPart part;
    std::uint64_t at;
    Status status = {};
  };
  std::vector<Placed> all;  // fewer than `bytes` has: each has a checksum
  SavedParts parts(saved);
  std::uint64_t at = saved.saved.header_bytes;
  for (auto part = parts.next(); part && is_before(saved, *part, loading.after.length); part = parts.next()) {
    all.push_back({*part, at});
    at += bytes_with_sum(*part);
  }
  std::atomic<std::size_t> next = 0;
  const auto take_some = [&] {
    for (std::size_t i = next++; i < all.size(); i = next++) {
      all[i].status = core::guarded([&]() -> Status {
        const auto source = source_of(
            bytes.subspan(static_cast<std::size_t>(all[i].at), static_cast<std::size_t>(bytes_with_sum(all[i].part))));
        return load_part(saved, all[i].part, source, loading);
      });
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
  const PageUse page = use_of(part, *loading.after.group_sides[part.of]);
  const bool in_place = device_->info().kind == DeviceKind::cpu;
  std::vector<std::byte> piece(in_place ? 0 : static_cast<std::size_t>(std::min<std::uint64_t>(kPiece, part.bytes)));
  return memory_[part.of].for_each_range(page, part.tokens, [&](const Buffer& buffer, core::ByteRange range) -> Status {
    runtime::Memory& memory = *runtime::Inside::of(buffer)->memory();
    if (in_place) return reader.read({memory.host() + range.begin, static_cast<std::size_t>(range.size())});
    for (; range.size() > 0; range.begin += std::min<std::uint64_t>(piece.size(), range.size())) {
      const auto bytes = std::span(piece).first(std::min<std::uint64_t>(piece.size(), range.size()));
      if (Status status = reader.read(bytes); !status) return status;
      if (Status status = device_->backend().write(memory, range.begin, bytes); !status) return status;
    }
    return {};
  });
}

Status State::end_load(Loading& loading) {
  const std::lock_guard lock(mutex_);
  const core::Refusal of_sequence{kLoad, {"options", {}, "onto"}};
  auto index = sequences_.find(of_sequence, loading.sequence);
  if (!index) return index.error();
  SequenceEntry& entry = sequences_[*index];
  if (entry.changed_in != nullptr || entry.state.length != loading.before.length ||
      entry.state.group_sides != loading.before.group_sides) {
    return busy(core::refuse(of_sequence, "changed meanwhile", "no other call for it"));
  }
  transactions_.prepare_give_back();
  transactions_.give_back(std::move(loading.given));
  entry.state = std::move(loading.after);
  sequences_.list_if_due(*index);
  loading.taken.clear();
  loading.is_new = false;
  return {};
}

}  // namespace rota::cache
