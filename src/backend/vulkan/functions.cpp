#include "backend/vulkan/functions.h"

#include <dlfcn.h>

#include "core/error.h"

namespace rota::vk {
namespace {

// The first of these that is there stays open: drivers do not like to be closed.
PFN_vkGetInstanceProcAddr open_loader() noexcept {
#if defined(__APPLE__)
  constexpr const char* kNames[] = {"libvulkan.dylib", "libvulkan.1.dylib", "libMoltenVK.dylib"};
#else
  constexpr const char* kNames[] = {"libvulkan.so.1", "libvulkan.so"};
#endif
  for (const char* const name : kNames) {
    void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) continue;
    return reinterpret_cast<PFN_vkGetInstanceProcAddr>(dlsym(library, "vkGetInstanceProcAddr"));
  }
  return nullptr;
}

// Finds functions by name, and keeps the first name that is not found.
template <class Finder, class Owner>
class Names {
 public:
  Names(Finder find, Owner owner) noexcept : find_(find), owner_(owner) {}

  template <class Function>
  void optional(Function& function, const char* name) noexcept {
    function = reinterpret_cast<Function>(find_(owner_, name));
  }
  template <class Function>
  void required(Function& function, const char* name) noexcept {
    optional(function, name);
    if (function == nullptr && missing_ == nullptr) missing_ = name;
  }

  Status status() const {
    if (missing_ == nullptr) return {};
    return Error{Errc::unsupported, core::text("vulkan: the loader and the driver have no {}; wanted Vulkan 1.1 or "
                                               "later, and the extensions that are said to be enabled",
                                               missing_)};
  }

 private:
  Finder find_;
  Owner owner_;
  const char* missing_ = nullptr;
};

}  // namespace

// NOLINTNEXTLINE(cppcoreguidelines-macro-usage)
#define ROTA_VK_FIND(name) names.required(functions.name, #name);

Result<LoaderFunctions> load_loader() {
  static const PFN_vkGetInstanceProcAddr found = open_loader();
  if (found == nullptr) return Error{Errc::no_device, "vulkan: no Vulkan loader on this machine"};
  LoaderFunctions functions{.vkGetInstanceProcAddr = found};
  Names names(found, VkInstance{VK_NULL_HANDLE});
  ROTA_VK_LOADER_FUNCTIONS(ROTA_VK_FIND)
  if (Status status = names.status(); !status) return status.error();
  names.optional(functions.vkEnumerateInstanceVersion, "vkEnumerateInstanceVersion");
  uint32_t version = VK_API_VERSION_1_0;
  if (functions.vkEnumerateInstanceVersion != nullptr) functions.vkEnumerateInstanceVersion(&version);
  if (version < VK_API_VERSION_1_1) {
    return Error{Errc::unsupported, "vulkan: the Vulkan loader serves 1.0 only; wanted 1.1 or later"};
  }
  return functions;
}

Status load(InstanceFunctions& functions, PFN_vkGetInstanceProcAddr find, VkInstance instance) {
  Names names(find, instance);
  ROTA_VK_INSTANCE_FUNCTIONS(ROTA_VK_FIND)
  names.optional(functions.vkCreateDebugUtilsMessengerEXT, "vkCreateDebugUtilsMessengerEXT");
  names.optional(functions.vkDestroyDebugUtilsMessengerEXT, "vkDestroyDebugUtilsMessengerEXT");
  return names.status();
}

Status load(DeviceFunctions& functions, PFN_vkGetDeviceProcAddr find, VkDevice device, const DeviceExtras& extras) {
  Names names(find, device);
  ROTA_VK_DEVICE_FUNCTIONS(ROTA_VK_FIND)
  if (extras.timeline_semaphores) {
    const bool extension = extras.timeline_semaphores_as_extension;
    names.required(functions.vkGetSemaphoreCounterValue,
                   extension ? "vkGetSemaphoreCounterValueKHR" : "vkGetSemaphoreCounterValue");
    names.required(functions.vkWaitSemaphores, extension ? "vkWaitSemaphoresKHR" : "vkWaitSemaphores");
  }
  if (extras.push_descriptors) names.required(functions.vkCmdPushDescriptorSetKHR, "vkCmdPushDescriptorSetKHR");
  return names.status();
}

#undef ROTA_VK_FIND

}  // namespace rota::vk
