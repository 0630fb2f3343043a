#include "runtime/engine.h"

#include "core/error.h"
#include "runtime/device_state.h"
#include "runtime/recorder.h"

namespace rota::runtime {

Device device_on(std::unique_ptr<Backend> backend, DeviceState::Options options) {
  return Inside::device(DeviceState::make(std::move(backend), std::move(options)));
}

Buffer buffer_on(const Device& device, std::shared_ptr<Memory> memory) {
  return Inside::buffer(BufferState::make(Inside::of(device), std::move(memory)));
}

Result<Backend*> backend_of(const Device& device, std::string_view op) {
  const std::shared_ptr<DeviceState>& state = Inside::of(device);
  if (!state) return core::refuse({op, {"the device"}}, "moved from", "an open one");
  if (Status here = state->check_here(op); !here) return here.error();
  return &state->backend();
}

Result<Backend*> backend_of(const Encoder& encoder, std::string_view op) {
  const Recorder* const recorder = Inside::of(encoder);
  if (recorder == nullptr) return encoder.status().error();
  if (Status here = recorder->device()->check_here(op); !here) return here.error();
  return &recorder->device()->backend();
}

}  // namespace rota::runtime
