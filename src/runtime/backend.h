#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/callers_thread.h"
#include "rota/device.h"
#include "runtime/command_list.h"

namespace rota::runtime {

enum class MemoryKind : std::uint8_t {
  device,  // fast for kernels
  upload,  // written by the host through Memory::host(), read by kernels
};

class Pipeline {
 public:
  virtual ~Pipeline() = default;
};

struct Batch {
  CommandList commands;
  std::vector<std::shared_ptr<Pipeline>> pipelines;  // one per command
};

class PreparedBatch {
 public:
  virtual ~PreparedBatch() = default;
};

// What a backend holds while it calls a driver that may start threads, which inherit the signal mask, or compile
// kernels, whose constants it folds with the caller's rounding. It takes two system calls, so a backend without a
// driver blocks signals only where it starts threads of its own.
struct ForDrivers {
  core::BlockedSignals signals;
  core::DefaultFloats floats;
};

// One opened device: all that a backend implements. Members may be called from any thread at once,
// enqueue() excepted. The destructor waits for what is in flight.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual const DeviceInfo& info() const noexcept = 0;
  virtual Result<std::shared_ptr<Memory>> allocate(std::uint64_t bytes, MemoryKind kind) = 0;
  virtual Result<std::shared_ptr<Pipeline>> build(const Kernel& kernel, const Constants& constants) = 0;

  virtual Result<std::unique_ptr<PreparedBatch>> prepare(Batch batch) = 0;

  // Batches run in the order of these calls, which the caller makes one at a time with rising tickets.
  // A batch sees all that earlier batches wrote.
  virtual Status enqueue(std::unique_ptr<PreparedBatch> batch, std::uint64_t ticket) = 0;
  virtual Status wait(std::uint64_t ticket) = 0;

  // Copies between host and memory, with no conflicting batch in flight. Bounds have been checked.
  virtual Status read(const Memory& from, std::uint64_t offset, std::span<std::byte> to) = 0;
  virtual Status write(Memory& to, std::uint64_t offset, std::span<const std::byte> from) = 0;

  virtual Status save_pipelines() = 0;
};

// A row of the one table of backends. Devices are named "<name>" where there can be only one, else
// "<name>:<index>" by their place in list().
struct BackendEntry {
  std::string_view name;
  std::string_view advice;  // for a user of a machine where list() fails
  Result<std::vector<DeviceInfo>> (*list)();
  Result<std::unique_ptr<Backend>> (*open)(const DeviceOptions& options);
};

std::span<const BackendEntry> backends() noexcept;

}  // namespace rota::runtime
