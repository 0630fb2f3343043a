#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "core/error.h"
#include "rota/encoder.h"
#include "runtime/device_state.h"
#include "runtime/hazards.h"
#include "runtime/target.h"

namespace rota::runtime {

struct Launch {
  const Kernel& kernel;
  Constants constants;
  Work work;
};

// The inside of an Encoder: commands, barriers, uploads, and the first error.
class Recorder {
 public:
  explicit Recorder(std::shared_ptr<DeviceState> device) noexcept : device_(std::move(device)) {}

  Target target() const noexcept { return {device_.get(), device_->info().id, device_->info().limits}; }
  const std::shared_ptr<DeviceState>& device() const noexcept { return device_; }

  const std::optional<Error>& error() const noexcept { return error_; }
  void fail(Error error) noexcept {
    if (!error_) error_ = std::move(error);
  }

  // A copy of `bytes` that the commands recorded here may read.
  Result<Binding> upload(std::span<const std::byte> bytes);

  template <class Params>
  void dispatch(const Launch& launch, const Params& params, std::initializer_list<Binding> bindings) {
    static_assert(std::is_trivially_copyable_v<Params> && sizeof(Params) <= kMaxParamsBytes);
    append(launch, std::as_bytes(std::span(&params, 1)), bindings);
  }

  std::vector<Command> take_commands() noexcept { return std::move(commands_); }
  std::span<const Command> commands() const noexcept { return commands_; }

 private:
  void append(const Launch& launch, std::span<const std::byte> params, std::initializer_list<Binding> bindings);

  std::shared_ptr<DeviceState> device_;
  std::vector<Command> commands_;
  Hazards hazards_;
  std::optional<Error> error_;
  std::shared_ptr<Memory> upload_block_;
  std::uint64_t upload_used_ = 0;
};

// The frame of every op: runs body(Recorder&) -> Status unless an earlier call failed, and keeps its error.
template <class Body>
void record(Encoder& encoder, Body&& body) noexcept {
  Recorder* const recorder = encoder.recorder();
  if (recorder == nullptr || recorder->error()) return;
  if (Status status = core::guarded([&] { return body(*recorder); }); !status) {
    recorder->fail(std::move(status).error());
  }
}

}  // namespace rota::runtime
