#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rota/buffer.h"
#include "rota/encoder.h"
#include "rota/export.h"
#include "rota/result.h"
#include "rota/trace.h"

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
  std::uint64_t max_sparse_bytes = 0;     // addresses for memory that grows; 0: a cache takes its memory at once
  std::uint32_t subgroup_size = 1;        // GPU: invocations
  std::uint32_t max_workgroup_size = 1;   // GPU: invocations
  std::uint32_t shared_memory_bytes = 0;  // GPU: per workgroup
  std::uint32_t cores = 0;                // GPU: compute units, multiprocessors; 0: the driver does not say
  std::uint32_t lane_registers = 0;       // GPU: of 32 bits, about what an invocation has before it spills
};

// A device, opened or not.
struct DeviceInfo {
  std::string id;  // for DeviceOptions::device: "cpu", "vulkan:0"
  std::string name;
  std::string driver;
  DeviceKind kind = DeviceKind::cpu;
  std::uint64_t memory_bytes = 0;          // CPU: of the machine, or the limit of the process's control groups
  std::uint32_t threads = 0;               // CPU: that an open device computes with; else as open() would choose
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
  std::string device = "cpu";  // an id from list_backends()
  std::uint32_t threads = 0;   // CPU: to compute with; 0: one per CPU that affinity and control groups allow
  // CPU: if set, the caller's threads are used instead of a pool of the device's own, and submit() returns when the
  // commands have run. It calls run(i) once for each i < tasks, from any threads, and returns when these calls have;
  // tasks are at most `threads`. Whatever it leaves out is done by the thread that submits. It may be called by several
  // threads at once if several submit, or load sequences (KvCache::load).
  std::function<void(std::uint32_t tasks, const std::function<void(std::uint32_t)>& run)> parallel_for{};

  std::string pipeline_cache{};  // GPU: a file that save_pipelines() writes and open() reads; empty: none

  // GPU: if set, the driver's validation is on, synchronization validation included, and its messages come here. The
  // function may be called from any thread and must not call rota. open() fails if validation is not installed.
  std::function<void(std::string_view)> on_validation_message{};

  TraceSink trace{};  // if set, gets what each command was and how long it took; commands run as without it
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

  // A buffer over the caller's own memory, for a CPU: nothing is copied. `keep` is held as long as a handle or a
  // command uses it, and the memory must stay; any thread may let go of it, so it must not call rota nor own handles.
  // Elements of views must be aligned to their size, and sealed pages and counters to 8 bytes. GPUs refuse it.
  Result<Buffer> wrap(std::span<std::byte> memory, std::shared_ptr<const void> keep = {});

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
