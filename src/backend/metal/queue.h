#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "backend/metal/context.h"
#include "runtime/backend.h"
#include "runtime/in_flight.h"

namespace rota::metal {

// What completed handlers set and waiting threads wait for. Shared with the handlers, which outlive nobody else.
struct Completion {
  std::mutex mutex;
  std::condition_variable all_done;
  std::size_t left = 0;  // command buffers
};

// A batch as command buffers. It holds what the GPU uses until they have finished: they hold nothing themselves.
//
//   command buffer   wait for fence | dispatch dispatch BARRIER dispatch ... | update fence     kMaxCommands at most
//   command buffer   wait for fence | dispatch ...                           | update fence
class Submission {
 public:
  Submission(std::shared_ptr<Context> context, runtime::Batch batch)
      : context_(std::move(context)), batch_(std::move(batch)), completion_(std::make_shared<Completion>()) {}

  // Encodes and commits one command buffer after the other: there may be more than the queue takes at once.
  Status submit();
  Result<bool> wait_for(std::chrono::nanoseconds timeout);  // also for what submit() could commit before it failed
  bool finished() noexcept;
  Status outcome() const;  // once it has finished

 private:
  Status encode_all();

  std::shared_ptr<Context> context_;
  runtime::Batch batch_;
  std::shared_ptr<Completion> completion_;
  std::vector<Owned<id<MTLCommandBuffer>>> buffers_;
};

class Queue {
 public:
  explicit Queue(std::shared_ptr<Context> context) : context_(std::move(context)) {}
  ~Queue();

  // Lets go of what finished submissions hold, and remembers the errors that they ended in.
  void reclaim();
  Status push(std::unique_ptr<Submission> submission, std::uint64_t ticket);
  Result<bool> wait_for(std::uint64_t ticket, std::chrono::nanoseconds timeout);

 private:
  std::shared_ptr<Context> context_;
  runtime::InFlight<Submission> in_flight_;
};

}  // namespace rota::metal
