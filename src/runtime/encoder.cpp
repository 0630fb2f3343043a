#include "rota/encoder.h"

#include <algorithm>

#include "runtime/engine.h"
#include "runtime/recorder.h"

namespace rota::runtime {

void EndRecorder::operator()(Recorder* recorder) const noexcept { core::DeleteOrLeave()(recorder); }

Result<Fence> submit(Encoder& encoder, const Placement* placement) {
  return core::guarded([&]() -> Result<Fence> {
    const Status status = encoder.status();
    const OwnedRecorder recorder = Inside::take(encoder);
    if (!status) return status.error();
    auto ticket = recorder->device()->submit(recorder->take_commands(), placement);
    if (!ticket) return ticket.error();
    recorder->submitted();
    return Inside::fence(recorder->device(), *ticket);
  });
}

}  // namespace rota::runtime

namespace rota::inline ROTA_ABI {

Encoder::Encoder(runtime::OwnedRecorder recorder) noexcept : recorder_(std::move(recorder)) {}
Encoder::Encoder(Encoder&&) noexcept = default;
Encoder& Encoder::operator=(Encoder&&) noexcept = default;
Encoder::~Encoder() = default;

Status Encoder::status() const {
  return core::guarded([&]() -> Status {
    if (out_of_memory_) return core::out_of_memory();
    if (!recorder_) {
      return core::refuse({"submit", {"the encoder"}}, "submitted already, or it or its device was moved from",
                          "a new one");
    }
    if (Status here = recorder_->device()->check_here("submit"); !here) return here;
    if (recorder_->error()) return *recorder_->error();
    return {};
  });
}

Result<Fence> Encoder::submit() && { return runtime::submit(*this, nullptr); }

Status Encoder::prepare() && {
  return core::guarded([&]() -> Status {
    Status status = this->status();
    const runtime::OwnedRecorder recorder = std::move(recorder_);
    if (!status) return status;
    auto pipelines = recorder->device()->pipelines(recorder->commands());
    return pipelines ? Status{} : pipelines.error();
  });
}

Status Fence::wait() const {
  const auto finished = wait_for(runtime::kForever);
  return finished ? Status{} : finished.error();
}

Result<bool> Fence::done() const { return wait_for({}); }

Result<bool> Fence::wait_for(std::chrono::nanoseconds timeout) const {
  return core::guarded([&]() -> Result<bool> {
    if (!device_) return core::refuse({"wait", {"the fence"}}, "empty or moved from", "one that submit() returned");
    if (Status here = device_->check_here("wait"); !here) return here.error();
    return device_->backend().wait_for(ticket_, std::max(timeout, std::chrono::nanoseconds::zero()));
  });
}

}  // namespace rota::inline ROTA_ABI
