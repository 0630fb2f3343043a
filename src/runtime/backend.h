#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/callers_thread.h"
#include "core/error.h"
#include "core/extent.h"
#include "rota/device.h"
#include "runtime/command_list.h"
#include "runtime/trace.h"

namespace rota::runtime {

enum class MemoryKind : std::uint8_t {
  device,  // fast for kernels
  upload,  // written by the host through Memory::host(), read by kernels
};

inline constexpr std::chrono::nanoseconds kForever = std::chrono::nanoseconds::max();

// Now and `timeout`, or as late as the clock can tell.
inline std::chrono::steady_clock::time_point deadline_after(std::chrono::nanoseconds timeout) noexcept {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point now = Clock::now();
  return timeout < Clock::time_point::max() - now ? now + std::chrono::duration_cast<Clock::duration>(timeout)
                                                  : Clock::time_point::max();
}

// A kernel with its constants, built for a device.
class Pipeline {
 public:
  virtual ~Pipeline() = default;
};

// Where a batch goes if not just behind the ones before: words of one backend, which its own public header makes.
class Placement {
 public:
  virtual ~Placement() = default;
  virtual bool in_order() const noexcept = 0;  // whether the batch has ended only when all with lower tickets have
};

// Commands that are submitted together.
struct Batch {
  CommandList commands;
  std::vector<std::shared_ptr<const Pipeline>> pipelines;  // one per command
  const Placement* placement = nullptr;                    // until prepare() returns
  std::shared_ptr<BatchTrace> trace = {};                  // null: nobody wants to know

  // Whether one of the commands would conflict with such an access to the memory.
  bool conflicts(const Memory& memory, Access access) const {
    for (const Command& command : commands.all()) {
      for (const Binding& binding : command.bindings) {
        const bool writes = access == Access::write || binding.access == Access::write;
        if (writes && binding.memory == &memory) return true;
      }
    }
    return false;
  }
};

// Parts of a sparse memory. Ranges rise, and do not overlap.
struct SparseRanges {
  std::shared_ptr<Memory> memory;
  std::vector<core::ByteRange> ranges;
};

// For what the device may still use when nobody can wait any longer: freeing it would not be safe.
template <class Owned>
void leave(std::unique_ptr<Owned> owned) noexcept {
  [[maybe_unused]] const Owned* const left = owned.release();
}

// A batch in a backend's own form, ready to enqueue.
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

// An open device: all that a backend implements. Every member except enqueue() may be called from several threads at
// once. The destructor waits for everything in flight.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual const DeviceInfo& info() const noexcept = 0;
  virtual Result<std::shared_ptr<Memory>> allocate(std::uint64_t bytes, MemoryKind kind) = 0;
  // Memory of the caller's own, which `keep` keeps.
  virtual Result<std::shared_ptr<Memory>> wrap(std::span<std::byte>, std::shared_ptr<const void>) {
    return Error{Errc::unsupported, core::text("wrap: {} cannot use memory of the host", info().id)};
  }
  // A sparse memory: addresses with nothing behind them. Where Limits::max_sparse_bytes is 0 there is none.
  virtual Result<std::shared_ptr<Memory>> reserve(std::uint64_t) {
    return Error{Errc::unsupported, core::text("reserve: {} has no sparse memory", info().id)};
  }
  // Addresses that are left for more of it.
  virtual std::uint64_t sparse_bytes_left() { return 0; }
  // Puts memory behind ranges that have none, with undefined contents: behind all of them, or none. The caller makes
  // one call for a memory at a time.
  virtual Status commit(std::span<const SparseRanges>) { return {}; }
  // Takes it away from ranges as they were committed, but for what others touch. What the device cannot take back stays
  // for the next commit. Precondition: no batch touches the ranges that has not ended.
  virtual void decommit(std::span<const SparseRanges>) {}

  virtual Result<std::shared_ptr<Pipeline>> build(const Kernel& kernel, const Constants& constants) = 0;

  virtual Result<std::unique_ptr<PreparedBatch>> prepare(Batch batch) = 0;

  // Starts a batch. Batches run in the order of these calls, and each sees all that earlier ones wrote. The caller
  // makes one call at a time, and tickets rise.
  virtual Status enqueue(std::unique_ptr<PreparedBatch> batch, std::uint64_t ticket) = 0;

  // After enqueue(), without the caller's lock: a backend without threads of its own runs its batches here.
  virtual void submitted() noexcept {}

  // Returns whether the batch has finished; waits at most `timeout` for that, which is not below zero.
  virtual Result<bool> wait_for(std::uint64_t ticket, std::chrono::nanoseconds timeout) = 0;
  Status wait(std::uint64_t ticket) {
    const auto finished = wait_for(ticket, kForever);
    return finished ? Status{} : finished.error();
  }

  // Before the host touches memory: waits for all batches that conflict. One that only the caller can start is an error
  // until it has finished.
  virtual Status settle(const Memory& memory, Access access) {
    const std::uint64_t written = memory.last_write_ticket;
    const std::uint64_t read = memory.last_read_ticket;
    return wait(access == Access::write && read > written ? read : written);
  }

  // Copies between the host and memory. Preconditions: the range is inside the memory, and no batch that conflicts is
  // in flight.
  virtual Status read(const Memory& from, std::uint64_t offset, std::span<std::byte> to) = 0;
  virtual Status write(Memory& to, std::uint64_t offset, std::span<const std::byte> from) = 0;

  // Calls run() from the caller's thread, and at once from others of the backend's if it has some, `most` in all;
  // returns when these calls have. For work of the host's that does not wait for commands, nor they for it.
  virtual void run_beside_commands(std::uint64_t, const std::function<void()>& run) { run(); }

  virtual Status save_pipelines() = 0;
};

// A backend of this build. A device's id is "<name>" if there can be only one, else "<name>:<index in list()>".
struct BackendEntry {
  std::string_view name;
  std::string_view advice;  // for the user of a machine on which list() fails
  Result<std::vector<DeviceInfo>> (*list)();
  Result<std::unique_ptr<Backend>> (*open)(const DeviceOptions& options);
};

// Every backend of this build.
std::span<const BackendEntry> backends() noexcept;

}  // namespace rota::runtime
