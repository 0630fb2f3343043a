#include <algorithm>

#include "backend/vulkan/backend.h"
#include "backend/vulkan/context.h"
#include "backend/vulkan/memory.h"
#include "backend/vulkan/pipeline_cache.h"
#include "backend/vulkan/placement.h"
#include "core/error.h"
#include "rota/vulkan.h"
#include "runtime/engine.h"

namespace rota::vk {
namespace {

constexpr std::string_view kAdoptedId = "vulkan:adopted";
constexpr std::uint64_t kWordBytes = sizeof(std::uint32_t);

Status check_given(std::string_view op, std::string_view argument, bool given) {
  if (given) return {};
  return core::refuse({op, {argument}}, "null", "a handle of the engine's");
}

Status check(const vulkan::Adoption& adoption) {
  struct Given {
    std::string_view name;
    bool given;
  };
  for (const auto& [name, given] : {Given{"get_instance_proc_addr", adoption.get_instance_proc_addr != nullptr},
                                    Given{"instance", adoption.instance != VK_NULL_HANDLE},
                                    Given{"physical_device", adoption.physical_device != VK_NULL_HANDLE},
                                    Given{"device", adoption.device != VK_NULL_HANDLE}}) {
    if (Status status = check_given("adopt", name, given); !status) return status;
  }
  if (adoption.patience < std::chrono::nanoseconds::zero()) {
    return core::refuse({"adopt", {"patience"}}, "below zero", "a duration");
  }
  return {};
}

Status check_family(const Instance& instance, const vulkan::Adoption& adoption) {
  const auto families = instance.queue_families(adoption.physical_device);
  const core::Refusal refusal{"adopt", {"queue_family"}};
  if (adoption.queue_family >= families.size()) {
    return core::refuse(refusal, adoption.queue_family, "one of the device's {}", families.size());
  }
  if ((families[adoption.queue_family].queueFlags & VK_QUEUE_COMPUTE_BIT) != 0) return {};
  return core::refuse(refusal, core::text("{}, which does not compute", adoption.queue_family), "a family that does");
}

Status check(const vulkan::ForeignBuffer& foreign) {
  if (Status status = check_given("wrap", "buffer", foreign.buffer != VK_NULL_HANDLE); !status) return status;
  if ((foreign.usage & VK_BUFFER_USAGE_STORAGE_BUFFER_BIT) == 0) {
    return core::refuse({"wrap", {"usage"}}, core::text("{:#x}", foreign.usage),
                        "VK_BUFFER_USAGE_STORAGE_BUFFER_BIT among it, and a buffer that was made with it");
  }
  if (foreign.size_bytes == 0 || foreign.size_bytes % kWordBytes != 0) {
    return core::refuse({"wrap", {"size_bytes"}}, foreign.size_bytes, "a multiple of {}, because kernels work on words",
                        kWordBytes);
  }
  if (reinterpret_cast<std::uintptr_t>(foreign.host) % kWordBytes != 0) {
    return core::refuse({"wrap", {"host"}}, "not aligned", "an address that is a multiple of {}", kWordBytes);
  }
  return {};
}

Status check(std::string_view op, std::string_view list, const std::vector<vulkan::TimelinePoint>& points) {
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (points[i].semaphore == VK_NULL_HANDLE) {
      return core::refuse({op, {list, i, "semaphore"}}, "null", "a timeline semaphore");
    }
  }
  return {};
}

// What the engine has adopted; on any other device its handles would mean nothing.
Result<VulkanBackend*> adopted(const Result<runtime::Backend*>& backend, std::string_view op) {
  if (!backend) return backend.error();
  auto* const ours = dynamic_cast<VulkanBackend*>(*backend);
  if (ours != nullptr && ours->context()->is_adopted()) return ours;
  return core::refuse({op, {"the device"}}, (*backend)->info().id, "one that vulkan::adopt() returned");
}

Result<Device> adopt(const vulkan::Adoption& adoption) {
  const runtime::ForDrivers inherited;
  if (Status status = check(adoption); !status) return status.error();
  auto instance = Instance::adopt(adoption.get_instance_proc_addr, adoption.instance);
  if (!instance) return instance.error();
  if (Status status = check_family(**instance, adoption); !status) return status.error();
  auto info = (*instance)->describe(adoption.physical_device, std::string(kAdoptedId));
  if (!info) return info.error();
  info->limits.max_sparse_bytes = 0;  // nobody says whether the device was made with sparse buffers
  auto context = Context::adopt(std::move(instance).value(), adoption);
  if (!context) return context.error();
  auto pipelines = PipelineCache::create(*context, adoption.pipeline_cache);
  if (!pipelines) return pipelines.error();
  return runtime::device_on(std::make_unique<VulkanBackend>(std::move(info).value(), std::move(context).value(),
                                                            std::move(pipelines).value()),
                            {adoption.pipeline_cache, adoption.trace});
}

Result<Buffer> wrap(const Device& device, const vulkan::ForeignBuffer& foreign) {
  if (auto backend = adopted(runtime::backend_of(device, "wrap"), "wrap"); !backend) return backend.error();
  if (Status status = check(foreign); !status) return status.error();
  return runtime::buffer_on(device, BufferMemory::wrap(foreign));
}

Status check(const Encoder& encoder, const vulkan::Order& order) {
  auto backend = adopted(runtime::backend_of(encoder, "submit"), "submit");
  if (!backend) return backend.error();
  if (Status status = check("submit", "waits", order.waits); !status) return status;
  if (Status status = check("submit", "signals", order.signals); !status) return status;
  if (order.waits.empty() && order.signals.empty()) return {};
  return (*backend)->context()->check_timelines("submit");
}

Status check(const Encoder& encoder, const vulkan::Recording& recording) {
  auto backend = adopted(runtime::backend_of(encoder, "record"), "record");
  if (!backend) return backend.error();
  if (Status status = (*backend)->context()->check_timelines("record"); !status) return status;
  if (Status status = check_given("record", "commands", recording.commands != VK_NULL_HANDLE); !status) return status;
  return check_given("record", "done.semaphore", recording.done.semaphore != VK_NULL_HANDLE);
}

template <class Wanted>
Result<Fence> submit(Encoder encoder, const Wanted& wanted) {
  // An error that the encoder has kept is the cause of what follows.
  if (Status status = encoder.status(); !status) return status.error();
  if (Status status = check(encoder, wanted); !status) return status.error();
  const Placement placement(wanted);
  return runtime::submit(encoder, &placement);
}

}  // namespace
}  // namespace rota::vk

namespace rota::inline ROTA_ABI::vulkan {

Result<Device> adopt(const Adoption& adoption) {
  return core::guarded([&] { return vk::adopt(adoption); });
}

Result<Buffer> wrap(const Device& device, const ForeignBuffer& foreign) {
  return core::guarded([&] { return vk::wrap(device, foreign); });
}

Result<Fence> submit(Encoder&& encoder, const Order& order) {
  return core::guarded([&] { return vk::submit(std::move(encoder), order); });
}

Result<Fence> record(Encoder&& encoder, const Recording& recording) {
  return core::guarded([&] { return vk::submit(std::move(encoder), recording); });
}

}  // namespace rota::inline ROTA_ABI::vulkan
