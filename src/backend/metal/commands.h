#pragma once

#include "backend/metal/objc.h"
#include "runtime/backend.h"

namespace rota::mtl {

// What was written before, in this encoder, is over and visible to what comes.
inline void barrier(id<MTLComputeCommandEncoder> to) noexcept { [to memoryBarrierWithScope:MTLBarrierScopeBuffers]; }

// Binds and dispatches.
void write(id<MTLComputeCommandEncoder> to, const runtime::Command& command, const runtime::Pipeline& pipeline);

}  // namespace rota::mtl
