#include "cache/sequence_table.h"

#include <atomic>
#include <cassert>

#include "cache/growth.h"
#include "cache/transaction.h"

namespace rota::cache {
namespace {

std::uint64_t next_id() noexcept {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

}  // namespace

SequenceTable::SequenceTable(std::span<const GroupSide> group_sides, std::uint32_t most_sequences) noexcept
    : id_(next_id()), group_sides_(group_sides), most_sequences_(most_sequences) {}

Result<std::uint32_t> SequenceTable::find(const core::Refusal& refusal, Sequence sequence) const {
  if (sequence.cache != id_) return core::refuse(refusal, "of another cache", "a sequence that this one opened");
  const bool exists = sequence.index < entries_.size();
  if (!exists || !entries_[sequence.index].open || entries_[sequence.index].generation != sequence.generation) {
    return core::refuse(refusal, "closed", "a sequence that is open");
  }
  return sequence.index;
}

SequenceEntry* SequenceTable::find(Sequence sequence) noexcept {
  if (sequence.cache != id_ || sequence.index >= entries_.size()) return nullptr;
  SequenceEntry& entry = entries_[sequence.index];
  return entry.open && entry.generation == sequence.generation ? &entry : nullptr;
}

Result<std::uint32_t> SequenceTable::find_to_change(const core::Refusal& refusal, Sequence sequence,
                                                    const Transaction& transaction) const {
  auto index = find(refusal, sequence);
  if (!index || !entries_[*index].is_held_against(transaction)) return index;
  if (entries_[*index].loads != Loads::no) {
    return busy(core::refuse(refusal, "being loaded", "the load's end before: wait() tells when"));
  }
  return busy(core::refuse(refusal, "changed in another encoder that is not submitted yet",
                           "that encoder, or its end before: wait() tells when"));
}

bool SequenceTable::is_in_step(const Step& step, const Step::Member& member) const noexcept {
  const SequenceEntry& entry = entries_[member.sequence.index];
  return entry.open && entry.generation == member.sequence.generation && entry.state.step.get() == &step;
}

Result<std::uint32_t> SequenceTable::free_entry() {
  if (!free_.empty()) return free_.back();
  if (entries_.size() == most_sequences_) {
    return Error{Errc::out_of_pages,
                 core::text("KvCache: all {} sequences are open, as many as max_sequences allows", entries_.size())};
  }
  make_room(most_sequences_, entries_, free_, due_);
  free_.push_back(static_cast<std::uint32_t>(entries_.size()));
  entries_.emplace_back();
  return free_.back();
}

SequenceEntry& SequenceTable::occupy(std::uint32_t index) noexcept {
  assert(!free_.empty() && free_.back() == index);
  free_.pop_back();
  entries_[index].open = true;
  return entries_[index];
}

void SequenceTable::vacate(std::uint32_t index) noexcept {
  SequenceEntry& entry = entries_[index];
  entry.state = {};
  entry.before.reset();
  entry.changed_in = nullptr;
  entry.loads = Loads::no;
  entry.open = false;
  ++entry.generation;
  free_.push_back(index);
}

// Every query of the future counts from the length on, so that those of a step that is held do not matter here.
bool SequenceTable::may_be_due(const SequenceEntry& entry) const noexcept {
  return entry.open && is_due(group_sides_, entry.state, entry.state.length);
}

std::span<const std::uint32_t> SequenceTable::due() noexcept {
  std::erase_if(due_, [&](std::uint32_t index) {
    entries_[index].is_listed = may_be_due(entries_[index]);
    return !entries_[index].is_listed;
  });
  return due_;
}

void SequenceTable::list_if_due(std::uint32_t index) noexcept {
  SequenceEntry& entry = entries_[index];
  if (entry.is_listed || !may_be_due(entry)) return;
  entry.is_listed = true;
  due_.push_back(index);
}

}  // namespace rota::cache
