#include "gpu_cost/card.h"

#include <cstddef>
#include <cstdlib>
#include <span>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/vulkan/backend.h"
#include "backend/vulkan/pipeline.h"
#include "core/error.h"
#include "runtime/device_state.h"
#include "runtime/engine.h"

// The backend is the product's own. What it does not ask for, statistics, and what the driver has not without a card,
// memory, is put in by replacing the driver's functions.

namespace rota::test {
namespace {

constexpr std::string_view kRadv = "RADV ";  // in a device's name, before the chip's

PFN_vkCreateDevice create_device = nullptr;
PFN_vkCreateComputePipelines create_pipelines = nullptr;
PFN_vkGetPipelineExecutableStatisticsKHR statistics_of = nullptr;
PFN_vkGetPipelineExecutableInternalRepresentationsKHR representations_of = nullptr;
PFN_vkGetBufferMemoryRequirements memory_requirements = nullptr;

VkResult VKAPI_PTR create_device_with_statistics(VkPhysicalDevice physical, const VkDeviceCreateInfo* wanted,
                                                 const VkAllocationCallbacks* allocator, VkDevice* device) {
  const VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR statistics{
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_EXECUTABLE_PROPERTIES_FEATURES_KHR,
      .pNext = const_cast<void*>(wanted->pNext),
      .pipelineExecutableInfo = VK_TRUE};
  std::vector<const char*> extensions(wanted->ppEnabledExtensionNames,
                                      wanted->ppEnabledExtensionNames + wanted->enabledExtensionCount);
  extensions.push_back(VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME);
  VkDeviceCreateInfo create = *wanted;
  create.pNext = &statistics;
  create.enabledExtensionCount = static_cast<uint32_t>(extensions.size());
  create.ppEnabledExtensionNames = extensions.data();
  return create_device(physical, &create, allocator, device);
}

VkResult VKAPI_PTR create_pipeline_with_statistics(VkDevice device, VkPipelineCache cache, uint32_t,
                                                   const VkComputePipelineCreateInfo* wanted,
                                                   const VkAllocationCallbacks* allocator, VkPipeline* pipeline) {
  VkComputePipelineCreateInfo create = *wanted;
  create.flags |=
      VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR | VK_PIPELINE_CREATE_CAPTURE_INTERNAL_REPRESENTATIONS_BIT_KHR;
  return create_pipelines(device, cache, 1, &create, allocator, pipeline);
}

void VKAPI_PTR require_host_memory(VkDevice device, VkBuffer buffer, VkMemoryRequirements* needs) {
  memory_requirements(device, buffer, needs);
  needs->memoryTypeBits = 1;
}

VkResult VKAPI_PTR allocate_on_host(VkDevice, const VkMemoryAllocateInfo* wanted, const VkAllocationCallbacks*,
                                    VkDeviceMemory* memory) {
  *memory = static_cast<VkDeviceMemory>(std::calloc(1, wanted->allocationSize));
  return *memory != nullptr ? VK_SUCCESS : VK_ERROR_OUT_OF_HOST_MEMORY;
}

VkResult VKAPI_PTR bind_nothing(VkDevice, VkBuffer, VkDeviceMemory, VkDeviceSize) { return VK_SUCCESS; }

VkResult VKAPI_PTR map_on_host(VkDevice, VkDeviceMemory memory, VkDeviceSize offset, VkDeviceSize, VkMemoryMapFlags,
                               void** host) {
  *host = reinterpret_cast<std::byte*>(memory) + offset;
  return VK_SUCCESS;
}

void VKAPI_PTR free_on_host(VkDevice, VkDeviceMemory memory, const VkAllocationCallbacks*) { std::free(memory); }

void give_memory(vk::Context& context) {
  context.memory_properties = {
      .memoryTypeCount = 1,
      .memoryTypes = {{VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT | VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
                           VK_MEMORY_PROPERTY_HOST_COHERENT_BIT,
                       0}},
      .memoryHeapCount = 1,
      .memoryHeaps = {{VkDeviceSize{1} << 34, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT}}};
  memory_requirements = std::exchange(context.vk.vkGetBufferMemoryRequirements, require_host_memory);
  context.vk.vkAllocateMemory = allocate_on_host;
  context.vk.vkBindBufferMemory = bind_nothing;
  context.vk.vkMapMemory = map_on_host;
  context.vk.vkFreeMemory = free_on_host;
}

vk::VulkanBackend& backend_of(Device& device) {
  return dynamic_cast<vk::VulkanBackend&>(runtime::Inside::of(device)->backend());
}

Result<Device> open_with_statistics() {
  auto made = vk::Instance::create({});
  if (!made) return made.error();
  const std::shared_ptr<vk::Instance> instance = std::move(made).value();
  create_device = std::exchange(instance->vk.vkCreateDevice, create_device_with_statistics);
  auto physical = instance->physical_devices();
  if (!physical) return physical.error();
  auto info = instance->describe(physical->front(), "vulkan:0");
  if (!info) return info.error();
  auto context = vk::Context::create(instance, physical->front());
  if (!context) return context.error();
  auto pipelines = vk::PipelineCache::create(*context, {});
  if (!pipelines) return pipelines.error();
  statistics_of = reinterpret_cast<PFN_vkGetPipelineExecutableStatisticsKHR>(
      instance->vk.vkGetDeviceProcAddr((*context)->device, "vkGetPipelineExecutableStatisticsKHR"));
  representations_of = reinterpret_cast<PFN_vkGetPipelineExecutableInternalRepresentationsKHR>(
      instance->vk.vkGetDeviceProcAddr((*context)->device, "vkGetPipelineExecutableInternalRepresentationsKHR"));
  return runtime::device_on(std::make_unique<vk::VulkanBackend>(std::move(info).value(), std::move(context).value(),
                                                                std::move(pipelines).value()),
                            {});
}

Device open_radv() {
  constexpr std::string_view kWanted =
      "wanted Mesa's RADV (Debian: mesa-vulkan-drivers) with RADV_FORCE_FAMILY, see docs/gpu.md";
  auto opened = open_with_statistics();
  if (!opened) throw std::runtime_error(fmt::format("{}; {}", opened.error().message, kWanted));
  Device device = std::move(opened).value();
  if (device.info().name.find(kRadv) == std::string::npos) {
    throw std::runtime_error(fmt::format("the device is {}; {}", device.info().name, kWanted));
  }
  vk::Context& context = *backend_of(device).context();
  create_pipelines = std::exchange(context.vk.vkCreateComputePipelines, create_pipeline_with_statistics);
  give_memory(context);
  return device;
}

void check(VkResult result, std::string_view what) {
  if (result != VK_SUCCESS) throw std::runtime_error(vk::driver_error(what, result).message);
}

std::uint64_t figure_of(std::span<const VkPipelineExecutableStatisticKHR> statistics, std::string_view name) {
  for (const VkPipelineExecutableStatisticKHR& statistic : statistics) {
    if (name == statistic.name && statistic.format == VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_UINT64_KHR) {
      return statistic.value.u64;
    }
  }
  throw std::runtime_error(fmt::format("the driver's statistics have no \"{}\"", name));
}

std::vector<VkPipelineExecutableStatisticKHR> statistics_in(VkDevice device,
                                                            const VkPipelineExecutableInfoKHR& executable) {
  uint32_t count = 256;
  std::vector<VkPipelineExecutableStatisticKHR> statistics(
      count, {.sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_STATISTIC_KHR});
  check(statistics_of(device, &executable, &count, statistics.data()), "no statistics");
  statistics.resize(count);
  return statistics;
}

// Asked once for the sizes, and once more for the texts.
std::string assembly_in(VkDevice device, const VkPipelineExecutableInfoKHR& executable) {
  constexpr std::string_view kAssembly = "Assembly";
  uint32_t count = 16;
  std::vector<VkPipelineExecutableInternalRepresentationKHR> texts(
      count, {.sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INTERNAL_REPRESENTATION_KHR});
  check(representations_of(device, &executable, &count, texts.data()), "no assembly");
  texts.resize(count);
  std::vector<std::string> rooms(count);
  for (std::size_t i = 0; i < count; ++i) {
    rooms[i].resize(texts[i].dataSize);
    texts[i].pData = rooms[i].data();
  }
  check(representations_of(device, &executable, &count, texts.data()), "no assembly");
  for (std::size_t i = 0; i < count; ++i) {
    if (kAssembly == texts[i].name) return rooms[i].substr(0, rooms[i].find('\0'));
  }
  throw std::runtime_error("the driver shows no assembly");
}

}  // namespace

Card::Card() : device_(open_radv()) {}

std::string Card::chip() const {
  const std::string& name = device_.info().name;
  const std::size_t begin = name.find(kRadv);
  return name.substr(begin, name.find(')', begin) - begin);
}

const Compiled& Card::compiled(const runtime::Kernel& kernel, const runtime::Constants& constants) {
  const auto [at, is_new] = compiled_.try_emplace({&kernel, constants});
  if (!is_new) return at->second;
  vk::VulkanBackend& backend = backend_of(device_);
  const VkDevice device = backend.context()->device;
  const auto built = backend.build(kernel, constants).value();
  const VkPipelineExecutableInfoKHR executable{.sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR,
                                               .pNext = nullptr,
                                               .pipeline = dynamic_cast<vk::ComputePipeline&>(*built).pipeline(),
                                               .executableIndex = 0};
  const auto statistics = statistics_in(device, executable);
  for (std::size_t i = 0; i < kFigures.size(); ++i) at->second.cost[i] = figure_of(statistics, kFigures[i].statistic);
  at->second.assembly = assembly_in(device, executable);
  return at->second;
}

}  // namespace rota::test
