#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <vector>

#include "core/extent.h"
#include "ops/attend/attend_call_reference.h"
#include "ops/attend/attend_plan_reference.h"
#include "ops/attend/plan_reader.h"

// The plan that a good call leads to.

namespace rota::ops {
namespace {

// A call's sequence, from the definitions in kv_view.h and ops.h, one key at a time.
struct ModelSequence {
  const Attend& call;
  std::size_t index;

  const KvPages& pages(const KvSideView& side) const { return *side.sequences[index]; }
  std::uint64_t length() const { return call.kv.lengths[index]; }
  std::uint64_t query_tokens() const { return call.query_tokens.empty() ? 1 : call.query_tokens[index]; }
  std::uint64_t group() const { return call.q.shape.heads / call.kv.k.dense.shape.heads; }

  bool is_there(const KvSideView& side, std::uint64_t key) const {
    const KvPages& list = pages(side);
    if (list.ring) return key + *list.ring >= length();
    return key / side.dense.shape.page_slots >= list.first_page;
  }

  bool sees(std::uint64_t query_token, std::uint64_t key) const {
    const bool is_sink = key < call.kv.sinks;
    if (!is_sink && (!is_there(call.kv.k, key) || !is_there(call.kv.v, key))) return false;
    if (call.mask == Mask::none) return true;
    const std::uint64_t position = length() - query_tokens() + query_token;
    return key <= position && (is_sink || !call.kv.window || position - key < *call.kv.window);
  }

  // Of a query token's window, which is all that it may see unless a ring is the window.
  bool has_all_of_its_window(std::uint64_t query_token) const {
    const std::uint64_t position = call.mask == Mask::none ? length() - 1 : length() - query_tokens() + query_token;
    for (const KvSideView* const side : {&call.kv.k, &call.kv.v}) {
      if (pages(*side).ring && !call.kv.window) continue;
      for (std::uint64_t key = 0; length() > 0 && key <= position; ++key) {
        const bool is_asked = !call.kv.window || position - key < *call.kv.window;
        if (is_asked && !is_there(*side, key)) return false;
        const bool kept = pages(*side).sinks && call.kv.sinks <= side->sinks->shape.page_slots;
        if (key < call.kv.sinks && !is_there(*side, 0) && !kept) return false;
      }
    }
    return true;
  }

  KeySource source(const KvSideView& side, std::uint64_t key) const {
    if (pages(side).sinks && key < side.sinks->shape.page_slots) return KeySource::sinks;
    const std::uint64_t page = key / side.dense.shape.page_slots;
    if (page < pages(side).sealed_pages) return KeySource::sealed;
    return pages(side).step_page && page >= *pages(side).step_page ? KeySource::step : KeySource::dense;
  }

