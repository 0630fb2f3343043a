#pragma once

#include <dlfcn.h>
#include <rota/vulkan.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "harness/on_device.h"

// An engine that owns everything: its loader, instance, device, queue, memory and command buffers. It is made with
// validation and synchronization validation, and takes nothing from the library.

namespace rota::test {

inline void must(VkResult result) {
  if (result != VK_SUCCESS) throw std::runtime_error("the engine's own call failed: " + std::to_string(result));
}

struct EngineOptions {
  bool timelines = true;
  bool as_extension = false;  // of an instance of Vulkan 1.1, by their extension
  bool push_descriptors = false;
};

class VulkanEngine {
 public:
  explicit VulkanEngine(ValidationLog& log, EngineOptions options = {}) : options_(options) {
    make_instance(log);
    make_device();
    const VkCommandPoolCreateInfo pool{.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO, .queueFamilyIndex = family};
    must(call<PFN_vkCreateCommandPool>("vkCreateCommandPool")(device, &pool, nullptr, &pool_));
    if (options_.timelines) timeline = make_timeline();
  }

  ~VulkanEngine() {
    call<PFN_vkDeviceWaitIdle>("vkDeviceWaitIdle")(device);
    for (const VkSemaphore semaphore : semaphores_) {
      call<PFN_vkDestroySemaphore>("vkDestroySemaphore")(device, semaphore, nullptr);
    }
    call<PFN_vkDestroyCommandPool>("vkDestroyCommandPool")(device, pool_, nullptr);
    call<PFN_vkDestroyDevice>("vkDestroyDevice")(device, nullptr);
    global<PFN_vkDestroyDebugUtilsMessengerEXT>("vkDestroyDebugUtilsMessengerEXT")(instance, messenger_, nullptr);
    global<PFN_vkDestroyInstance>("vkDestroyInstance")(instance, nullptr);
  }

  VulkanEngine(const VulkanEngine&) = delete;
  VulkanEngine& operator=(const VulkanEngine&) = delete;

  vulkan::Adoption adoption() const {
    return {.get_instance_proc_addr = find_,
            .instance = instance,
            .physical_device = physical,
            .device = device,
            .queue_family = family,
            .queue = queue,
            .timeline_semaphores = options_.timelines,
            .extensions = extensions_};
  }

  // A function of the device, and one of the instance.
  template <class Function>
  Function call(const char* name) const {
    return reinterpret_cast<Function>(find_device_(device, name));
  }
  template <class Function>
  Function global(const char* name) const {
    return reinterpret_cast<Function>(find_(instance, name));
  }

  // Memory that the engine owns, mapped. It goes with the last who holds it.
  struct Memory {
    const VulkanEngine& engine;
    VkBuffer buffer = VK_NULL_HANDLE;
    VkDeviceMemory memory = VK_NULL_HANDLE;
    std::uint64_t size_bytes = 0;
    VkBufferUsageFlags usage = 0;
    std::byte* host = nullptr;

    explicit Memory(const VulkanEngine& owner) : engine(owner) {}
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    ~Memory() {
      engine.call<PFN_vkDestroyBuffer>("vkDestroyBuffer")(engine.device, buffer, nullptr);
      engine.call<PFN_vkFreeMemory>("vkFreeMemory")(engine.device, memory, nullptr);
    }

    template <class Element>
    std::vector<Element> as() const {
      std::vector<Element> elements(size_bytes / sizeof(Element));
      std::memcpy(elements.data(), host, elements.size() * sizeof(Element));
      return elements;
    }
  };

  static constexpr VkBufferUsageFlags kUsage =
      VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT;

  std::shared_ptr<Memory> allocate(std::uint64_t bytes, VkBufferUsageFlags usage = kUsage) const {
    auto made = std::make_shared<Memory>(*this);
    made->size_bytes = bytes;
    made->usage = usage;
    const VkBufferCreateInfo create{.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO, .size = bytes, .usage = usage};
    must(call<PFN_vkCreateBuffer>("vkCreateBuffer")(device, &create, nullptr, &made->buffer));
    VkMemoryRequirements needs;
    call<PFN_vkGetBufferMemoryRequirements>("vkGetBufferMemoryRequirements")(device, made->buffer, &needs);
    const VkMemoryAllocateInfo allocate{.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                        .allocationSize = needs.size,
                                        .memoryTypeIndex = mapped_type(needs.memoryTypeBits)};
    must(call<PFN_vkAllocateMemory>("vkAllocateMemory")(device, &allocate, nullptr, &made->memory));
    must(call<PFN_vkBindBufferMemory>("vkBindBufferMemory")(device, made->buffer, made->memory, 0));
    void* host = nullptr;
    must(call<PFN_vkMapMemory>("vkMapMemory")(device, made->memory, 0, VK_WHOLE_SIZE, 0, &host));
    made->host = static_cast<std::byte*>(host);
    std::memset(host, 0, bytes);
    return made;
  }

