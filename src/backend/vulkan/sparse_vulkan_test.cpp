#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "harness/on_vulkan.h"
#include "rota/rota.h"

// Memory behind sparse buffers, down to the calls that reach the driver.

namespace rota::vk {
namespace {

using test::expect_error;

// Counts what is allocated, and refuses on demand.
struct Driver {
  static inline PFN_vkAllocateMemory allocate_original = nullptr;
  static inline PFN_vkFreeMemory free_original = nullptr;
  static inline PFN_vkQueueBindSparse bind_original = nullptr;
  static inline std::map<VkDeviceMemory, VkDeviceSize> live;
  static inline int allocations = 0, binds = 0;
  static inline bool has_memory = true, can_bind = true;

  static VkResult VKAPI_PTR allocate(VkDevice device, const VkMemoryAllocateInfo* info,
                                     const VkAllocationCallbacks* callbacks, VkDeviceMemory* memory) {
    if (!has_memory) return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    ++allocations;
    const VkResult result = allocate_original(device, info, callbacks, memory);
    if (result == VK_SUCCESS) live[*memory] = info->allocationSize;
    return result;
  }
  static void VKAPI_PTR free(VkDevice device, VkDeviceMemory memory, const VkAllocationCallbacks* callbacks) {
    live.erase(memory);
    free_original(device, memory, callbacks);
  }
  static VkResult VKAPI_PTR bind(VkQueue queue, uint32_t count, const VkBindSparseInfo* info, VkFence fence) {
    ++binds;
    return can_bind ? bind_original(queue, count, info, fence) : VK_ERROR_OUT_OF_HOST_MEMORY;
  }
  static VkDeviceSize live_bytes() {
    VkDeviceSize sum = 0;
    for (const auto& [memory, bytes] : live) sum += bytes;
    return sum;
  }
};

class SparseMemory : public OnVulkan {
 protected:
  SparseMemory() {
    DeviceFunctions& vk = backend.context()->vk;
    Driver::live.clear();
    Driver::allocations = Driver::binds = 0;
    Driver::has_memory = Driver::can_bind = true;
    Driver::allocate_original = std::exchange(vk.vkAllocateMemory, Driver::allocate);
    Driver::free_original = std::exchange(vk.vkFreeMemory, Driver::free);
    Driver::bind_original = std::exchange(vk.vkQueueBindSparse, Driver::bind);
  }
  ~SparseMemory() override {
    DeviceFunctions& vk = backend.context()->vk;
    vk.vkAllocateMemory = Driver::allocate_original;
    vk.vkFreeMemory = Driver::free_original;
    vk.vkQueueBindSparse = Driver::bind_original;
  }

  Status commit(const std::vector<runtime::SparseRanges>& parts) { return backend.commit(parts); }

  // Written and read back, by the device.
  void expect_usable(runtime::Memory& memory, std::uint64_t offset, std::byte value) {
    const std::vector<std::byte> written(1000, value);
    std::vector<std::byte> found(written.size());
    ASSERT_OK(backend.write(memory, offset, written));
    ASSERT_OK(backend.read(memory, offset, found));
    EXPECT_TRUE(found == written);
  }

