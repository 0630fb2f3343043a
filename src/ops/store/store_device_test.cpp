#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <numeric>

#include "harness/counter.h"
#include "harness/on_device.h"
#include "ops/store/store_reference.h"
#include "runtime/recorder.h"

namespace rota::test {
namespace {

class StoreOnDevice : public OnDevice {
 protected:
  // Stores without and with a counter, and holds the result against the definition.
  void expect_stored(PairUnderTest& pair, const std::vector<Sequence>& sequences) {
    const std::uint64_t non_finite = pair.store_by_definition(sequences);
    ASSERT_OK(run_store(device, {pair.view}, runs_of(sequences)));
    pair.expect_as_defined();
    const Buffer counter = new_counter(device);
    ASSERT_OK(run_store(device, {pair.view}, runs_of(sequences), Counter{counter}));
    pair.expect_as_defined();
    EXPECT_EQ(read_counter(counter), non_finite);
  }

  std::mt19937_64 random{20261115};
};

TEST_F(StoreOnDevice, ConvertsAndCountsEveryPatternAsTheFormatsDefine) {
  for (const DTypeInfo& from : kDTypes) {
    const auto patterns = telling_patterns(from.dtype);
    std::vector<std::byte> source(patterns.size() * from.bytes);
    for (std::size_t i = 0; i < patterns.size(); ++i) save_bits(source, from.dtype, i, patterns[i]);
    Buffer from_buffer = device.allocate(source.size()).value();
    ASSERT_OK(from_buffer.write(source));
    for (const DTypeInfo& to : kDTypes) {
      Buffer to_buffer = device.allocate(patterns.size() * to.bytes).value();
      const Shape shape{.tokens = patterns.size() / 64, .heads = 1, .dim = 64};
      const StorePair pair{
          View::token_major(from_buffer, from.dtype, shape),
          SlotView::token_major(to_buffer, to.dtype, {.page_slots = shape.tokens, .heads = 1, .dim = 64})};
      const Buffer counter = new_counter(device);
      ASSERT_OK(run_store(device, {pair}, {{.tokens = shape.tokens, .position = 0, .capacity = shape.tokens}},
                          Counter{counter}));
      std::vector<std::byte> stored(patterns.size() * to.bytes);
      ASSERT_OK(to_buffer.read(stored));
      std::size_t wrong = 0;
      std::uint64_t non_finite = 0;
      for (std::size_t i = 0; i < patterns.size(); ++i) {
        const std::uint32_t wanted = convert_bits(patterns[i], from.dtype, to.dtype);
        if (!std::isfinite(value_of(wanted, to.dtype))) ++non_finite;
        if (load_bits(stored, to.dtype, i) != wanted && wrong++ < 5) {
          ADD_FAILURE() << std::hex << patterns[i] << " from " << from.name << " to " << to.name << " is "
                        << load_bits(stored, to.dtype, i) << ", wanted " << wanted;
        }
      }
      EXPECT_EQ(wrong, 0U);
      EXPECT_EQ(read_counter(counter), non_finite) << from.name << " to " << to.name;
    }
  }
}

TEST_F(StoreOnDevice, CountsAddUpOverPairsAndCallsAndCarryBeyond32Bits) {
  constexpr std::uint64_t kStart = 0xffff'ffff;
  constexpr std::uint64_t kPlace = 24;
  const std::vector<Sequence> sequences{{.tokens = 5, .position = 6, .capacity = 8}};
  Buffer counter = device.allocate(kPlace + 16).value();
  ASSERT_OK(counter.write(std::vector<std::byte>(counter.size_bytes())));
  ASSERT_OK(counter.write(std::as_bytes(std::span(&kStart, 1)), kPlace));
  std::vector<PairUnderTest> pairs;
  for (const DType to : {DType::f16, DType::bf16}) {
    pairs.push_back(
        make_pair(device, random, {.to = to, .tokens = 5, .pool = {.page_slots = 8, .heads = 3, .dim = 13}}));
  }
  const std::vector<StorePair> views{pairs[0].view, pairs[1].view};
  const std::vector<TokenRun> runs = runs_of(sequences);
  Encoder encoder = device.encoder();
  store(encoder, {.pairs = views, .sequences = runs, .non_finite = {{counter, kPlace}}});
  store(encoder, {.pairs = {views.data(), 1}, .sequences = runs, .non_finite = {{counter, kPlace}}});
  ASSERT_OK(std::move(encoder).submit().value().wait());
  const std::uint64_t first = pairs[0].store_by_definition(sequences);
  const std::uint64_t second = pairs[1].store_by_definition(sequences);
  EXPECT_GT(first, second) << "f16 cannot hold what bf16 can";
  EXPECT_EQ(read_counter(counter, kPlace), kStart + 2 * first + second);
  EXPECT_EQ(read_counter(counter, kPlace - 8), 0U);
  EXPECT_EQ(read_counter(counter, kPlace + 8), 0U);
  for (const PairUnderTest& pair : pairs) pair.expect_as_defined();
}

TEST_F(StoreOnDevice, CountsOnlyTokensThatARingKeeps) {
  constexpr std::uint64_t kRow = 2 * 6;
  for (const std::uint64_t tokens : {8U, 9U, 23U}) {
    std::vector<float> values(tokens * kRow, 1e30F);
    std::fill(values.end() - 3 * kRow, values.end(), 1.0F);
    Buffer source = device.allocate(values.size() * 4).value();
    ASSERT_OK(source.write(std::as_bytes(std::span(values))));
    const Buffer cache = device.allocate(8 * kRow * 2).value();
    const Buffer counter = new_counter(device);
    const StorePair pair{View::token_major(source, DType::f32, {.tokens = tokens, .heads = 2, .dim = 6}),
                         SlotView::head_major(cache, DType::f16, {.page_slots = 8, .heads = 2, .dim = 6})};
    ASSERT_OK(run_store(device, {pair}, {{.tokens = tokens, .position = 5, .capacity = 8}}, Counter{counter}));
    EXPECT_EQ(read_counter(counter), 5 * kRow) << tokens << " tokens, of which 8 stay and 3 are finite";
  }
}

TEST_F(StoreOnDevice, WithoutACounterPairsDoNotWaitForEachOther) {
  auto keys = make_pair(device, random, {.tokens = 5, .pool = {.page_slots = 8, .heads = 2, .dim = 6}});
  auto values = make_pair(device, random, {.tokens = 5, .pool = {.page_slots = 8, .heads = 2, .dim = 6}});
  const std::vector<StorePair> pairs{keys.view, values.view};
  const TokenRun run{.tokens = 5, .position = 0, .capacity = 8};
  const Buffer counter = new_counter(device);
  for (const bool counts : {false, true}) {
    Encoder encoder = device.encoder();
    store(encoder, {.pairs = pairs,
                    .sequences = {&run, 1},
                    .non_finite = counts ? std::optional(Counter{counter}) : std::nullopt});
    std::vector<bool> barriers;
    for (const auto& command : runtime::Inside::of(encoder)->commands().all())
      barriers.push_back(command.barrier_before);
    EXPECT_EQ(barriers, (std::vector<bool>{false, counts}));
    ASSERT_OK(std::move(encoder).submit().value().wait());
  }
}

TEST_F(StoreOnDevice, AgreesWithTheDefinitionForAnyLayoutPagingAndRing) {
  EXPECT_TRUE(rc::check("store", [this] {
    std::mt19937_64 drawn(*rc::gen::arbitrary<std::uint64_t>());  // so that a failure can be replayed
    const auto dtype = rc::gen::element(DType::f32, DType::f16, DType::bf16);
    const auto upto = [](std::uint64_t most) { return *rc::gen::inRange<std::uint64_t>(1, most + 1); };
    const std::uint64_t heads = upto(4);
    const std::uint64_t dim = upto(11);
    const std::uint64_t page_slots = upto(6);

    std::vector<Sequence> sequences;
    std::vector<std::uint32_t> free_pages(16);
    std::iota(free_pages.begin(), free_pages.end(), 0U);
    std::ranges::shuffle(free_pages, drawn);
    std::uint64_t tokens = 0;
    for (std::uint64_t count = upto(4); count > 0; --count) {
      const std::uint64_t pages = upto(4);
      Sequence sequence{.tokens = *rc::gen::inRange<std::uint64_t>(0, 40),
                        .position = *rc::gen::element<std::uint64_t>(0, 1, 5, 63, (1ULL << 32) - 3, (1ULL << 63) + 11),
                        .capacity = pages * page_slots - *rc::gen::inRange<std::uint64_t>(0, page_slots)};
      sequence.page_table.assign(free_pages.end() - static_cast<std::ptrdiff_t>(pages), free_pages.end());
      free_pages.resize(free_pages.size() - pages);
      tokens += sequence.tokens;
      sequences.push_back(std::move(sequence));
    }

    // Strides: the axes in any order, with gaps; each starts beyond all that the smaller ones reach.
    const auto strides_of = [&](std::vector<std::uint64_t> counts) {
      std::vector<std::size_t> order(counts.size());
      std::iota(order.begin(), order.end(), 0U);
      if (*rc::gen::inRange(0, 3) == 0) {
        std::ranges::shuffle(order, drawn);
      }
      std::vector<std::uint64_t> strides(counts.size());
      std::uint64_t next = 1;
      for (const std::size_t axis : order) {
        strides[axis] = next;
        next =
            strides[axis] * std::max<std::uint64_t>(counts[axis], 1) + *rc::gen::element<std::uint64_t>(0, 0, 1, 2, 5);
      }
      strides.push_back(next);  // elements that the view reaches
      return strides;
    };
    const auto from_strides = strides_of({dim, heads, tokens});
    const auto to_strides = strides_of({dim, page_slots, heads, 16});
    const std::uint64_t shift = *rc::gen::inRange<std::uint64_t>(0, 3);

    PairUnderTest pair(device, drawn, {*dtype, from_strides.back() + shift}, {*dtype, to_strides.back() + shift});
    View& from = pair.view.from;
    from.shape = {.tokens = tokens, .heads = heads, .dim = dim};
    from.offset += shift;
    from.dim_stride = from_strides[0];
    from.head_stride = from_strides[1];
    from.token_stride = from_strides[2];
    SlotView& to = pair.view.to;
    to.shape = {.pages = 16, .page_slots = page_slots, .heads = heads, .dim = dim};
    to.offset += shift;
    to.dim_stride = to_strides[0];
    to.slot_stride = to_strides[1];
    to.head_stride = to_strides[2];
    to.page_stride = to_strides[3];

    const Buffer counter = new_counter(device);
    const bool counts = *rc::gen::arbitrary<bool>();
    const Status stored =
        run_store(device, {pair.view}, runs_of(sequences), counts ? std::optional(Counter{counter}) : std::nullopt);
    if (!stored) RC_FAIL(stored.error().message);
    const std::uint64_t non_finite = pair.store_by_definition(sequences);
    RC_ASSERT(pair.is_as_defined());
    RC_ASSERT(read_counter(counter) == (counts ? non_finite : 0));
  }));
}

TEST_F(StoreOnDevice, KeepsTheNewestOfMoreTokensThanSlots) {
  for (const std::uint64_t tokens : {7U, 8U, 9U, 16U, 23U}) {
    for (const std::uint64_t position : {0U, 1U, 7U, 8U, 1000U}) {
      auto pair = make_pair(device, random, {.tokens = tokens, .pool = {.page_slots = 8, .heads = 2, .dim = 6}});
      expect_stored(pair, {{.tokens = tokens, .position = position, .capacity = 8}});
    }
  }
}

TEST_F(StoreOnDevice, SplitOverSeveralCallsGivesTheSameRing) {
  auto once = make_pair(device, random, {.tokens = 30, .pool = {.page_slots = 8, .heads = 2, .dim = 6}});
  ASSERT_OK(run_store(device, {once.view}, {{.tokens = 30, .position = 3, .capacity = 8}}));
  once.store_by_definition({{.tokens = 30, .position = 3, .capacity = 8}});
  once.expect_as_defined();

  Encoder encoder = device.encoder();
  std::uint64_t done = 0;
  for (const std::uint64_t tokens : {1U, 9U, 7U, 8U, 5U}) {
    const StorePair part{once.view.from.slice(done, tokens), once.view.to};
    const TokenRun run{.tokens = tokens, .position = 3 + done, .capacity = 8};
    store(encoder, {.pairs = {&part, 1}, .sequences = {&run, 1}});
    done += tokens;
  }
  ASSERT_OK(std::move(encoder).submit().value().wait());
  once.expect_as_defined();
}

TEST_F(StoreOnDevice, Stores256SequencesInOneCall) {
  constexpr std::uint64_t kSequences = 256;
  constexpr SlotShape kPool{.pages = 2 * kSequences, .page_slots = 4, .heads = 2, .dim = 8};
  std::vector<std::uint32_t> pages(kPool.pages);
  std::iota(pages.begin(), pages.end(), 0U);
  std::ranges::shuffle(pages, random);
  std::vector<Sequence> sequences;
  std::uint64_t tokens = 0;
  for (std::uint64_t i = 0; i < kSequences; ++i) {
    sequences.push_back(
        {.tokens = i % 5, .position = i * 977, .capacity = 5 + i % 4, .page_table = {pages[2 * i], pages[2 * i + 1]}});
    tokens += i % 5;
  }
  auto pair = make_pair(device, random, {.tokens = tokens, .pool = kPool});
  expect_stored(pair, sequences);
}

TEST_F(StoreOnDevice, StoresKeysAndValuesOfDifferentSizesInOneCall) {
  const std::vector<Sequence> sequences{{.tokens = 5, .position = 6, .capacity = 8}};
  auto keys = make_pair(device, random, {.tokens = 5, .pool = {.page_slots = 8, .heads = 2, .dim = 12}});
  auto values = make_pair(device, random,
                          {.from = DType::bf16,
                           .to = DType::bf16,
                           .to_order = Order::token_major,
                           .tokens = 5,
                           .pool = {.page_slots = 8, .heads = 4, .dim = 8}});
  ASSERT_OK(run_store(device, {keys.view, values.view}, runs_of(sequences)));
  for (PairUnderTest* pair : {&keys, &values}) {
    pair->store_by_definition(sequences);
    pair->expect_as_defined();
  }
}

TEST_F(StoreOnDevice, StoresIntoKeysAndValuesThatAlternateInOneBuffer) {
  // [page][K or V][slot][head][dim], as paged engines keep them.
  constexpr std::uint64_t kSlots = 4;
  constexpr std::uint64_t kRow = 2 * 6;
  constexpr std::uint64_t kPages = 3;
  Guarded pool(device, kPages * 2 * kSlots * kRow, DType::f16);
  Guarded source(device, 2 * 5 * kRow, DType::f16);
  const auto bytes = random_elements(random, DType::f16, 2 * 5 * kRow);
  source.write(bytes);
  std::vector<StorePair> pairs;
  for (const std::uint64_t half : {0U, 1U}) {
    StorePair pair{
        View::token_major(source.buffer, DType::f16, {.tokens = 5, .heads = 2, .dim = 6}),
        SlotView::token_major(pool.buffer, DType::f16, {.pages = kPages, .page_slots = kSlots, .heads = 2, .dim = 6})};
    pair.from.offset = source.offset + half * 5 * kRow;
    pair.to.offset = pool.offset + half * kSlots * kRow;
    pair.to.page_stride *= 2;
    pairs.push_back(pair);
  }
  const std::vector<std::uint32_t> table{2, 0};
  ASSERT_OK(run_store(device, pairs, {{.tokens = 5, .position = 1, .capacity = 8, .page_table = table}}));

  std::vector<std::byte> wanted(pool.read().size(), Guarded::kPoison);
  for (std::uint64_t half = 0; half < 2; ++half) {
    for (std::uint64_t token = 0; token < 5; ++token) {
      const std::uint64_t slot = token + 1;
      const std::uint64_t row = (table[slot / kSlots] * 2 + half) * kSlots + slot % kSlots;
      std::memcpy(wanted.data() + row * kRow * 2, bytes.data() + (half * 5 + token) * kRow * 2, kRow * 2);
    }
  }
  EXPECT_EQ(pool.read(), wanted);
  EXPECT_TRUE(pool.guards_intact());
}

TEST_F(StoreOnDevice, MovesMoreThanOneLaunchCanCount) {
  // More pairs of elements than 65,535 groups of 64: the kernel must come around again.
  constexpr std::uint64_t kTokens = 70'000;
  auto pair = make_pair(device, random,
                        {.from = DType::f16,
                         .to = DType::f16,
                         .tokens = kTokens,
                         .pool = {.page_slots = kTokens, .heads = 2, .dim = 64}});
  expect_stored(pair, {{.tokens = kTokens, .position = 12345, .capacity = kTokens}});
}

TEST_F(StoreOnDevice, SplitsPagedStridedOddRowsOverAllThreads) {
  constexpr SlotShape kPool{.pages = 256, .page_slots = 64, .heads = 3, .dim = 65};
  std::vector<std::uint32_t> pages(kPool.pages);
  std::iota(pages.begin(), pages.end(), 0U);
  std::ranges::shuffle(pages, random);
  std::vector<Sequence> sequences;
  for (std::uint64_t i = 0; i < 4; ++i) {
    const auto first = pages.begin() + static_cast<std::ptrdiff_t>(i * 64);
    sequences.push_back(
        {.tokens = 3000 + i * 500, .position = i * 12'345, .capacity = 4000 + i, .page_table = {first, first + 64}});
  }
  const std::uint64_t tokens = 4 * 3000 + 6 * 500;
  PairUnderTest pair(device, random, {DType::bf16, tokens * 3 * 67 + 1}, {DType::f16, 256 * (64 * 3 * 66 + 5)});
  pair.view.from.shape = {.tokens = tokens, .heads = 3, .dim = 65};
  pair.view.from.head_stride = 67;
  pair.view.from.token_stride = std::uint64_t{3} * 67;
  pair.view.from.offset += 1;
  pair.view.to.shape = kPool;
  pair.view.to.slot_stride = 66;
  pair.view.to.head_stride = std::uint64_t{64} * 66;
  pair.view.to.page_stride = std::uint64_t{64} * 3 * 66 + 5;
  expect_stored(pair, sequences);
}

TEST_F(StoreOnDevice, PairsThatNeedEachOtherAreStoredInTheirOrder) {
  // The second pair reads what the first one wrote.
  auto first = make_pair(device, random,
                         {.from = DType::f32,
                          .to = DType::f32,
                          .to_order = Order::token_major,
                          .tokens = 8,
                          .pool = {.page_slots = 8, .heads = 2, .dim = 6}});
  auto second =
      make_pair(device, random,
                {.from = DType::f32, .to = DType::f16, .tokens = 8, .pool = {.page_slots = 8, .heads = 2, .dim = 6}});
  StorePair chained = second.view;
  chained.from = View::token_major(first.view.to.buffer, DType::f32, {.tokens = 8, .heads = 2, .dim = 6});
  chained.from.offset = first.view.to.offset;
  ASSERT_OK(run_store(device, {first.view, chained}, {{.tokens = 8, .position = 0, .capacity = 8}}));
  std::vector<float> kept(96);
  std::vector<std::uint16_t> found(96);
  ASSERT_OK(first.view.to.buffer.read(std::as_writable_bytes(std::span(kept)), first.view.to.offset * 4));
  ASSERT_OK(second.view.to.buffer.read(std::as_writable_bytes(std::span(found)), second.view.to.offset * 2));
  for (std::size_t i = 0; i < 96; ++i) {
    const std::size_t token = i / 12, head = i / 6 % 2, d = i % 6;
    const std::uint32_t wanted = convert_bits(std::bit_cast<std::uint32_t>(kept[i]), DType::f32, DType::f16);
    EXPECT_EQ(found[(head * 8 + token) * 6 + d], wanted) << i;
  }
}

TEST_F(StoreOnDevice, OrdersCommandsThatNeedEachOther) {
  // a -> b -> c: the second copy reads what the first one wrote.
  constexpr Shape kShape{.tokens = 64, .heads = 4, .dim = 64};
  const std::uint64_t elements = kShape.tokens * kShape.heads * kShape.dim;
  const auto bytes = random_elements(random, DType::f32, elements);
  std::vector<Buffer> buffers;
  for (int i = 0; i < 8; ++i) buffers.push_back(device.allocate(bytes.size()).value());
  ASSERT_OK(buffers.front().write(bytes));
  Encoder encoder = device.encoder();
  const TokenRun run{.tokens = kShape.tokens, .position = 0, .capacity = kShape.tokens};
  for (std::size_t i = 1; i < buffers.size(); ++i) {
    const StorePair pair{
        View::token_major(buffers[i - 1], DType::f32, kShape),
        SlotView::token_major(buffers[i], DType::f32, {.page_slots = kShape.tokens, .heads = 4, .dim = 64})};
    store(encoder, {.pairs = {&pair, 1}, .sequences = {&run, 1}});
  }
  std::size_t barriers = 0;
  for (const auto& command : runtime::Inside::of(encoder)->commands().all()) barriers += command.barrier_before ? 1 : 0;
  EXPECT_EQ(barriers, buffers.size() - 2);
  ASSERT_OK(std::move(encoder).submit().value().wait());
  std::vector<std::byte> last(bytes.size());
  ASSERT_OK(buffers.back().read(last));
  EXPECT_EQ(last, bytes);
}

TEST_F(StoreOnDevice, ARefusedCallWritesNothing) {
  auto good = make_pair(device, random, {.tokens = 4, .pool = {.page_slots = 8, .heads = 2, .dim = 6}});
  auto bad = make_pair(device, random, {.tokens = 4, .pool = {.page_slots = 8, .heads = 2, .dim = 6}});
  bad.view.to.shape.dim = 5;
  const Status status = run_store(device, {good.view, bad.view}, {{.tokens = 4, .position = 0, .capacity = 8}});
  expect_error(status, Errc::invalid_argument, {"store: pairs[1].to.shape.dim is 5; wanted 6"});
  good.expect_as_defined();
  bad.expect_as_defined();
}

TEST_F(StoreOnDevice, NothingToDoIsFine) {
  auto pair = make_pair(device, random, {.tokens = 3, .pool = {.page_slots = 8, .heads = 2, .dim = 6}});
  StorePair none = pair.view;
  none.from = none.from.slice(3, 0);
  EXPECT_OK(run_store(device, {none}, {{.tokens = 0, .position = 0, .capacity = 8}}));
  EXPECT_OK(run_store(device, {none}, {}));
  pair.expect_as_defined();
}

}  // namespace
}  // namespace rota::test