  // As Rota sees it, with the engine's mapping or without.
  static vulkan::ForeignBuffer foreign(const std::shared_ptr<Memory>& memory, bool mapped = true) {
    return {.buffer = memory->buffer,
            .size_bytes = memory->size_bytes,
            .usage = memory->usage,
            .host = mapped ? memory->host : nullptr,
            .keep = memory};
  }

  VkSemaphore make_timeline() {
    const VkSemaphoreTypeCreateInfo type{.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                         .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
    const VkSemaphoreCreateInfo create{.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, .pNext = &type};
    VkSemaphore semaphore = VK_NULL_HANDLE;
    must(call<PFN_vkCreateSemaphore>("vkCreateSemaphore")(device, &create, nullptr, &semaphore));
    semaphores_.push_back(semaphore);
    return semaphore;
  }

  // By the host.
  void signal(const vulkan::TimelinePoint& point) const {
    const VkSemaphoreSignalInfo info{
        .sType = VK_STRUCTURE_TYPE_SEMAPHORE_SIGNAL_INFO, .semaphore = point.semaphore, .value = point.value};
    must(call<PFN_vkSignalSemaphore>(options_.as_extension ? "vkSignalSemaphoreKHR" : "vkSignalSemaphore")(device,
                                                                                                           &info));
  }

  std::uint64_t value_of(VkSemaphore semaphore) const {
    std::uint64_t value = 0;
    must(call<PFN_vkGetSemaphoreCounterValue>(options_.as_extension
                                                  ? "vkGetSemaphoreCounterValueKHR"
                                                  : "vkGetSemaphoreCounterValue")(device, semaphore, &value));
    return value;
  }

  // Whether the value was reached within ten seconds.
  bool wait(const vulkan::TimelinePoint& point) const {
    const VkSemaphoreWaitInfo info{.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                                   .semaphoreCount = 1,
                                   .pSemaphores = &point.semaphore,
                                   .pValues = &point.value};
    return call<PFN_vkWaitSemaphores>("vkWaitSemaphores")(device, &info, 10'000'000'000) == VK_SUCCESS;
  }

  VkCommandBuffer begin() const {
    const VkCommandBufferAllocateInfo allocate{.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                               .commandPool = pool_,
                                               .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                               .commandBufferCount = 1};
    VkCommandBuffer commands = VK_NULL_HANDLE;
    must(call<PFN_vkAllocateCommandBuffers>("vkAllocateCommandBuffers")(device, &allocate, &commands));
    const VkCommandBufferBeginInfo begin{.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                         .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT};
    must(call<PFN_vkBeginCommandBuffer>("vkBeginCommandBuffer")(commands, &begin));
    return commands;
  }

  void fill(VkCommandBuffer commands, const Memory& memory, float value) const {
    std::uint32_t word = 0;
    std::memcpy(&word, &value, sizeof(word));
    call<PFN_vkCmdFillBuffer>("vkCmdFillBuffer")(commands, memory.buffer, 0, memory.size_bytes, word);
  }

  void copy(VkCommandBuffer commands, const Memory& from, const Memory& to) const {
    const VkBufferCopy region{.size = std::min(from.size_bytes, to.size_bytes)};
    call<PFN_vkCmdCopyBuffer>("vkCmdCopyBuffer")(commands, from.buffer, to.buffer, 1, &region);
  }

  void end(VkCommandBuffer commands) const { must(call<PFN_vkEndCommandBuffer>("vkEndCommandBuffer")(commands)); }

  // Ends and submits, with a value to wait for if there is one.
  void submit(VkCommandBuffer commands, const vulkan::TimelinePoint& done,
              const vulkan::TimelinePoint& gate = {}) const {
    end(commands);
    const bool waits = gate.semaphore != VK_NULL_HANDLE;
    const VkPipelineStageFlags stages = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
    const VkTimelineSemaphoreSubmitInfo values{.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
                                               .waitSemaphoreValueCount = waits ? 1U : 0U,
                                               .pWaitSemaphoreValues = &gate.value,
                                               .signalSemaphoreValueCount = 1,
                                               .pSignalSemaphoreValues = &done.value};
    const VkSubmitInfo info{.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                            .pNext = &values,
                            .waitSemaphoreCount = waits ? 1U : 0U,
                            .pWaitSemaphores = &gate.semaphore,
                            .pWaitDstStageMask = &stages,
                            .commandBufferCount = 1,
                            .pCommandBuffers = &commands,
                            .signalSemaphoreCount = 1,
                            .pSignalSemaphores = &done.semaphore};
    const std::lock_guard lock(queue_mutex);
    must(call<PFN_vkQueueSubmit>("vkQueueSubmit")(queue, 1, &info, VK_NULL_HANDLE));
  }

  VkInstance instance = VK_NULL_HANDLE;
  VkPhysicalDevice physical = VK_NULL_HANDLE;
  VkDevice device = VK_NULL_HANDLE;
  VkQueue queue = VK_NULL_HANDLE;
  std::uint32_t family = 0;
  VkSemaphore timeline = VK_NULL_HANDLE;
  mutable std::mutex queue_mutex;

 private:
  static VkBool32 VKAPI_PTR hear(VkDebugUtilsMessageSeverityFlagBitsEXT, VkDebugUtilsMessageTypeFlagsEXT,
                                 const VkDebugUtilsMessengerCallbackDataEXT* data, void* log) {
    static_cast<ValidationLog*>(log)->add(data->pMessage);
    return VK_FALSE;
  }

  void make_instance(ValidationLog& log) {
    void* const library = dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw std::runtime_error("no Vulkan loader");
    find_ = reinterpret_cast<PFN_vkGetInstanceProcAddr>(dlsym(library, "vkGetInstanceProcAddr"));
    const VkDebugUtilsMessengerCreateInfoEXT messenger{
        .sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT,
        .messageSeverity =
            VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT,
        .messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_GENERAL_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT,
        .pfnUserCallback = hear,
        .pUserData = &log};
    constexpr std::array kChecks{VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT};
    const VkValidationFeaturesEXT features{.sType = VK_STRUCTURE_TYPE_VALIDATION_FEATURES_EXT,
                                           .pNext = &messenger,
                                           .enabledValidationFeatureCount = kChecks.size(),
                                           .pEnabledValidationFeatures = kChecks.data()};
    const char* const layer = "VK_LAYER_KHRONOS_validation";
    const char* const extension = VK_EXT_DEBUG_UTILS_EXTENSION_NAME;
    const VkApplicationInfo application{.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                                        .apiVersion = options_.as_extension ? VK_API_VERSION_1_1 : VK_API_VERSION_1_2};
    const VkInstanceCreateInfo create{.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                      .pNext = &features,
                                      .pApplicationInfo = &application,
                                      .enabledLayerCount = 1,
                                      .ppEnabledLayerNames = &layer,
                                      .enabledExtensionCount = 1,
                                      .ppEnabledExtensionNames = &extension};
    must(global<PFN_vkCreateInstance>("vkCreateInstance")(&create, nullptr, &instance));
    must(global<PFN_vkCreateDebugUtilsMessengerEXT>("vkCreateDebugUtilsMessengerEXT")(instance, &messenger, nullptr,
                                                                                      &messenger_));
  }

  void make_device() {
    std::uint32_t count = 1;  // vulkan:0, the device under test
    global<PFN_vkEnumeratePhysicalDevices>("vkEnumeratePhysicalDevices")(instance, &count, &physical);
    if (count != 1) throw std::runtime_error("no Vulkan device");
    global<PFN_vkGetPhysicalDeviceMemoryProperties>("vkGetPhysicalDeviceMemoryProperties")(physical, &memory_);
    if (options_.timelines && options_.as_extension) extensions_.emplace_back(VK_KHR_TIMELINE_SEMAPHORE_EXTENSION_NAME);
    if (options_.push_descriptors) extensions_.emplace_back(VK_KHR_PUSH_DESCRIPTOR_EXTENSION_NAME);
    std::vector<const char*> names;
    for (const std::string& extension : extensions_) names.push_back(extension.c_str());
    constexpr float kPriority = 1;
    const VkDeviceQueueCreateInfo queues{.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                         .queueFamilyIndex = family,
                                         .queueCount = 1,
                                         .pQueuePriorities = &kPriority};
    const VkPhysicalDeviceTimelineSemaphoreFeatures timelines{
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_TIMELINE_SEMAPHORE_FEATURES, .timelineSemaphore = VK_TRUE};
    const VkDeviceCreateInfo create{.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                                    .pNext = options_.timelines ? &timelines : nullptr,
                                    .queueCreateInfoCount = 1,
                                    .pQueueCreateInfos = &queues,
                                    .enabledExtensionCount = static_cast<std::uint32_t>(names.size()),
                                    .ppEnabledExtensionNames = names.data()};
    must(global<PFN_vkCreateDevice>("vkCreateDevice")(physical, &create, nullptr, &device));
    find_device_ = global<PFN_vkGetDeviceProcAddr>("vkGetDeviceProcAddr");
    call<PFN_vkGetDeviceQueue>("vkGetDeviceQueue")(device, family, 0, &queue);
  }

  std::uint32_t mapped_type(std::uint32_t allowed) const {
    constexpr VkMemoryPropertyFlags kWanted =
        VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    for (std::uint32_t type = 0; type < memory_.memoryTypeCount; ++type) {
      const bool fits = (memory_.memoryTypes[type].propertyFlags & kWanted) == kWanted;
      if (fits && (allowed >> type & 1U) != 0) return type;
    }
    throw std::runtime_error("no memory that can be mapped");
  }

  EngineOptions options_;
  PFN_vkGetInstanceProcAddr find_ = nullptr;
  PFN_vkGetDeviceProcAddr find_device_ = nullptr;
  VkDebugUtilsMessengerEXT messenger_ = VK_NULL_HANDLE;
  VkPhysicalDeviceMemoryProperties memory_{};
  std::vector<std::string> extensions_;
  VkCommandPool pool_ = VK_NULL_HANDLE;
  std::vector<VkSemaphore> semaphores_;
};

}  // namespace rota::test
