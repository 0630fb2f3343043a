#include "ops/store/store.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>
#include <limits>

#include "codec/dense/dense.params.h"
#include "harness/on_device.h"
#include "harness/reserved.h"
#include "runtime/device_state.h"

// The pure half of `store`: every bad argument, and the launch that a good call leads to.

namespace rota::ops {
namespace {

constexpr auto kMax = std::numeric_limits<std::uint64_t>::max();

// A sound call that tests spoil in one place.
struct Call {
  explicit Call(Device& device)
      : source(device.allocate(7 * 2 * 6 * 4).value()),
        pool(device.allocate(std::uint64_t{3} * 4 * 2 * 6 * 2).value()),
        counter(device.allocate(24).value()) {
    pairs.push_back({View::token_major(source, DType::f32, {.tokens = 7, .heads = 2, .dim = 6}),
                     SlotView::head_major(pool, DType::f16, {.pages = 3, .page_slots = 4, .heads = 2, .dim = 6})});
    sequences.push_back({.tokens = 3, .position = 2, .capacity = 4, .page_table = first_table});
    sequences.push_back({.tokens = 4, .position = 9, .capacity = 7, .page_table = second_table});
  }

  StorePair& pair() { return pairs.front(); }
  void set_run(std::size_t index, TokenRun run) { sequences[index] = run; }

  Buffer source, pool, counter;
  std::vector<std::uint32_t> first_table{1}, second_table{2, 0};
  std::vector<StorePair> pairs;
  std::vector<TokenRun> sequences;
  std::optional<Counter> non_finite = {};
};

// All that is asked before a device is.
struct StorePlan : CheckedStore {
  std::vector<std::uint32_t> slots;
};

class StoreCheck : public ::testing::Test {
 protected:
  Result<StorePlan> check(const Call& call) const {
    StorePlan plan;
    const Store store{.pairs = call.pairs, .sequences = call.sequences, .non_finite = call.non_finite};
    if (Status status = check_store(store, target, plan); !status) return status.error();
    auto slots = plan_slots(plan.stretches, target);
    if (!slots) return slots.error();
    plan.slots = std::move(slots).value();
    return plan;
  }

  void expect_refused(const std::function<void(Call&)>& spoil, std::initializer_list<std::string_view> texts) {
    Call call(device);
    spoil(call);
    test::expect_error(check(call), Errc::invalid_argument, texts);
  }

