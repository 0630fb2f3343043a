#include <algorithm>
#include <utility>

#include "cache/state.h"
#include "runtime/device_state.h"

// A sequence leaves as bytes:
//
//   wait for commands   lock: settle the sequence, use its pages once more   submit, wait   read pages, give bytes
//
// The mutex is not held while bytes move, and pages end their uses as soon as they were read.

namespace rota::cache {
namespace {

constexpr std::string_view kSave = "KvCache::save";

core::Refusal of_save_option(std::string_view field) { return {kSave, {"options", {}, field}}; }

// Whether the sequence, as it goes on, does something to the page: what is behind the tail is sealed or taken back, and
// all of a window leaves. Pools are sized for that, and not for a save.
bool goes_on(const SavedPart& part, const GroupSide& group_side, std::uint64_t length) {
  const PageRule& rule = group_side.rule;
  if (part.kind == SavedPart::Kind::sinks || rule.window) return true;
  if (part.pool == PoolKind::sealed) return false;
  return rule.seals || (part.page + 1) * rule.page + rule.tail > length;
}

}  // namespace

// Pages that stay as they are, whatever becomes of their sequence, until they were read.
class State::Saving {
 public:
  struct Page {
    SavedPart part;
    PageUse use = {};
    bool in_use = false;
    std::optional<std::vector<std::byte>> copy = {};  // of what goes on
  };

  // Precondition: the mutex is held. So it is in add().
  explicit Saving(State& owner) noexcept : owner_(owner) { owner.transactions_.begin_save(); }
  ~Saving() {
    const std::lock_guard lock(owner_.mutex_);
    for (Page& page : pages_) end_use(page);
    owner_.transactions_.end_save();
    owner_.ended_.notify_all();
  }
  Saving(const Saving&) = delete;
  Saving& operator=(const Saving&) = delete;

  void add(const SavedPart& part, const PageUse& use, bool is_copied) {
    Page& page = pages_.emplace_back(Page{part, use});
    if (is_copied) page.copy.emplace();
    owner_.pools_[use.group_side].of(use.kind).share(use.page);
    page.in_use = true;
  }

  // Reads what goes on with the sequence, and lets go of it.
  Status copy_what_goes_on() {
    for (Page& page : pages_) {
      if (!page.copy) continue;
      page.copy->reserve(static_cast<std::size_t>(page.part.bytes));
      const auto into_copy = [&](std::span<const std::byte> bytes) -> Status {
        page.copy->insert(page.copy->end(), bytes.begin(), bytes.end());
        return {};
      };
      if (Status status = owner_.read_page(page.part, page.use, into_copy); !status) return status;
    }
    const std::lock_guard lock(owner_.mutex_);
    for (Page& page : pages_) {
      if (page.copy) end_use(page);
    }
    owner_.ended_.notify_all();
    return {};
  }

  Status give(Page& page, SavedWriter& writer) {
    if (page.copy) {
      Status status = writer.write(*page.copy);
      page.copy.reset();
      return status;
    }
    const auto into_writer = [&](std::span<const std::byte> bytes) { return writer.write(bytes); };
    Status status = owner_.read_page(page.part, page.use, into_writer);
    const std::lock_guard lock(owner_.mutex_);
    end_use(page);
    return status;
  }

  std::vector<Page>& pages() noexcept { return pages_; }

 private:
  // Commands that touch the page have uses of their own.
  void end_use(Page& page) noexcept {
    if (std::exchange(page.in_use, false)) owner_.pools_[page.use.group_side].of(page.use.kind).release(page.use.page);
  }

  State& owner_;
  std::vector<Page> pages_;
};

Status State::save(Sequence sequence, const ByteSink& sink, const KvSaveOptions& options) {
  if (!sink) return core::refuse({kSave, {"sink"}}, "empty", "a function that takes bytes");
  // An engine may hold commands back that it alone can submit: then nothing has changed yet.
  if (Status status = wait_for_commands(); !status) return status;
  std::optional<Saving> saving;
  SavedLayout layout;
  {
    Encoder encoder = runtime::Inside::device(device_).encoder();
    bool has_commands = false;
    {
      const std::lock_guard lock(mutex_);
      auto settled = settle_to_save(encoder, sequence, options);
      if (!settled) return settled.error();
      has_commands = *settled;
      const SequenceState& state = sequences_[sequence.index].state;
      auto saved = saved_layout(state, options);
      if (!saved) return saved.error();
      layout = std::move(saved).value();
      saving.emplace(*this);
      use_pages(layout, state, *saving);
    }
    if (has_commands) {
      if (auto fence = std::move(encoder).submit(); !fence) return fence.error();
    }
  }
  return give(layout, *saving, options.notes, sink);
}

Status State::give(const SavedLayout& layout, Saving& saving, std::span<const KvNote> notes,
                   const ByteSink& sink) const {
  if (Status status = wait_for_commands(); !status) return status;
  if (Status status = saving.copy_what_goes_on(); !status) return status;
  if (Status status = sink(saved_header(layout)); !status) return status;
  SavedWriter writer(sink);
  for (Saving::Page& page : saving.pages()) {
    Status status =
        page.part.kind == SavedPart::Kind::note ? writer.write(notes[page.part.of].bytes) : saving.give(page, writer);
    if (status) status = writer.end(page.part);
    if (!status) return status;
  }
  return {};
}

// A save whose first half is done: what holds pages, and what they are.
class Snapshot {
 public:
  // Precondition: the owner's mutex is held.
  Snapshot(const std::shared_ptr<State>& state, SavedLayout saved)
      : owner(state), layout(std::move(saved)), saving(*state) {}

