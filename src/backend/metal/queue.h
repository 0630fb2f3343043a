#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "backend/metal/completion.h"
#include "backend/metal/context.h"
#include "backend/metal/recorded.h"
#include "runtime/backend.h"
#include "runtime/in_flight.h"

namespace rota::mtl {

// A value of an event of the engine's.
struct EventValue {
  explicit EventValue(const metal::EventPoint& point) noexcept
      : event(retained(object_of<id<MTLEvent>>(point.event))), value(point.value) {}

  Owned<id<MTLEvent>> event;
  std::uint64_t value;
};

// A batch as command buffers. It holds what the GPU uses until they have finished: they hold nothing themselves.
//
//   command buffer   waits | wait for fence | dispatch dispatch BARRIER dispatch ... | update fence   kMaxCommands at
//   most command buffer           wait for fence | dispatch ...                           | update fence | signals
class Submission {
 public:
  Submission(std::shared_ptr<Context> context, runtime::Batch batch, const metal::Order* order);

  // Encodes and commits one command buffer after the other: there may be more than the queue takes at once.
  Status submit();
  Result<bool> wait_for(std::chrono::nanoseconds timeout);
  bool finished() const noexcept { return completion_->is_over(); }  // also what submit() could commit before it failed
  Status outcome() const { return context_->lose_by("wait", *completion_); }  // once it has finished
  void tell_trace() const noexcept;                                           // once it has finished

 private:
  struct Held {
    runtime::Batch batch;
    std::vector<EventValue> waits, signals;
  };
  class Encoding;

  Status encode_all();
  void commit(const Encoding& encoding);

  std::shared_ptr<Context> context_;
  std::unique_ptr<Held> held_;
  std::shared_ptr<Completion> completion_ = std::make_shared<Completion>();
  std::size_t committed_ = 0;
  std::vector<Owned<id<MTLCommandBuffer>>> timed_;  // for a trace: one for each command
};

// Submissions in flight, in order; and what the engine commits itself.
class Queue {
 public:
  explicit Queue(std::shared_ptr<Context> context) : context_(context), recorded_(std::move(context)) {}
  ~Queue();

  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  // Lets go of what finished submissions hold, and remembers the errors that they ended in.
  void reclaim();
  Status push(std::unique_ptr<Submission> submission, std::uint64_t ticket);
  Result<bool> wait_for(std::uint64_t ticket, std::chrono::nanoseconds timeout);

  RecordedBatches& recorded() noexcept { return recorded_; }

 private:
  std::shared_ptr<Context> context_;
  runtime::InFlight<Submission> in_flight_;
  RecordedBatches recorded_;
};

}  // namespace rota::mtl
