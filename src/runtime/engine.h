#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "rota/buffer.h"
#include "rota/device.h"
#include "rota/encoder.h"
#include "runtime/backend.h"
#include "runtime/device_state.h"

// What the public header of one backend is made of, by which an engine lends what it owns: the way from handles to the
// backend, and from what the backend made to handles.

namespace rota::runtime {

Device device_on(std::unique_ptr<Backend> backend, DeviceState::Options options);
Buffer buffer_on(const Device& device, std::shared_ptr<Memory> memory);

// The backend of a handle, or an error of the call `op` if it is none of this process.
Result<Backend*> backend_of(const Device& device, std::string_view op);
Result<Backend*> backend_of(const Encoder& encoder, std::string_view op);

// Encoder::submit(), to a place of the backend's own if there is one. Ends the encoder's use.
Result<Fence> submit(Encoder& encoder, const Placement* placement);

}  // namespace rota::runtime