  // Whether a kernel finds a key in memory that is there, and where it should.
  void check_page(const AttendPlan& plan, const KvSideView& side, std::uint64_t key) const {
    const PlanReader reader(plan.words.data());
    const PlanSide& planned = &side == &call.kv.k ? reader.sequence(index).k : reader.sequence(index).v;
    const KvPages& list = pages(side);
    if (source(side, key) == KeySource::sinks) {
      require(planned.sinks == *list.sinks && *list.sinks < side.sinks->shape.pages, "the page of sinks");
      return;
    }
    require(planned.ring == list.ring.value_or(0), "the ring");
    const std::uint64_t page = (planned.ring == 0 ? key : key % planned.ring) / side.dense.shape.page_slots;
    const std::uint32_t at = planned.page_table + static_cast<std::uint32_t>(page);  // may wrap
    require(at < reader.header().query_tiles, "inside the page tables");
    require(reader.word(at) == list.page_table.at(page - list.first_page), "the physical page");
    const KeySource from = source(side, key);
    const std::uint64_t pool = from == KeySource::sealed ? side.sealed->shape.pages
                               : from == KeySource::step ? side.step->shape.pages
                                                         : side.dense.shape.pages;
    require(reader.word(at) < pool, "a page of the pool");
  }
};

// 16 splits for each octave: 512 keys at first (on a CPU 2048, on a large GPU 256), 4096 at last.
bool on_grid(const runtime::Target& target, std::uint64_t position) {
  if (target.is_cpu()) return position % (position < 65536 ? 2048 : 4096) == 0;
  if (target.limits.cores >= 64) {
    return position % (position < 16384    ? 256
                       : position < 32768  ? 512
                       : position < 65536  ? 1024
                       : position < 131072 ? 2048
                                           : 4096) ==
           0;
  }
  return position % (position < 16384 ? 512 : position < 32768 ? 1024 : position < 65536 ? 2048 : 4096) == 0;
}

void check_query_tile(const ModelSequence& sequence, const runtime::Target& target, const AttendPlan& plan,
                      const PlannedTile& planned) {
  const std::uint64_t first_token = planned.tile.first_vector / sequence.group();
  const std::uint64_t last_token = (planned.tile.first_vector + planned.tile.vectors - 1) / sequence.group();
  const auto& splits = planned.splits;
  std::uint64_t next = 0;  // split
  std::uint64_t covered = 0;
  for (std::uint64_t key = 0; key < sequence.length(); ++key) {
    bool seen = false;
    for (std::uint64_t token = first_token; token <= last_token; ++token) seen = seen || sequence.sees(token, key);
    while (next < splits.size() && splits[next].end() <= key) ++next;
    const bool held = next < splits.size() && splits[next].split.first_key <= key;
    require(held == seen, "splits have the keys that query tokens see, and no others");
    if (!held) continue;
    ++covered;
    const LaunchedSplit& one = splits[next];
    require(one.k == sequence.source(sequence.call.kv.k, key), "a split's keys have one source");
    require(one.v == sequence.source(sequence.call.kv.v, key), "a split's values have one source");
    const bool begins = key == one.split.first_key;
    require(begins || !on_grid(target, key), "splits end on the grid");
    sequence.check_page(plan, sequence.call.kv.k, key);
    sequence.check_page(plan, sequence.call.kv.v, key);
    const bool cut = begins && next > 0;
    require(one.always_seen == (key < sequence.call.kv.sinks), "sinks of the call are seen always");
    require(!cut || on_grid(target, key) || one.k != splits[next - 1].k || one.v != splits[next - 1].v ||
                one.always_seen != splits[next - 1].always_seen || key != splits[next - 1].end(),
            "splits end where they must only");
  }
  std::uint64_t keys = 0;
  for (const LaunchedSplit& one : splits) keys += one.split.keys;
  require(keys == covered, "splits do not overlap");
}

void check_scratch(const Attend& call, const runtime::Target& target, const CheckedAttend& plan,
                   std::span<const PlannedTile> tiles) {
  const std::uint64_t bytes = 4 * (16 + core::round_up(call.out.shape.dim, 16));
  const std::uint64_t most = std::min<std::uint64_t>(std::uint64_t{128} << 20, target.limits.max_binding_bytes);
  std::uint64_t largest = 0;
  for (std::size_t round = 0; round < plan.rounds.size(); ++round) {
    std::uint64_t used = 0;
    for (const AttendLaunch& launch : plan.rounds[round].launches) {
      require(launch.first_partial >= used, "launches write apart");
      require(launch.first_partial * bytes % 256 == 0, "a launch's partial results are a binding");
      used = launch.end_partial();
    }
    std::map<std::uint64_t, std::uint64_t> ends;  // of splits' partial results, by their first
    for (const PlannedTile& planned : tiles) {
      if (planned.round != round) continue;
      for (const LaunchedSplit& one : planned.splits) {
        const std::uint64_t first = one.split.first_partial;
        const std::uint64_t end = first + call.kv.k.dense.shape.heads * planned.tile.vectors;
        require(ends.insert({first, end}).second, "no two splits begin at one place");
        require(std::ranges::any_of(plan.rounds[round].launches,
                                    [&](const AttendLaunch& launch) {
                                      return launch.k == one.k && launch.v == one.v &&
                                             launch.always_seen == one.always_seen && first >= launch.first_partial &&
                                             end <= launch.end_partial();
                                    }),
                "a split writes where its launch may");
      }
    }
    std::uint64_t last_end = 0;
    for (const auto& [first, end] : ends) {
      require(first >= last_end, "partial results do not overlap");
      last_end = end;
    }
    require(last_end == used, "a launch has no partial results but its splits'");
    require(used * bytes <= most || plan.rounds[round].query_tiles == 1, "rounds bound the scratch");
    largest = std::max(largest, used * bytes);
  }
  require(plan.partial_bytes == largest, "scratch holds the largest round");
  const Shape& q = call.q.shape;
  const std::uint64_t floats = q.tokens * q.heads * core::round_up(q.dim, 16) * (call.kv.k.sealed ? 2 : 1);
  require(plan.views.query_bytes == 4 * (core::round_up(2 * q.heads, 16) + floats), "scratch holds the queries");
  require(plan.words.size() * sizeof(std::uint32_t) <= target.limits.max_binding_bytes, "the plan fits");
}

void check_plan(const Attend& call, const runtime::Target& target, const CheckedAttend& plan) {
  const std::vector<PlannedTile> tiles = query_tiles_of(plan);
  const std::uint32_t most = target.is_cpu()                                 ? kCpuVectors
                             : target.limits.lane_registers < kManyRegisters ? 4
                                                                             : kGpuVectors;
  require(plan.vectors <= most, "as many vectors as kernels hold");
  std::uint64_t token = 0;
  std::size_t next = 0;
  for (std::size_t index = 0; index < call.kv.lengths.size(); ++index) {
    const ModelSequence sequence{call, index};
    const PlanSequence& planned = PlanReader(plan.words.data()).sequence(index);
    require(planned.tokens == sequence.length() && planned.query_tokens == sequence.query_tokens() &&
                planned.first_query_token == token,
            "the sequence's numbers");
    std::uint64_t vectors = 0;
    for (; next < tiles.size() && tiles[next].tile.sequence == index; ++next) {
      require(tiles[next].tile.first_vector == vectors && tiles[next].tile.vectors > 0,
              "query tiles have all vectors, once");
      require(tiles[next].tile.vectors <= plan.vectors, "no query tile is larger than the largest");
      vectors += tiles[next].tile.vectors;
      check_query_tile(sequence, target, plan, tiles[next]);
    }
    require(vectors == sequence.query_tokens() * sequence.group(), "all vectors have query tiles");
    token += sequence.query_tokens();
  }
  require(next == tiles.size(), "query tiles are in the order of their sequences");
  check_scratch(call, target, plan, tiles);
}

bool has_all_that_queries_see(const Attend& call) {
  for (std::size_t i = 0; i < call.kv.lengths.size(); ++i) {
    const ModelSequence sequence{call, i};
    for (std::uint64_t query_token = 0; query_token < sequence.query_tokens(); ++query_token) {
      if (!sequence.has_all_of_its_window(query_token)) return false;
    }
  }
  return true;
}

// Whether a list names what the sequence needs, page by page.
bool is_sound(const KvSideView& side, const KvPages& pages, std::uint64_t length) {
  const bool plain = pages.first_page == 0 && pages.sealed_pages == 0 && !pages.sinks && !pages.step_page;
  if (pages.ring && (*pages.ring == 0 || !plain)) return false;
  const std::uint64_t end = pages.first_page + pages.page_table.size();
  if (pages.step_page && (!side.step || *pages.step_page < pages.sealed_pages || *pages.step_page > end)) return false;
  if (pages.sinks && (!side.sinks || *pages.sinks >= side.sinks->shape.pages)) return false;
  const std::uint64_t count =
      (pages.ring.value_or(length) + side.dense.shape.page_slots - 1) / side.dense.shape.page_slots;
  if (pages.first_page > count || pages.sealed_pages > pages.first_page + pages.page_table.size()) return false;
  for (std::uint64_t page = pages.first_page; page < count; ++page) {
    if (page - pages.first_page >= pages.page_table.size()) return false;
    const std::uint32_t physical_page = pages.page_table[page - pages.first_page];
    const bool of_step = pages.step_page && page >= *pages.step_page;
    if (page < pages.sealed_pages && !side.sealed) return false;
    const std::uint64_t pool = page < pages.sealed_pages ? side.sealed->shape.pages
                               : of_step                 ? side.step->shape.pages
                                                         : side.dense.shape.pages;
    if (physical_page >= pool) return false;
  }
  return true;
}

class AttendPlans : public AttendCheck {
 protected:
  // Of all sizes from the first case on.
  static std::uint64_t upto(std::uint64_t most) {
    return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::uint64_t>(0, most + 1));
  }
  static bool sometimes(std::uint64_t one_of) { return upto(one_of - 1) == 0; }

