#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/callers_thread.h"
#include "core/error.h"
#include "rota/encoder.h"
#include "runtime/command_list.h"
#include "runtime/device_state.h"
#include "runtime/hazards.h"
#include "runtime/inside.h"
#include "runtime/target.h"

namespace rota::runtime {

// A kernel, and how much of it runs.
struct Launch {
  const Kernel& kernel;
  Constants constants;
  Dispatch dispatch;
};

// Is told what becomes of an encoder's commands.
class Watcher {
 public:
  enum class End : std::uint8_t { submitted, dropped };  // dropped: also if the submission failed

  virtual ~Watcher() = default;
  virtual void ended(End end) noexcept = 0;  // called once
};

// What an Encoder stands for: its commands with their barriers, uploads and scratch, and its first error.
class Recorder : public core::OfProcess {
 public:
  explicit Recorder(std::shared_ptr<DeviceState> device) noexcept : device_(std::move(device)) {}
  ~Recorder() { end(Watcher::End::dropped); }

  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  Target target() const noexcept {
    const DeviceInfo& info = device_->info();
    return {device_.get(), info.id, info.limits, info.kind};
  }
  const std::shared_ptr<DeviceState>& device() const noexcept { return device_; }

  const std::optional<Error>& error() const noexcept { return error_; }
  void fail(Error error) noexcept {
    if (!error_) error_ = std::move(error);
  }

  // Copies `bytes` to memory that the commands of this encoder may read.
  Result<Binding> upload(std::span<const std::byte> bytes);

  // Memory for what the commands of one call pass to each other, one binding per size. All calls of an encoder get the
  // same memory, so that many layers take no more than one; the barriers make them run one after the other.
  Result<std::vector<Binding>> scratch(std::initializer_list<std::uint64_t> sizes);

  template <class Params>
  void dispatch(const Launch& launch, const Params& params, std::initializer_list<BoundAt> bindings) {
    static_assert(std::is_trivially_copyable_v<Params> && sizeof(Params) <= kMaxParamsBytes);
    append(launch, std::as_bytes(std::span(&params, 1)), bindings);
  }

  void watch(std::shared_ptr<Watcher> watcher) { watchers_.push_back(std::move(watcher)); }
  void submitted() noexcept { end(Watcher::End::submitted); }

  CommandList take_commands() noexcept { return std::move(commands_); }
  const CommandList& commands() const noexcept { return commands_; }

 private:
  void append(const Launch& launch, std::span<const std::byte> params, std::initializer_list<BoundAt> bindings);
  void end(Watcher::End how) noexcept {
    for (const std::shared_ptr<Watcher>& watcher : std::exchange(watchers_, {})) watcher->ended(how);
  }

  std::shared_ptr<DeviceState> device_;
  CommandList commands_;
  Hazards hazards_;
  std::optional<Error> error_;
  std::shared_ptr<Memory> upload_block_;
  std::uint64_t upload_used_ = 0;
  std::shared_ptr<Memory> scratch_block_;
  std::vector<std::shared_ptr<Watcher>> watchers_;
};

// The frame of every op: runs body(Recorder&) -> Status, unless an earlier call failed, and keeps the error.
template <class Body>
void record(Encoder& encoder, Body&& body) noexcept {
  Recorder* const recorder = Inside::of(encoder);
  if (recorder == nullptr || recorder->error()) return;
  const core::DefaultFloats floats;  // the host computes the same bits whatever the caller's rounding is
  const auto whole = [&]() -> Status {
    if (Status here = recorder->device()->check_here("record"); !here) return here;
    return body(*recorder);
  };
  if (Status status = core::guarded(whole); !status) {
    recorder->fail(std::move(status).error());
  }
}

}  // namespace rota::runtime
