#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "harness/on_vulkan.h"
#include "runtime/recorder.h"

// How many calls of which kind reach the driver: counted by functions in place of its own.

namespace rota::vk {
namespace {

using test::expect_error;
using test::run_store;

// Copies that go through the queue.
struct Copies {
  static inline PFN_vkCmdCopyBuffer original = nullptr;
  static inline int count = 0;

  static void VKAPI_PTR copy(VkCommandBuffer commands, VkBuffer from, VkBuffer to, uint32_t regions,
                             const VkBufferCopy* region) {
    ++count;
    original(commands, from, to, regions, region);
  }
};

TEST_F(OnVulkan, ReadsAreStagedWhereTheHostDoesNotCacheTheMemory) {
  Context& context = *backend_of(device).context();
  Copies::original = std::exchange(context.vk.vkCmdCopyBuffer, Copies::copy);
  constexpr std::uint64_t kBytes = 64U << 10;
  std::vector<std::byte> written(kBytes), read(kBytes);
  for (std::size_t i = 0; i < written.size(); ++i) written[i] = static_cast<std::byte>(i * 7);
  const auto copies_of = [&] {
    Buffer buffer = device.allocate(kBytes).value();
    buffer.write(written).value();
    Copies::count = 0;
    std::ranges::fill(read, std::byte{0});
    buffer.read(read).value();
    EXPECT_TRUE(read == written);
    buffer.read(std::span(read).first(4096)).value();
    return Copies::count;
  };
  EXPECT_EQ(copies_of(), 0) << "software drivers cache all memory";
  for (VkMemoryType& type : context.memory_properties.memoryTypes) {
    type.propertyFlags &= ~VkMemoryPropertyFlags{VK_MEMORY_PROPERTY_HOST_CACHED_BIT};
  }
  EXPECT_EQ(copies_of(), 1) << "one, because few bytes are read at once";
  context.vk.vkCmdCopyBuffer = Copies::original;
}

// A driver that serves Vulkan in part, as MoltenVK does, and wants that to be acknowledged.
struct Partial {
  static inline PFN_vkCreateDevice original = nullptr;
  static inline std::vector<std::string> enabled;

  static VkResult VKAPI_PTR extensions(VkPhysicalDevice, const char*, uint32_t* count, VkExtensionProperties* items) {
    *count = 1;
    if (items != nullptr) *items = {.extensionName = "VK_KHR_portability_subset", .specVersion = 1};
    return VK_SUCCESS;
  }
  static VkResult VKAPI_PTR create(VkPhysicalDevice physical, const VkDeviceCreateInfo* wanted,
                                   const VkAllocationCallbacks* callbacks, VkDevice* device) {
    enabled.assign(wanted->ppEnabledExtensionNames, wanted->ppEnabledExtensionNames + wanted->enabledExtensionCount);
    VkDeviceCreateInfo known = *wanted;
    known.enabledExtensionCount = 0;
    return original(physical, &known, callbacks, device);
  }
};

TEST_F(OnVulkan, ADeviceThatServesVulkanInPartIsOpenedAsOne) {
  const auto instance = Instance::create({}).value();
  const VkPhysicalDevice physical = instance->physical_devices().value().front();
  instance->vk.vkEnumerateDeviceExtensionProperties = Partial::extensions;
  Partial::original = std::exchange(instance->vk.vkCreateDevice, Partial::create);
  ASSERT_OK(Context::create(instance, physical));
  EXPECT_EQ(Partial::enabled, std::vector<std::string>{"VK_KHR_portability_subset"});
}

// How commands get their descriptors.
struct Descriptors {
  static inline PFN_vkCmdPushDescriptorSetKHR original_push = nullptr;
  static inline PFN_vkCmdBindDescriptorSets original_bind = nullptr;
  static inline int pushed = 0, bound = 0;

  static void VKAPI_PTR push(VkCommandBuffer commands, VkPipelineBindPoint point, VkPipelineLayout layout, uint32_t set,
                             uint32_t count, const VkWriteDescriptorSet* writes) {
    ++pushed;
    original_push(commands, point, layout, set, count, writes);
  }
  static void VKAPI_PTR bind(VkCommandBuffer commands, VkPipelineBindPoint point, VkPipelineLayout layout,
                             uint32_t first, uint32_t count, const VkDescriptorSet* sets, uint32_t offsets,
                             const uint32_t* offset) {
    ++bound;
    original_bind(commands, point, layout, first, count, sets, offsets, offset);
  }
};

TEST_F(OnVulkan, DescriptorsArePushedWhereTheDeviceCanElseTheyComeFromAPool) {
  const bool can = backend_of(device).context()->pushes_descriptors;
  EXPECT_EQ(can, device.info().name.find("llvmpipe") != std::string::npos) << "of the drivers under test, lavapipe";
  for (const bool pushes : {can, false}) {
    device = open_another();
    Context& context = *backend_of(device).context();
    context.pushes_descriptors = pushes;
    Descriptors::original_push = std::exchange(context.vk.vkCmdPushDescriptorSetKHR, Descriptors::push);
    Descriptors::original_bind = std::exchange(context.vk.vkCmdBindDescriptorSets, Descriptors::bind);
    Descriptors::pushed = Descriptors::bound = 0;
    auto pair = small_pair();
    for (int i = 0; i < 100; ++i) ASSERT_OK(run_store(device, {pair.view}, runs_of(sequences)));
    pair.store_by_definition(sequences);
    pair.expect_as_defined();
    EXPECT_EQ(Descriptors::pushed, pushes ? 100 : 0);
    EXPECT_EQ(Descriptors::bound, pushes ? 0 : 100);
  }
}

// Submissions, and where they end.
struct Submits {
  static inline PFN_vkQueueSubmit original = nullptr;
  static inline int count = 0, fails_at = -1;

