#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <thread>

#include "in_metal_engine.h"

// Rota inside of an engine. Everything of Metal's is the test's own, and in software.

namespace rota::mtl {
namespace {

using metal::Edges;
using test::cache_steps;
using test::chain_on;
using test::expect_error;
using test::rotate;
using test::metal::Hazards;
using test::metal::Hold;
using test::metal::Storage;
using namespace std::chrono_literals;

constexpr std::string_view kUnordered = "no barrier or fence orders";

TEST_F(InMetalEngine, OneEncoderHoldsTheEnginesCommandsAndRotas) {
  Device owned = Device::open(test::options_under_test()).value();
  EXPECT_EQ(adopt().info().name, owned.info().name);
  EXPECT_EQ(adopted->info().id, "metal:adopted");
  for (const bool serial : {false, true}) {
    Chain chain(*engine, *adopted);
    const auto commands = engine->begin({.serial = serial});
    const Fence fence = chain.record(*commands);
    EXPECT_FALSE(fence.done().value()) << "nothing was committed";
    commands->commit();
    ASSERT_OK(fence.wait());
    EXPECT_EQ(commands->error(), "");
    EXPECT_EQ(chain.read_back->floats(), chain_on(owned));
    EXPECT_NE(chain.read_back->floats()[0], 0.0F);
  }
}

TEST_F(InMetalEngine, AnEdgeThatIsLeftOutIsSeen) {
  for (const Edges edges : {Edges::before, Edges::after, Edges::none}) {
    adopt();
    Chain chain(*engine, *adopted);
    const auto commands = engine->begin();
    const Fence fence = chain.record(*commands, edges);
    commands->commit();
    expect_error(fence.wait(), Errc::device_lost, {kUnordered});
  }
}

TEST_F(InMetalEngine, AnEdgeMayBeTheEnginesToGuard) {
  adopt();
  const Memory x = engine->allocate(kBytes);
  const Memory read_back = engine->allocate(kBytes);
  for (const Edges edges : {Edges::before, Edges::after, Edges::none}) {
    const auto commands = engine->begin();
    commands->fill(*x, 1.5F);
    if (edges != Edges::before) commands->barrier();
    Encoder encoder = adopted->encoder();
    rotate(encoder, wrapped(x));
    const Fence fence = metal::record(std::move(encoder),
                                      {.commands = commands->buffer(), .encoder = commands->encoder(), .edges = edges})
                            .value();
    if (edges != Edges::after) commands->barrier();
    commands->copy(*x, *read_back);
    commands->commit();
    EXPECT_EQ(commands->error(), "") << "edges " << static_cast<int>(edges);
    ASSERT_OK(fence.wait());
    EXPECT_NE(read_back->floats()[1], 1.5F);
  }
}

TEST_F(InMetalEngine, EachBarrierThatIsDroppedIsSeen) {
  unsigned nth = 1;
  for (;; ++nth) {
    SCOPED_TRACE(nth);
    adopt();
    Chain chain(*engine, *adopted);
    const auto commands = engine->begin();
    test::metal::drop_barrier(nth);
    const Fence fence = chain.record(*commands);
    commands->commit();
    if (!test::metal::has_dropped_barrier()) {
      EXPECT_OK(fence.wait());
      break;
    }
    expect_error(fence.wait(), Errc::device_lost, {kUnordered});
  }
  EXPECT_GT(nth, 4U) << "two edges of each of two recordings";
}

TEST_F(InMetalEngine, ViewsBeginWhereverTheEnginesTensorsDo) {
  adopt();
  constexpr std::size_t kOffset = 5 * sizeof(float);  // a multiple of no alignment but the element's
  const Memory large = engine->allocate(kBytes + kOffset + 3 * sizeof(float));
  std::fill_n(large->host(), large->floats().size(), 1.5F);
  const Memory alone = engine->allocate(kBytes);
  std::fill_n(alone->host(), alone->floats().size(), 1.5F);
  Encoder encoder = adopted->encoder();
  const Rotary rotary{.pairing = Pairing::halves, .theta = 1e4};
  MutView view = MutView::token_major(wrapped(large), DType::f32, test::kShape);
  view.offset = kOffset / sizeof(float);
  const RopeTensor tensor = RopeTensor::in_place(view);
  rope(encoder, {.tensors = {&tensor, 1}, .positions = test::kPositions, .rotary = rotary});
  rotate(encoder, wrapped(alone));
  ASSERT_OK(std::move(encoder).submit().value().wait());
  const std::vector<float> all = large->floats();
  const std::vector<float> expected = alone->floats();
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), all.begin() + kOffset / sizeof(float)));
  EXPECT_EQ(all[kOffset / sizeof(float) - 1], 1.5F);
  EXPECT_EQ(all.back(), 1.5F);
}