  Status save(const ByteSink& sink) {
    if (!sink) return core::refuse({"KvSnapshot::save", {"sink"}}, "empty", "a function that takes bytes");
    return owner->give(layout, saving, {}, sink);
  }

  const std::shared_ptr<State> owner;
  const SavedLayout layout;
  State::Saving saving;
};

Result<std::shared_ptr<Snapshot>> State::snapshot(Sequence sequence, std::uint64_t begin, std::uint64_t end) {
  constexpr std::string_view kSnapshot = "KvCache::snapshot";
  std::shared_ptr<Snapshot> snapshot;  // ends without the lock
  const std::lock_guard lock(mutex_);
  const core::Refusal of_sequence{kSnapshot, {"sequence"}};
  const Transaction nobody(nullptr, nullptr);
  auto index = sequences_.find_to_change(of_sequence, sequence, nobody);
  if (!index) return index.error();
  const SequenceState& state = sequences_[*index].state;
  if (Status status = check_finished(of_sequence, state, nobody); !status) return status.error();
  const core::Refusal of_begin{kSnapshot, {"begin"}}, of_end{kSnapshot, {"end"}};
  if (begin > end) return core::refuse(of_begin, begin, "at most {}", end);
  if (Status status = check_boundary(of_begin, begin); !status) return status.error();
  if (Status status = check_boundary(of_end, end); !status) return status.error();
  if (const std::uint64_t sealed = sealed_before(state); end > sealed) {
    return core::refuse(of_end, end, "at most {}: later pages may still change", sealed);
  }
  auto saved = saved_layout(state, {.begin = begin, .end = end});
  if (!saved) return saved.error();
  snapshot = std::make_shared<Snapshot>(shared_from_this(), std::move(saved).value());
  use_pages(snapshot->layout, state, snapshot->saving);
  return snapshot;
}

Status State::wait_for_commands() const {
  for (const GroupSideMemory& memory : memory_) {
    if (Status status = memory.wait_for_commands(); !status) return status;
  }
  return {};
}

void State::use_pages(const SavedLayout& layout, const SequenceState& state, Saving& saving) const {
  SavedParts parts(layout);
  while (const auto part = parts.next()) {
    if (part->kind == SavedPart::Kind::note) {
      saving.pages().push_back({*part});
    } else {
      saving.add(*part, part->page_in(*state.group_sides[part->of]),
                 goes_on(*part, layout_.group_sides[part->of], state.length));
    }
  }
}

// The position before which all layers have the same pages, sealed where they can be.
std::uint64_t State::sealed_before(const SequenceState& state) const noexcept {
  std::uint64_t sealed = state.length;
  for (std::size_t i = 0; i < layout_.group_sides.size(); ++i) {
    const PageRule& rule = layout_.group_sides[i].rule;
    const Pages& before = state.transition ? state.transition->before[i] : state.group_sides[i];
    if (before == state.group_sides[i] && !rule.seals) continue;
    sealed = std::min(sealed, before->sealed_pages * rule.page);
  }
  return sealed;
}

// Others are left alone, so that none is busy because of a save. Where pages are short, what is due stays dense: a
// sequence can leave a cache that is full. Returns whether there is anything to submit.
Result<bool> State::settle_to_save(Encoder& encoder, Sequence sequence, const KvSaveOptions& options) {
  const core::Refusal of_sequence{kSave, {"sequence"}};
  auto transaction = transaction_in(kSave, encoder);
  if (!transaction) return transaction.error();
  auto index = sequences_.find_to_change(of_sequence, sequence, **transaction);
  if (!index) return index.error();
  const SequenceState& state = sequences_[*index].state;
  if (Status status = check_finished(of_sequence, state, **transaction); !status) return status.error();
  if (Status status = check_save(state, options); !status) return status.error();
  if (options.end && *options.end <= sealed_before(state)) return false;
  Change change(layout_, pools_, (*transaction)->given);
  NewStates states(sequences_);
  Planning planning{**transaction, change, states};
  if (state.transition) states.set(*index, change.completed(state), false);
  settle_one(planning, *index, false);
  if (states.list().empty()) return false;
  if (Status status = carry_out(encoder, **transaction, change, states); !status) return status.error();
  return true;
}

// What can be said before anything is settled. A page will be sealed if it is due.
Status State::check_save(const SequenceState& state, const KvSaveOptions& options) const {
  const std::uint64_t end = options.end.value_or(state.length);
  if (end > state.length) {
    return core::refuse(of_save_option("end"), end, "at most the {} tokens of the sequence", state.length);
  }
  if (options.begin > end) return core::refuse(of_save_option("begin"), options.begin, "at most {}", end);
  if (Status status = check_boundary(of_save_option("begin"), options.begin); !status) return status;
  if (options.end) {
    if (Status status = check_boundary(of_save_option("end"), end); !status) return status;
  }
  for (std::size_t i = 0; options.end && i < layout_.group_sides.size(); ++i) {
    const PageRule& rule = layout_.group_sides[i].rule;
    const std::uint64_t sealed = std::max(state.group_sides[i]->sealed_pages, rule.sealed_pages(state.length));
    if (!rule.seals || sealed >= end / rule.page) continue;
    return core::refuse(of_save_option("end"), end, "at most {}: later pages of {} are not sealed yet",
                        sealed * rule.page, layout_.group_sides[i].name());
  }
  std::uint64_t before = options.begin;
  for (std::size_t i = 0; i < options.notes.size(); ++i) {
    const std::uint64_t position = options.notes[i].position;
    const core::Refusal refusal{kSave, {"options.notes", i, "position"}};
    if (position < before || position > end) return core::refuse(refusal, position, "{} to {}", before, end);
    if (position != end) {
      if (Status status = check_boundary(refusal, position); !status) return status;
    }
    before = position;
  }
  return {};
}

Status State::check_boundary(const core::Refusal& refusal, std::uint64_t position) const {
  for (const GroupSide& group_side : layout_.group_sides) {
    if (position % group_side.rule.page == 0) continue;
    return core::refuse(refusal, position, "a multiple of the {} tokens of a page", group_side.rule.page);
  }
  return {};
}

Result<SavedLayout> State::saved_layout(const SequenceState& state, const KvSaveOptions& options) const {
  const std::uint64_t end = options.end.value_or(state.length);
  SavedLayout layout{.saved = {.begin = options.begin, .end = end}, .group_sides = layout_.group_sides};
  for (const KvGroup& group : spec_.groups) layout.saved.groups.push_back({.group = group});
  for (std::size_t i = 0; i < layout.group_sides.size(); ++i) {
    if (layout_.group_sides[i].in_keys) continue;
    const PageRule& rule = layout_.group_sides[i].rule;
    const KvPages& pages = *state.group_sides[i];
    if (options.end && rule.seals && pages.sealed_pages < end / rule.page) {
      return Error{Errc::out_of_pages,
                   core::text("{}: pages of {} before position {} are due, and there is no page left "
                              "to seal them into",
                              kSave, layout_.group_sides[i].name(), end)};
    }
    layout.side(i) = {.first_page = std::min(std::max(pages.first_page, options.begin / rule.page), rule.pages(end)),
                      .sealed_pages = rule.seals ? std::min(pages.sealed_pages, end / rule.page) : 0,
                      .end_page = rule.pages(end)};
  }
  for (const KvNote& note : options.notes) layout.saved.notes.push_back({note.position, note.bytes.size()});
  if (Status status = cache::complete(layout); !status) return status.error();
  return layout;
}

// Precondition: no command that writes to the page is in flight.
Status State::read_page(const SavedPart& part, const PageUse& use, const ByteSink& sink) const {
  std::vector<std::byte> room(static_cast<std::size_t>(std::min(GroupSideMemory::kPieceBytes, part.bytes)));
  return memory_[part.of].for_each_range(use, part.tokens, [&](const Buffer& buffer, core::ByteRange range) -> Status {
    const auto bytes = std::span(room).first(static_cast<std::size_t>(range.size()));
    const runtime::Memory& memory = *runtime::Inside::of(buffer)->memory();
    if (Status status = device_->backend().read(memory, range.begin, bytes); !status) return status;
    return sink(bytes);
  });
}

}  // namespace rota::cache

namespace rota::inline ROTA_ABI {

const KvSaved& KvSnapshot::saved() const noexcept { return snapshot_->layout.saved; }

Status KvSnapshot::save(const ByteSink& sink) && {
  return core::guarded([&]() -> Status {
    const auto snapshot = std::exchange(snapshot_, nullptr);
    if (!snapshot) return core::refuse({"KvSnapshot::save", {}}, "a snapshot that was saved", "one that was not");
    return snapshot->save(sink);
  });
}

}  // namespace rota::inline ROTA_ABI