  VulkanBackend& backend = backend_of(device);
  const bool has_sparse = device.info().limits.max_sparse_bytes > 0;
};

constexpr std::uint64_t kBlock = runtime::kSparseBlockBytes;  // no driver that is tested wants more

TEST_F(SparseMemory, BlocksComeAndGoWithTheRangesThatTouchThem) {
  if (!has_sparse) return expect_error(backend.reserve(1), Errc::unsupported, {"has no sparse memory"});
  const auto a = backend.reserve(100 * kBlock).value(), b = backend.reserve(100 * kBlock).value();
  EXPECT_EQ(Driver::live_bytes(), 0U) << "addresses are no memory";
  const runtime::SparseRanges first{a, {{0, 10 * kBlock + 5}}}, second{a, {{10 * kBlock + 5, 12 * kBlock}}};
  const runtime::SparseRanges other{b, {{50 * kBlock, 51 * kBlock}, {90 * kBlock, 91 * kBlock}}};
  ASSERT_OK(commit({first, other}));
  EXPECT_EQ(Driver::binds, 1) << "one call for all";
  EXPECT_EQ(Driver::allocations, 1);
  EXPECT_EQ(Driver::live_bytes(), 13 * kBlock);
  ASSERT_OK(commit({second}));
  EXPECT_EQ(Driver::live_bytes(), 14 * kBlock) << "it shares a block with the first";
  expect_usable(*a, 10 * kBlock + 5, std::byte{1});
  expect_usable(*b, 90 * kBlock, std::byte{2});

  backend.decommit({{first}});
  EXPECT_EQ(Driver::live_bytes(), 14 * kBlock) << "a chunk stays while a block of it is used";
  expect_usable(*a, 10 * kBlock + 5, std::byte{3});
  Driver::allocations = 0;
  ASSERT_OK(commit({{b, {{0, 10 * kBlock}}}}));
  EXPECT_EQ(Driver::allocations, 0) << "and its other blocks serve the next";
  expect_usable(*b, 5 * kBlock, std::byte{4});
  expect_usable(*a, 11 * kBlock - 500, std::byte{5});
  backend.decommit({{second}});
  EXPECT_EQ(Driver::live_bytes(), 13 * kBlock);
  std::vector<std::byte> found(1000);
  ASSERT_OK(backend.read(*b, 5 * kBlock, found));
  EXPECT_EQ(found, std::vector(1000, std::byte{4}));
}

TEST_F(SparseMemory, ACommitThatFailsLeavesNothing) {
  if (!has_sparse) return expect_error(backend.reserve(1), Errc::unsupported, {"has no sparse memory"});
  const auto memory = backend.reserve(100 * kBlock).value();
  Driver::has_memory = false;
  expect_error(commit({{memory, {{0, 5 * kBlock}}}}), Errc::out_of_memory, {"vkAllocateMemory for 327680 bytes"});
  Driver::has_memory = true;
  Driver::can_bind = false;
  expect_error(commit({{memory, {{0, 5 * kBlock}}}}), Errc::out_of_memory, {"vkQueueBindSparse"});
  EXPECT_EQ(Driver::live_bytes(), 0U);
  Driver::can_bind = true;
  ASSERT_OK(commit({{memory, {{0, 5 * kBlock}}}}));
  expect_usable(*memory, 4 * kBlock, std::byte{1});

  Driver::can_bind = false;
  backend.decommit({{{memory, {{0, 5 * kBlock}}}}});
  EXPECT_EQ(Driver::live_bytes(), 5 * kBlock) << "what cannot be unbound stays";
  Driver::can_bind = true;
  ASSERT_OK(commit({{memory, {{0, 6 * kBlock}}}}));
  EXPECT_EQ(Driver::live_bytes(), 6 * kBlock) << "for the next";
  expect_usable(*memory, 4 * kBlock, std::byte{2});
}

TEST_F(SparseMemory, ACacheWhoseDeviceIsFullIsOutOfPages) {
  if (!has_sparse) return expect_error(backend.reserve(1), Errc::unsupported, {"has no sparse memory"});
  KvCacheSpec spec{.groups = {{.layers = {0, 1}, .kv_heads = 8, .head_dim = 64, .k = turbo(4), .v = turbo(4)}},
                   .max_sequences = 2};
  auto cache = KvCache::create(device, spec).value();
  const Sequence sequence = cache.open_sequence().value();
  {
    Encoder encoder = device.encoder();
    ASSERT_OK(cache.extend(encoder, sequence, 100));
    Driver::has_memory = false;
    const Sequence other = cache.open_sequence().value();
    expect_error(cache.extend(encoder, other, 400), Errc::out_of_pages, {"no memory for", "vkAllocateMemory"});
    EXPECT_EQ(cache.length(other).value(), 0U);
    ASSERT_OK(encoder.status());
    Driver::has_memory = true;
    ASSERT_OK(cache.extend(encoder, other, 400));
    EXPECT_GE(Driver::live_bytes(), cache.counters().bytes_allocated());
  }
  ASSERT_OK(cache.trim());
  EXPECT_EQ(cache.counters().bytes_allocated(), 0U);
}

}  // namespace
}  // namespace rota::vk
