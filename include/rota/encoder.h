#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "rota/export.h"
#include "rota/result.h"

namespace rota::runtime {
class DeviceState;
class Recorder;
struct EndRecorder {
  void operator()(Recorder* recorder) const noexcept;
};
using OwnedRecorder = std::unique_ptr<Recorder, EndRecorder>;
}  // namespace rota::runtime

namespace rota::inline ROTA_ABI {

// The end of one submission. Copies stand for the same submission. Dropping one does not wait, but
// the last handle of a device, and a fence is one, waits for what is in flight there.
class [[nodiscard]] ROTA_API Fence {
 public:
  // Returns when the submission has finished. May be called from several threads, again and again.
  Status wait() const;

 private:
  friend class Encoder;
  Fence(std::shared_ptr<runtime::DeviceState> device, std::uint64_t ticket) noexcept
      : device_(std::move(device)), ticket_(ticket) {}

  std::shared_ptr<runtime::DeviceState> device_;
  std::uint64_t ticket_;  // submissions of one device are numbered in their order
};

// Records work as data; nothing runs before submit(). The first bad call is kept, later calls do
// nothing, and submit() returns it. One thread at a time; any number of encoders per device.
class ROTA_API Encoder {
 public:
  Encoder(Encoder&&) noexcept;
  Encoder& operator=(Encoder&&) noexcept;
  ~Encoder();

  // The first error so far.
  Status status() const;

  // Submissions to one device run in the order of their submit() calls.
  Result<Fence> submit() &&;

  runtime::Recorder* recorder() const noexcept { return recorder_.get(); }

 private:
  friend class Device;
  explicit Encoder(runtime::OwnedRecorder recorder) noexcept;

  runtime::OwnedRecorder recorder_;  // null after submit() or a move, or when memory ran out
  bool out_of_memory_ = false;
};

}  // namespace rota::inline ROTA_ABI
