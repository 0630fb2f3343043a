#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <memory>
#include <random>
#include <span>
#include <stdexcept>
#include <thread>
#include <vector>

#include "harness/callers_pool.h"
#include "harness/on_device.h"

// What an engine brings: its memory and its threads.

namespace rota::test {
namespace {

constexpr std::uint64_t kTokens = 300, kHeads = 8, kKvHeads = 2, kDim = 64;

std::vector<float> numbers(std::uint64_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> all(count);
  for (float& one : all) one = normal(random);
  return all;
}

// Memory whose first byte is `past` bytes after a multiple of 64, and whose last is the last of its allocation.
class Bytes {
 public:
  Bytes(std::uint64_t size, std::uint64_t past)
      : memory_(static_cast<std::byte*>(std::aligned_alloc(64, (size + past + 63) / 64 * 64)), std::free),
        bytes_(memory_.get() + (size + past + 63) / 64 * 64 - size, size) {
    // From the end of the allocation, so that what reads beyond it is found; at `past` if that is possible.
    if ((reinterpret_cast<std::uintptr_t>(bytes_.data()) % 64) != past) bytes_ = {memory_.get() + past, size};
  }
  std::span<std::byte> all() { return bytes_; }
  std::span<float> floats() { return {reinterpret_cast<float*>(bytes_.data()), bytes_.size() / sizeof(float)}; }
  const std::shared_ptr<std::byte>& keep() const { return memory_; }

