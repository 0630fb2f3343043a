#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

#include "rota/export.h"
#include "rota/result.h"

namespace rota::runtime {
class DeviceState;
class Recorder;
struct Inside;
struct EndRecorder {
  void operator()(Recorder* recorder) const noexcept;
};
using OwnedRecorder = std::unique_ptr<Recorder, EndRecorder>;
}  // namespace rota::runtime

namespace rota::inline ROTA_ABI {

// The end of one submission. Copies stand for the same submission. Dropping a fence does not wait. But a fence is a
// handle to its device, and dropping the last handle to a device waits for everything in flight there.
// Every member may be called any number of times, from any thread. A fence that submit() did not return is refused.
class [[nodiscard]] ROTA_API Fence {
 public:
  Fence() noexcept = default;

  // Returns when the submission has finished. On a CPU the thread does a share of the work instead of sleeping.
  Status wait() const;

  // Returns whether the submission has finished; waits at most `timeout` for that.
  Result<bool> wait_for(std::chrono::nanoseconds timeout) const;

  // Returns whether the submission has finished.
  Result<bool> done() const;

 private:
  friend class Encoder;
  friend struct runtime::Inside;
  Fence(std::shared_ptr<runtime::DeviceState> device, std::uint64_t ticket) noexcept
      : device_(std::move(device)), ticket_(ticket) {}

  std::shared_ptr<runtime::DeviceState> device_;
  std::uint64_t ticket_ = 0;  // number of the submission; those of one device rise
};

// Records commands; nothing runs before submit(). After the first error, which submit() returns, calls do nothing. A
// device may have any number of encoders; each serves one thread at a time.
class ROTA_API Encoder {
 public:
  Encoder(Encoder&&) noexcept;
  Encoder& operator=(Encoder&&) noexcept;
  ~Encoder();

  // The first error so far.
  Status status() const;

  // Starts the commands, or returns the first error. Submissions to one device run in the order of their submit()
  // calls, and each sees all that the earlier ones wrote. Ends the encoder's use, whether it succeeds or not.
  Result<Fence> submit() &&;

  // Builds what the device needs for the commands, which takes a GPU's driver a second or more the first time, and runs
  // none of them. Ends the encoder's use as dropping it does: a cache takes back what it changed.
  Status prepare() &&;

 private:
  friend class Device;
  friend struct runtime::Inside;
  explicit Encoder(runtime::OwnedRecorder recorder) noexcept;

  runtime::OwnedRecorder recorder_;  // null after submit() or a move, or if there was no memory for it
  bool out_of_memory_ = false;
};

}  // namespace rota::inline ROTA_ABI
