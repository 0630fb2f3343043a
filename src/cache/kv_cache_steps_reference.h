#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "cache/kv_cache_attend_reference.h"
#include "cache/kv_cache_batch_reference.h"
#include "cache/kv_cache_compare_reference.h"
#include "cache/kv_cache_memory_reference.h"
#include "cache/kv_cache_random_reference.h"
#include "cache/kv_cache_reference.h"
#include "cache/kv_cache_saved_reference.h"
#include "rota/rota.h"

// Random things, done to a cache and to what it should be.

namespace rota::cache::reference {

// A cache and what it should be. Every step ends with a comparison.
class Machine {
 public:
  // It is attended to once in so many steps; never where that is 0.
  Machine(Device& device, std::uint64_t seed, std::uint64_t attend_every)
      : attend_every_(attend_every),
        random_(seed),
        device_(device),
        spec_(random_spec(random_)),
        group_sides_(group_sides_of(spec_)),
        cache_(KvCache::create(device_, spec_).value()) {
    EXPECT_EQ(cache_.memory(), estimate(spec_).value());
  }

  std::uint64_t steps() const { return steps_; }
  const std::string& trace() const { return trace_; }

  void step() {
    touched_.clear();
    unsettled_.clear();
    full_ = false;
    closed_ = opened_ = {};
    const auto choice = random_() % 16;
    if (choice < 2) {
      extend_by_layers();
    } else if (choice == 2 && !sequences_.empty()) {
      save_and_load();
    } else {
      call_in_one_encoder();
    }
    if (random_() % 12 == 0) open_one();
    if (random_() % 24 == 0) trace_ += memory_.reserve_or_trim(cache_, random_);
    ++steps_;
    compare(random_() % 16 == 0 ? Extent::all_pages : Extent::newest_pages);
    if (attend_every_ != 0 && random_() % attend_every_ == 0 && !sequences_.empty()) attend_to(any_sequence());
    std::erase_if(held_, [&](const auto&) { return random_() % 3 == 0; });
    trace_ += "\n";
  }

  void finish() {
    touched_.clear();
    named_.clear();
    compare(Extent::all_pages);
    while (!sequences_.empty()) {
      EXPECT_TRUE(cache_.close(sequences_.back().sequence).ok());
      sequences_.pop_back();
    }
    const KvCounters counters = cache_.counters();
    EXPECT_EQ(counters.sealed.used + counters.dense.used + counters.sinks.used + counters.step.used, 0U)
        << "pages leak";
    EXPECT_EQ(counters.sealed.shared + counters.dense.shared + counters.sinks.shared, 0U);
    EXPECT_EQ(cache_.non_finite()->appended + cache_.non_finite()->sealed, 0U);
  }

 private:
  // A few calls in one encoder, which is submitted or dropped.
  void call_in_one_encoder() {
    const bool dropped = random_() % 6 == 0;
    const std::vector<SequenceState> before = dropped ? sequences_ : std::vector<SequenceState>{};
    Encoder encoder = device_.encoder();
    const std::uint64_t calls = random_() % 4 == 0 ? 1 + random_() % 3 : 1;
    for (std::uint64_t i = 0; i < calls && unsettled_.empty(); ++i) call(encoder);
    if (full_ || random_() % 16 == 0) close_one();
    if (dropped) {
      trace_ += "drop ";
      encoder = device_.encoder();
      sequences_.clear();
      for (const SequenceState& sequence : before) {
        if (sequence.sequence != closed_) sequences_.push_back(sequence);
      }
      if (opened_ != Sequence{} && opened_ != closed_) add_sequence(opened_);
    } else {
      EXPECT_TRUE(std::move(encoder).submit().ok());
    }
  }

  SequenceState& any_sequence() { return sequences_[random_() % sequences_.size()]; }

  void call(Encoder& encoder) {
    named_.clear();
    if (sequences_.empty()) open_one();
    if (sequences_.empty()) return;
    const auto choice = random_() % 20;
    if (choice < 13) {
      extend(encoder);
    } else if (choice < 15) {
      fork(encoder);
    } else if (choice < 19) {
      truncate(encoder);
    } else {
      trace_ += "settle ";
      EXPECT_TRUE(cache_.settle(encoder).ok());
      if (spec_.seal_within) adopt_settled();
    }
  }

  // settle() does at once what others would do at a pace later.
  void adopt_settled() {
    for (SequenceState& sequence : sequences_) {
      SequenceState settled = sequence;
      settled.settle(sequence.first_query());
      if (is_as_found(settled)) sequence = std::move(settled);
    }
  }