  static VkResult VKAPI_PTR submit(VkQueue queue, uint32_t count_of, const VkSubmitInfo* info, VkFence fence) {
    if (count++ == fails_at) return VK_ERROR_OUT_OF_HOST_MEMORY;
    return original(queue, count_of, info, fence);
  }
};

TEST_F(OnVulkan, MuchWorkIsSplitIntoSeveralSubmissions) {
  Context& context = *backend_of(device).context();
  Submits::original = std::exchange(context.vk.vkQueueSubmit, Submits::submit);
  Submits::fails_at = -1;
  // Commands that depend on each other: copies along a chain of buffers.
  constexpr int kCopies = 12;
  constexpr std::uint64_t kBytes = 4 * 2 * 8 * 4;
  const auto chain = [&]() -> Result<std::vector<std::byte>> {
    std::vector<Buffer> buffers;
    for (int i = 0; i <= kCopies; ++i) buffers.push_back(device.allocate(kBytes).value());
    std::vector<std::byte> bytes(kBytes, std::byte{0x3f});
    buffers[0].write(bytes).value();
    Encoder encoder = device.encoder();
    const TokenRun run{.tokens = 4, .position = 0, .capacity = 4};
    for (std::size_t i = 1; i < buffers.size(); ++i) {
      const StorePair pair{View::token_major(buffers[i - 1], DType::f32, {.tokens = 4, .heads = 2, .dim = 8}),
                           SlotView::token_major(buffers[i], DType::f32, {.page_slots = 4, .heads = 2, .dim = 8})};
      store(encoder, {.pairs = {&pair, 1}, .sequences = {&run, 1}});
    }
    std::uint64_t work = 0;
    for (const runtime::Command& command : runtime::Inside::of(encoder)->commands().all()) {
      work = command.dispatch.items * command.dispatch.item_bytes;
    }
    if (context.most_submitted_bytes < 100) context.most_submitted_bytes *= work;  // as many copies
    Submits::count = 0;
    auto fence = std::move(encoder).submit();
    if (!fence) return fence.error();
    fence->wait().value();
    buffers.back().read(bytes).value();
    return bytes;
  };
  const std::vector<std::byte> wanted(kBytes, std::byte{0x3f});
  EXPECT_EQ(chain().value(), wanted);
  EXPECT_EQ(Submits::count, 1);
  context.most_submitted_bytes = 5;
  EXPECT_EQ(chain().value(), wanted);
  EXPECT_EQ(Submits::count, 3) << "5, 5 and 2 copies";
  context.most_submitted_bytes = 1;
  EXPECT_EQ(chain().value(), wanted);
  EXPECT_EQ(Submits::count, kCopies);
  context.most_submitted_bytes = 100;  // less than one copy
  EXPECT_EQ(chain().value(), wanted) << "no command is left out";
  EXPECT_EQ(Submits::count, kCopies);

  Submits::fails_at = 3;  // what has begun is waited for before anything is freed
  expect_error(chain(), Errc::out_of_memory, {"vkQueueSubmit"});
  EXPECT_EQ(Submits::count, 5) << "three that began, one that failed, and a fence";
  Submits::fails_at = -1;
  EXPECT_EQ(chain().value(), wanted);
  context.vk.vkQueueSubmit = Submits::original;
}

// A card's window that is full: the first type that is tried has no memory left.
struct FullWindow {
  static inline PFN_vkAllocateMemory original = nullptr;
  static inline uint32_t type = 0;
  static inline int refused = 0;

  static VkResult VKAPI_PTR allocate(VkDevice device, const VkMemoryAllocateInfo* info,
                                     const VkAllocationCallbacks* callbacks, VkDeviceMemory* memory) {
    if (info->memoryTypeIndex == type) return ++refused, VK_ERROR_OUT_OF_DEVICE_MEMORY;
    VkMemoryAllocateInfo real = *info;
    real.memoryTypeIndex = 0;
    return original(device, &real, callbacks, memory);
  }
};

TEST_F(OnVulkan, UploadsFindOtherMemoryWhereTheWindowIsFull) {
  auto pair = small_pair();
  Context& context = *backend_of(device).context();
  // Twice the type that there is, of which the test refuses one.
  context.memory_properties.memoryTypeCount = 2;
  context.memory_properties.memoryTypes[1] = context.memory_properties.memoryTypes[0];
  context.memory_properties.memoryTypes[1].propertyFlags |= VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
  const auto allow_both = [](VkDevice, VkBuffer, VkMemoryRequirements* needs) {
    *needs = {.size = 1U << 20, .alignment = 256, .memoryTypeBits = 0b11};
  };
  context.vk.vkGetBufferMemoryRequirements = allow_both;
  FullWindow::refused = 0;
  FullWindow::type = 0;
  FullWindow::original = std::exchange(context.vk.vkAllocateMemory, FullWindow::allocate);
  ASSERT_OK(run_store(device, {pair.view}, runs_of(sequences)));
  EXPECT_GT(FullWindow::refused, 0);
  pair.store_by_definition(sequences);
  pair.expect_as_defined();
}

}  // namespace
}  // namespace rota::vk
