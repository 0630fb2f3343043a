#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "cache/kv_cache_reference.h"
#include "rota/rota.h"

// A sequence leaves a cache as bytes and comes back.

namespace rota::cache::reference {

inline Result<std::vector<std::byte>> saved_bytes(KvCache& cache, Sequence sequence,
                                                  const KvSaveOptions& options = {}) {
  std::vector<std::byte> bytes;
  const Status status = cache.save(
      sequence,
      [&](std::span<const std::byte> more) -> Status {
        bytes.insert(bytes.end(), more.begin(), more.end());
        return {};
      },
      options);
  if (!status) return status.error();
  return bytes;
}

// Saves sequences and loads them again: whole, their first pages alone, or in two parts.
class RoundTrip {
 public:
  RoundTrip(const KvCacheSpec& spec, std::mt19937_64& random) : spec_(spec), random_(random) {
    for (const KvGroup& group : spec.groups) page_ = std::max<std::uint64_t>(page_, group.page);
  }

  // The copy that was loaded. None if the cache has no room for it, or has lost what its window would see.
  // Precondition: `sequence` is what the cache has.
  std::optional<SequenceState> run(KvCache& cache, const SequenceState& sequence) {
    const std::vector<KvNote> notes{{0, {std::byte{1}}}, {sequence.length, std::vector<std::byte>(random_() % 3)}};
    auto saved = saved_bytes(cache, sequence.sequence, {.notes = notes});
    EXPECT_TRUE(saved.ok()) << saved.error().message;
    if (!saved) return {};
    expect_header(*saved, sequence);
    const std::uint64_t boundary = random_() % (sequence.length / page_ + 1) * page_;
    switch (random_() % 3) {
      case 0: return load(cache, *saved, sequence, sequence.length, notes);
      case 1: return load(cache, *saved, sequence, boundary, notes);
      default: return load_in_two(cache, sequence, boundary);
    }
  }

 private:
  void expect_header(std::span<const std::byte> bytes, const SequenceState& sequence) {
    auto saved = verify_saved(source_of(bytes));
    ASSERT_TRUE(saved.ok()) << saved.error().message;
    EXPECT_EQ(saved->bytes, bytes.size());
    EXPECT_EQ(saved->end, sequence.length);
    for (std::size_t group = 0; group < spec_.groups.size(); ++group) {
      for (const KvSide side : {KvSide::keys, KvSide::values}) {
        const SequenceSide& wanted = sequence.group_sides[2 * group + (side == KvSide::keys ? 0 : 1)];
        const KvSavedSide& found = side == KvSide::keys ? saved->groups[group].k : saved->groups[group].v;
        EXPECT_EQ(found.first_page, wanted.spec().in_keys ? 0 : wanted.first_page());
      }
    }
  }

  // What a sequence of `length` tokens is that has these pages.
  SequenceState prefix(const SequenceState& sequence, std::uint64_t length) const {
    SequenceState copy = sequence;
    copy.step.reset();
    copy.truncate(length);
    for (SequenceSide& side : copy.group_sides) {
      const KvGroup& group = *side.spec().group;
      const std::uint64_t settled = length > group.tail ? (length - group.tail) / group.page : 0;
      const bool tail_is_sealed = side.spec().format && side.sealed_pages() > settled;
      side.advance(tail_is_sealed ? first_seen(group, length) : side.gone(length, length), side.sealed_pages());
    }
    return copy;
  }

  // The page of the oldest key that the newest of `length` tokens sees.
  static std::uint64_t first_seen(const KvGroup& group, std::uint64_t length) {
    const std::uint64_t window = group.window.value_or(length);
    return (length > window ? length - window : 0) / group.page;
  }

  bool has_what_it_sees(const SequenceState& sequence, std::uint64_t length) const {
    return length == 0 || std::ranges::all_of(sequence.group_sides, [&](const SequenceSide& side) {
             return first_seen(*side.spec().group, length) >= side.first_page();
           });
  }

  std::optional<SequenceState> load(KvCache& cache, std::span<const std::byte> bytes, const SequenceState& sequence,
                                    std::uint64_t length, std::span<const KvNote> notes) {
    auto loaded = cache.load(source_of(bytes), {.tokens = length});
    if (!loaded) {
      expect_refusal(loaded.error(), has_what_it_sees(sequence, length));
      return {};
    }
    EXPECT_TRUE(has_what_it_sees(sequence, length));
    EXPECT_EQ(loaded->length, length);
    EXPECT_EQ(loaded->notes.size(), notes[1].position <= length ? 2U : 1U);
    for (std::size_t i = 0; i < loaded->notes.size(); ++i) EXPECT_EQ(loaded->notes[i].bytes, notes[i].bytes);
    SequenceState copy = prefix(sequence, length);
    copy.sequence = loaded->sequence;
    return copy;
  }

  std::optional<SequenceState> load_in_two(KvCache& cache, const SequenceState& sequence, std::uint64_t boundary) {
    auto first = saved_bytes(cache, sequence.sequence, {.end = boundary});
    const bool sealed = std::ranges::all_of(sequence.group_sides, [&](const SequenceSide& side) {
      return !side.spec().format || side.sealed_pages() * side.spec().group->page >= boundary;
    });
    EXPECT_EQ(first.ok(), sealed);
    auto second = saved_bytes(cache, sequence.sequence, {.begin = boundary});
    EXPECT_TRUE(second.ok()) << second.error().message;
    if (!first || !second) return {};
    auto loaded = cache.load(source_of(*first));
    if (!loaded) {
      expect_refusal(loaded.error(), has_what_it_sees(sequence, boundary));
      return {};
    }
    const SequenceState begun = prefix(sequence, boundary);
    SequenceState copy = prefix(sequence, sequence.length);
    for (std::size_t i = 0; i < copy.group_sides.size() && boundary < sequence.length; ++i) {
      SequenceSide& side = copy.group_sides[i];
      const std::uint64_t there = sequence.group_sides[i].first_page();
      const bool is_later = there * side.spec().group->page > boundary;
      side.advance(is_later ? there : begun.group_sides[i].first_page(), side.sealed_pages());
    }
    if (boundary == sequence.length) copy = begun;
    copy.sequence = loaded->sequence;
    if (auto rest = cache.load(source_of(*second), {.onto = loaded->sequence}); !rest) {
      EXPECT_EQ(rest.error().code, Errc::out_of_pages) << rest.error().message;
      copy = begun;  // nothing has changed
      copy.sequence = loaded->sequence;
    }
    return copy;
  }

  static void expect_refusal(const Error& error, bool has_what_it_sees) {
    if (error.code == Errc::out_of_pages) return;  // pages, or sequences
    EXPECT_EQ(error.code, Errc::invalid_argument);
    EXPECT_FALSE(has_what_it_sees) << error.message;
  }

  const KvCacheSpec& spec_;
  std::mt19937_64& random_;
  std::uint64_t page_ = 0;  // the largest
};

}  // namespace rota::cache::reference