  void name_sequences(std::initializer_list<std::uint32_t> indices) {
    touched_.insert(indices);
    named_.insert(indices);
  }

  void save_and_load() {
    SequenceState& sequence = any_sequence();
    trace_ += fmt::format("save {} ", sequence.length);
    named_.clear();
    EXPECT_TRUE(saved_bytes(cache_, sequence.sequence).ok());
    sequence.complete();
    for (std::size_t group_side = 0; group_side < group_sides_.size(); ++group_side) {
      const std::uint32_t layer = spec_.groups[group_side / 2].layers.front();
      const KvView view = cache_.view({&sequence.sequence, 1}, layer).value();
      adopt(sequence, group_side, layer, *(group_side % 2 == 0 ? view.k : view.v).sequences.front());
    }
    auto copy = RoundTrip(spec_, random_).run(cache_, sequence);
    touched_.insert(sequence.sequence.index);
    if (!copy) return;
    trace_ += fmt::format("load {} ", copy->length);
    touched_.insert(copy->sequence.index);
    sequences_.push_back(*std::move(copy));
  }

  void open_one() {
    auto sequence = cache_.open_sequence();
    EXPECT_EQ(sequence.ok(), sequences_.size() < spec_.max_sequences);
    if (!sequence) return;
    trace_ += "open ";
    add_sequence(*sequence);
    opened_ = *sequence;
  }

  void add_sequence(Sequence sequence) {
    sequences_.push_back({sequence, 0, {}});
    for (const GroupSideSpec& group_side : group_sides_) sequences_.back().group_sides.emplace_back(group_side);
  }

  void close_one() {
    if (sequences_.empty()) return;
    const std::size_t index = random_() % sequences_.size();
    trace_ += "close ";
    EXPECT_TRUE(cache_.close(sequences_[index].sequence).ok());
    closed_ = sequences_[index].sequence;
    sequences_.erase(sequences_.begin() + static_cast<std::ptrdiff_t>(index));
  }

  SequenceState& sequence_of(Sequence sequence) {
    return *std::ranges::find(sequences_, sequence, &SequenceState::sequence);
  }

  void begin_in_reference(std::span<const KvExtension> extensions) {
    std::map<std::uint32_t, std::uint64_t> tokens;  // of each sequence
    for (const KvExtension& extension : extensions) tokens[extension.sequence.index] += extension.tokens;
    for (SequenceState& sequence : sequences_) {
      if (!tokens.contains(sequence.sequence.index)) continue;
      name_sequences({sequence.sequence.index});
      const std::uint64_t length = sequence.length + tokens.at(sequence.sequence.index);
      const auto takes_turns = [&](const SequenceSide& side) { return side.takes_turns(spec_, length); };
      if (sequence.in_turn()) sequence.complete();
      sequence.step_begin = sequence.length;
      sequence.took_turns = std::ranges::any_of(sequence.group_sides, takes_turns);
      for (SequenceSide& side : sequence.group_sides) {
        if (spec_.seal_within && !sequence.took_turns) {
          side.settle_at_a_pace(*spec_.seal_within, length);
        } else {
          side.complete();
          side.settle(sequence.length, sequence.length);
          side.in_turn = takes_turns(side);
        }
      }
    }
  }

  // Extends cache and reference, or neither. The layers are still to be appended.
  std::optional<std::pair<KvStep, Batch>> begin_step(Encoder& encoder) {
    Batch batch{.extensions = choose_extensions(sequences_, spec_, random_)};
    if (batch.extensions.empty()) return std::nullopt;
    trace_ += fmt::format("extend {} ", batch.text());
    auto step = cache_.extend(encoder, batch.extensions);
    if (!step) {
      EXPECT_EQ(step.error().code, Errc::out_of_pages) << step.error().message;
      trace_ += "(no pages) ";
      full_ = true;
      return std::nullopt;
    }
    begin_in_reference(batch.extensions);
    std::vector<std::int64_t> positions;
    batch.values.resize(group_sides_.size());
    for (const KvExtension& extension : batch.extensions) {
      SequenceState& sequence = sequence_of(extension.sequence);
      for (std::uint64_t t = 0; t < extension.tokens; ++t) {
        positions.push_back(static_cast<std::int64_t>(sequence.length++));
        for (std::size_t group_side = 0; group_side < group_sides_.size(); ++group_side) {
          const GroupSideSpec& spec = group_sides_[group_side];
          batch.values[group_side].push_back(
              spec.in_keys ? first_dims(batch.values[group_side - 1].back(), group_sides_[group_side - 1], spec)
                           : draw(spec, random_));
          sequence.group_sides[group_side].append(batch.values[group_side].back());
        }
      }
    }
    EXPECT_TRUE(std::ranges::equal(positions, step->positions()));
    batch.upload(device_);
    held_.push_back(std::make_shared<const KvStep>(*step));
    for (const KvExtension& extension : batch.extensions) sequence_of(extension.sequence).step = held_.back();
    return std::pair(std::move(step).value(), std::move(batch));
  }

