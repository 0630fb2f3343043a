#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "backend/metal/completion.h"
#include "backend/metal/objc.h"
#include "rota/metal.h"
#include "runtime/backend.h"

namespace rota::mtl {

using OnMessage = std::function<void(std::string_view)>;

// A device, its queue and what orders the queue's command buffers. What was made on it shares it, so it goes last.
class Context {
 public:
  static Result<std::shared_ptr<Context>> create(Owned<id<MTLDevice>> device, OnMessage on_message);

  // An engine's device, and its queue if it lends one.
  static Result<std::shared_ptr<Context>> adopt(const metal::Adoption& adoption);
  ~Context();

  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // Where the system has residency sets, memory stays mapped for the GPU between command buffers.
  void add_resident(id<MTLBuffer> buffer);
  void remove_resident(id<MTLBuffer> buffer);

  // A command buffer that ended in error leaves what it should have written undefined, so nothing works after it.
  // Remembers the first error's words, and tells them to whoever asked for validation.
  Error lose(std::string_view call, std::string words);
  Status alive() const;

  // The same, if a command buffer ended in error.
  Status lose_by(std::string_view call, const Completion& completion);

  bool is_adopted() const noexcept { return adopted_; }

  // An error if the device was adopted without a queue, with the call that needs one.
  Status check_queue(std::string_view call) const;

  // Whether it is one object of the driver's, however it was come by.
  bool is_on(id<MTLDevice> device) const noexcept { return [device registryID] == [device_.get() registryID]; }

  id<MTLDevice> device() const noexcept { return device_.get(); }
  id<MTLCommandQueue> queue() const noexcept { return queue_.get(); }

  // Buffers may be untracked: each command buffer waits for the one before it by this fence.
  id<MTLFence> fence() const noexcept { return fence_.get(); }

  std::chrono::nanoseconds patience = runtime::kForever;  // with work that the caller must let go on

 private:
  Context(Owned<id<MTLDevice>> device, OnMessage on_message) noexcept
      : device_(std::move(device)), on_message_(std::move(on_message)) {}

  Owned<id<MTLDevice>> device_;
  OnMessage on_message_;
  bool adopted_ = false;
  Owned<id<MTLCommandQueue>> queue_;
  Owned<id<MTLFence>> fence_;
  std::mutex residency_mutex_;
  Owned<id<MTLResidencySet>> residency_;
  mutable std::mutex lost_mutex_;
  std::string lost_;  // empty: alive
};

}  // namespace rota::mtl
