#include "backend/vulkan/instance.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>

#include "core/error.h"
#include "core/extent.h"
#include "runtime/backend.h"

namespace rota::vulkan {
namespace {

constexpr const char* kValidationLayer = "VK_LAYER_KHRONOS_validation";

VkBool32 VKAPI_PTR forward_message(VkDebugUtilsMessageSeverityFlagBitsEXT, VkDebugUtilsMessageTypeFlagsEXT,
                                   const VkDebugUtilsMessengerCallbackDataEXT* data, void* user) {
  try {
    (*static_cast<const OnMessage*>(user))(data->pMessage != nullptr ? data->pMessage : "");
  } catch (...) {
    return VK_FALSE;  // what the caller's function throws must not unwind through the driver
  }
  return VK_FALSE;
}

Status load_loader() {
  static const VkResult result = volkInitialize();
  if (result != VK_SUCCESS) return Error{Errc::no_device, "vulkan: no Vulkan loader on this machine"};
  if (volkGetInstanceVersion() < VK_API_VERSION_1_1) {
    return Error{Errc::unsupported, "vulkan: the Vulkan loader serves 1.0 only; wanted 1.1 or later"};
  }
  return {};
}

bool layer_installed() {
  std::vector<VkLayerProperties> layers;
  enumerate(layers,
            [](uint32_t* count, VkLayerProperties* items) { return vkEnumerateInstanceLayerProperties(count, items); });
  return std::ranges::any_of(
      layers, [](const VkLayerProperties& layer) { return std::strcmp(layer.layerName, kValidationLayer) == 0; });
}

DeviceKind kind_of(VkPhysicalDeviceType type) {
  switch (type) {
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU: return DeviceKind::discrete_gpu;
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU: return DeviceKind::integrated_gpu;
    case VK_PHYSICAL_DEVICE_TYPE_CPU: return DeviceKind::software_gpu;
    default: return DeviceKind::virtual_gpu;
  }
}

bool has_extension(VkPhysicalDevice physical, std::string_view wanted) {
  std::vector<VkExtensionProperties> extensions;
  enumerate(extensions, [&](uint32_t* count, VkExtensionProperties* items) {
    return vkEnumerateDeviceExtensionProperties(physical, nullptr, count, items);
  });
  return std::ranges::any_of(extensions,
                             [&](const VkExtensionProperties& known) { return wanted == known.extensionName; });
}

std::string version_text(uint32_t version) {
  return core::text("{}.{}.{}", VK_API_VERSION_MAJOR(version), VK_API_VERSION_MINOR(version),
                    VK_API_VERSION_PATCH(version));
}

std::string driver_text(const VkPhysicalDeviceDriverProperties& driver) {
  const std::string_view info = driver.driverInfo;
  return info.empty() ? driver.driverName : core::text("{} {}", driver.driverName, info);
}

}  // namespace

Result<std::shared_ptr<Instance>> Instance::create(OnMessage on_message) {
  if (Status status = load_loader(); !status) return status.error();
  std::shared_ptr<Instance> made(new Instance(std::move(on_message)));
  const bool validate = static_cast<bool>(made->on_message_);
  if (validate && !layer_installed()) {
    return Error{Errc::unsupported,
                 core::text("vulkan: validation was asked for, and the layer {} is not installed", kValidationLayer)};
  }

  const VkDebugUtilsMessengerCreateInfoEXT messenger{
      .sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT,
      .messageSeverity =
          VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT,
      .messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_GENERAL_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT,
      .pfnUserCallback = forward_message,
      .pUserData = &made->on_message_};
  constexpr std::array kChecks{VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT};
  const VkValidationFeaturesEXT features{.sType = VK_STRUCTURE_TYPE_VALIDATION_FEATURES_EXT,
                                         .pNext = &messenger,
                                         .enabledValidationFeatureCount = kChecks.size(),
                                         .pEnabledValidationFeatures = kChecks.data()};
  const std::array extensions{VK_EXT_DEBUG_UTILS_EXTENSION_NAME};
  const VkApplicationInfo application{
      .sType = VK_STRUCTURE_TYPE_APPLICATION_INFO, .pEngineName = "rota", .apiVersion = VK_API_VERSION_1_1};
  VkInstanceCreateInfo create{.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO, .pApplicationInfo = &application};
  if (validate) {
    create.pNext = &features;
    create.enabledLayerCount = 1;
    create.ppEnabledLayerNames = &kValidationLayer;
    create.enabledExtensionCount = extensions.size();
    create.ppEnabledExtensionNames = extensions.data();
  }
  if (const VkResult result = vkCreateInstance(&create, nullptr, &made->instance_); result != VK_SUCCESS) {
    return driver_error("vulkan: no instance", result);
  }

  // Core functions are the loader's own entry points, the same for every instance: once is enough.
  static std::once_flag loaded;
  std::call_once(loaded, [&] { volkLoadInstanceOnly(made->instance_); });
  if (validate) {
    const auto create_messenger = reinterpret_cast<PFN_vkCreateDebugUtilsMessengerEXT>(
        vkGetInstanceProcAddr(made->instance_, "vkCreateDebugUtilsMessengerEXT"));
    const VkResult result = create_messenger != nullptr
                                ? create_messenger(made->instance_, &messenger, nullptr, &made->messenger_)
                                : VK_ERROR_EXTENSION_NOT_PRESENT;
    if (result != VK_SUCCESS) return driver_error("vulkan: no validation messages", result);
  }
  return made;
}

Instance::~Instance() {
  if (messenger_ != VK_NULL_HANDLE) {
    const auto destroy = reinterpret_cast<PFN_vkDestroyDebugUtilsMessengerEXT>(
        vkGetInstanceProcAddr(instance_, "vkDestroyDebugUtilsMessengerEXT"));
    destroy(instance_, messenger_, nullptr);
  }
  if (instance_ != VK_NULL_HANDLE) vkDestroyInstance(instance_, nullptr);
}

Result<std::vector<VkPhysicalDevice>> Instance::physical_devices() const {
  std::vector<VkPhysicalDevice> devices;
  const VkResult result = enumerate(devices, [this](uint32_t* count, VkPhysicalDevice* items) {
    return vkEnumeratePhysicalDevices(instance_, count, items);
  });
  if (result != VK_SUCCESS) return driver_error("vulkan: no list of devices", result);
  if (devices.empty()) return Error{Errc::no_device, "vulkan: the loader works, and no driver offers a device"};
  return devices;
}

std::optional<uint32_t> compute_family(VkPhysicalDevice physical) {
  uint32_t count = 0;
  vkGetPhysicalDeviceQueueFamilyProperties(physical, &count, nullptr);
  std::vector<VkQueueFamilyProperties> families(count);
  vkGetPhysicalDeviceQueueFamilyProperties(physical, &count, families.data());
  for (uint32_t family = 0; family < count; ++family) {
    if ((families[family].queueFlags & VK_QUEUE_COMPUTE_BIT) != 0) return family;
  }
  return std::nullopt;
}

Result<DeviceInfo> describe(VkPhysicalDevice physical, std::string id) {
  VkPhysicalDeviceProperties core_properties;
  vkGetPhysicalDeviceProperties(physical, &core_properties);
  if (core_properties.apiVersion < VK_API_VERSION_1_1) {
    return Error{Errc::unsupported, core::text("{} ({}) serves Vulkan {}; wanted 1.1 or later", id,
                                               core_properties.deviceName, version_text(core_properties.apiVersion))};
  }
  if (!compute_family(physical)) {
    return Error{Errc::unsupported, core::text("{} ({}) has no compute queue", id, core_properties.deviceName)};
  }

  VkPhysicalDeviceDriverProperties driver{.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES};
  const bool driver_known = has_extension(physical, VK_KHR_DRIVER_PROPERTIES_EXTENSION_NAME);
  VkPhysicalDeviceMaintenance3Properties sizes{.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES,
                                               .pNext = driver_known ? &driver : nullptr};
  VkPhysicalDeviceSubgroupProperties subgroup{.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES,
                                              .pNext = &sizes};
  VkPhysicalDeviceProperties2 properties{.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &subgroup};
  vkGetPhysicalDeviceProperties2(physical, &properties);

  VkPhysicalDeviceMemoryProperties memory;
  vkGetPhysicalDeviceMemoryProperties(physical, &memory);
  std::uint64_t memory_bytes = 0;
  for (const VkMemoryHeap& heap : std::span(memory.memoryHeaps, memory.memoryHeapCount)) {
    if ((heap.flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) != 0) memory_bytes += heap.size;
  }

  const VkPhysicalDeviceLimits& limits = properties.properties.limits;
  return DeviceInfo{
      .id = std::move(id),
      .name = properties.properties.deviceName,
      .driver = driver_known ? driver_text(driver) : core::text("version {:#x}", properties.properties.driverVersion),
      .kind = kind_of(properties.properties.deviceType),
      .memory_bytes = memory_bytes,
      .features = {"vulkan " + version_text(properties.properties.apiVersion)},
      .limits = {.max_buffer_bytes = sizes.maxMemoryAllocationSize,
                 .max_binding_bytes = core::round_down(limits.maxStorageBufferRange, runtime::kUnitBytes),
                 .subgroup_size = subgroup.subgroupSize,
                 .max_workgroup_size = limits.maxComputeWorkGroupInvocations,
                 .shared_memory_bytes = limits.maxComputeSharedMemorySize}};
}

}  // namespace rota::vulkan