  std::vector<LayerOf> shuffled_layers() {
    std::vector<LayerOf> layers = layers_of(spec_);
    std::ranges::shuffle(layers, random_);
    return layers;
  }

  std::uint32_t number_of(LayerOf layer) const { return spec_.groups[layer.group].layers[layer.index]; }

  void append(Encoder& encoder, KvStep& step, const Batch& batch, LayerOf layer) {
    const auto view = [&](std::size_t group_side) {
      return batch.view(group_side, group_sides_[group_side], layer.index);
    };
    if (spec_.groups[layer.group].v_in_k) {
      step.append(encoder, number_of(layer), view(2 * layer.group));
    } else {
      step.append(encoder, number_of(layer), view(2 * layer.group), view(2 * layer.group + 1));
    }
    for (const KvExtension& extension : batch.extensions) {
      sequence_of(extension.sequence).newest_layers[layer.group] = number_of(layer);
    }
    EXPECT_TRUE(encoder.status().ok()) << encoder.status().error().message;
  }

  void extend(Encoder& encoder) {
    auto begun = begin_step(encoder);
    if (!begun) return;
    for (const LayerOf layer : shuffled_layers()) append(encoder, begun->first, begun->second, layer);
  }

  // As an engine does that computes between layers: each in a submission of its own. Some fail and are tried again, and
  // some steps are given up.
  void extend_by_layers() {
    if (sequences_.empty()) return;
    named_.clear();
    Encoder encoder = device_.encoder();
    auto begun = begin_step(encoder);
    EXPECT_TRUE(std::move(encoder).submit().ok());
    if (!begun) return;
    trace_ += "layer by layer ";
    auto& [step, batch] = *begun;
    std::vector<LayerOf> layers = shuffled_layers();
    const bool given_up = random_() % 3 == 0;
    const LayerOf last = layers.back();
    if (given_up) layers.pop_back();
    for (const LayerOf layer : layers) {
      for (bool again = random_() % 4 == 0;; again = false) {
        Encoder own = device_.encoder();
        append(own, step, batch, layer);
        if (again) continue;
        EXPECT_TRUE(std::move(own).submit().ok());
        break;
      }
      if (attend_every_ != 0) attend_to(sequence_of(batch.extensions.front().sequence), layer);
    }
    if (given_up) give_up(step, batch, number_of(last));
  }

  void give_up(const KvStep& step, const Batch& batch, std::uint32_t missing) {
    trace_ += "but one, taken back ";
    EXPECT_EQ(step.view(missing).error().code, Errc::invalid_argument);
    Encoder encoder = device_.encoder();
    std::set<std::uint32_t> back;
    for (const KvExtension& extension : batch.extensions) {
      if (!back.insert(extension.sequence.index).second) continue;
      EXPECT_EQ(cache_.extend(encoder, extension.sequence, 1).error().code, Errc::invalid_argument);
      EXPECT_EQ(cache_.fork(encoder, extension.sequence).error().code, Errc::invalid_argument);
      SequenceState& sequence = sequence_of(extension.sequence);
      EXPECT_EQ(cache_.truncate(encoder, extension.sequence, sequence.length).error().code, Errc::invalid_argument);
      const Status status = cache_.truncate(encoder, extension.sequence, sequence.step_begin);
      // Pages of its window may be gone where a layer has had its turn.
      const bool possible = std::ranges::all_of(sequence.group_sides, [&](const SequenceSide& side) {
        return side.ahead().can_truncate(sequence.step_begin);
      });
      EXPECT_EQ(status.ok(), possible);
      if (status) {
        give_up(sequence, missing);
      } else {
        EXPECT_TRUE(cache_.truncate(encoder, extension.sequence, 0).ok());
        sequence.truncate(0);
      }
    }
    EXPECT_TRUE(std::move(encoder).submit().ok());
  }