  KvSideView draw_side(KvSide which, std::uint64_t heads) const {
    const PageFormat format{.codec = turbo(3), .side = which, .head_dim = 16, .tokens = sometimes(2) ? 64U : 128U};
    const bool sealed = !sometimes(3);
    const std::uint64_t page = sealed ? format.tokens : 1 + upto(200);
    KvSideView side{.dense = SlotView::token_major(
                        memory, DType::f16, {.pages = 1 + upto(4), .page_slots = page, .heads = heads, .dim = 16})};
    if (sealed) side.sealed = SealedView::packed(memory, format, {.pages = 1 + upto(4), .heads = heads});
    if (!sometimes(3)) {
      side.sinks = SlotView::token_major(memory, DType::f16,
                                         {.pages = 1 + upto(2), .page_slots = upto(10), .heads = heads, .dim = 16});
    }
    if (sometimes(2)) {
      side.step = SlotView::token_major(memory, DType::f16,
                                        {.pages = 1 + upto(4), .page_slots = page, .heads = heads, .dim = 16});
    }
    return side;
  }

  // Pages have left up to `seen`, seldom beyond.
  static KvPages draw_pages(const KvSideView& side, std::uint64_t length, std::uint64_t seen) {
    KvPages pages;
    if (sometimes(3)) pages.ring = 1 + upto(400);
    const std::uint64_t page = side.dense.shape.page_slots;
    const std::uint64_t count = (pages.ring.value_or(length) + page - 1) / page;
    if (!pages.ring) {
      if (sometimes(2)) pages.first_page = upto(sometimes(10) ? count : std::min(count, seen / page));
      pages.sealed_pages = upto(side.sealed ? count : pages.first_page);
      if (side.sinks && sometimes(2)) pages.sinks = static_cast<std::uint32_t>(upto(side.sinks->shape.pages - 1));
      const std::uint64_t dense_from = std::max(pages.first_page, pages.sealed_pages);
      if (side.step && sometimes(2)) pages.step_page = dense_from + upto(count - dense_from);
    }
    for (std::uint64_t at = pages.first_page; at < count; ++at) {
      const bool of_step = pages.step_page && at >= *pages.step_page;
      const std::uint64_t pool = at < pages.sealed_pages ? side.sealed->shape.pages
                                 : of_step               ? side.step->shape.pages
                                                         : side.dense.shape.pages;
      pages.page_table.push_back(static_cast<std::uint32_t>(upto(pool - 1)));
    }
    if (sometimes(4)) pages.page_table.push_back(static_cast<std::uint32_t>(upto(kMax >> 32)));
    return pages;
  }

