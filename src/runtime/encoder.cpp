#include "rota/encoder.h"

#include "runtime/recorder.h"

namespace rota {

Encoder::Encoder(std::unique_ptr<runtime::Recorder> recorder) noexcept : recorder_(std::move(recorder)) {}
Encoder::Encoder(Encoder&&) noexcept = default;
Encoder& Encoder::operator=(Encoder&&) noexcept = default;
Encoder::~Encoder() = default;

Status Encoder::status() const {
  return core::guarded([&]() -> Status {
    if (!recorder_) return core::out_of_memory();
    if (recorder_->error()) return *recorder_->error();
    return {};
  });
}

Result<Fence> Encoder::submit() && {
  return core::guarded([&]() -> Result<Fence> {
    if (Status status = this->status(); !status) return status.error();
    const std::unique_ptr<runtime::Recorder> recorder = std::move(recorder_);
    auto ticket = recorder->device()->submit(recorder->take_commands());
    if (!ticket) return ticket.error();
    return Fence(recorder->device(), *ticket);
  });
}

Status Fence::wait() const {
  return core::guarded([&] { return device_->backend().wait(ticket_); });
}

}  // namespace rota