  void give_up(SequenceState& sequence, std::uint32_t missing) {
    for (std::size_t group_side = 0; group_side < group_sides_.size(); ++group_side) {
      SequenceSide& side = sequence.group_sides[group_side];
      const std::vector<std::uint32_t>& layers = spec_.groups[group_side / 2].layers;
      if (side.in_turn) {
        side.give_up(sequence.step_begin, [&](std::uint64_t layer) {
          return layers[layer] != missing && layers[layer] != sequence.newest_layer(group_side);
        });
      }
    }
    sequence.truncate(sequence.step_begin);
  }

  void fork(Encoder& encoder) {
    SequenceState& sequence = any_sequence();
    trace_ += fmt::format("fork at {} ", sequence.length);
    auto child = cache_.fork(encoder, sequence.sequence);
    if (!child) {
      EXPECT_EQ(child.error().code, Errc::out_of_pages) << child.error().message;
      trace_ += "(no pages) ";
      return;
    }
    name_sequences({sequence.sequence.index, child->index});
    sequence.settle(sequence.first_query());
    SequenceState copy = sequence;
    copy.sequence = *child;
    copy.step.reset();
    sequences_.push_back(std::move(copy));
  }

  void truncate(Encoder& encoder) {
    SequenceState& sequence = any_sequence();
    const std::uint64_t back = random_() % 3 == 0 ? random_() % (sequence.length + 1) : random_() % 20;
    const std::uint64_t length = random_() % 20 == 0 ? 0 : sequence.length - std::min(back, sequence.length);
    trace_ += fmt::format("truncate {} to {} ", sequence.length, length);
    SequenceState settled = sequence;
    const std::uint64_t first = length < sequence.length ? sequence.length : sequence.first_query();
    if (!sequence.keeps_pace(length)) settled.settle_to_cut(first, spec_.seal_within.has_value());
    const bool possible =
        std::ranges::all_of(settled.group_sides, [&](auto& group_side) { return group_side.can_truncate(length); });
    const Status status = cache_.truncate(encoder, sequence.sequence, length);
    if (!status) {
      trace_ += "(refused) ";
      EXPECT_TRUE(status.error().code == Errc::out_of_pages || !possible) << status.error().message;
      full_ = full_ || possible;
      return;
    }
    name_sequences({sequence.sequence.index});
    SequenceState unsettled = sequence;
    unsettled.truncate(length);
    if (possible) settled.truncate(length);
    // When pages are short, what is due stays dense. Then only its values may tell.
    const bool as_settled = possible && is_as_found(settled);
    sequence.complete();
    const bool was_due = std::ranges::any_of(sequence.group_sides, [&](const SequenceSide& group_side) {
      return group_side.due(sequence.length) > group_side.sealed_pages();
    });
    if (was_due && as_settled && is_as_found(unsettled)) unsettled_.emplace(sequence.sequence.index, unsettled);
    sequence = as_settled ? std::move(settled) : std::move(unsettled);
  }

  // Whether the cache has sealed just what this sequence has.
  bool is_as_found(const SequenceState& sequence) {
    for (std::size_t group = 0; group < spec_.groups.size(); ++group) {
      for (const std::uint32_t layer : spec_.groups[group].layers) {
        const KvView view = cache_.view({&sequence.sequence, 1}, layer).value();
        for (const std::size_t group_side : {2 * group, 2 * group + 1}) {
          const KvPages& found = *(group_side % 2 == 0 ? view.k : view.v).sequences.front();
          const SequenceSide& wanted = sequence.side(group_side, layer);
          if (found.sealed_pages != wanted.sealed_pages() || found.first_page != wanted.first_page()) return false;
        }
      }
    }
    return true;
  }

  // A sequence that no call named may have been settled on the way, or not. Every call lets layers have their turn.
  void adopt(SequenceState& sequence, std::size_t group_side, std::uint32_t layer, const KvPages& pages) {
    SequenceSide& side = sequence.group_sides[group_side];
    const auto is_found = [&](const SequenceSide& as) {
      return as.first_page() == pages.first_page && as.sealed_pages() == pages.sealed_pages;
    };
    if (side.in_turn && layer == sequence.newest_layer(group_side) && is_found(side.ahead())) sequence.complete();
    if (side.in_turn || &sequence.side(group_side, layer) != &side) return;
    const std::uint64_t due = side.due_in_passing(sequence.length, spec_.seal_within.has_value());
    const bool settled = pages.first_page == side.gone(sequence.length, sequence.first_query()) &&
                         pages.sealed_pages == std::max(due, pages.first_page);
    if (settled) side.advance(pages.first_page, pages.sealed_pages);
  }

