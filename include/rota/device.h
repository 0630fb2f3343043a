#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "rota/buffer.h"
#include "rota/encoder.h"
#include "rota/export.h"
#include "rota/result.h"

namespace rota::runtime {
class DeviceState;
struct Inside;
}  // namespace rota::runtime

namespace rota::inline ROTA_ABI {

// What a device is.
enum class DeviceKind : std::uint8_t { cpu, discrete_gpu, integrated_gpu, virtual_gpu, software_gpu };

// The kind in words, as in "discrete GPU".
ROTA_API std::string_view name(DeviceKind kind) noexcept;

// What a device can do at most.
struct Limits {
  std::uint64_t max_buffer_bytes = 0;
  std::uint64_t max_binding_bytes = 0;    // that one view may span
  std::uint32_t subgroup_size = 1;        // GPU: invocations
  std::uint32_t max_workgroup_size = 1;   // GPU: invocations
  std::uint32_t shared_memory_bytes = 0;  // GPU: per workgroup
};

// A device, opened or not.
struct DeviceInfo {
  std::string id;  // for DeviceOptions::device: "cpu", "vulkan:0"
  std::string name;
  std::string driver;
  DeviceKind kind = DeviceKind::cpu;
  std::uint64_t memory_bytes = 0;          // CPU: of the machine, or the limit of the process's control groups
  std::uint32_t threads = 0;               // CPU: in the pool of an open device; else as many as open() would start
  std::vector<std::string> features = {};  // CPU: instruction sets
  Limits limits = {};
};

// What one backend of this build found on this machine.
struct BackendReport {
  std::string name;
  Status status = {};       // if there are no devices: why
  std::string advice = {};  // if there are no devices: what to install or do
  std::vector<DeviceInfo> devices = {};
};

// Asks every backend of this build for its devices.
ROTA_API Result<std::vector<BackendReport>> list_backends();

// What Device::open() takes.
struct DeviceOptions {
  std::string device = "cpu";    // an id from list_backends()
  std::uint32_t threads = 0;     // CPU: in the pool; 0: one per CPU that affinity and control groups allow
  std::string pipeline_cache{};  // GPU: a file that save_pipelines() writes and open() reads; empty: none

  // GPU: if set, the driver's validation is on, synchronization validation included, and its messages come here. The
  // function may be called from any thread and must not call rota. open() fails if validation is not installed.
  std::function<void(std::string_view)> on_validation_message{};
};

// A handle to an open device. Copies share the device. Every member may be called from any thread.
class ROTA_API Device {
 public:
  static Result<Device> open(const DeviceOptions& options);

  // Opens the first discrete GPU, else the first integrated GPU, else the CPU. info() tells which.
  static Result<Device> open_best();

  const DeviceInfo& info() const noexcept;

  // New memory of at least one byte, with undefined contents.
  Result<Buffer> allocate(std::uint64_t bytes);

  // A new encoder. If there is no memory for it, its status() says so.
  Encoder encoder();

  // Writes the pipelines that were built so far to DeviceOptions::pipeline_cache. A CPU has none.
  Status save_pipelines();

 private:
  friend struct runtime::Inside;
  explicit Device(std::shared_ptr<runtime::DeviceState> state) noexcept;

  std::shared_ptr<runtime::DeviceState> state_;
};

}  // namespace rota::inline ROTA_ABI
