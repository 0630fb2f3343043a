#include "backend/vulkan/instance.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/error.h"
#include "core/extent.h"
#include "runtime/backend.h"

namespace rota::vk {
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

bool layer_installed(const LoaderFunctions& loader) {
  std::vector<VkLayerProperties> layers;
  enumerate(layers, [&](uint32_t* count, VkLayerProperties* items) {
    return loader.vkEnumerateInstanceLayerProperties(count, items);
  });
  return std::ranges::any_of(
      layers, [](const VkLayerProperties& layer) { return std::strcmp(layer.layerName, kValidationLayer) == 0; });
}

bool contains(const std::vector<VkExtensionProperties>& extensions, std::string_view wanted) {
  return std::ranges::any_of(extensions,
                             [&](const VkExtensionProperties& known) { return wanted == known.extensionName; });
}

// Whether the loader hides devices that do not conform, such as MoltenVK's, from those who do not ask for them.
bool hides_devices(const LoaderFunctions& loader) {
  std::vector<VkExtensionProperties> extensions;
  enumerate(extensions, [&](uint32_t* count, VkExtensionProperties* items) {
    return loader.vkEnumerateInstanceExtensionProperties(nullptr, count, items);
  });
  return contains(extensions, VK_KHR_PORTABILITY_ENUMERATION_EXTENSION_NAME);
}

DeviceKind kind_of(VkPhysicalDeviceType type) {
  switch (type) {
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU: return DeviceKind::discrete_gpu;
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU: return DeviceKind::integrated_gpu;
    case VK_PHYSICAL_DEVICE_TYPE_CPU: return DeviceKind::software_gpu;
    default: return DeviceKind::virtual_gpu;
  }
}

std::string version_text(uint32_t version) {
  return core::text("{}.{}.{}", VK_API_VERSION_MAJOR(version), VK_API_VERSION_MINOR(version),
                    VK_API_VERSION_PATCH(version));
}

std::string driver_text(const VkPhysicalDeviceDriverProperties& driver) {
  const std::string_view info = driver.driverInfo;
  return info.empty() ? driver.driverName : core::text("{} {}", driver.driverName, info);
}

// What makers publish: AMD's and NVIDIA's lanes have 255 or 256, others' half of that or less.
std::uint32_t lane_registers_of(const VkPhysicalDeviceProperties& properties) {
  constexpr uint32_t kAmd = 0x1002;
  constexpr uint32_t kNvidia = 0x10de;
  const bool has_many = properties.vendorID == kAmd || properties.vendorID == kNvidia ||
                        properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;  // software, which has the host's stack
  return has_many ? 256 : 128;
}

}  // namespace

Result<std::shared_ptr<Instance>> Instance::create(OnMessage on_message) {
  auto loader = load_loader();
  if (!loader) return loader.error();
  std::shared_ptr<Instance> made(new Instance(std::move(on_message)));
  if (made->on_message_ && !layer_installed(*loader)) {
    return Error{Errc::unsupported,
                 core::text("vulkan: validation was asked for, and the layer {} is not installed", kValidationLayer)};
  }
  if (Status status = made->make(*loader); !status) return status.error();
  return made;
}

Status Instance::make(const LoaderFunctions& loader) {
  const VkDebugUtilsMessengerCreateInfoEXT messenger{
      .sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT,
      .messageSeverity =
          VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT,
      .messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_GENERAL_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT,
      .pfnUserCallback = forward_message,
      .pUserData = &on_message_};
  constexpr std::array kChecks{VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT};
  const VkValidationFeaturesEXT features{.sType = VK_STRUCTURE_TYPE_VALIDATION_FEATURES_EXT,
                                         .pNext = &messenger,
                                         .enabledValidationFeatureCount = kChecks.size(),
                                         .pEnabledValidationFeatures = kChecks.data()};
  const bool validate = static_cast<bool>(on_message_);
  const bool hidden = hides_devices(loader);
  std::vector<const char*> extensions;
  if (validate) extensions.push_back(VK_EXT_DEBUG_UTILS_EXTENSION_NAME);
  if (hidden) extensions.push_back(VK_KHR_PORTABILITY_ENUMERATION_EXTENSION_NAME);
  const VkApplicationInfo application{
      .sType = VK_STRUCTURE_TYPE_APPLICATION_INFO, .pEngineName = "rota", .apiVersion = VK_API_VERSION_1_1};
  const VkInstanceCreateInfo create{
      .sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
      .pNext = validate ? &features : nullptr,
      .flags = hidden ? VkInstanceCreateFlags{VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR} : 0,
      .pApplicationInfo = &application,
      .enabledLayerCount = validate ? 1U : 0U,
      .ppEnabledLayerNames = &kValidationLayer,
      .enabledExtensionCount = static_cast<uint32_t>(extensions.size()),
      .ppEnabledExtensionNames = extensions.data()};
  VkInstance instance = VK_NULL_HANDLE;
  VkResult result = loader.vkCreateInstance(&create, nullptr, &instance);
  if (result != VK_SUCCESS) return driver_error("vulkan: no instance", result);
  instance_ = instance;
  owned_ = true;
  if (Status status = load(vk, loader.vkGetInstanceProcAddr, instance_); !status) return status;
  if (!validate) return {};
  result = vk.vkCreateDebugUtilsMessengerEXT != nullptr
               ? vk.vkCreateDebugUtilsMessengerEXT(instance_, &messenger, nullptr, &messenger_)
               : VK_ERROR_EXTENSION_NOT_PRESENT;
  return result == VK_SUCCESS ? Status{} : driver_error("vulkan: no validation messages", result);
}