  void compare(Extent extent) {
    comparison_.restart();
    PageUsers users;
    for (SequenceState& sequence : sequences_) {
      ASSERT_EQ(cache_.length(sequence.sequence).value(), sequence.length);
      compare_sequence(sequence, extent, users);
      if (comparison_.wrong_values() > 0 && unsettled_.contains(sequence.sequence.index)) {
        comparison_.forgive();
        sequence = unsettled_.at(sequence.sequence.index);
        compare_sequence(sequence, extent, users);
      }
      if (::testing::Test::HasFatalFailure()) return;
    }
    ASSERT_EQ(comparison_.wrong_values(), 0U);
    MemoryInUse::compare(cache_.counters());
    users.compare(cache_.counters(), std::ranges::none_of(sequences_, &SequenceState::in_turn));
    ASSERT_EQ(cache_.counters().sequences, sequences_.size());
  }

  void attend_to(const SequenceState& sequence) {
    const std::size_t group = random_() % spec_.groups.size();
    attend_to(sequence, {group, random_() % spec_.groups[group].layers.size()});
  }

  // All queries of the step that is held, or some of the newest tokens, in one layer.
  void attend_to(const SequenceState& sequence, LayerOf layer) {
    const KvGroup& group = spec_.groups[layer.group];
    const SequenceSide& k = sequence.side(2 * layer.group, number_of(layer));
    const SequenceSide& v = sequence.side(2 * layer.group + 1, number_of(layer));
    const bool whole_step = sequence.is_held() && !sequence.took_turns && random_() % 2 == 0;
    const bool windowed = group.window.has_value();  // else no key can be missing, and all are seen
    const std::uint64_t some = std::min<std::uint64_t>(1 + random_() % (windowed ? 200 : 4), sequence.length);
    const std::uint64_t query_tokens = whole_step ? sequence.length - sequence.step_begin : some;
    if (query_tokens == 0 || (!windowed && query_tokens > 8)) return;
    trace_ += fmt::format("attend {} of {} ", query_tokens, sequence.length);
    const Attention attention{
        .group = group, .layer = layer.index, .length = sequence.length, .query_tokens = query_tokens, .k = k, .v = v};
    EXPECT_TRUE(attention.sees_only_what_is_kept() || !whole_step) << "what a step sees stays while it is held";
    const KvView view = cache_.view({&sequence.sequence, 1}, number_of(layer)).value();
    check_attention(device_, view, attention, random_);
  }

  void compare_sequence(SequenceState& sequence, Extent extent, PageUsers& users) {
    for (std::size_t group = 0; group < spec_.groups.size(); ++group) {
      for (std::size_t layer = 0; layer < spec_.groups[group].layers.size(); ++layer) {
        const KvView view = cache_.view({&sequence.sequence, 1}, spec_.groups[group].layers[layer]).value();
        ASSERT_EQ(view.lengths.front(), sequence.length);
        ASSERT_EQ(view.window, spec_.groups[group].window);
        for (const std::size_t group_side : {2 * group, 2 * group + 1}) {
          const KvSideView& side = group_side % 2 == 0 ? view.k : view.v;
          const std::uint32_t number = spec_.groups[group].layers[layer];
          const KvPages& pages = *side.sequences.front();
          const bool touched = touched_.contains(sequence.sequence.index);
          if (!named_.contains(sequence.sequence.index)) adopt(sequence, group_side, number, pages);
          if (touched || extent == Extent::all_pages) {
            const SequenceSide& wanted = sequence.side(group_side, number);
            comparison_.compare({side, wanted, group_sides_[group_side], layer, sequence.length}, extent);
            if (::testing::Test::HasFatalFailure()) return;
          }
          if (!group_sides_[group_side].in_keys) users.add(group_side, pages, sequence.sequence.index);
        }
      }
    }
  }

  const std::uint64_t attend_every_;
  std::mt19937_64 random_;
  Device device_;
  KvCacheSpec spec_;
  std::vector<GroupSideSpec> group_sides_;
  KvCache cache_;
  std::vector<SequenceState> sequences_;
  std::vector<std::shared_ptr<const KvStep>> held_;
  std::set<std::uint32_t> touched_;  // indices of sequences that calls of this step named
  std::set<std::uint32_t> named_;    // those that the last call named: no other call settled them since
  std::map<std::uint32_t, SequenceState> unsettled_;  // by index: what a truncated sequence is if pages were short
  bool full_ = false;                                 // a call of this step found no pages
  Sequence closed_, opened_;                          // by this step, whatever becomes of its encoder
  Comparison comparison_;
  MemoryInUse memory_{device_, spec_};
  std::uint64_t steps_ = 0;
  std::string trace_;
};

}  // namespace rota::cache::reference