 private:
  std::shared_ptr<std::byte> memory_;
  std::span<std::byte> bytes_;
};

// Where a step's activations are.
struct Activations {
  Buffer q, k, v, out;
};

// One step of a cache at 4 bits, over two chunks of tokens.
void run_step(Device& device, const Activations& of) {
  const KvGroup group{.layers = {0}, .kv_heads = kKvHeads, .head_dim = kDim, .k = turbo(4), .v = turbo(4)};
  auto cache = KvCache::create(device, {.groups = {group}, .max_tokens = 1024, .max_sequences = 1}).value();
  const auto sequence = cache.open_sequence().value();
  const auto q = MutView::token_major(of.q, DType::f32, {kTokens, kHeads, kDim});
  const auto k = MutView::token_major(of.k, DType::f32, {kTokens, kKvHeads, kDim});
  const auto v = MutView::token_major(of.v, DType::f32, {kTokens, kKvHeads, kDim});
  const auto out = MutView::token_major(of.out, DType::f32, {kTokens, kHeads, kDim});
  for (std::uint64_t first = 0; first < kTokens; first += kTokens / 2) {
    constexpr std::uint64_t kChunk = kTokens / 2;
    Encoder encoder = device.encoder();
    const KvExtension extension{sequence, kChunk};
    auto step = cache.extend(encoder, {&extension, 1}).value();
    const RopeTensor both[] = {RopeTensor::in_place(q.slice(first, kChunk)),
                               RopeTensor::in_place(k.slice(first, kChunk))};
    const Rotary rotary{.pairing = Pairing::halves, .theta = 10000};
    rope(encoder, {.tensors = both, .positions = step.positions(), .rotary = rotary});
    step.append(encoder, 0, k.slice(first, kChunk), v.slice(first, kChunk));
    const std::uint64_t rows[] = {kChunk};
    attend(encoder, {.q = q.slice(first, kChunk),
                     .kv = step.view(0).value(),
                     .out = out.slice(first, kChunk),
                     .scale = 0.125,
                     .query_tokens = rows});
    std::move(encoder).submit().value().wait().value();
  }
}

std::vector<float> by_copies(Device& device) {
  const auto buffer = [&](std::uint64_t heads, std::uint32_t seed) {
    const auto values = numbers(kTokens * heads * kDim, seed);
    Buffer made = device.allocate(values.size() * sizeof(float)).value();
    made.write(std::as_bytes(std::span(values))).value();
    return made;
  };
  const Activations of{buffer(kHeads, 1), buffer(kKvHeads, 2), buffer(kKvHeads, 3), buffer(kHeads, 4)};
  run_step(device, of);
  std::vector<float> out(kTokens * kHeads * kDim);
  of.out.read(std::as_writable_bytes(std::span(out))).value();
  return out;
}

// Starts a copy of kTokens vectors.
Fence submit_copy(Device& device, const Buffer& from, const Buffer& to) {
  const StorePair pair{View::token_major(from, DType::f32, {kTokens, 1, kDim}),
                       SlotView::token_major(to, DType::f32, {.page_slots = kTokens, .heads = 1, .dim = kDim})};
  const TokenRun run{.tokens = kTokens, .position = 0, .capacity = kTokens};
  Encoder encoder = device.encoder();
  store(encoder, {.pairs = {&pair, 1}, .sequences = {&run, 1}});
  return std::move(encoder).submit().value();
}

Device open_with(const DeviceOptions& options) { return Device::open(options).value(); }

std::size_t threads_of_process() {
  using Iterator = std::filesystem::directory_iterator;
  return static_cast<std::size_t>(std::distance(Iterator("/proc/self/task"), Iterator()));
}

TEST(CallersMemory, GivesTheBitsOfCopiesAtEveryAlignment) {
  Device device = open_with({.threads = 2});
  const std::vector<float> wanted = by_copies(device);
  for (const std::uint64_t past : {0U, 4U, 8U, 20U}) {
    Bytes q(kTokens * kHeads * kDim * 4, past), k(kTokens * kKvHeads * kDim * 4, past);
    Bytes v(kTokens * kKvHeads * kDim * 4, past), out(kTokens * kHeads * kDim * 4, past);
    std::ranges::copy(numbers(q.floats().size(), 1), q.floats().begin());
    std::ranges::copy(numbers(k.floats().size(), 2), k.floats().begin());
    std::ranges::copy(numbers(v.floats().size(), 3), v.floats().begin());
    const auto wrap = [&](Bytes& bytes) { return device.wrap(bytes.all(), bytes.keep()).value(); };
    run_step(device, {wrap(q), wrap(k), wrap(v), wrap(out)});
    EXPECT_TRUE(std::ranges::equal(std::as_bytes(std::span(wanted)), std::as_bytes(out.floats()))) << past;
  }
}

TEST(CallersMemory, IsTheMemoryItself) {
  Device device = open_with({});
  std::vector<float> mine(16, 1);
  Buffer buffer = device.wrap(std::as_writable_bytes(std::span(mine))).value();
  EXPECT_EQ(buffer.size_bytes(), 64U);
  const float two = 2;
  EXPECT_OK(buffer.write(std::as_bytes(std::span(&two, 1)), 4));
  EXPECT_EQ(mine[1], 2.0F);
  mine[2] = 3;
  float read = 0;
  EXPECT_OK(buffer.read(std::as_writable_bytes(std::span(&read, 1)), 8));
  EXPECT_EQ(read, 3.0F);
}

TEST(CallersMemory, IsKeptAsLongAsCommandsUseIt) {
  Device device = open_with({.threads = 1});
  auto owner = std::make_shared<std::vector<float>>(kTokens * kDim, 1.0F);
  const std::weak_ptr<std::vector<float>> watch = owner;
  Buffer to = device.allocate(kTokens * kDim * 4).value();
  Encoder encoder = device.encoder();
  {
    const Buffer from = device.wrap(std::as_writable_bytes(std::span(*owner)), owner).value();
    const StorePair pair{View::token_major(from, DType::f32, {kTokens, 1, kDim}),
                         SlotView::token_major(to, DType::f32, {.page_slots = kTokens, .heads = 1, .dim = kDim})};
    const TokenRun run{.tokens = kTokens, .position = 0, .capacity = kTokens};
    store(encoder, {.pairs = {&pair, 1}, .sequences = {&run, 1}});
  }
  owner.reset();
  EXPECT_FALSE(watch.expired()) << "the recorded command reads it";
  std::move(encoder).submit().value().wait().value();
  for (int tries = 0; !watch.expired() && tries < 10'000; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(watch.expired());
}

TEST(CallersMemory, ThatCannotServeIsRefused) {
  Device device = open_with({});
  alignas(64) std::array<std::byte, 130> bytes{};
  expect_error(device.wrap({}), Errc::invalid_argument, {"wrap: memory is empty"});
  const Buffer odd = device.wrap(std::span(bytes).subspan(2, 64)).value();
  const Buffer to = device.allocate(64).value();
  const StorePair pair{View::token_major(odd, DType::f32, {1, 1, 16}),
                       SlotView::token_major(to, DType::f32, {.page_slots = 1, .heads = 1, .dim = 16})};
  const TokenRun run{.tokens = 1, .position = 0, .capacity = 1};
  Encoder encoder = device.encoder();
  store(encoder, {.pairs = {&pair, 1}, .sequences = {&run, 1}});
  expect_error(encoder.status(), Errc::invalid_argument,
               {"pairs[0].from", "begins 2 bytes after a multiple of 4", "aligned to 4 bytes"});
}

TEST(CallersThreads, GiveTheSameBitsAndStartNoThread) {
  Device own = open_with({.threads = 3});
  const std::vector<float> wanted = by_copies(own);
  CallersPool pool(2);
  const std::size_t before = threads_of_process();
  std::atomic<int> calls = 0;
  Device device = open_with({.threads = 3, .parallel_for = [&](std::uint32_t tasks, const auto& run) {
                               EXPECT_EQ(tasks, 3U);
                               ++calls;
                               pool.parallel_for(tasks, run);
                             }});
  EXPECT_EQ(threads_of_process(), before);
  EXPECT_EQ(by_copies(device), wanted);
  EXPECT_GT(calls, 0);
}

TEST(CallersThreads, MayComeOneAfterTheOtherOrNotAtAll) {
  Device own = open_with({.threads = 3});
  const std::vector<float> wanted = by_copies(own);
  using Run = std::function<void(std::uint32_t)>;
  const std::vector<decltype(DeviceOptions::parallel_for)> kinds{
      [](std::uint32_t tasks, const Run& run) {
        for (std::uint32_t i = tasks; i > 0; --i) run(i - 1);
      },
      [](std::uint32_t, const Run&) {},
      [](std::uint32_t, const Run& run) { run(0); },
      [](std::uint32_t, const Run&) { throw std::runtime_error("no threads today"); },
  };
  for (const auto& parallel_for : kinds) {
    Device device = open_with({.threads = 3, .parallel_for = parallel_for});
    EXPECT_EQ(by_copies(device), wanted);
  }
}

TEST(CallersThreads, MayCallFromInsideOfTheirPool) {
  CallersPool pool(3);
  Device device = open_with(
      {.threads = 4, .parallel_for = [&](std::uint32_t tasks, const auto& run) { pool.parallel_for(tasks, run); }});
  const std::vector<float> wanted = by_copies(device);
  std::atomic<int> right = 0;
  pool.parallel_for(8, [&](std::uint32_t) { right += by_copies(device) == wanted ? 1 : 0; });
  EXPECT_EQ(right, 8);
}

TEST(CallersThreads, SubmitReturnsWhenTheWorkIsDone) {
  Device device = open_with({.threads = 1, .parallel_for = [](std::uint32_t, const auto&) {}});
  std::vector<float> from(kTokens * kDim, 5), to(kTokens * kDim);
  const Buffer a = device.wrap(std::as_writable_bytes(std::span(from))).value();
  const Buffer b = device.wrap(std::as_writable_bytes(std::span(to))).value();
  const Fence fence = submit_copy(device, a, b);
  EXPECT_EQ(to, from);
  EXPECT_TRUE(fence.done().value());
}

TEST(CallersThreads, SubmitReturnsWhenTheWorkIsDoneWhoeverDoesIt) {
  Device device = open_with({.threads = 1, .parallel_for = [](std::uint32_t, const auto&) {}});
  std::atomic<int> early = 0;
  const auto submit_often = [&](float value) {
    std::vector<float> from(kTokens * kDim), to(kTokens * kDim);
    const Buffer a = device.wrap(std::as_writable_bytes(std::span(from))).value();
    const Buffer b = device.wrap(std::as_writable_bytes(std::span(to))).value();
    for (int i = 0; i < 2000; ++i) {
      std::ranges::fill(from, value + static_cast<float>(i));
      const Fence fence = submit_copy(device, a, b);
      early += to == from && fence.done().value() ? 0 : 1;
    }
  };
  std::thread other(submit_often, 10000.0F);
  submit_often(1.0F);
  other.join();
  EXPECT_EQ(early, 0);
}

TEST(CpuQueue, SleepsWhenIdle) {
  Device device = open_with({.threads = 4});
  by_copies(device);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const std::clock_t before = std::clock();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_LT(static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC, 0.05);
}

TEST(CpuQueue, FinishesWhatNobodyWaitsFor) {
  for (const std::uint32_t threads : {1U, 2U, 4U}) {
    Device device = open_with({.threads = threads});
    std::vector<float> from(kTokens * kDim, 5), to(kTokens * kDim);
    const Buffer a = device.wrap(std::as_writable_bytes(std::span(from))).value();
    const Buffer b = device.wrap(std::as_writable_bytes(std::span(to))).value();
    for (int round = 0; round < 50; ++round) {
      const Fence fence = submit_copy(device, a, b);
      const auto begin = std::chrono::steady_clock::now();
      while (!fence.done().value()) {
        ASSERT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
        std::this_thread::sleep_for(std::chrono::microseconds(round * 10));
      }
      EXPECT_EQ(to, from);
    }
  }
}

}  // namespace
}  // namespace rota::test
