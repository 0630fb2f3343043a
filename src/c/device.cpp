#include <algorithm>
#include <chrono>
#include <functional>

#include "c/convert.h"
#include "c/handles.h"
#include "c/structs.h"

// Devices, buffers, encoders and fences.

namespace rota::c {
namespace {

static_assert(static_cast<std::uint32_t>(DeviceKind::cpu) == ROTA_CPU &&
              static_cast<std::uint32_t>(DeviceKind::discrete_gpu) == ROTA_DISCRETE_GPU &&
              static_cast<std::uint32_t>(DeviceKind::integrated_gpu) == ROTA_INTEGRATED_GPU &&
              static_cast<std::uint32_t>(DeviceKind::virtual_gpu) == ROTA_VIRTUAL_GPU &&
              static_cast<std::uint32_t>(DeviceKind::software_gpu) == ROTA_SOFTWARE_GPU);

std::string joined(const std::vector<std::string>& words) {
  std::string whole;
  for (const std::string& word : words) whole += (whole.empty() ? "" : " ") + word;
  return whole;
}

rota_device_info c_info(const DeviceInfo& from, const std::string& features) noexcept {
  return {.struct_size = sizeof(rota_device_info),
          .id = from.id.c_str(),
          .name = from.name.c_str(),
          .driver = from.driver.c_str(),
          .features = features.c_str(),
          .kind = static_cast<rota_device_kind>(from.kind),
          .threads = from.threads,
          .memory_bytes = from.memory_bytes,
          .max_buffer_bytes = from.limits.max_buffer_bytes,
          .max_binding_bytes = from.limits.max_binding_bytes,
          .max_sparse_bytes = from.limits.max_sparse_bytes,
          .subgroup_size = from.limits.subgroup_size,
          .max_workgroup_size = from.limits.max_workgroup_size,
          .shared_memory_bytes = from.limits.shared_memory_bytes,
          .reserved = 0};
}

using Run = std::function<void(std::uint32_t)>;

extern "C" void rota_c_run_task(void* context, std::uint32_t task) { (*static_cast<const Run*>(context))(task); }

void trace_to(rota_trace_sink sink, void* user, const TraceEvent& event) {
  const std::string device(event.device), op(event.op);
  const rota_trace_event c{.struct_size = sizeof(rota_trace_event),
                           .device = device.c_str(),
                           .op = op.c_str(),
                           .submission = event.submission,
                           .command = event.command,
                           .tokens = event.shape.tokens,
                           .heads = event.shape.heads,
                           .dim = event.shape.dim,
                           .keys = event.shape.keys,
                           .sequences = event.shape.sequences,
                           .bytes = event.bytes,
                           .host_begin = event.host_begin.count(),
                           .host_time = event.host_time.count(),
                           .submitted = event.submitted.count(),
                           .device_begin = event.device_begin.count(),
                           .device_time = event.device_time.count()};
  sink(user, &c);
}

DeviceOptions options_of(const rota_device_options& from) {
  DeviceOptions to;
  if (from.device != nullptr) to.device = from.device;
  to.threads = from.threads;
  if (from.pipeline_cache != nullptr) to.pipeline_cache = from.pipeline_cache;
  if (from.parallel_for != nullptr) {
    to.parallel_for = [call = from.parallel_for, user = from.parallel_for_user](std::uint32_t tasks, const Run& run) {
      call(user, tasks, rota_c_run_task, const_cast<Run*>(&run));
    };
  }
  if (from.on_validation_message != nullptr) {
    to.on_validation_message = [call = from.on_validation_message, user = from.on_validation_message_user](
                                   std::string_view message) { call(user, std::string(message).c_str()); };
  }
  if (from.trace != nullptr) {
    to.trace = [sink = from.trace, user = from.trace_user](const TraceEvent& event) { trace_to(sink, user, event); };
  }
  return to;
}

Status give_device(Result<Device> opened, rota_device** result) {
  if (!opened) return opened.error();
  std::string features = joined(opened->info().features);
  *result = make<rota_device>(std::move(opened).value(), std::move(features)).release();
  return {};
}

// Ends the use of the caller's memory; what fails before does not.
class Keeper {
 public:
  Keeper(void (*release)(void*), void* user) noexcept : release_(release), user_(user) {}
  ~Keeper() {
    if (armed_ && release_ != nullptr) release_(user_);
  }
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  void arm() noexcept { armed_ = true; }