TEST_F(InMetalEngine, MemoryThatTheHostDoesNotSeeServesKernels) {
  Device owned = Device::open(test::options_under_test()).value();
  adopt();
  const Memory x = engine->allocate(kBytes, Storage::hidden);
  const Memory read_back = engine->allocate(kBytes);
  const auto commands = engine->begin();
  commands->fill(*x, 1.5F);
  const Fence fence = record_rotation(*commands, wrapped(x));
  commands->copy(*x, *read_back);
  commands->commit();
  ASSERT_OK(fence.wait());
  EXPECT_NE(read_back->floats()[1], 1.5F);
  Buffer buffer = wrapped(x);
  std::vector<std::byte> bytes(kBytes);
  expect_error(buffer.read(bytes), Errc::unsupported, {"Buffer::read", "not shared", "a copy by the engine"});
  expect_error(buffer.write(bytes), Errc::unsupported, {"Buffer::write", "not shared"});
}

TEST_F(InMetalEngine, WhatIsRecordedLivesUntilItHasRun) {
  adopt();
  auto x = engine->allocate(kBytes);
  const std::weak_ptr<EngineMemory> watched = x;
  const Memory kept = engine->allocate(kBytes);
  const auto commands = engine->begin();
  commands->fill(*x, 1.5F);
  record_rotation(*commands, wrapped(x)).done().value();
  commands->copy(*x, *kept);
  x.reset();
  auto hold = std::make_unique<Hold>();
  commands->commit();
  std::thread later([&] {
    std::this_thread::sleep_for(50ms);
    EXPECT_FALSE(watched.expired()) << "the commands have not run";
    hold.reset();
  });
  adopted.reset();  // the last handle: waits
  EXPECT_TRUE(watched.expired());
  later.join();
  EXPECT_EQ(commands->error(), "") << "buffers and pipelines were there";
  EXPECT_NE(kept->floats()[1], 0.0F);
}

TEST_F(InMetalEngine, WhatIsRecordedIsLetGoOnceItHasRun) {
  adopt();
  auto x = engine->allocate(kBytes);
  const std::weak_ptr<EngineMemory> watched = x;
  const auto commands = engine->begin();
  const Fence fence = record_rotation(*commands, wrapped(x));
  x.reset();
  EXPECT_FALSE(fence.wait_for(1ms).value());
  EXPECT_FALSE(watched.expired());
  commands->commit();
  ASSERT_OK(fence.wait());
  EXPECT_TRUE(watched.expired());
  EXPECT_TRUE(fence.done().value()) << "for ever after";
}

TEST_F(InMetalEngine, ACommandBufferThatNobodyCommitsHoldsNobodyUp) {
  adopt();
  const Memory x = engine->allocate(kBytes);
  Buffer buffer = wrapped(x);
  auto commands = engine->begin();
  const Fence fence = record_rotation(*commands, buffer);

  // Copies do not wait for what may never come.
  std::vector<std::byte> bytes(kBytes);
  expect_error(buffer.read(bytes), Errc::busy, {"Buffer::read", "metal::record()", "has not completed", "its fence"});
  expect_error(buffer.write(bytes), Errc::busy, {"Buffer::write", "metal::record()", "uses"});
  EXPECT_FALSE(fence.wait_for(1ms).value());
  // Nor does one that a submission of Rota's own came between.
  Encoder other = adopted->encoder();
  rotate(other, buffer);
  ASSERT_OK(std::move(other).submit().value().wait());
  expect_error(buffer.read(bytes), Errc::busy, {"Buffer::read"});

  commands.reset();  // the engine gives it up
  EXPECT_OK(buffer.read(bytes));
  EXPECT_OK(buffer.write(bytes));
  EXPECT_TRUE(fence.done().value());
}

