#include "backend/metal/queue.h"

#include "backend/metal/memory.h"
#include "backend/metal/msl.h"
#include "backend/metal/pipeline.h"
#include "core/error.h"

namespace rota::metal {
namespace {

// A command buffer that runs for seconds meets the system's watchdog.
constexpr std::size_t kMaxCommands = 64;

// A command buffer while it is encoded.
class Encoding {
 public:
  explicit Encoding(Context& context) noexcept
      : context_(context),
        buffer_(retained([context.queue() commandBufferWithUnretainedReferences])),
        encoder_(retained([buffer_.get() computeCommandEncoderWithDispatchType:MTLDispatchTypeConcurrent])) {
    [encoder_.get() waitForFence:context_.fence()];
  }

  bool begun() const noexcept { return buffer_ && encoder_; }
  std::size_t commands() const noexcept { return commands_; }

  void add(const runtime::Command& command, const ComputePipeline& pipeline) noexcept {
    const id<MTLComputeCommandEncoder> encoder = encoder_.get();
    if (command.barrier_before && commands_ != 0) [encoder memoryBarrierWithScope:MTLBarrierScopeBuffers];
    [encoder setComputePipelineState:pipeline.state()];
    NSUInteger index = 0;
    for (const runtime::Binding& binding : command.bound()) {
      [encoder setBuffer:static_cast<const BufferMemory&>(*binding.memory).buffer()
                  offset:binding.bytes.begin
                 atIndex:index++];
    }
    [encoder setBytes:command.params.data() length:command.params_bytes atIndex:kMslParamsBuffer];
    [encoder dispatchThreadgroups:MTLSizeMake(command.dispatch.groups, 1, 1)
            threadsPerThreadgroup:MTLSizeMake(pipeline.group_size(), 1, 1)];
    ++commands_;
  }

  Owned<id<MTLCommandBuffer>> end() noexcept {
    [encoder_.get() updateFence:context_.fence()];
    [encoder_.get() endEncoding];
    return std::move(buffer_);
  }

 private:
  Context& context_;
  Owned<id<MTLCommandBuffer>> buffer_;
  Owned<id<MTLComputeCommandEncoder>> encoder_;
  std::size_t commands_ = 0;
};

}  // namespace

Status Submission::submit() {
  @autoreleasepool {
    if (Status status = context_->alive(); !status) return status;
    const Status status = encode_all();
    if (status.ok() || buffers_.empty()) return status;
    static_cast<void>(wait_for(runtime::kForever));  // what was committed uses what the batch holds
    return context_->lose("submit", status.error().message);
  }
}

Status Submission::encode_all() {
  buffers_.reserve((batch_.commands.size() + kMaxCommands - 1) / kMaxCommands);
  std::optional<Encoding> encoding;
  const auto commit = [&] {
    buffers_.push_back(encoding->end());
    encoding.reset();
    {
      const std::lock_guard lock(completion_->mutex);
      ++completion_->left;
    }
    const std::shared_ptr<Completion> completion = completion_;
    [buffers_.back().get() addCompletedHandler:^(id<MTLCommandBuffer>) {
      const std::lock_guard lock(completion->mutex);
      if (--completion->left == 0) completion->all_done.notify_all();
    }];
    [buffers_.back().get() commit];
  };
  auto pipeline = batch_.pipelines.begin();
  for (const runtime::Command& command : batch_.commands.all()) {
    if (!encoding) encoding.emplace(*context_);
    if (!encoding->begun()) return Error{Errc::out_of_memory, "submit: Metal refuses a command buffer"};
    encoding->add(command, static_cast<const ComputePipeline&>(**pipeline++));
    if (encoding->commands() == kMaxCommands) commit();
  }
  if (encoding) commit();
  return {};
}

Result<bool> Submission::wait_for(std::chrono::nanoseconds timeout) {
  {
    std::unique_lock lock(completion_->mutex);
    const auto all_done = [this] { return completion_->left == 0; };
    if (!completion_->all_done.wait_until(lock, runtime::deadline_after(timeout), all_done)) return false;
  }
  if (Status status = outcome(); !status) return status.error();
  return true;
}

bool Submission::finished() noexcept {
  const std::lock_guard lock(completion_->mutex);
  return completion_->left == 0;
}

Status Submission::outcome() const {
  @autoreleasepool {
    for (const auto& buffer : buffers_) {
      if ([buffer.get() status] != MTLCommandBufferStatusError) continue;
      return context_->lose("wait", words_of([buffer.get() error]));
    }
    return {};
  }
}

Queue::~Queue() {
  while (const auto ticket = in_flight_.oldest()) {
    static_cast<void>(in_flight_.wait_for(*ticket, runtime::kForever));
    reclaim();
  }
}

void Queue::reclaim() {
  in_flight_.retire([](const std::unique_ptr<Submission>& submission) { static_cast<void>(submission->outcome()); });
}

Status Queue::push(std::unique_ptr<Submission> submission, std::uint64_t ticket) {
  return in_flight_.push(std::move(submission), ticket);
}

Result<bool> Queue::wait_for(std::uint64_t ticket, std::chrono::nanoseconds timeout) {
  auto finished = in_flight_.wait_for(ticket, timeout);
  reclaim();
  if (!finished) return finished;
  if (Status status = context_->alive(); !status) return status.error();
  return finished;
}

}  // namespace rota::metal
