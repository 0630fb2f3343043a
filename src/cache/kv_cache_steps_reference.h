#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "cache/kv_cache_reference.h"
#include "rota/rota.h"

// Random things, done to a cache and to what it should be.

namespace rota::cache::reference {

inline KvCodec random_codec(std::mt19937_64& random) {
  constexpr std::array<std::uint32_t, 4> kBits{4, 4, 3, 8};
  const auto choice = random() % 10;
  if (choice < 3) return kDTypes[choice].dtype;
  Turbo codec = turbo(kBits[random() % kBits.size()]);
  codec.key_mean = random() % 4 != 0;
  if (random() % 4 != 0) codec.scale = ScaleRule::rms;  // the reference takes a third of the time
  return codec;
}

inline KvGroup random_group(std::mt19937_64& random, std::vector<std::uint32_t> layers) {
  KvGroup group{.layers = std::move(layers),
                .kv_heads = static_cast<std::uint32_t>(1 + random() % 2),
                .head_dim = 16,
                .k = random_codec(random),
                .v = random_codec(random),
                .dense = kDTypes[random() % 2 == 0 ? 1 : random() % 3].dtype,
                .page = random() % 2 == 0 ? 64U : 128U,
                .tail = random() % 3 == 0 ? 0 : random() % 301,
                .sinks = random() % 3 == 0 ? 0 : random() % 9};
  if (random() % 2 == 0) group.value_dim = 32;
  if (random() % 3 == 0) group.window = std::max<std::uint64_t>(group.tail, 1) + random() % 400;
  return group;
}

inline KvCacheSpec random_spec(std::mt19937_64& random) {
  KvCacheSpec spec{.groups = {random_group(random, {4, 1})},
                   .max_tokens = 300 + random() % 3000,
                   .max_sequences = static_cast<std::uint32_t>(1 + random() % 5),
                   .max_step_tokens = random() % 3 == 0 ? 1 + random() % 4 : 1 + random() % 700};
  if (random() % 2 == 0) spec.groups.push_back(random_group(random, {7}));
  return spec;
}

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
    if (random_() % 8 == 0) {
      extend_by_layers();
    } else {
      call_in_one_encoder();
    }
    if (random_() % 12 == 0) open_one();
    ++steps_;
    compare(random_() % 16 == 0);
    if (attend_every_ != 0 && random_() % attend_every_ == 0 && !sequences_.empty()) attend_to(any_sequence());
    std::erase_if(held_, [&](const auto&) { return random_() % 3 == 0; });
    trace_ += "\n";
  }

  void finish() {
    touched_.clear();
    named_.clear();
    compare(true);
    while (!sequences_.empty()) {
      EXPECT_TRUE(cache_.close(sequences_.back().sequence).ok());
      sequences_.pop_back();
    }
    const KvCounters counters = cache_.counters();
    EXPECT_EQ(counters.sealed.used + counters.dense.used + counters.sinks.used, 0U) << "pages leak";
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
      {
        const Encoder gone = std::move(encoder);
      }
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
    }
  }

  void name_sequences(std::initializer_list<std::uint32_t> slots) {
    touched_.insert(slots);
    named_.insert(slots);
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

  // Values that every dtype holds exactly.
  Values draw(const GroupSideSpec& group_side) {
    auto values = std::make_shared<std::vector<float>>(group_side.vector_size());
    for (float& value : *values) value = static_cast<float>(static_cast<int>(random_() % 255) - 127) * 0.03125F;
    return values;
  }

  struct Batch {
    std::vector<KvExtension> extensions;
    std::vector<std::vector<Values>> values;  // [group_side][token]
    Buffer source;
    std::vector<std::uint64_t> offsets;  // of each group_side in the source
  };

  std::vector<KvExtension> choose_extensions() {
    std::vector<KvExtension> extensions;
    std::uint64_t total = 0;
    for (const SequenceState& sequence : sequences_) {
      if (random_() % 2 == 0 && !(extensions.empty() && &sequence == &sequences_.back())) continue;
      const std::uint64_t most = random_() % 4 == 0 ? spec_.max_step_tokens : 5;
      const std::uint64_t tokens = 1 + random_() % most;
      if (total + tokens > spec_.max_step_tokens) continue;
      total += tokens;
      extensions.push_back({sequence.sequence, tokens});
    }
    if (!extensions.empty()) trace_ += fmt::format("extend {} by {} ", extensions.size(), total);
    return extensions;
  }

  SequenceState& sequence_of(Sequence sequence) {
    return *std::ranges::find(sequences_, sequence, &SequenceState::sequence);
  }

  // Extends cache and reference, or neither. The layers are still to be appended.
  std::optional<std::pair<KvStep, Batch>> begin_step(Encoder& encoder) {
    Batch batch{.extensions = choose_extensions()};
    if (batch.extensions.empty()) return std::nullopt;
    auto step = cache_.extend(encoder, batch.extensions);
    if (!step) {
      EXPECT_EQ(step.error().code, Errc::out_of_pages) << step.error().message;
      trace_ += "(no pages) ";
      full_ = true;
      return std::nullopt;
    }
    std::vector<std::int64_t> positions;
    batch.values.resize(group_sides_.size());
    for (const KvExtension& extension : batch.extensions) {
      SequenceState& sequence = sequence_of(extension.sequence);
      name_sequences({sequence.sequence.slot});
      sequence.settle(sequence.length);
      sequence.step_begin = sequence.length;
      for (std::uint64_t t = 0; t < extension.tokens; ++t) {
        positions.push_back(static_cast<std::int64_t>(sequence.length++));
        for (std::size_t group_side = 0; group_side < group_sides_.size(); ++group_side) {
          batch.values[group_side].push_back(draw(group_sides_[group_side]));
          sequence.group_sides[group_side].append(batch.values[group_side].back());
        }
      }
    }
    EXPECT_TRUE(std::ranges::equal(positions, step->positions()));
    upload(batch);
    held_.push_back(std::make_shared<const KvStep>(*step));
    for (const KvExtension& extension : batch.extensions) sequence_of(extension.sequence).step = held_.back();
    return std::pair(std::move(step).value(), std::move(batch));
  }

  void upload(Batch& batch) {
    std::vector<float> values;
    for (const std::vector<Values>& group_side : batch.values) {
      batch.offsets.push_back(values.size());
      for (const Values& token : group_side) values.insert(values.end(), token->begin(), token->end());
    }
    batch.source = device_.allocate(values.size() * sizeof(float)).value();
    batch.source.write(std::as_bytes(std::span(values))).value();
  }

  struct LayerPlace {
    std::size_t group, index;
  };

  std::vector<LayerPlace> shuffled_layers() {
    std::vector<LayerPlace> layers;
    for (std::size_t group = 0; group < spec_.groups.size(); ++group) {
      for (std::size_t i = 0; i < spec_.groups[group].layers.size(); ++i) layers.push_back({group, i});
    }
    std::ranges::shuffle(layers, random_);
    return layers;
  }

  std::uint32_t number_of(LayerPlace layer) const { return spec_.groups[layer.group].layers[layer.index]; }

  void append(Encoder& encoder, KvStep& step, const Batch& batch, LayerPlace layer) {
    const auto view = [&](std::size_t group_side) {
      const GroupSideSpec& spec = group_sides_[group_side];
      return View{.buffer = batch.source,
                  .dtype = DType::f32,
                  .shape = {.tokens = batch.values[group_side].size(), .heads = spec.heads, .dim = spec.dim},
                  .offset = batch.offsets[group_side] + layer.index * spec.heads * spec.dim,
                  .token_stride = spec.vector_size(),
                  .head_stride = spec.dim};
    };
    step.append(encoder, number_of(layer), view(2 * layer.group), view(2 * layer.group + 1));
    EXPECT_TRUE(encoder.status().ok()) << encoder.status().error().message;
  }

  void extend(Encoder& encoder) {
    auto begun = begin_step(encoder);
    if (!begun) return;
    for (const LayerPlace layer : shuffled_layers()) append(encoder, begun->first, begun->second, layer);
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
    std::vector<LayerPlace> layers = shuffled_layers();
    const bool given_up = random_() % 3 == 0;
    const LayerPlace last = layers.back();
    if (given_up) layers.pop_back();
    for (const LayerPlace layer : layers) {
      for (bool again = random_() % 4 == 0;; again = false) {
        Encoder own = device_.encoder();
        append(own, step, batch, layer);
        if (again) continue;
        EXPECT_TRUE(std::move(own).submit().ok());
        break;
      }
    }
    if (given_up) give_up(step, batch, number_of(last));
  }

  void give_up(const KvStep& step, const Batch& batch, std::uint32_t missing) {
    trace_ += "but one, taken back ";
    EXPECT_EQ(step.view(missing).error().code, Errc::invalid_argument);
    Encoder encoder = device_.encoder();
    for (const KvExtension& extension : batch.extensions) {
      EXPECT_EQ(cache_.extend(encoder, extension.sequence, 1).error().code, Errc::invalid_argument);
      EXPECT_EQ(cache_.fork(encoder, extension.sequence).error().code, Errc::invalid_argument);
      SequenceState& sequence = sequence_of(extension.sequence);
      EXPECT_EQ(cache_.truncate(encoder, extension.sequence, sequence.length).error().code, Errc::invalid_argument);
      sequence.truncate(sequence.length - extension.tokens);
      EXPECT_TRUE(cache_.truncate(encoder, extension.sequence, sequence.length).ok());
    }
    EXPECT_TRUE(std::move(encoder).submit().ok());
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
    name_sequences({sequence.sequence.slot, child->slot});
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
    settled.settle(length < sequence.length ? sequence.length : sequence.first_query());
    const bool possible =
        std::ranges::all_of(settled.group_sides, [&](auto& group_side) { return group_side.can_truncate(length); });
    const Status status = cache_.truncate(encoder, sequence.sequence, length);
    if (!status) {
      trace_ += "(refused) ";
      EXPECT_TRUE(status.error().code == Errc::out_of_pages || !possible) << status.error().message;
      full_ = full_ || possible;
      return;
    }
    name_sequences({sequence.sequence.slot});
    SequenceState unsettled = sequence;
    unsettled.truncate(length);
    if (possible) settled.truncate(length);
    // When pages are short, what is due stays dense. Then only its values may tell.
    const bool as_settled = possible && is_as_found(settled);
    const bool was_due = std::ranges::any_of(sequence.group_sides, [&](const SequenceSide& group_side) {
      return group_side.due(sequence.length) > group_side.sealed_pages();
    });
    if (was_due && as_settled && is_as_found(unsettled)) unsettled_.emplace(sequence.sequence.slot, unsettled);
    sequence = as_settled ? std::move(settled) : std::move(unsettled);
  }

  // Whether the cache has sealed just what this sequence has.
  bool is_as_found(const SequenceState& sequence) {
    for (std::size_t group = 0; group < spec_.groups.size(); ++group) {
      const KvView view = cache_.view({&sequence.sequence, 1}, spec_.groups[group].layers.front()).value();
      for (const std::size_t group_side : {2 * group, 2 * group + 1}) {
        const KvPages& found = *(group_side % 2 == 0 ? view.k : view.v).sequences.front();
        if (found.sealed_pages != sequence.group_sides[group_side].sealed_pages()) return false;
        if (found.first_page != sequence.group_sides[group_side].first_page()) return false;
      }
    }
    return true;
  }

  // A device's memory, read once per comparison.
  const std::vector<std::byte>& bytes_of(const Buffer& buffer) {
    auto [found, fresh] = contents_.try_emplace(buffer.state().get());
    if (fresh) {
      found->second.resize(buffer.size_bytes());
      EXPECT_TRUE(buffer.read(found->second).ok());
    }
    return found->second;
  }

  // One token of one layer in a page of slots.
  void expect_slot(const SlotView& view, std::uint64_t page, std::uint64_t slot, const float* values) {
    const std::vector<std::byte>& bytes = bytes_of(view.buffer);
    for (std::uint64_t head = 0; head < view.shape.heads; ++head) {
      const std::uint64_t at =
          view.offset + page * view.page_stride + slot * view.slot_stride + head * view.head_stride;
      for (std::uint64_t d = 0; d < view.shape.dim; ++d) {
        const float wanted = values[head * view.shape.dim + d];
        float found = 0;
        if (view.dtype == DType::f32) {
          std::memcpy(&found, bytes.data() + (at + d) * 4, 4);
        } else {
          std::uint16_t half = 0;
          std::memcpy(&half, bytes.data() + (at + d) * 2, 2);
          found = view.dtype == DType::f16 ? f32_from_f16(half) : f32_from_bf16(half);
        }
        if (found != wanted) ++wrong_values_;
      }
    }
  }

  void compare_side(const KvSideView& view, const SequenceSide& wanted, const GroupSideSpec& spec, std::size_t layer,
                    std::uint64_t length, bool all) {
    const KvPages& pages = *view.sequences.front();
    const std::uint64_t size = spec.group->page;
    ASSERT_EQ(pages.first_page, wanted.first_page());
    ASSERT_EQ(pages.sealed_pages, wanted.sealed_pages());
    ASSERT_EQ(pages.page_table.size(), (length + size - 1) / size - pages.first_page);
    const bool has_sinks = spec.group->sinks > 0 && pages.first_page == 0 && pages.sealed_pages > 0;
    ASSERT_EQ(pages.sinks.has_value(), has_sinks);
    const std::uint64_t vector_at = layer * spec.heads * spec.dim;
    // Old pages are looked at now and then: nobody should have touched them.
    const std::uint64_t from = all ? 0 : std::max<std::uint64_t>(pages.sealed_pages, 2) - 2;
    for (std::uint64_t page = std::max(pages.first_page, from); page < pages.first_page + pages.page_table.size();
         ++page) {
      const std::uint32_t place = pages.page_table[page - pages.first_page];
      if (page < pages.sealed_pages) {
        const SealedView& sealed = *view.sealed;
        for (std::uint64_t head = 0; head < spec.heads; ++head) {
          const std::vector<std::byte>& bytes = wanted.sealed(page).bytes[layer * spec.heads + head];
          const std::uint64_t at =
              sealed.offset_bytes + place * sealed.page_stride_bytes + head * sealed.head_stride_bytes;
          if (std::memcmp(bytes_of(sealed.buffer).data() + at, bytes.data(), bytes.size()) != 0) ++wrong_values_;
        }
      } else {
        for (std::uint64_t t = 0; t < size && page * size + t < length; ++t) {
          expect_slot(view.dense, place, t, wanted.dense(page * size + t)->data() + vector_at);
        }
      }
    }
    for (std::uint64_t t = 0; has_sinks && t < spec.group->sinks; ++t) {
      expect_slot(*view.sinks, *pages.sinks, t, wanted.sealed(0).sinks[t]->data() + vector_at);
    }
  }

  // A sequence that no call named may have been settled on the way, or not.
  void adopt(SequenceSide& group_side, const KvPages& pages, const SequenceState& sequence) {
    const bool settled = pages.first_page == group_side.gone(sequence.length, sequence.first_query()) &&
                         pages.sealed_pages == std::max(group_side.due(sequence.length), pages.first_page);
    if (settled) group_side.advance(pages.first_page, pages.sealed_pages);
  }

  void compare(bool all) {
    contents_.clear();
    Uses uses;
    for (SequenceState& sequence : sequences_) {
      ASSERT_EQ(cache_.length(sequence.sequence).value(), sequence.length);
      compare_sequence(sequence, all, uses);
      if (wrong_values_ > 0 && unsettled_.contains(sequence.sequence.slot)) {
        wrong_values_ = 0;
        sequence = unsettled_.at(sequence.sequence.slot);
        compare_sequence(sequence, all, uses);
      }
      if (::testing::Test::HasFatalFailure()) return;
    }
    ASSERT_EQ(wrong_values_, 0U);
    compare_counters(uses);
  }

  // All rows of the step that is held, or some of the newest tokens, in one layer: the same as in f64 over what the
  // lists say, or refused where they say that a key is gone.
  void attend_to(const SequenceState& sequence) {
    const std::size_t group = random_() % spec_.groups.size();
    const std::size_t index = random_() % spec_.groups[group].layers.size();
    const SequenceSide& k = sequence.group_sides[2 * group];
    const SequenceSide& v = sequence.group_sides[2 * group + 1];
    const bool whole_step = sequence.is_held() && random_() % 2 == 0;
    const bool windowed = spec_.groups[group].window.has_value();  // else no key can be missing, and all are seen
    const std::uint64_t some = std::min<std::uint64_t>(1 + random_() % (windowed ? 200 : 4), sequence.length);
    const std::uint64_t rows = whole_step ? sequence.length - sequence.step_begin : some;
    if (rows == 0 || (!windowed && rows > 8)) return;
    trace_ += fmt::format("attend {} of {} ", rows, sequence.length);
    const std::uint64_t window = spec_.groups[group].window.value_or(sequence.length);
    const auto first_seen = [&](std::uint64_t position) { return position >= window ? position + 1 - window : 0; };
    const std::uint64_t there = std::max(k.first_page(), v.first_page()) * spec_.groups[group].page;
    const bool all_there = first_seen(sequence.length - rows) >= there;
    EXPECT_TRUE(all_there || !whole_step) << "what a step sees stays while it is held";

    const KvView view = cache_.view({&sequence.sequence, 1}, spec_.groups[group].layers[index]).value();
    const std::uint64_t heads = group_sides_[2 * group].heads, k_dim = group_sides_[2 * group].dim,
                        v_dim = group_sides_[2 * group + 1].dim;
    std::vector<float> q(rows * heads * k_dim);
    for (float& value : q) value = static_cast<float>(static_cast<int>(random_() % 255) - 127) * 0.015625F;
    Buffer queries = device_.allocate(q.size() * sizeof(float)).value();
    queries.write(std::as_bytes(std::span(q))).value();
    std::vector<float> out(rows * heads * v_dim);
    Buffer found = device_.allocate(out.size() * sizeof(float)).value();
    Encoder encoder = device_.encoder();
    attend(encoder, {.q = View::token_major(queries, DType::f32, {rows, heads, k_dim}),
                     .kv = view,
                     .out = MutView::token_major(found, DType::f32, {rows, heads, v_dim}),
                     .scale = kScale,
                     .query_tokens = {&rows, 1},
                     .arithmetic = Arithmetic::f32});
    auto fence = std::move(encoder).submit();
    ASSERT_EQ(fence.ok(), all_there) << (fence ? "numbers without some keys" : fence.error().message);
    if (!fence) {
      EXPECT_EQ(fence.error().code, Errc::invalid_argument);
      EXPECT_NE(fence.error().message.find(fmt::format("before position {}", there)), std::string::npos)
          << fence.error().message;
      return;
    }
    ASSERT_TRUE(found.read(std::as_writable_bytes(std::span(out))).ok());
    double worst = 0;
    for (std::uint64_t head = 0; head < heads; ++head) {
      std::vector<const float*> keys, values;  // by position
      for (std::uint64_t position = 0; position < sequence.length; ++position) {
        const bool seen = position >= first_seen(sequence.length - rows);
        keys.push_back(seen ? k.vector(position, index * heads + head) : nullptr);
        values.push_back(seen ? v.vector(position, index * heads + head) : nullptr);
      }
      for (std::uint64_t row = 0; row < rows; ++row) {
        const std::uint64_t begin = first_seen(sequence.length - rows + row);
        const std::uint64_t count = sequence.length - rows + row + 1 - begin;
        const std::uint64_t at = row * heads + head;
        const std::vector<double> wanted = attend_in_f64({q.data() + at * k_dim, k_dim}, {keys.data() + begin, count},
                                                         {values.data() + begin, count}, v_dim);
        for (std::uint64_t d = 0; d < v_dim; ++d) {
          worst = std::max(worst, std::abs(static_cast<double>(out[at * v_dim + d]) - wanted[d]));
        }
      }
    }
    ASSERT_LT(worst, kAttendError);
  }

  // Values are below 4 in magnitude (sealed ones below 8), logits below 2 * 4 * 16 / 4: f32 errs by at most
  // 2^-24 * (dims + keys) of that in logits and in sums, far below; a key that is missing changes more.
  static constexpr double kScale = 0.25;
  static constexpr double kAttendError = 2e-4;

  static std::vector<double> attend_in_f64(std::span<const float> query, std::span<const float* const> keys,
                                           std::span<const float* const> values, std::uint64_t v_dim) {
    std::vector<double> logits;
    for (const float* const key : keys) {
      double logit = 0;
      for (std::size_t d = 0; d < query.size(); ++d)
        logit += static_cast<double>(query[d]) * static_cast<double>(key[d]);
      logits.push_back(logit * kScale);
    }
    const double top = *std::ranges::max_element(logits);
    double sum = 0;
    std::vector<double> out(v_dim);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double weight = std::exp(logits[i] - top);
      sum += weight;
      for (std::uint64_t d = 0; d < v_dim; ++d) out[d] += weight * static_cast<double>(values[i][d]);
    }
    for (double& value : out) value /= sum;
    return out;
  }

  using Uses =
      std::map<std::array<std::uint64_t, 3>, std::set<std::uint32_t>>;  // group_side, pool, page -> slots of sequences

  void compare_sequence(SequenceState& sequence, bool all, Uses& uses) {
    for (std::size_t group = 0; group < spec_.groups.size(); ++group) {
      for (std::size_t layer = 0; layer < spec_.groups[group].layers.size(); ++layer) {
        const KvView view = cache_.view({&sequence.sequence, 1}, spec_.groups[group].layers[layer]).value();
        ASSERT_EQ(view.lengths.front(), sequence.length);
        ASSERT_EQ(view.window, spec_.groups[group].window);
        for (const std::size_t group_side : {2 * group, 2 * group + 1}) {
          const KvSideView& side = group_side % 2 == 0 ? view.k : view.v;
          const bool touched = touched_.contains(sequence.sequence.slot);
          if (!named_.contains(sequence.sequence.slot))
            adopt(sequence.group_sides[group_side], *side.sequences.front(), sequence);
          if (touched || all) {
            compare_side(side, sequence.group_sides[group_side], group_sides_[group_side], layer, sequence.length, all);
            if (::testing::Test::HasFatalFailure()) return;
          }
          if (layer == 0) add_uses(uses, group_side, *side.sequences.front(), sequence.sequence.slot);
        }
      }
    }
  }

  static void add_uses(Uses& uses, std::uint64_t group_side, const KvPages& pages, std::uint32_t slot) {
    for (std::size_t i = 0; i < pages.page_table.size(); ++i) {
      const std::uint64_t pool = pages.first_page + i < pages.sealed_pages ? 0 : 1;
      uses[{group_side, pool, pages.page_table[i]}].insert(slot);
    }
    if (pages.sinks) uses[{group_side, 2, *pages.sinks}].insert(slot);
  }

  void compare_counters(const Uses& uses) {
    const KvCounters counters = cache_.counters();
    std::array<std::uint64_t, 3> used{};
    std::array<std::uint64_t, 3> shared{};
    for (const auto& [page, users] : uses) {
      ++used.at(page[1]);
      if (users.size() > 1) ++shared.at(page[1]);
    }
    const std::array<const KvPoolCounters*, 3> pools{&counters.sealed, &counters.dense, &counters.sinks};
    for (std::size_t pool = 0; pool < pools.size(); ++pool) {
      ASSERT_EQ(pools[pool]->used, used[pool]) << "pool " << pool;
      ASSERT_EQ(pools[pool]->shared, shared[pool]) << "pool " << pool;
    }
    ASSERT_EQ(counters.sequences, sequences_.size());
  }

  const std::uint64_t attend_every_;
  std::mt19937_64 random_;
  Device device_;
  KvCacheSpec spec_;
  std::vector<GroupSideSpec> group_sides_;
  KvCache cache_;
  std::vector<SequenceState> sequences_;
  std::vector<std::shared_ptr<const KvStep>> held_;
  std::set<std::uint32_t> touched_;  // slots of sequences that calls of this step named
  std::set<std::uint32_t> named_;    // those that the last call named: no other call settled them since
  std::map<std::uint32_t, SequenceState> unsettled_;  // by slot: what a truncated sequence is if pages were short
  bool full_ = false;                                 // a call of this step found no pages
  Sequence closed_, opened_;                          // by this step, whatever becomes of its encoder
  std::map<const void*, std::vector<std::byte>> contents_;
  std::uint64_t wrong_values_ = 0;
  std::uint64_t steps_ = 0;
  std::string trace_;
};

struct RandomSteps {
  std::uint64_t steps, first_seed, attend_every;
};

// Random steps, in caches of all kinds.
inline void run_random_steps(Device& device, const RandomSteps& run) {
  constexpr std::uint64_t kStepsOfACache = 250;
  std::uint64_t done = 0;
  for (std::uint64_t seed = run.first_seed; done < run.steps; ++seed) {
    Machine machine(device, seed, run.attend_every);
    while (machine.steps() < kStepsOfACache && done < run.steps) {
      machine.step();
      ++done;
      if (::testing::Test::HasFailure()) FAIL() << "seed " << seed << "\n" << machine.trace();
    }
    machine.finish();
    if (::testing::Test::HasFailure()) FAIL() << "seed " << seed;
  }
}

}  // namespace rota::cache::reference
