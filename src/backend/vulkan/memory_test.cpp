#include "backend/vulkan/memory.h"

#include <gtest/gtest.h>

namespace rota::vk {
namespace {

constexpr VkMemoryPropertyFlags kLocal = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
constexpr VkMemoryPropertyFlags kHost = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
constexpr VkMemoryPropertyFlags kCached = VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
constexpr VkDeviceSize kGiB = VkDeviceSize{1} << 30;
constexpr uint32_t kAll = ~0U;

struct Type {
  VkMemoryPropertyFlags flags;
  uint32_t heap;
};

VkPhysicalDeviceMemoryProperties properties(std::vector<VkDeviceSize> heaps, std::vector<Type> types) {
  VkPhysicalDeviceMemoryProperties made{};
  for (const VkDeviceSize size : heaps) made.memoryHeaps[made.memoryHeapCount++].size = size;
  for (const Type& type : types) made.memoryTypes[made.memoryTypeCount++] = {type.flags, type.heap};
  return made;
}

TEST(MemoryType, OfACardIsItsOwnMemoryNotTheSmallWindow) {
  const auto card = properties({24 * kGiB, 32 * kGiB, kGiB / 4}, {{kLocal, 0}, {kHost, 1}, {kLocal | kHost, 2}});
  EXPECT_EQ(choose_memory_type(card, kAll, Use::device), 0U);
}

TEST(MemoryType, OfUploadsIsTheWindowUnlessThatIsTiny) {
  for (const auto& [window, type] : {std::pair{kGiB / 4, 2U}, std::pair{kGiB / 8, 2U}, std::pair{kGiB / 16, 1U}}) {
    const auto card = properties({24 * kGiB, 32 * kGiB, window}, {{kLocal, 0}, {kHost, 1}, {kLocal | kHost, 2}});
    EXPECT_EQ(choose_memory_type(card, kAll, Use::upload), type);
  }
}

TEST(MemoryType, OfDownloadsIsCached) {
  const auto card = properties({24 * kGiB, 32 * kGiB}, {{kLocal | kHost, 0}, {kHost, 1}, {kHost | kCached, 1}});
  EXPECT_EQ(choose_memory_type(card, kAll, Use::download), 2U);
  EXPECT_EQ(choose_memory_type(card, 0b011, Use::download), 0U);
}

TEST(MemoryType, OfACardWithAFullWindowIsVisible) {
  const auto card = properties({24 * kGiB, 32 * kGiB}, {{kLocal, 0}, {kHost, 1}, {kLocal | kHost, 0}});
  EXPECT_EQ(choose_memory_type(card, kAll, Use::device), 2U);
}

TEST(MemoryType, OfSharedMemoryIsVisible) {
  const auto shared = properties({16 * kGiB}, {{kLocal | kHost, 0}});
  EXPECT_EQ(choose_memory_type(shared, kAll, Use::device), 0U);
  EXPECT_EQ(choose_memory_type(shared, kAll, Use::upload), 0U);
}

TEST(MemoryType, ThatNeedsAFeatureIsLeftAlone) {
  const auto card = properties({kGiB, 32 * kGiB}, {{kLocal | kHost | VK_MEMORY_PROPERTY_DEVICE_COHERENT_BIT_AMD, 0},
                                                   {kLocal | VK_MEMORY_PROPERTY_PROTECTED_BIT, 0},
                                                   {kLocal | kHost, 0}});
  EXPECT_EQ(choose_memory_type(card, kAll, Use::upload), 2U);
  EXPECT_EQ(choose_memory_type(card, kAll, Use::device), 2U);
}

TEST(MemoryType, RespectsWhatABufferMayUse) {
  const auto card = properties({24 * kGiB, 32 * kGiB}, {{kLocal, 0}, {kHost, 1}, {kLocal, 0}});
  EXPECT_EQ(choose_memory_type(card, 0b110, Use::device), 2U);
  EXPECT_EQ(choose_memory_type(card, 0b010, Use::device), 1U);
  EXPECT_EQ(choose_memory_type(card, 0b001, Use::upload), std::nullopt);
  EXPECT_EQ(choose_memory_type(card, 0, Use::device), std::nullopt);
}

}  // namespace
}  // namespace rota::vk