  Call draw() {
    Call call(device);
    const std::uint64_t heads = 1 + upto(2);
    const std::uint64_t group = 1 + upto(4);
    call.kv = {.k = draw_side(KvSide::keys, heads), .v = draw_side(KvSide::values, heads)};
    if (sometimes(3)) call.mask = Mask::none;
    if (call.mask == Mask::causal && sometimes(2)) call.kv.window = 1 + upto(sometimes(2) ? 20 : 1500);
    if (call.kv.window && sometimes(2)) call.kv.sinks = upto(sometimes(4) ? 70 : 5);
    call.query_tokens.clear();
    call.k.clear();
    call.v.clear();
    std::uint64_t tokens = 0;
    for (std::uint64_t sequences = upto(4); sequences > 0; --sequences) {
      const std::uint64_t length = upto(sometimes(2) ? 40 : 2500);
      call.kv.lengths.edit().push_back(length);
      call.query_tokens.push_back(upto(call.mask == Mask::none ? 20 : std::min<std::uint64_t>(length, 20)));
      tokens += call.query_tokens.back();
      const std::uint64_t before = length + 1 - std::max<std::uint64_t>(call.query_tokens.back(), 1);
      const std::uint64_t seen = before - std::min(before, call.kv.window.value_or(before));
      call.k.push_back(std::make_shared<KvPages>(draw_pages(call.kv.k, length, seen)));
      call.v.push_back(std::make_shared<KvPages>(draw_pages(call.kv.v, length, seen)));
    }
    if (call.kv.window && !call.k.empty() && sometimes(2)) {  // begins near where another source does
      const std::uint64_t sealed = call.k[0]->sealed_pages * call.kv.k.dense.shape.page_slots;
      const std::uint64_t end = call.kv.lengths[0] + 1 - call.query_tokens[0];
      call.kv.window = 1 + (end > sealed ? end - sealed - upto(1) : 0);
    }
    call.kv.k.sequences.edit().assign(call.k.begin(), call.k.end());
    call.kv.v.sequences.edit().assign(call.v.begin(), call.v.end());
    call.q = View::token_major(memory, DType::f16, {.tokens = tokens, .heads = heads * group, .dim = 16});
    call.out = MutView::token_major(results, DType::f16, {.tokens = tokens, .heads = heads * group, .dim = 16});
    call.sink_logits.reset();
    call.alibi_slopes.reset();
    call.log_sum_exp.reset();
    target.limits = device.info().limits;
    target.kind = device.info().kind;
    if (sometimes(2)) {
      target_gpu(1 << 20);
      if (sometimes(2)) target.limits.cores = 96;
      if (sometimes(2)) target.limits.lane_registers = 128;
    }
    if (sometimes(4)) target.limits.max_binding_bytes = 300000;
    return call;
  }