 private:
  void (*release_)(void*);
  void* user_;
  bool armed_ = false;
};

}  // namespace
}  // namespace rota::c

using namespace rota::c;
using rota::Status;

rota_status rota_list_backends(rota_backends** result) {
  return answer([&]() -> Status {
    const Where call{nullptr, "rota_list_backends"};
    if (Status status = check_given(call.in("result"), result); !status) return status;
    auto reports = rota::list_backends();
    if (!reports) return reports.error();
    std::vector<std::vector<std::string>> features;
    for (const rota::BackendReport& report : reports.value()) {
      auto& of_backend = features.emplace_back();
      for (const rota::DeviceInfo& device : report.devices) of_backend.push_back(joined(device.features));
    }
    *result = make<rota_backends>(std::move(reports).value(), std::move(features)).release();
    return {};
  });
}

rota_status rota_backends_count(const rota_backends* backends, size_t* count) {
  return answer([&]() -> Status {
    const Where call{nullptr, "rota_backends_count"};
    if (Status status = check_handle(call.in("backends"), backends); !status) return status;
    if (Status status = check_given(call.in("count"), count); !status) return status;
    *count = backends->reports.size();
    return {};
  });
}

rota_status rota_backends_get(const rota_backends* backends, size_t backend, rota_backend_report* report) {
  return answer([&]() -> Status {
    const Where call{nullptr, "rota_backends_get"};
    if (Status status = check_handle(call.in("backends"), backends); !status) return status;
    if (Status status = check_index(call.in("backend"), backend, backends->reports.size()); !status) return status;
    if (Status status = check_result(call.in("report"), report); !status) return status;
    const rota::BackendReport& from = backends->reports[backend];
    const auto code = from.status ? ROTA_OK : status_of(from.status.error().code);
    put({.struct_size = sizeof(rota_backend_report),
         .name = from.name.c_str(),
         .status = code,
         .reserved = 0,
         .message = from.status ? "" : from.status.error().message.c_str(),
         .advice = from.advice.c_str(),
         .device_count = from.devices.size()},
        report);
    return {};
  });
}

rota_status rota_backends_get_device(const rota_backends* backends, size_t backend, size_t device,
                                     rota_device_info* info) {
  return answer([&]() -> Status {
    const Where call{nullptr, "rota_backends_get_device"};
    if (Status status = check_handle(call.in("backends"), backends); !status) return status;
    if (Status status = check_index(call.in("backend"), backend, backends->reports.size()); !status) return status;
    const auto& devices = backends->reports[backend].devices;
    if (Status status = check_index(call.in("device"), device, devices.size()); !status) return status;
    if (Status status = check_result(call.in("info"), info); !status) return status;
    put(c_info(devices[device], backends->features[backend][device]), info);
    return {};
  });
}

void rota_backends_destroy(rota_backends* backends) { destroy("rota_backends_destroy", "backends", backends); }

rota_status rota_device_open(const rota_device_options* options, rota_device** result) {
  return answer([&]() -> Status {
    const Where call{nullptr, "rota_device_open"};
    rota_device_options taken;
    if (Status status = take(call.in("options"), options, taken); !status) return status;
    if (Status status = check_given(call.in("result"), result); !status) return status;
    return give_device(rota::Device::open(options_of(taken)), result);
  });
}

