#include "backend/vulkan/memory.h"

#include <gtest/gtest.h>

namespace rota::vulkan {
namespace {

using runtime::MemoryKind;

constexpr VkMemoryPropertyFlags kLocal = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
constexpr VkMemoryPropertyFlags kHost = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
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
  EXPECT_EQ(choose_memory_type(card, kAll, MemoryKind::device), 0U);
  EXPECT_EQ(choose_memory_type(card, kAll, MemoryKind::upload), 1U);
}

TEST(MemoryType, OfACardWithAFullWindowIsVisible) {
  const auto card = properties({24 * kGiB, 32 * kGiB}, {{kLocal, 0}, {kHost, 1}, {kLocal | kHost, 0}});
  EXPECT_EQ(choose_memory_type(card, kAll, MemoryKind::device), 2U);
}

TEST(MemoryType, OfSharedMemoryIsVisible) {
  const auto shared = properties({16 * kGiB}, {{kLocal | kHost, 0}});
  EXPECT_EQ(choose_memory_type(shared, kAll, MemoryKind::device), 0U);
  EXPECT_EQ(choose_memory_type(shared, kAll, MemoryKind::upload), 0U);
}

TEST(MemoryType, RespectsWhatABufferMayUse) {
  const auto card = properties({24 * kGiB, 32 * kGiB}, {{kLocal, 0}, {kHost, 1}, {kLocal, 0}});
  EXPECT_EQ(choose_memory_type(card, 0b110, MemoryKind::device), 2U);
  EXPECT_EQ(choose_memory_type(card, 0b010, MemoryKind::device), 1U);
  EXPECT_EQ(choose_memory_type(card, 0b001, MemoryKind::upload), std::nullopt);
  EXPECT_EQ(choose_memory_type(card, 0, MemoryKind::device), std::nullopt);
}

}  // namespace
}  // namespace rota::vulkan