  // What spoils a list, perhaps.
  static void change(KvPages& pages) {
    const auto near = [](std::uint64_t value) { return value + upto(4) - std::min<std::uint64_t>(value, 2); };
    switch (upto(6)) {
      case 5: pages.step_page = near(pages.sealed_pages); break;
      case 0: pages.first_page = near(pages.first_page); break;
      case 1: pages.sealed_pages = near(pages.sealed_pages); break;
      case 2: pages.page_table.resize(near(pages.page_table.size())); break;
      case 3:
        if (!pages.page_table.empty())
          pages.page_table[upto(pages.page_table.size() - 1)] = static_cast<std::uint32_t>(upto(6));
        break;
      case 4: pages.sinks = static_cast<std::uint32_t>(upto(3)); break;
      default: pages.ring = near(pages.ring.value_or(2)); break;
    }
  }

  Attend attend_of(const Call& call) const {
    return {
        .q = call.q, .kv = call.kv, .out = call.out, .scale = 1, .query_tokens = call.query_tokens, .mask = call.mask};
  }

  Buffer memory = device.allocate(1 << 20).value();
  Buffer results = device.allocate(1 << 20).value();
};

TEST_F(AttendPlans, HaveEveryKeyThatAQuerySeesOnce) {
  EXPECT_TRUE(rc::check("plans", [this] {
    const Call call = draw();
    const Attend attend = attend_of(call);
    const auto plan = check_attend(attend, target);
    RC_CLASSIFY(plan.ok());
    RC_ASSERT(plan.ok() == has_all_that_queries_see(attend));
    if (plan) check_plan(attend, target, *plan);
  }));
}

TEST_F(AttendPlans, OfListsThatMayBeSpoiledAreRefusedOrStayInside) {
  EXPECT_TRUE(rc::check("spoiled lists", [this] {
    const Call call = draw();
    RC_PRE(!call.k.empty());
    for (std::uint64_t changes = 1 + upto(1); changes > 0; --changes) {
      change(*(sometimes(2) ? call.k : call.v)[upto(call.k.size() - 1)]);
    }
    bool sound = true;
    for (std::size_t i = 0; i < call.k.size(); ++i) {
      sound = sound && is_sound(call.kv.k, *call.k[i], call.kv.lengths[i]) &&
              is_sound(call.kv.v, *call.v[i], call.kv.lengths[i]);
    }
    const Attend attend = attend_of(call);
    const auto plan = check_attend(attend, target);
    sound = sound && has_all_that_queries_see(attend);
    RC_ASSERT(plan.ok() == sound);
    RC_CLASSIFY(sound);
    if (plan) check_plan(attend, target, *plan);
  }));
}

TEST_F(AttendPlans, OfASequenceDoNotDependOnOtherSequences) {
  EXPECT_TRUE(rc::check("sequences alone", [this] {
    const Call call = draw();
    const auto plan = check_attend(attend_of(call), target);
    RC_PRE(plan.ok());
    const std::vector<PlannedTile> together = query_tiles_of(*plan);
    std::uint64_t token = 0;
    std::size_t next = 0;
    for (std::size_t i = 0; i < call.query_tokens.size(); ++i) {
      Call alone = call;
      alone.kv.k.sequences = {call.kv.k.sequences[i]};
      alone.kv.v.sequences = {call.kv.v.sequences[i]};
      alone.kv.lengths = {call.kv.lengths[i]};
      alone.query_tokens = {call.query_tokens[i]};
      alone.q = call.q.slice(token, call.query_tokens[i]);
      alone.out = call.out.slice(token, call.query_tokens[i]);
      token += call.query_tokens[i];
      for (const PlannedTile& planned : query_tiles_of(check_attend(attend_of(alone), target).value())) {
        const PlannedTile& same = together.at(next++);
        RC_ASSERT(same.tile.sequence == i);
        RC_ASSERT(same.tile.first_vector == planned.tile.first_vector);
        RC_ASSERT(same.tile.vectors == planned.tile.vectors);
        const auto told = [](const LaunchedSplit& one) {
          return std::tuple(one.split.first_key, one.split.keys, one.k, one.v);
        };
        RC_ASSERT(std::ranges::equal(same.splits, planned.splits, {}, told, told));
      }
    }
    RC_ASSERT(next == together.size());
  }));
}

TEST_F(AttendPlans, OfALongSequenceHaveLongerSplits) {
  Call call(device);
  call.kv.lengths = {140000, 70000};
  call.k[0]->sealed_pages = 2100;
  call.k[0]->page_table.assign(2188, 2);
  call.v[0]->sealed_pages = 1050;
  call.v[0]->page_table.assign(1094, 2);
  call.k[1]->ring = 67000;
  call.k[1]->page_table.assign(1047, 5);
  call.v[1]->ring = 69000;
  call.v[1]->page_table.assign(540, 5);
  const Attend attend = attend_of(call);
  const auto plan = check_attend(attend, target);
  ASSERT_OK(plan);
  check_plan(attend, target, *plan);
}

// 16 splits up to 8192 keys, 16 for each octave up to 131072, then one for 4096 keys.
constexpr std::uint64_t kSplitsOfAMillion = 16 + 4 * 16 + (1048576 - 131072) / 4096;

TEST_F(AttendPlans, OfAMillionKeysInManySequencesAreSmall) {
  constexpr std::uint64_t kSequences = 256;
  SmallCall call(device, 128, 2, 4, kSequences);
  for (std::uint64_t sequence = 0; sequence < kSequences; ++sequence) call.add_sequence(1048576);
  target_gpu(20 << 20);
  const auto plan = check(call);
  ASSERT_OK(plan);
  const std::vector<PlannedTile> tiles = query_tiles_of(*plan);
  ASSERT_EQ(tiles.size(), kSequences);
  for (const PlannedTile& planned : tiles) ASSERT_EQ(planned.splits.size(), kSplitsOfAMillion);
  check_scratch(attend_of(call), target, *plan, tiles);
  // A query tile's partial results: 2 heads, 4 vectors, 32 floats each.
  constexpr std::uint64_t kQueryTileBytes = kSplitsOfAMillion * 2 * 4 * 32 * 4;
  EXPECT_EQ(plan->rounds.size(), (kSequences - 1) / ((20 << 20) / kQueryTileBytes) + 1);
  EXPECT_EQ(plan->words.size(), kPlanHeaderWords + kSequences * (kPlanSequenceWords + 2 * 8192 + kQueryTileWords) +
                                    kSequences * kSplitsOfAMillion * (kKvSplitWords + 1));
}

}  // namespace
}  // namespace rota::ops
