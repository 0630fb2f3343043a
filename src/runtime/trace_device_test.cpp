#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "harness/on_device.h"

// What a trace says of commands, and that they run as without it.

namespace rota::test {
namespace {

constexpr std::uint64_t kHeads = 2, kDim = 32, kTokens = 3;
constexpr Shape kShape{kTokens, kHeads, kDim};

class Trace : public OnDevice {
 protected:
  struct Event {
    std::string device, op;
    TraceEvent said;
  };

  Device open_with(TraceSink sink) {
    DeviceOptions options = options_under_test();
    options.trace = std::move(sink);
    options.on_validation_message =
        device.info().kind == DeviceKind::cpu
            ? nullptr
            : std::function<void(std::string_view)>([this](std::string_view message) { log.add(message); });
    return Device::open(options).value();
  }
  TraceSink keep() {
    return [this](const TraceEvent& event) {
      const std::lock_guard lock(mutex_);
      events_.push_back({std::string(event.device), std::string(event.op), event});
    };
  }
  std::vector<Event> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(events_, {});
  }

  // Rotates keys, stores them, and attends to them; twice, in two submissions.
  static std::vector<float> run(Device& on) {
    std::vector<float> numbers(kTokens * kHeads * kDim);
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i % 37) / 20 - 1;
    const Buffer x = on.allocate(numbers.size() * sizeof(float)).value();
    Buffer(x).write(std::as_bytes(std::span(numbers))).value();
    const Buffer pool = on.allocate(x.size_bytes()).value(), out = on.allocate(x.size_bytes()).value();
    const MutView view = MutView::token_major(x, DType::f32, kShape);
    const SlotView slots =
        SlotView::token_major(pool, DType::f32, {.page_slots = kTokens, .heads = kHeads, .dim = kDim});
    const RopeTensor tensor = RopeTensor::in_place(view);
    const std::int64_t positions[] = {0, 1, 2};
    const Rotary rotary{.pairing = Pairing::halves, .theta = 1e4};
    const TokenRun sequence{.tokens = kTokens, .position = 0, .capacity = kTokens};
    const StorePair pair{view, slots};
    const std::uint64_t rows[] = {kTokens};
    for (int round = 0; round < 2; ++round) {
      Encoder encoder = on.encoder();
      rope(encoder, {.tensors = {&tensor, 1}, .positions = positions, .rotary = rotary});
      store(encoder, {.pairs = {&pair, 1}, .sequences = {&sequence, 1}});
      attend(encoder, {.q = view,
                       .kv = KvView::of_slots(slots, slots, {&sequence, 1}),
                       .out = MutView::token_major(out, DType::f32, kShape),
                       .scale = 0.2,
                       .query_tokens = rows});
      std::move(encoder).submit().value().wait().value();
    }
    std::vector<float> result(numbers.size());
    out.read(std::as_writable_bytes(std::span(result))).value();
    return result;
  }

 private:
  std::mutex mutex_;
  std::vector<Event> events_;
};

TEST_F(Trace, NamesEachCommandOnceInOrderWithItsCallAndTimes) {
  Device traced = open_with(keep());
  const std::vector<float> result = run(traced);
  const std::vector<Event> events = take();
  EXPECT_EQ(result, run(device)) << "commands run as without it";

  const std::vector<std::string> ops{"rope", "store", "attend_query", "attend_split", "attend_merge"};
  ASSERT_EQ(events.size(), 2 * ops.size());
  for (std::size_t i = 0; i < events.size(); ++i) {
    SCOPED_TRACE(i);
    const auto& [id, op, said] = events[i];
    EXPECT_EQ(id, traced.info().id);
    EXPECT_EQ(op, ops[i % ops.size()]);
    EXPECT_EQ(said.submission, 1 + i / ops.size());
    EXPECT_EQ(said.command, i % ops.size());
    EXPECT_EQ(said.shape.tokens, kTokens);
    EXPECT_EQ(said.shape.heads, kHeads);
    EXPECT_EQ(said.shape.dim, kDim);
    EXPECT_EQ(said.shape.keys, op.starts_with("attend") ? kTokens : 0);
    EXPECT_GE(said.bytes, kTokens * kHeads * kDim * sizeof(float));
    const bool begins_call = op != "attend_split" && op != "attend_merge";
    EXPECT_EQ(said.host_time.count() > 0, begins_call);
    EXPECT_GE(said.submitted, said.host_begin + said.host_time);
    EXPECT_GE(said.device_time.count(), 0);
    EXPECT_GT(said.device_begin.count(), 0) << "every device here has a clock";
    if (traced.info().kind != DeviceKind::cpu) continue;
    EXPECT_GE(said.device_begin, said.submitted) << "one clock";
    EXPECT_GT(said.device_time.count(), 0);
  }
  EXPECT_TRUE(std::ranges::is_sorted(events, {}, [](const Event& event) { return event.said.device_begin; }));
}

TEST_F(Trace, ASinkThatThrowsChangesNothing) {
  Device traced = open_with([](const TraceEvent&) { throw std::runtime_error("a sink must not"); });
  EXPECT_EQ(run(traced), run(device));
}

TEST_F(Trace, TellsOfWhatNobodyWaitedForWhenTheDeviceCloses) {
  {
    Device traced = open_with(keep());
    const Buffer x = traced.allocate(kTokens * kHeads * kDim * sizeof(float)).value();
    Buffer(x).write(std::vector<std::byte>(x.size_bytes())).value();
    const RopeTensor tensor = RopeTensor::in_place(MutView::token_major(x, DType::f32, kShape));
    const std::int64_t positions[] = {0, 1, 2};
    const Rotary rotary{.pairing = Pairing::halves, .theta = 1e4};
    Encoder encoder = traced.encoder();
    rope(encoder, {.tensors = {&tensor, 1}, .positions = positions, .rotary = rotary});
    (void)std::move(encoder).submit().value();
  }
  EXPECT_EQ(take().size(), 1U);
}

}  // namespace
}  // namespace rota::test
