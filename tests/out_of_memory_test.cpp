#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "ops/store/store_reference.h"

// The host's memory runs out at every single allocation of a whole use of the CPU device, in turn.
// GPU drivers are left out: what they do without memory is theirs.

namespace {

thread_local long allocations_left = -1;  // negative: no limit

void* allocate(std::size_t size, std::size_t alignment) {
  if (allocations_left == 0) return nullptr;
  if (allocations_left > 0) --allocations_left;
  return alignment <= alignof(std::max_align_t)
             ? std::malloc(size)
             : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}

void* allocate_or_throw(std::size_t size, std::size_t alignment) {
  void* const memory = allocate(size, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t size) { return allocate_or_throw(size, 1); }
void* operator new[](std::size_t size) { return allocate_or_throw(size, 1); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return allocate_or_throw(size, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return allocate(size, 1); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }

namespace rota::test {
namespace {

// Runs steps until one fails; fails itself if one throws.
Status use_everything() {
  auto device = Device::open({.device = "cpu", .threads = 2});
  if (!device) return device.error();
  auto source = device->allocate(64);
  if (!source) return source.error();
  auto target = device->allocate(64);
  if (!target) return target.error();
  const std::array<std::byte, 64> bytes{};
  if (Status status = source->write(bytes); !status) return status;

  const StorePair pair{View::token_major(*source, DType::f32, {.tokens = 2, .heads = 2, .dim = 4}),
                       SlotView::head_major(*target, DType::f16, {.page_slots = 2, .heads = 2, .dim = 4})};
  const TokenRun run{.tokens = 2, .position = 0, .capacity = 2};
  Encoder encoder = device->encoder();
  store(encoder, {.pairs = {&pair, 1}, .sequences = {&run, 1}});
  auto fence = std::move(encoder).submit();
  if (!fence) return fence.error();
  if (Status status = fence->wait(); !status) return status;
  auto tested = self_test(*device, *device);
  if (!tested) return tested.error();
  for (const SelfTestResult& result : *tested) {
    if (!result.status) return result.status;
  }
  return {};
}

TEST(OutOfMemory, ComesBackAsAnErrorAtEveryAllocation) {
  if (const auto warm_up = Device::open({.device = "cpu"}); !warm_up) FAIL() << warm_up.error().message;
  long failures = 0;
  for (long limit = 0;; ++limit) {
    ASSERT_LT(limit, 100'000) << "no end of allocations";
    allocations_left = limit;
    const Status status = use_everything();
    allocations_left = -1;
    if (status.ok()) break;
    EXPECT_EQ(status.error().code, Errc::out_of_memory) << "at allocation " << limit << ": " << status.error().message;
    ++failures;
  }
  EXPECT_GT(failures, 20) << "the limit was never met";
}

TEST(OutOfMemory, OfADeviceNamesTheSize) {
  Device device = Device::open({.device = "cpu"}).value();
  const auto buffer = device.allocate(std::uint64_t{1} << 60);
  ASSERT_FALSE(buffer.ok());
  EXPECT_EQ(buffer.error().code, Errc::out_of_memory);
  EXPECT_NE(buffer.error().message.find("1152921504606846976 bytes"), std::string::npos) << buffer.error().message;
}

}  // namespace
}  // namespace rota::test
