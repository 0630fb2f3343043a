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
}  // namespace rota::runtime

namespace rota::inline ROTA_ABI {

enum class DeviceKind : std::uint8_t { cpu, discrete_gpu, integrated_gpu, virtual_gpu, software_gpu };

ROTA_API std::string_view name(DeviceKind kind) noexcept;

struct Limits {
  std::uint64_t max_buffer_bytes = 0;
  std::uint64_t max_binding_bytes = 0;  // what one view may span
  std::uint32_t subgroup_size = 1;
  std::uint32_t max_workgroup_size = 1;
  std::uint32_t shared_memory_bytes = 0;
};

struct DeviceInfo {
  std::string id;  // what Device::open takes: "cpu", "vulkan:0"
  std::string name;
  std::string driver;
  DeviceKind kind = DeviceKind::cpu;
  std::uint64_t memory_bytes = 0;          // CPU: the machine's, or the limit of this process's control groups
  std::uint32_t threads = 0;               // CPU: of an opened device its pool, else as many as open() would start
  std::vector<std::string> features = {};  // CPU: instruction sets
  Limits limits = {};
};

// What one backend of this build found on this machine.
struct BackendReport {
  std::string name;
  Status status = {};       // why it has no devices, if it has none
  std::string advice = {};  // what to install or do about it
  std::vector<DeviceInfo> devices = {};
};

ROTA_API Result<std::vector<BackendReport>> list_backends();

struct DeviceOptions {
  std::string device = "cpu";    // an id from list_backends()
  std::uint32_t threads = 0;     // CPU: size of the pool; 0 is one per CPU that affinity and control groups allow
  std::string pipeline_cache{};  // GPU: a file that save_pipelines() writes and open() reads; empty is none
  // GPU: set, it turns the driver's validation on, synchronization included, and receives every
  // message, from any thread; it must not call rota. open() fails where validation is not installed.
  std::function<void(std::string_view)> on_validation_message{};
};

// A handle to one device; copies share it. Every member may be called from any thread.
class ROTA_API Device {
 public:
  static Result<Device> open(const DeviceOptions& options);

  // The first discrete GPU, else the first integrated one, else the CPU. info() tells which.
  static Result<Device> open_best();

  const DeviceInfo& info() const noexcept;

  Result<Buffer> allocate(std::uint64_t bytes);
  Encoder encoder();

  // Writes the pipelines built so far, if the device builds any, to the file named in the options.
  Status save_pipelines();

  const std::shared_ptr<runtime::DeviceState>& state() const noexcept { return state_; }

 private:
  explicit Device(std::shared_ptr<runtime::DeviceState> state) noexcept;

  std::shared_ptr<runtime::DeviceState> state_;
};

}  // namespace rota::inline ROTA_ABI
