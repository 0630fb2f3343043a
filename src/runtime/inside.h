#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "rota/buffer.h"
#include "rota/device.h"
#include "rota/encoder.h"

namespace rota::runtime {

// The way from a public handle to what it stands for. Only the library's own code, and its tests, can name this type.
struct Inside {
  // Null after a move.
  static const std::shared_ptr<DeviceState>& of(const Device& device) noexcept { return device.state_; }

  static Device device(std::shared_ptr<DeviceState> state) noexcept { return Device(std::move(state)); }
  static Buffer buffer(std::shared_ptr<BufferState> state) noexcept { return Buffer(std::move(state)); }
  static Fence fence(std::shared_ptr<DeviceState> device, std::uint64_t ticket) noexcept {
    return {std::move(device), ticket};
  }

  // Null for a buffer that no device allocated, and after a move.
  static const std::shared_ptr<BufferState>& of(const Buffer& buffer) noexcept { return buffer.state_; }

  // Null after submit() or a move, and if memory ran out.
  static Recorder* of(const Encoder& encoder) noexcept { return encoder.recorder_.get(); }
  static OwnedRecorder take(Encoder& encoder) noexcept { return std::move(encoder.recorder_); }
};

}  // namespace rota::runtime