  Device device = Device::open({.device = "cpu", .threads = 1}).value();
  runtime::Target target{runtime::Inside::of(device).get(), "cpu", device.info().limits};
};

TEST_F(StoreCheck, PlansWhereEachTokenGoes) {
  const Call call(device);
  const auto plan = check(call);
  ASSERT_OK(plan);
  const std::vector<std::uint32_t> wanted{0, 1, 2, 1, 1, 3, 2, 1, 0,            // slots 2, 3, 0 of page 1
                                          3, 2, 2, 4, 2, 3, 5, 0, 0, 6, 0, 1};  // slots 2..5 of pages 2 and 0
  EXPECT_EQ(plan->slots, wanted);
}

TEST_F(StoreCheck, RefusesPairsThatDoNotFitTogether) {
  expect_refused([](Call& c) { c.pairs.clear(); }, {"store: pairs is empty; wanted at least one"});
  expect_refused([](Call& c) { c.pair().to.shape.heads = 1; },
                 {"pairs[0].to.shape.heads is 1; wanted 2, as pairs[0].from.shape.heads is"});
  expect_refused([](Call& c) { c.pair().to.shape.dim = 5; }, {"pairs[0].to.shape.dim is 5; wanted 6"});
  expect_refused(
      [](Call& c) {
        c.pairs.push_back(c.pair());
        c.pairs[1].from = c.pairs[1].from.slice(0, 6);
      },
      {"pairs[1].from.shape.tokens is 6; wanted 7, as pairs[0].from.shape.tokens is"});
  expect_refused(
      [](Call& c) {
        c.pairs.push_back(c.pair());
        c.pairs[1].to.shape.page_slots = 3;
      },
      {"pairs[1].to.shape.page_slots is 3; wanted 4, as pairs[0].to.shape.page_slots is"});
}

TEST_F(StoreCheck, RefusesPoolsWithoutRoom) {
  expect_refused([](Call& c) { c.pair().to.shape.pages = 0; }, {"pairs[0].to.shape.pages is 0; wanted at least 1"});
  expect_refused([](Call& c) { c.pair().to.shape.page_slots = 0; }, {"page_slots is 0; wanted at least 1"});
}

TEST_F(StoreCheck, RefusesViewsThatLeaveTheirBuffers) {
  expect_refused([](Call& c) { c.pair().from.offset = 1; },
                 {"pairs[0].from is a view that ends at byte 340; wanted all of it inside its buffer of 336 bytes"});
  expect_refused([](Call& c) { c.pair().from.token_stride = 13; }, {"pairs[0].from is a view that ends at byte"});
  expect_refused([](Call& c) { c.pair().from.head_stride = 7; }, {"pairs[0].from is a view that ends at byte"});
  expect_refused([](Call& c) { c.pair().from.dim_stride = 2; }, {"pairs[0].from is a view that ends at byte"});
  expect_refused([](Call& c) { c.pair().from.token_stride = kMax; }, {"ends beyond 2^64 bytes"});
  expect_refused([](Call& c) { c.pair().from.offset = kMax - 5; }, {"ends beyond 2^64 bytes"});
  expect_refused([](Call& c) { c.pair().to.offset = 1; }, {"pairs[0].to is a view that ends at byte 290"});
  expect_refused([](Call& c) { c.pair().to.shape.pages = 4; }, {"pairs[0].to is a view that ends at byte 384"});
  expect_refused([](Call& c) { c.pair().to.page_stride = kMax / 2; }, {"pairs[0].to", "2^64"});
}

TEST_F(StoreCheck, RefusesSlicesThatLeaveTheirViews) {
  Call call(device);
  const View all = call.pair().from;
  for (const auto& [first, count] :
       {std::pair<std::uint64_t, std::uint64_t>{1, 7}, {8, 0}, {kMax, 7}, {0, 8}, {7, kMax}}) {
    call.pair().from = all.slice(first, count);
    call.set_run(0, {.tokens = count, .position = 0, .capacity = 4, .page_table = call.first_table});
    call.sequences.erase(call.sequences.begin() + 1, call.sequences.end());
    ASSERT_FALSE(check(call).ok()) << first << ", " << count;
  }
  call.pair().from = all.slice(1, 7);
  test::expect_error(check(call), Errc::invalid_argument, {"pairs[0].from is a slice that leaves its view"});
}

TEST_F(StoreCheck, RefusesUnknownDTypesAndMissingBuffers) {
  expect_refused([](Call& c) { c.pair().from.dtype = static_cast<DType>(9); },
                 {"pairs[0].from is of dtype 9; wanted f32, f16, bf16"});
  expect_refused([](Call& c) { c.pair().to.dtype = static_cast<DType>(3); }, {"pairs[0].to is of dtype 3"});
  expect_refused([](Call& c) { c.pair().from.buffer = {}; }, {"pairs[0].from is a view of no buffer"});
  expect_refused([](Call& c) { c.pair().to.buffer = {}; }, {"pairs[0].to is a view of no buffer"});
}

TEST_F(StoreCheck, RefusesBuffersOfOtherDevices) {
  Device other = Device::open({.device = "cpu", .threads = 1}).value();
  Call foreign(other);
  expect_refused([&](Call& c) { c.pair().from.buffer = foreign.source; },
                 {"pairs[0].from is in a buffer of another device (cpu); wanted a buffer of the encoder's own cpu"});
  expect_refused([&](Call& c) { c.pair().to.buffer = foreign.pool; }, {"pairs[0].to is in a buffer of another device"});
}

TEST_F(StoreCheck, RefusesTargetsThatShareElements) {
  expect_refused([](Call& c) { c.pair().to.slot_stride = 0; }, {"pairs[0].to is a layout with strides", "of its own"});
  expect_refused([](Call& c) { c.pair().to.slot_stride = 5; }, {"of its own"});
  expect_refused([](Call& c) { c.pair().to.head_stride = 23; }, {"of its own"});
  expect_refused([](Call& c) { c.pair().to.page_stride = 47; }, {"of its own"});
  expect_refused([](Call& c) { c.pair().to.dim_stride = 0; }, {"of its own"});
}

TEST_F(StoreCheck, RefusesASourceInsideItsTarget) {
  Call call(device);
  const Buffer both = device.allocate(336 + 288).value();
  call.pair().from.buffer = both;
  call.pair().to.buffer = both;
  call.pair().to.offset = 168;
  ASSERT_OK(check(call));
  call.pair().to.offset = 167;
  test::expect_error(
      check(call), Errc::invalid_argument,
      {"pairs[0].from is in bytes 0 to 336 of one buffer with pairs[0].to", "bytes outside of its 332 to 624"});
}

TEST_F(StoreCheck, TakesACounterOrNone) {
  Call call(device);
  EXPECT_FALSE(check(call)->counter);
  call.non_finite = {call.counter, 16};
  const auto plan = check(call);
  ASSERT_OK(plan);
  ASSERT_TRUE(plan->counter);
  EXPECT_EQ(plan->counter->first_element, 16U);
}

TEST_F(StoreCheck, RefusesCountersThatAreNotThere) {
  expect_refused([](Call& c) { c.non_finite = Counter{}; }, {"store: non_finite is a view of no buffer"});
  expect_refused([](Call& c) { c.non_finite = {c.counter, 24}; }, {"non_finite is a view that ends at byte 32"});
  expect_refused([](Call& c) { c.non_finite = {c.counter, 12}; }, {"non_finite is at byte 12; wanted a multiple of 8"});
  expect_refused([](Call& c) { c.non_finite = {c.counter, kMax - 7}; }, {"non_finite", "2^64"});
  Device other = Device::open({.device = "cpu", .threads = 1}).value();
  const Call foreign(other);
  expect_refused([&](Call& c) { c.non_finite = {foreign.counter}; }, {"non_finite is in a buffer of another device"});
}

TEST_F(StoreCheck, RefusesACounterInsideAnySourceOrTarget) {
  expect_refused([](Call& c) { c.non_finite = {c.source, 328}; },
                 {"non_finite is in bytes 328 to 336 of one buffer with pairs[0].from", "outside of its 0 to 336"});
  expect_refused([](Call& c) { c.non_finite = {c.pool, 8}; },
                 {"non_finite is in bytes 8 to 16 of one buffer with pairs[0].to", "outside of its 0 to 288"});
  const Call second(device);
  const auto add_second_pair = [&](Call& c) { c.pairs.push_back(second.pairs.front()); };
  expect_refused(
      [&](Call& c) {
        add_second_pair(c);
        c.non_finite = {second.source, 8};
      },
      {"non_finite is in bytes 8 to 16 of one buffer with pairs[1].from"});
  expect_refused(
      [&](Call& c) {
        add_second_pair(c);
        c.non_finite = {second.pool, 280};
      },
      {"non_finite is in bytes 280 to 288 of one buffer with pairs[1].to"});
}

TEST_F(StoreCheck, ACounterMayLieBehindASource) {
  Call call(device);
  const Buffer both = device.allocate(336 + 8).value();
  call.pair().from.buffer = both;
  call.non_finite = {both, 336};
  EXPECT_OK(check(call));
}

TEST_F(StoreCheck, RefusesSequencesThatDoNotAddUp) {
  expect_refused([](Call& c) { c.sequences.pop_back(); },
                 {"sequences is 3 tokens long; wanted the 7 tokens of pairs[0].from"});
  expect_refused([](Call& c) { c.sequences.clear(); }, {"sequences is 0 tokens long"});
  expect_refused(
      [](Call& c) { c.set_run(1, {.tokens = 5, .position = 9, .capacity = 7, .page_table = c.second_table}); },
      {"sequences[1].tokens is 5; wanted at most the 4"});
  expect_refused(
      [](Call& c) { c.set_run(1, {.tokens = kMax, .position = 9, .capacity = 7, .page_table = c.second_table}); },
      {"sequences[1].tokens is 18446744073709551615"});
}

TEST_F(StoreCheck, RefusesPositionsAndCapacities) {
  expect_refused(
      [](Call& c) { c.set_run(0, {.tokens = 3, .position = 2, .capacity = 0, .page_table = c.first_table}); },
      {"sequences[0].capacity is 0; wanted at least 1"});
  expect_refused(
      [](Call& c) { c.set_run(0, {.tokens = 3, .position = kMax - 2, .capacity = 4, .page_table = c.first_table}); },
      {"sequences[0].position is 18446744073709551613; wanted 3 tokens to end below 2^64"});
  expect_refused(
      [](Call& c) {
        c.set_run(
            0, {.tokens = 3, .position = 2, .capacity = 4, .page_table = c.first_table, .when_full = WhenFull::refuse});
      },
      {"sequences[0].position is 2; wanted 3 tokens to end within the capacity of 4"});
  expect_refused([](Call& c) { c.set_run(0, {.tokens = 3, .position = 2, .capacity = 4}); },
                 {"sequences[0].page_table is empty; wanted the sequence's pages in a pool of 3"});
  expect_refused(
      [](Call& c) {
        c.pair().to.shape.pages = 1;
        c.set_run(0, {.tokens = 3, .position = 2, .capacity = 5});
      },
      {"sequences[0].capacity is 5; wanted at most the 4 slots of one page where there is no table"});
}

TEST_F(StoreCheck, RefusesTablesThatAreTooShortOrPointOutside) {
  expect_refused(
      [](Call& c) { c.set_run(0, {.tokens = 3, .position = 2, .capacity = 5, .page_table = c.first_table}); },
      {"sequences[0].page_table is of 1 pages; wanted 2 for a capacity of 5 in pages of 4 slots"});
  expect_refused(
      [](Call& c) { c.set_run(0, {.tokens = 3, .position = 2, .capacity = kMax, .page_table = c.first_table}); },
      {"sequences[0].page_table is of 1 pages; wanted 4611686018427387904"});
  expect_refused([](Call& c) { c.first_table[0] = 3; },
                 {"sequences[0].page_table is a table that names page 3; wanted pages below 3, the size of the pool"});
  expect_refused([](Call& c) { c.second_table[1] = 0xffffffffU; }, {"sequences[1].page_table", "page 4294967295"});
}

TEST_F(StoreCheck, AcceptsTableEntriesThatItDoesNotNeedYet) {
  Call call(device);
  call.second_table = {2, 0, 0xffffffffU};
  call.set_run(1, {.tokens = 4, .position = 2, .capacity = 12, .page_table = call.second_table});
  EXPECT_OK(check(call));
}

TEST_F(StoreCheck, RefusesTwoTokensForOneSlot) {
  expect_refused([](Call& c) { c.second_table[0] = 1; }, {"sequences is two tokens (", "for slot 2 of page 1"});
  expect_refused(
      [](Call& c) {
        c.second_table[1] = 2;
        c.set_run(1, {.tokens = 4, .position = 0, .capacity = 7, .page_table = c.second_table});
        c.sequences[0] = {.tokens = 3, .position = 0, .capacity = 4, .page_table = c.first_table};
        c.first_table[0] = 2;
      },
      {"of page 2; wanted a slot of its own for each token"});
}

TEST_F(StoreCheck, RefusesWhatOneBindingCannotAddressAndSaysTheLimit) {
  const Call call(device);
  target.id = "gpu:7";
  target.limits.max_binding_bytes = 300;
  test::expect_error(check(call), Errc::unsupported,
                     {"store: pairs[0].from spans 336 bytes; gpu:7 can address 300 bytes in one binding"});
  target.limits.max_binding_bytes = 336;
  EXPECT_OK(check(call));
}

TEST_F(StoreCheck, RefusesAPlanThatOneBindingCannotAddress) {
  Call call(device);
  call.pair().from.shape = {.tokens = 7, .heads = 2, .dim = 1};
  call.pair().to.shape = {.pages = 3, .page_slots = 4, .heads = 2, .dim = 1};
  call.pair().from.token_stride = call.pair().from.head_stride = 0;
  call.pair().to = SlotView::token_major(call.pool, DType::f16, call.pair().to.shape);
  target.limits.max_binding_bytes = 64;
  test::expect_error(check(call), Errc::unsupported, {"a plan for 7 tokens takes 84 bytes; cpu can address 64 bytes"});
}

TEST_F(StoreCheck, NothingToCopyTakesNoPlan) {
  Call call(device);
  call.pair().from.shape.dim = call.pair().to.shape.dim = 0;
  const auto plan = check(call);
  ASSERT_OK(plan);
  EXPECT_TRUE(plan->slots.empty());
}

TEST_F(StoreCheck, RefusesCountsBeyond32Bits) {
  expect_refused([](Call& c) { c.pair().from.shape.tokens = std::uint64_t{1} << 32; },
                 {"pairs[0].from.shape.tokens is 4294967296; wanted at most 4294967295"});
  expect_refused([](Call& c) { c.pair().from.shape.heads = kMax; }, {"from.shape.heads"});
  expect_refused([](Call& c) { c.pair().from.shape.dim = kMax; }, {"from.shape.dim"});
  expect_refused([](Call& c) { c.pair().to.shape.pages = kMax; }, {"to.shape.pages"});
  expect_refused([](Call& c) { c.pair().to.shape.page_slots = kMax; }, {"to.shape.page_slots"});
}

TEST_F(StoreCheck, ABroadcastSourceIsFine) {
  Call call(device);
  call.pair().from.token_stride = 0;
  call.pair().from.head_stride = 0;
  call.pair().from.dim_stride = 0;
  EXPECT_OK(check(call));
}

TEST_F(StoreCheck, RefusesAnUnknownWayToBeFull) {
  expect_refused(
      [](Call& c) {
        c.set_run(0, {.tokens = 3,
                      .position = 2,
                      .capacity = 4,
                      .page_table = c.first_table,
                      .when_full = static_cast<WhenFull>(7)});
      },
      {"sequences[0].when_full is 7; wanted wrap or refuse"});
}

TEST(StoreCpu, ReachesBeyond4GiBOnBothSides) {
  constexpr std::uint64_t kFar =
      (std::uint64_t{1} << 32) + 5;  // elements: beyond 32 bits even before bytes are counted
  constexpr std::uint64_t kBytes = (kFar + 64) * 4;
  const test::Reserved from(kBytes);
  const test::Reserved to(kBytes);
  const float value = 1e30F;
  std::memcpy(from.data() + kFar * 4, &value, sizeof(value));
  std::array<std::uint32_t, 2 * kPlanWords> plan{0, 0, 0, 1, 1, 0};
  const StoreParams params{.from = {.offset = 0, .token = kFar, .head = 0, .dim = 0},
                           .to = {.offset = 0, .page = kFar, .slot = 0, .head = 0, .dim = 0},
                           .tokens = 2,
                           .heads = 1,
                           .dim = 1};
  std::uint64_t counted = 0;
  const std::array<std::uint32_t, 5> constants{kF32, kF16, 1, 1, 1};
  store_cpu({.constants = constants,
             .params = &params,
             .bound = {from.data(), to.data(), reinterpret_cast<std::byte*>(plan.data()),
                       reinterpret_cast<std::byte*>(&counted)},
             .first_item = 0,
             .last_item = 2});
  std::uint16_t stored = 0;
  std::memcpy(&stored, to.data() + kFar * 2, sizeof(stored));
  EXPECT_EQ(stored, f16_from_f32(value));
  EXPECT_EQ(counted, 1U);
}

TEST(TokenRun, CannotLeaveOutWhatHasNoDefault) {
  static_assert(!std::is_default_constructible_v<TokenRun>);
  static_assert(!std::is_default_constructible_v<Required<std::uint64_t>>);
  static_assert(std::is_constructible_v<Required<std::uint64_t>, int>);
  static_assert(!std::is_constructible_v<Required<std::uint64_t>, double>);
}

// The launch, for devices that need not be here.

StoreLaunch launch_for(const StorePair& pair, std::uint64_t from_first, std::uint64_t to_first, std::uint64_t tokens) {
  return choose_store(pair, {{{}, {}, from_first}, {{}, {}, to_first}}, tokens, {});
}

struct Wanted {
  std::uint32_t from, to, from_words, to_words, counts;
};

runtime::Constants constants_of(const Wanted& wanted) {
  return {{kStoreConstantFrom, wanted.from},
          {kStoreConstantTo, wanted.to},
          {kStoreConstantFromWords, wanted.from_words},
          {kStoreConstantToWords, wanted.to_words},
          {kStoreConstantCounts, wanted.counts}};
}

TEST(StoreLaunch, MovesWholeWordsWhereRowsStartOnThem) {
  StorePair pair{View::token_major({}, DType::f16, {.tokens = 4, .heads = 2, .dim = 6}),
                 SlotView::head_major({}, DType::bf16, {.page_slots = 8, .heads = 2, .dim = 6})};
  EXPECT_EQ(launch_for(pair, 0, 0, 4).constants, constants_of({1, 2, 1, 1, 0}));
  EXPECT_EQ(launch_for(pair, 1, 0, 4).constants, constants_of({1, 2, 0, 1, 0}));
  EXPECT_EQ(launch_for(pair, 0, 1, 4).constants, constants_of({1, 2, 1, 0, 0}));
  pair.to.slot_stride = 7;
  EXPECT_EQ(launch_for(pair, 0, 0, 4).constants.values[kStoreConstantToWords], 0U);
  pair.from.dim_stride = 2;
  EXPECT_EQ(launch_for(pair, 0, 0, 4).constants.values[kStoreConstantFromWords], 0U);
  pair.from.dtype = DType::f32;
  EXPECT_EQ(launch_for(pair, 1, 0, 4).constants.values[kStoreConstantFromWords], 1U)
      << "an f32 is a word wherever it lies";
}

TEST(StoreLaunch, CountsOnlyWhereACounterIsGiven) {
  const StorePair pair{View::token_major({}, DType::f16, {.tokens = 4, .heads = 2, .dim = 6}),
                       SlotView::head_major({}, DType::bf16, {.page_slots = 8, .heads = 2, .dim = 6})};
  const CheckedStore::Pair bound{{{}, {}, 0}, {{}, {}, 0}};
  const StoreLaunch launch = choose_store(pair, bound, 4, runtime::Bindable{{}, {}, 24});
  EXPECT_EQ(launch.constants, constants_of({1, 2, 1, 1, 1}));
  EXPECT_EQ(launch.params.counter, 6U) << "in words";
}

TEST(StoreLaunch, StridesThatAreNeverTakenAreZero) {
  StorePair pair{View::token_major({}, DType::f32, {.tokens = 1, .heads = 1, .dim = 1}),
                 SlotView::head_major({}, DType::f32, {.page_slots = 1, .heads = 1, .dim = 1})};
  pair.from.token_stride = pair.from.head_stride = pair.from.dim_stride = kMax;
  pair.to.page_stride = pair.to.slot_stride = pair.to.head_stride = pair.to.dim_stride = kMax;
  const StoreParams params = launch_for(pair, 0, 0, 1).params;
  for (const std::uint64_t stride : {params.from.token, params.from.head, params.from.dim, params.to.page,
                                     params.to.slot, params.to.head, params.to.dim}) {
    EXPECT_EQ(stride, 0U);
  }
}

TEST(StoreLaunch, CoversEveryPairOfElementsWithinWhatADeviceCanLaunch) {
  StorePair pair{View::token_major({}, DType::f16, {.tokens = 131072, .heads = 3, .dim = 7}),
                 SlotView::head_major({}, DType::f16, {.page_slots = 131072, .heads = 3, .dim = 7})};
  EXPECT_EQ(launch_for(pair, 0, 0, 1).dispatch.groups, 1U);
  EXPECT_EQ(launch_for(pair, 0, 0, 5).dispatch.groups, 1U);  // 60 pairs
  EXPECT_EQ(launch_for(pair, 0, 0, 6).dispatch.groups, 2U);  // 72 pairs
  EXPECT_EQ(launch_for(pair, 0, 0, 6).dispatch.items, 18U);
  EXPECT_EQ(launch_for(pair, 0, 0, 131072).dispatch.groups, 24576U);
  pair.from.shape.heads = pair.to.shape.heads = 64;
  EXPECT_EQ(launch_for(pair, 0, 0, 131072).dispatch.groups, runtime::kMaxGroups);
}

}  // namespace
}  // namespace rota::ops