// What is left is never released, and nothing else may be counted after it: so it is left in a process of its own.
TEST_F(InMetalEngine, WhatNeverEndsIsLeft) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto ends_soon = [&](const auto& begin_work) {
    metal::Adoption impatient = adoption();
    impatient.patience = 20ms;
    adopted = metal::adopt(impatient).value();
    auto x = engine->allocate(kBytes);
    const std::weak_ptr<EngineMemory> watched = x;
    begin_work(wrapped(std::exchange(x, nullptr)));
    const auto begin = std::chrono::steady_clock::now();
    adopted.reset();
    std::_Exit(std::chrono::steady_clock::now() - begin < 5s && !watched.expired() ? 0 : 1);
  };
  EXPECT_EXIT(ends_soon([&](const Buffer& x) {
                static const auto open = engine->begin();
                record_rotation(*open, x).done().value();
              }),
              ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(ends_soon([&](const Buffer& x) {
                static const auto gate = engine->make_event();
                Encoder encoder = adopted->encoder();
                rotate(encoder, x);
                metal::submit(std::move(encoder), {.waits = {{gate->event(), 1}}}).value().done().value();
              }),
              ::testing::ExitedWithCode(0), "");
}

TEST_F(InMetalEngine, ASubmissionWaitsAndSignals) {
  adopt();
  auto gate = engine->make_event();
  const auto done = engine->make_event();
  const Memory x = engine->allocate(kBytes);
  Encoder encoder = adopted->encoder();
  rotate(encoder, wrapped(x));
  const Fence fence =
      metal::submit(std::move(encoder), {.waits = {{gate->event(), 7}}, .signals = {{done->event(), 3}}}).value();
  EXPECT_FALSE(fence.wait_for(20ms).value()) << "the gate is closed";
  EXPECT_EQ(done->value(), 0U);
  const std::vector<float> ones(kBytes / sizeof(float), 1.0F);
  std::memcpy(x->host(), ones.data(), kBytes);
  gate->signal(7);
  ASSERT_OK(fence.wait());
  EXPECT_EQ(done->value(), 3U);
  EXPECT_NE(x->floats(), ones) << "it ran after the gate";
  EXPECT_NE(x->floats()[0], 0.0F);

  // Nothing to run, and yet an order.
  ASSERT_OK(metal::submit(adopted->encoder(), {.signals = {{done->event(), 4}}}).value().wait());
  EXPECT_EQ(done->value(), 4U);
}

TEST_F(InMetalEngine, ALongSubmissionWaitsFirstAndSignalsLast) {
  adopt();
  const auto gate = engine->make_event();
  const auto done = engine->make_event();
  const Memory x = engine->allocate(kBytes);  // untracked: nothing but events orders it against the engine's commands
  const Memory read_back = engine->allocate(kBytes);
  const Buffer buffer = wrapped(x);
  Encoder encoder = adopted->encoder();
  for (int i = 0; i < 64 + 64; ++i) rotate(encoder, buffer);  // whole command buffers: the last is no empty one
  const Fence fence =
      metal::submit(std::move(encoder), {.waits = {{gate->event(), 1}}, .signals = {{done->event(), 1}}}).value();
  const auto commands = engine->begin({.after = done.get()});
  commands->copy(*x, *read_back);
  commands->commit();
  EXPECT_FALSE(fence.wait_for(20ms).value());
  gate->signal(1);
  ASSERT_OK(fence.wait());
  EXPECT_EQ(commands->error(), "");
  EXPECT_EQ(read_back->floats(), x->floats());
}

