#include "backend/metal/queue.h"

#include <algorithm>

#include "backend/metal/commands.h"
#include "core/error.h"

namespace rota::mtl {
namespace {

// A command buffer that runs for seconds meets the system's watchdog. Metal tells when a command buffer ran, so a trace
// gives one to each command; but a queue hands out 64, and a batch that waits for the engine must not wait for itself.
constexpr std::size_t kMaxCommands = 64, kMaxTimedCommands = 32;

std::chrono::nanoseconds nanoseconds_of(CFTimeInterval seconds) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds));
}

}  // namespace

// A command buffer while it is encoded.
class Submission::Encoding {
 public:
  Encoding(Context& context, const std::vector<EventValue>& waits) noexcept
      : context_(context), buffer_(retained([context.queue() commandBufferWithUnretainedReferences])) {
    for (const EventValue& wait : waits) [buffer_.get() encodeWaitForEvent:wait.event.get() value:wait.value];
    encoder_ = retained([buffer_.get() computeCommandEncoderWithDispatchType:MTLDispatchTypeConcurrent]);
    [encoder_.get() waitForFence:context_.fence()];
  }

  bool begun() const noexcept { return buffer_ && encoder_; }
  std::size_t commands() const noexcept { return commands_; }
  id<MTLCommandBuffer> buffer() const noexcept { return buffer_.get(); }

  void add(const runtime::Command& command, const runtime::Pipeline& pipeline) {
    if (command.barrier_before && commands_ != 0) barrier(encoder_.get());
    write(encoder_.get(), command, pipeline);
    ++commands_;
  }

  void end() noexcept {
    [encoder_.get() updateFence:context_.fence()];
    [encoder_.get() endEncoding];
  }

 private:
  Context& context_;
  Owned<id<MTLCommandBuffer>> buffer_;
  Owned<id<MTLComputeCommandEncoder>> encoder_;
  std::size_t commands_ = 0;
};

Submission::Submission(std::shared_ptr<Context> context, runtime::Batch batch, const metal::Order* order)
    : context_(std::move(context)), held_(std::make_unique<Held>()) {
  held_->batch = std::move(batch);
  if (order == nullptr) return;
  held_->waits = std::vector<EventValue>(order->waits.begin(), order->waits.end());
  held_->signals = std::vector<EventValue>(order->signals.begin(), order->signals.end());
}

Status Submission::submit() {
  @autoreleasepool {
    if (Status status = context_->alive(); !status) return status;
    const Status status = core::guarded([&] { return encode_all(); });
    if (status.ok() || committed_ == 0) return status;
    // What was committed uses what the batch holds.
    if (!completion_->wait_until(runtime::deadline_after(context_->patience))) runtime::leave(std::move(held_));
    return context_->lose("submit", status.error().message);
  }
}

void Submission::commit(const Encoding& encoding) {
  if (held_->batch.trace) timed_.reserve(timed_.size() + 1);  // what throws does so before anyone waits for the end
  tell_end(encoding.buffer(), completion_);
  if (held_->batch.trace && encoding.commands() > 0) timed_.push_back(retained(encoding.buffer()));
  [encoding.buffer() commit];
  ++committed_;
}

Status Submission::encode_all() {
  const std::vector<EventValue> none;
  std::optional<Encoding> encoding;
  const auto begin = [&]() -> Status {
    encoding.emplace(*context_, committed_ == 0 ? held_->waits : none);
    if (encoding->begun()) return {};
    return Error{Errc::out_of_memory, "submit: Metal refuses a command buffer"};
  };
  const bool timed = held_->batch.trace && held_->batch.commands.size() <= kMaxTimedCommands;
  const std::size_t most = timed ? 1 : kMaxCommands;
  auto pipeline = held_->batch.pipelines.begin();
  for (const runtime::Command& command : held_->batch.commands.all()) {
    if (encoding && encoding->commands() == most) {
      encoding->end();
      commit(*encoding);
      encoding.reset();
    }
    if (!encoding) {
      if (Status status = begin(); !status) return status;
    }
    encoding->add(command, **pipeline++);
  }
  // Without commands, events have their order all the same.
  if (!encoding && held_->waits.empty() && held_->signals.empty()) return {};
  if (!encoding) {
    if (Status status = begin(); !status) return status;
  }
  encoding->end();
  for (const EventValue& signal : held_->signals) {
    [encoding->buffer() encodeSignalEvent:signal.event.get() value:signal.value];
  }
  commit(*encoding);
  return {};
}

void Submission::tell_trace() const noexcept {
  if (!held_ || !held_->batch.trace) return;
  const std::size_t commands = held_->batch.commands.size();
  for (std::size_t command = 0; command < commands; ++command) {
    if (timed_.size() != commands) {
      held_->batch.trace->ran(command, {}, {});
      continue;
    }
    const CFTimeInterval begin = [timed_[command].get() GPUStartTime];
    const CFTimeInterval end = [timed_[command].get() GPUEndTime];
    held_->batch.trace->ran(command, nanoseconds_of(begin), nanoseconds_of(end - begin));
  }
}

Result<bool> Submission::wait_for(std::chrono::nanoseconds timeout) {
  if (!completion_->wait_until(runtime::deadline_after(timeout))) return false;
  if (Status status = outcome(); !status) return status.error();
  return true;
}

Queue::~Queue() {
  const auto deadline = runtime::deadline_after(context_->patience);
  while (std::unique_ptr<Submission> submission = in_flight_.pop()) {
    const auto left =
        std::max(deadline - std::chrono::steady_clock::now(), std::chrono::steady_clock::duration::zero());
    static_cast<void>(core::guarded([&] { return submission->wait_for(left); }));
    if (submission->finished()) {
      submission->tell_trace();
    } else {
      runtime::leave(std::move(submission));  // it waits for what the engine never signals
    }
  }
  recorded_.outlast(deadline);
}

void Queue::reclaim() {
  in_flight_.retire([](const std::unique_ptr<Submission>& submission) {
    submission->tell_trace();
    static_cast<void>(submission->outcome());
  });
  recorded_.reclaim();
}

Status Queue::push(std::unique_ptr<Submission> submission, std::uint64_t ticket) {
  return in_flight_.push(std::move(submission), ticket);
}

Result<bool> Queue::wait_for(std::uint64_t ticket, std::chrono::nanoseconds timeout) {
  const std::shared_ptr<Completion> end = recorded_.end_of(ticket);
  auto finished =
      end ? Result<bool>(end->wait_until(runtime::deadline_after(timeout))) : in_flight_.wait_for(ticket, timeout);
  reclaim();
  if (!finished) return finished;
  if (Status status = context_->alive(); !status) return status.error();
  return finished;
}

}  // namespace rota::mtl