rota_status rota_device_open_best(rota_device** result) {
  return answer([&]() -> Status {
    const Where call{nullptr, "rota_device_open_best"};
    if (Status status = check_given(call.in("result"), result); !status) return status;
    return give_device(rota::Device::open_best(), result);
  });
}

rota_status rota_device_get_info(const rota_device* device, rota_device_info* info) {
  return answer([&]() -> Status {
    const Where call{nullptr, "rota_device_get_info"};
    if (Status status = check_handle(call.in("device"), device); !status) return status;
    if (Status status = check_result(call.in("info"), info); !status) return status;
    put(c_info(device->device.info(), device->features), info);
    return {};
  });
}

rota_status rota_device_save_pipelines(rota_device* device) {
  return answer([&]() -> Status {
    const Where call{nullptr, "rota_device_save_pipelines"};
    if (Status status = check_handle(call.in("device"), device); !status) return status;
    return device->device.save_pipelines();
  });
}

void rota_device_destroy(rota_device* device) { destroy("rota_device_destroy", "device", device); }

rota_status rota_device_allocate(rota_device* device, uint64_t bytes, rota_buffer** result) {
  return answer([&]() -> Status {
    const Where call{nullptr, "rota_device_allocate"};
    if (Status status = check_handle(call.in("device"), device); !status) return status;
    if (Status status = check_given(call.in("result"), result); !status) return status;
    auto buffer = device->device.allocate(bytes);
    if (!buffer) return buffer.error();
    *result = make<rota_buffer>(std::move(buffer).value()).release();
    return {};
  });
}

rota_status rota_device_wrap(rota_device* device, void* memory, size_t bytes, void (*release)(void* user), void* user,
                             rota_buffer** result) {
  return answer([&]() -> Status {
    const Where call{nullptr, "rota_device_wrap"};
    if (Status status = check_handle(call.in("device"), device); !status) return status;
    if (Status status = check_given(call.in("memory"), memory); !status) return status;
    if (Status status = check_given(call.in("result"), result); !status) return status;
    auto handle = make<rota_buffer>();
    const auto keeper = std::make_shared<Keeper>(release, user);
    auto buffer = device->device.wrap({static_cast<std::byte*>(memory), bytes}, keeper);
    if (!buffer) return buffer.error();
    handle->buffer = std::move(buffer).value();
    keeper->arm();
    *result = handle.release();
    return {};
  });
}

rota_status rota_buffer_size(const rota_buffer* buffer, uint64_t* bytes) {
  return answer([&]() -> Status {
    const Where call{nullptr, "rota_buffer_size"};
    if (Status status = check_handle(call.in("buffer"), buffer); !status) return status;
    if (Status status = check_given(call.in("bytes"), bytes); !status) return status;
    *bytes = buffer->buffer.size_bytes();
    return {};
  });
}

rota_status rota_buffer_write(rota_buffer* buffer, const void* from, size_t bytes, uint64_t offset_bytes) {
  return answer([&]() -> Status {
    const Where call{nullptr, "rota_buffer_write"};
    if (Status status = check_handle(call.in("buffer"), buffer); !status) return status;
    const auto span = list_of(call.in("from"), static_cast<const std::byte*>(from), bytes);
    if (!span) return span.error();
    return buffer->buffer.write(span.value(), offset_bytes);
  });
}

rota_status rota_buffer_read(const rota_buffer* buffer, void* to, size_t bytes, uint64_t offset_bytes) {
  return answer([&]() -> Status {
    const Where call{nullptr, "rota_buffer_read"};
    if (Status status = check_handle(call.in("buffer"), buffer); !status) return status;
    if (bytes != 0) {
      if (Status status = check_given(call.in("to"), to); !status) return status;
    }
    return buffer->buffer.read({static_cast<std::byte*>(to), bytes}, offset_bytes);
  });
}

void rota_buffer_destroy(rota_buffer* buffer) { destroy("rota_buffer_destroy", "buffer", buffer); }