TEST_F(InMetalEngine, MemoryOfRotasIsOrderedBetweenCommandBuffers) {
  adopt();
  const Buffer x = adopted->allocate(kBytes).value();
  const auto first = engine->begin();
  const auto second = engine->begin();
  std::optional<Fence> last;
  {
    const Hold hold;  // the host orders nothing
    record_rotation(*first, x).done().value();
    record_rotation(*second, x).done().value();
    first->commit();
    second->commit();
    Encoder encoder = adopted->encoder();
    rotate(encoder, x);
    last = std::move(encoder).submit().value();
  }
  ASSERT_OK(last->wait());
  EXPECT_EQ(first->error(), "");
  EXPECT_EQ(second->error(), "");
}

TEST_F(InMetalEngine, AnUntrackedBufferIsTheEnginesToOrderBetweenEncoders) {
  for (const Hazards hazards : {Hazards::tracked, Hazards::untracked}) {
    adopt();
    const Buffer x = wrapped(engine->allocate(kBytes, Storage::shared, hazards));
    const auto first = engine->begin();
    const auto second = engine->begin();
    std::optional<Fence> last;
    {
      const Hold hold;
      record_rotation(*first, x).done().value();
      last = record_rotation(*second, x);
      first->commit();
      second->commit();
    }
    const Status status = last->wait();
    if (hazards == Hazards::tracked) EXPECT_OK(status);
    if (hazards == Hazards::untracked) expect_error(Result<void>(status), Errc::device_lost, {kUnordered});
  }
}

TEST_F(InMetalEngine, SubmissionsOfRotasAreOrderedWhateverTheBufferIs) {
  adopt();
  const Buffer x = wrapped(engine->allocate(kBytes));
  std::optional<Fence> last;
  {
    const Hold hold;
    for (int i = 0; i < 2; ++i) {
      Encoder encoder = adopted->encoder();
      rotate(encoder, x);
      last = std::move(encoder).submit().value();
    }
  }
  EXPECT_OK(last->wait());
}

TEST_F(InMetalEngine, ACommandBufferThatEndsInErrorLosesTheDevice) {
  adopt();
  const auto commands = engine->begin();
  const Fence fence = record_rotation(*commands, adopted->allocate(kBytes).value());
  test::metal::fail_next(test::metal::Fault::command_buffer);
  commands->commit();
  expect_error(fence.wait(), Errc::device_lost, {"Metal ended a command buffer in error", "the test asked for this"});
  expect_error(adopted->allocate(4), Errc::device_lost, {"open it anew"});
}

TEST_F(InMetalEngine, RotaRetainsWhatItUsesAndNothingLonger) {
  const std::size_t of_device = test::metal::references(engine->device());
  const std::size_t of_queue = test::metal::references(engine->queue());
  adopt();
  EXPECT_GT(test::metal::references(engine->device()), of_device);
  EXPECT_GT(test::metal::references(engine->queue()), of_queue);
  const Memory x = engine->allocate(kBytes);
  const std::size_t of_x = test::metal::references(x->buffer());
  {
    const Buffer buffer = metal::wrap(*adopted, {.buffer = x->buffer()}).value();
    EXPECT_EQ(test::metal::references(x->buffer()), of_x + 1);
    Encoder encoder = adopted->encoder();
    rotate(encoder, buffer);
    ASSERT_OK(std::move(encoder).submit().value().wait());
  }
  EXPECT_EQ(test::metal::references(x->buffer()), of_x);
  adopted.reset();
  EXPECT_EQ(test::metal::references(engine->device()), of_device);
  EXPECT_EQ(test::metal::references(engine->queue()), of_queue);
}

TEST_F(InMetalEngine, ACacheGrowsByRecordedSteps) {
  adopt();
  const auto recorded = cache_steps(*adopted, [&](Encoder&& encoder) {
    const auto commands = engine->begin();
    const Fence fence =
        metal::record(std::move(encoder), {.commands = commands->buffer(), .encoder = commands->encoder()}).value();
    commands->commit();
    fence.wait().value();
  });
  Device owned = Device::open(test::options_under_test()).value();
  EXPECT_EQ(recorded,
            cache_steps(owned, [](Encoder&& encoder) { std::move(encoder).submit().value().wait().value(); }));
}

}  // namespace
}  // namespace rota::mtl
