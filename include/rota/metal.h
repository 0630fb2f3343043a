#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "rota/buffer.h"
#include "rota/device.h"
#include "rota/encoder.h"
#include "rota/export.h"
#include "rota/result.h"

// Rota inside of an engine that uses Metal itself. rota.h does not include this header.
//
// Objects of Metal's are `void*` here, so that it is plain C++: a pointer of metal-cpp (MTL::Buffer*) converts by
// itself, as does id<MTLBuffer> without automatic reference counting; with it, (__bridge void*)buffer. Rota retains
// what it uses for as long as it is said below, and takes no reference over.

namespace rota::inline ROTA_ABI::metal {

// What an engine has, and lends. Both are retained until the last handle that comes from the device is gone.
struct Adoption {
  void* device = nullptr;  // id<MTLDevice>
  void* queue = nullptr;   // id<MTLCommandQueue> of it; none: Rota submits nothing, and only record() takes commands

  std::string pipeline_cache{};  // as DeviceOptions::pipeline_cache
  TraceSink trace{};             // as DeviceOptions::trace

  // How long the end of the last handle waits for work of which only the engine knows whether it will be done. What is
  // not done by then is left as it is: never released.
  std::chrono::nanoseconds patience = std::chrono::seconds(10);
};

// A device of Rota's on one of the engine's. Its id opens nothing.
ROTA_API Result<Device> adopt(const Adoption& adoption);

// A buffer of the engine's.
struct ForeignBuffer {
  // id<MTLBuffer> of the adopted device, whose length is a multiple of 4. Retained as long as `keep` is held. Unless
  // its storage is shared, Buffer::read and write are refused. Metal orders uses of one with tracked hazards in
  // different encoders; those of an untracked one are the engine's to order.
  void* buffer = nullptr;
  // Held until the last handle and the last command that uses the buffer are gone: for engines that use buffers again
  // instead of releasing them.
  std::shared_ptr<const void> keep = {};
};

// A buffer over one of the engine's: nothing is copied. Offsets are views' own.
ROTA_API Result<Buffer> wrap(const Device& device, const ForeignBuffer& foreign);

// A value of an event.
struct EventPoint {
  void* event = nullptr;  // id<MTLEvent>, shared or not
  std::uint64_t value = 0;
};

// What a submission waits for, and what it signals when all of it is done.
struct Order {
  std::vector<EventPoint> waits = {};
  std::vector<EventPoint> signals = {};
};

// As Encoder::submit(), in an order with the engine's own command buffers. Events are retained until it is done.
ROTA_API Result<Fence> submit(Encoder&& encoder, const Order& order);

// At which edges of what is recorded a memory barrier stands between it and all other commands of the encoder. An edge
// without one is the engine's to guard.
enum class Edges : std::uint8_t { both, before, after, none };

// Where commands are recorded. Neither is retained.
struct Recording {
  void* commands = nullptr;  // id<MTLCommandBuffer>, not committed. Rota adds a completed handler, which tells the end
  void* encoder = nullptr;   // id<MTLComputeCommandEncoder> of it, open, serial or concurrent
  Edges edges = Edges::both;
};

// Records an encoder's commands instead of submitting them. The engine commits; until then nothing runs. The fence is
// done when the command buffer has completed, or was released without a commit. After an error nothing was recorded.
// Pipeline, buffers and bytes of the compute encoder are Rota's afterwards. docs/interop.md has the rules of order.
ROTA_API Result<Fence> record(Encoder&& encoder, const Recording& recording);

}  // namespace rota::inline ROTA_ABI::metal