Result<std::shared_ptr<Instance>> Instance::adopt(PFN_vkGetInstanceProcAddr find, VkInstance instance) {
  std::shared_ptr<Instance> made(new Instance({}));
  made->instance_ = instance;
  if (Status status = load(made->vk, find, instance); !status) return status.error();
  return made;
}

Instance::~Instance() {
  if (messenger_ != VK_NULL_HANDLE) vk.vkDestroyDebugUtilsMessengerEXT(instance_, messenger_, nullptr);
  if (owned_ && vk.vkDestroyInstance != nullptr) vk.vkDestroyInstance(instance_, nullptr);
}

Result<std::vector<VkPhysicalDevice>> Instance::physical_devices() const {
  std::vector<VkPhysicalDevice> devices;
  const VkResult result = enumerate(devices, [this](uint32_t* count, VkPhysicalDevice* items) {
    return vk.vkEnumeratePhysicalDevices(instance_, count, items);
  });
  if (result != VK_SUCCESS) return driver_error("vulkan: no list of devices", result);
  if (devices.empty()) return Error{Errc::no_device, "vulkan: the loader works, and no driver offers a device"};
  return devices;
}

bool Instance::has_extension(VkPhysicalDevice physical, std::string_view wanted) const {
  std::vector<VkExtensionProperties> extensions;
  enumerate(extensions, [&](uint32_t* count, VkExtensionProperties* items) {
    return vk.vkEnumerateDeviceExtensionProperties(physical, nullptr, count, items);
  });
  return contains(extensions, wanted);
}

std::vector<VkQueueFamilyProperties> Instance::queue_families(VkPhysicalDevice physical) const {
  uint32_t count = 0;
  vk.vkGetPhysicalDeviceQueueFamilyProperties(physical, &count, nullptr);
  std::vector<VkQueueFamilyProperties> families(count);
  vk.vkGetPhysicalDeviceQueueFamilyProperties(physical, &count, families.data());
  families.resize(count);
  return families;
}

std::optional<uint32_t> Instance::compute_family(VkPhysicalDevice physical) const {
  uint32_t number = 0;
  for (const VkQueueFamilyProperties& family : queue_families(physical)) {
    if ((family.queueFlags & VK_QUEUE_COMPUTE_BIT) != 0) return number;
    ++number;
  }
  return std::nullopt;
}

std::optional<uint32_t> Instance::sparse_family(VkPhysicalDevice physical) const {
  VkPhysicalDeviceFeatures features;
  vk.vkGetPhysicalDeviceFeatures(physical, &features);
  // The second allows a buffer to be used while blocks of it are missing.
  if (features.sparseBinding == VK_FALSE || features.sparseResidencyBuffer == VK_FALSE) return std::nullopt;
  std::optional<uint32_t> found;
  uint32_t number = 0;
  for (const VkQueueFamilyProperties& family : queue_families(physical)) {
    const bool binds = (family.queueFlags & VK_QUEUE_SPARSE_BINDING_BIT) != 0;
    if (binds && (!found || found == compute_family(physical))) found = number;
    ++number;
  }
  return found;
}

// Vulkan itself does not say: two makers of large GPUs do.
std::uint32_t Instance::cores_of(VkPhysicalDevice physical) const {
  VkPhysicalDeviceShaderCoreProperties2AMD amd{.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_CORE_PROPERTIES_2_AMD};
  VkPhysicalDeviceShaderSMBuiltinsPropertiesNV nv{
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_SM_BUILTINS_PROPERTIES_NV};
  void* asked = nullptr;
  if (has_extension(physical, VK_AMD_SHADER_CORE_PROPERTIES_2_EXTENSION_NAME)) {
    asked = &amd;
  } else if (has_extension(physical, VK_NV_SHADER_SM_BUILTINS_EXTENSION_NAME)) {
    asked = &nv;
  }
  if (asked == nullptr) return 0;
  VkPhysicalDeviceProperties2 properties{.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = asked};
  vk.vkGetPhysicalDeviceProperties2(physical, &properties);
  return amd.activeComputeUnitCount + nv.shaderSMCount;
}

Result<DeviceInfo> Instance::describe(VkPhysicalDevice physical, std::string id) const {
  VkPhysicalDeviceProperties core_properties;
  vk.vkGetPhysicalDeviceProperties(physical, &core_properties);
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
  vk.vkGetPhysicalDeviceProperties2(physical, &properties);

  VkPhysicalDeviceMemoryProperties memory;
  vk.vkGetPhysicalDeviceMemoryProperties(physical, &memory);
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
                 .max_sparse_bytes = sparse_family(physical) ? limits.sparseAddressSpaceSize : 0,
                 .subgroup_size = subgroup.subgroupSize,
                 .max_workgroup_size = limits.maxComputeWorkGroupInvocations,
                 .shared_memory_bytes = limits.maxComputeSharedMemorySize,
                 .cores = cores_of(physical),
                 .lane_registers = lane_registers_of(core_properties)}};
}

}  // namespace rota::vk
