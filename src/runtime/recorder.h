#pragma once

#include <array>
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

  // What an op keeps for its later calls of this encoder: one of each type.
  template <class T>
  T& memo() {
    static constexpr char kTag = 0;
    for (const auto& [tag, kept] : memos_) {
      if (tag == &kTag) return *static_cast<T*>(kept.get());
    }
    auto made = std::make_shared<T>();
    T& memo = *made;
    memos_.emplace_back(&kTag, std::move(made));
    return memo;
  }

  // Memory for what the commands of one call pass to each other, one binding per size. All calls of an encoder get the
  // same memory, so that many layers take no more than one; the barriers make them run one after the other.
  template <std::size_t kCount>
  Result<std::array<Binding, kCount>> scratch(const std::uint64_t (&sizes)[kCount]) {
    std::array<Binding, kCount> bindings;
    std::uint64_t used = 0;
    for (std::size_t i = 0; i < kCount; ++i) {
      const core::ByteRange range{used, used + core::round_up(sizes[i], kBindingAlignment)};
      bindings[i] = {nullptr, range, range, Access::write};
      used = range.end;
    }
    const auto block = scratch_of(used);
    if (!block) return block.error();
    for (Binding& binding : bindings) binding.memory = *block;
    return bindings;
  }

  template <class Params>
  void dispatch(const Launch& launch, const Params& params, std::initializer_list<BoundAt> bindings) {
    static_assert(std::is_trivially_copyable_v<Params> && sizeof(Params) <= kMaxParamsBytes);
    append(launch, std::as_bytes(std::span(&params, 1)), bindings);
  }

  // What the calls that follow are about, for a trace.
  void set_shape(const TraceShape& shape) noexcept { shape_ = shape; }

  // Runs a call: what it records is its own, with the time that this takes.
  template <class Body>
  Status traced(const Body& body) {
    const std::size_t first = commands_.notes.size();
    const std::chrono::nanoseconds begin = steady_now();
    Status status = body();
    if (first == commands_.notes.size()) return status;
    if (TraceNote& note = commands_.notes[first]; note.host_time.count() == 0) {  // else of a call inside of this one
      note.host_begin = begin;
      note.host_time = steady_now() - begin;
    }
    return status;
  }

  void watch(std::shared_ptr<Watcher> watcher) { watchers_.push_back(std::move(watcher)); }
  void submitted() noexcept { end(Watcher::End::submitted); }

  CommandList take_commands() noexcept { return std::move(commands_); }
  const CommandList& commands() const noexcept { return commands_; }

 private:
  Result<Memory*> take(BlockPool& pool, std::uint64_t bytes);
  Result<Memory*> scratch_of(std::uint64_t bytes);
  void note(const Kernel& kernel, std::span<const Binding> bindings);
  void append(const Launch& launch, std::span<const std::byte> params, std::initializer_list<BoundAt> bindings);
  void end(Watcher::End how) noexcept {
    for (const std::shared_ptr<Watcher>& watcher : std::exchange(watchers_, {})) watcher->ended(how);
  }

  std::shared_ptr<DeviceState> device_;
  CommandList commands_;
  Hazards hazards_;
  TraceShape shape_;
  std::optional<Error> error_;
  Memory* upload_block_ = nullptr;
  std::uint64_t upload_used_ = 0;
  Memory* scratch_block_ = nullptr;
  std::vector<std::shared_ptr<Watcher>> watchers_;
  std::vector<std::pair<const void*, std::shared_ptr<void>>> memos_;  // by the address that stands for a type
};

// The frame of every op: runs body(Recorder&) -> Status, unless an earlier call failed, and keeps the error.
template <class Body>
void record(Encoder& encoder, Body&& body) noexcept {
  Recorder* const recorder = Inside::of(encoder);
  if (recorder == nullptr || recorder->error()) return;
  const core::DefaultFloats floats;  // the host computes the same bits whatever the caller's rounding is
  const auto whole = [&]() -> Status {
    if (Status here = recorder->device()->check_here("record"); !here) return here;
    const auto call = [&]() -> Status { return body(*recorder); };
    return recorder->device()->is_traced() ? recorder->traced(call) : call();
  };
  if (Status status = core::guarded(whole); !status) {
    recorder->fail(std::move(status).error());
  }
}

}  // namespace rota::runtime
