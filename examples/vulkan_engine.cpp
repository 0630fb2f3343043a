// An engine that owns everything of Vulkan's: instance, device, queue, memory, command buffer. Between its own commands
// Rota rotates keys and attends to them, in the same command buffer. The engine fills the values with 2, so that
// attention, a mean of values, must be 2 as well.

#include <rota/rota.h>
#include <rota/vulkan.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <vector>

namespace {

constexpr std::uint64_t kTokens = 64, kHeads = 4, kDim = 64;
constexpr std::uint64_t kBytes = kTokens * kHeads * kDim * sizeof(float);

void must(VkResult result) {
  if (result != VK_SUCCESS) throw std::runtime_error("Vulkan refuses: " + std::to_string(result));
}

struct Engine {
  VkInstance instance{};
  VkPhysicalDevice physical{};
  VkDevice device{};
  VkQueue queue{};
  VkSemaphore timeline{};
  VkCommandPool pool{};
  VkCommandBuffer commands{};

  Engine() {
    const VkApplicationInfo application{.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO, .apiVersion = VK_API_VERSION_1_2};
    const VkInstanceCreateInfo create{.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                      .pApplicationInfo = &application};
    must(vkCreateInstance(&create, nullptr, &instance));
    std::uint32_t count = 1;
    vkEnumeratePhysicalDevices(instance, &count, &physical);
    const float priority = 1;
    const VkDeviceQueueCreateInfo queues{
        .sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, .queueCount = 1, .pQueuePriorities = &priority};
    const VkPhysicalDeviceTimelineSemaphoreFeatures timelines{
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_TIMELINE_SEMAPHORE_FEATURES, .timelineSemaphore = VK_TRUE};
    const VkDeviceCreateInfo with{.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                                  .pNext = &timelines,
                                  .queueCreateInfoCount = 1,
                                  .pQueueCreateInfos = &queues};
    must(vkCreateDevice(physical, &with, nullptr, &device));
    vkGetDeviceQueue(device, 0, 0, &queue);
    const VkSemaphoreTypeCreateInfo type{.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                         .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
    const VkSemaphoreCreateInfo semaphore{.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, .pNext = &type};
    must(vkCreateSemaphore(device, &semaphore, nullptr, &timeline));
    const VkCommandPoolCreateInfo pools{.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO};
    must(vkCreateCommandPool(device, &pools, nullptr, &pool));
    const VkCommandBufferAllocateInfo one{
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, .commandPool = pool, .commandBufferCount = 1};
    must(vkAllocateCommandBuffers(device, &one, &commands));
  }
  ~Engine() {
    vkDestroyCommandPool(device, pool, nullptr);
    vkDestroySemaphore(device, timeline, nullptr);
    vkDestroyDevice(device, nullptr);
    vkDestroyInstance(instance, nullptr);
  }
};

// A buffer of the engine's, in memory that it can map.
struct EngineBuffer {
  VkDevice device{};
  VkBuffer buffer{};
  VkDeviceMemory memory{};
  std::byte* host{};
  static constexpr VkBufferUsageFlags kUsage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT;

