#include "backend/metal/commands.h"

#include "backend/metal/memory.h"
#include "backend/metal/msl.h"
#include "backend/metal/pipeline.h"

namespace rota::mtl {

void write(id<MTLComputeCommandEncoder> to, const runtime::Command& command, const runtime::Pipeline& pipeline) {
  const auto& compute = static_cast<const ComputePipeline&>(pipeline);
  [to setComputePipelineState:compute.state()];
  NSUInteger index = 0;
  for (const runtime::Binding& binding : command.bindings) {
    [to setBuffer:static_cast<const BufferMemory&>(*binding.memory).buffer()
           offset:binding.bytes.begin
          atIndex:index++];
  }
  [to setBytes:command.params.data() length:command.params.size() atIndex:kMslParamsBuffer];
  [to dispatchThreadgroups:MTLSizeMake(command.dispatch.groups, 1, 1)
      threadsPerThreadgroup:MTLSizeMake(compute.group_size(), 1, 1)];
}

}  // namespace rota::mtl