  explicit EngineBuffer(const Engine& engine) : device(engine.device) {
    const VkBufferCreateInfo create{.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO, .size = kBytes, .usage = kUsage};
    must(vkCreateBuffer(device, &create, nullptr, &buffer));
    VkMemoryRequirements needs;
    vkGetBufferMemoryRequirements(device, buffer, &needs);
    VkPhysicalDeviceMemoryProperties types;
    vkGetPhysicalDeviceMemoryProperties(engine.physical, &types);
    const VkMemoryPropertyFlags wanted = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    std::uint32_t type = 0;
    while ((needs.memoryTypeBits >> type & 1U) == 0 || (types.memoryTypes[type].propertyFlags & wanted) != wanted)
      ++type;
    const VkMemoryAllocateInfo allocate{
        .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, .allocationSize = needs.size, .memoryTypeIndex = type};
    must(vkAllocateMemory(device, &allocate, nullptr, &memory));
    must(vkBindBufferMemory(device, buffer, memory, 0));
    must(vkMapMemory(device, memory, 0, VK_WHOLE_SIZE, 0, reinterpret_cast<void**>(&host)));
  }
  ~EngineBuffer() {
    vkDestroyBuffer(device, buffer, nullptr);
    vkFreeMemory(device, memory, nullptr);
  }
  rota::vulkan::ForeignBuffer lent() const { return {buffer, kBytes, kUsage, host}; }
};

}  // namespace

int main() {
  const Engine engine;
  const EngineBuffer keys(engine), values(engine), outputs(engine);
  auto device = rota::vulkan::adopt({.get_instance_proc_addr = vkGetInstanceProcAddr,
                                     .instance = engine.instance,
                                     .physical_device = engine.physical,
                                     .device = engine.device,
                                     .queue = engine.queue,
                                     .timeline_semaphores = true})
                    .value();
  const auto k = rota::vulkan::wrap(device, keys.lent()).value(), v = rota::vulkan::wrap(device, values.lent()).value();
  const auto out = rota::vulkan::wrap(device, outputs.lent()).value();

  const VkCommandBufferBeginInfo begin{.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
  must(vkBeginCommandBuffer(engine.commands, &begin));
  vkCmdFillBuffer(engine.commands, keys.buffer, 0, kBytes, 0x3f800000);    // 1.0
  vkCmdFillBuffer(engine.commands, values.buffer, 0, kBytes, 0x40000000);  // 2.0

  const rota::Shape shape{.tokens = kTokens, .heads = kHeads, .dim = kDim};
  const rota::SlotShape slots{.page_slots = kTokens, .heads = kHeads, .dim = kDim};
  const auto x = rota::RopeTensor::in_place(rota::MutView::token_major(k, rota::DType::f32, shape));
  std::vector<std::int64_t> positions(kTokens);
  for (std::size_t i = 0; i < kTokens; ++i) positions[i] = static_cast<std::int64_t>(i);
  const rota::Rotary rotary{.pairing = rota::Pairing::halves, .theta = 1e4};
  const rota::TokenRun run{.tokens = kTokens, .position = 0, .capacity = kTokens};
  const auto kv = rota::KvView::of_slots(rota::SlotView::token_major(k, rota::DType::f32, slots),
                                         rota::SlotView::token_major(v, rota::DType::f32, slots), {&run, 1});
  auto encoder = device.encoder();
  rota::rope(encoder, {.tensors = {&x, 1}, .positions = positions, .rotary = rotary});
  rota::attend(encoder, {.q = x.from,
                         .kv = kv,
                         .out = rota::MutView::token_major(out, rota::DType::f32, shape),
                         .scale = 1 / std::sqrt(static_cast<double>(kDim)),
                         .query_tokens = std::array{kTokens}});
  const rota::vulkan::TimelinePoint done{engine.timeline, 1};
  const auto fence = rota::vulkan::record(std::move(encoder), {.commands = engine.commands, .done = done}).value();
  must(vkEndCommandBuffer(engine.commands));

  const VkTimelineSemaphoreSubmitInfo timeline{.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
                                               .signalSemaphoreValueCount = 1,
                                               .pSignalSemaphoreValues = &done.value};
  const VkSubmitInfo submit{.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                            .pNext = &timeline,
                            .commandBufferCount = 1,
                            .pCommandBuffers = &engine.commands,
                            .signalSemaphoreCount = 1,
                            .pSignalSemaphores = &done.semaphore};
  must(vkQueueSubmit(engine.queue, 1, &submit, VK_NULL_HANDLE));
  fence.wait().value();

  const std::span numbers(reinterpret_cast<const float*>(outputs.host), kBytes / sizeof(float));
  const bool right = std::ranges::all_of(numbers, [](float number) { return std::abs(number - 2) < 1e-5F; });
  std::printf("on %s: attention in the engine's command buffer is %s\n", device.info().name.c_str(),
              right ? "right" : "wrong");
  return right ? 0 : 1;
}
