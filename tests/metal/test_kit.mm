#import "test_kit.h"

#include <stdexcept>

namespace rota::test::metal {

namespace {

NSString* string(const std::string& characters) { return [NSString stringWithUTF8String:characters.c_str()]; }

std::string words_of(NSError* error) {
  return std::string([[error domain] UTF8String]) + ": " + [[error localizedDescription] UTF8String];
}

id<MTLCommandBuffer> encode(id<MTLCommandBuffer> commands, const Pass& pass) {
  if (pass.wait_event != nil) [commands encodeWaitForEvent:pass.wait_event value:1];
  id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoderWithDispatchType:pass.type];
  if (pass.wait != nil) [encoder waitForFence:pass.wait];
  for (const Call& call : pass.calls) {
    if (!call.kernel.pipeline) throw std::runtime_error(call.kernel.error);
    [encoder setComputePipelineState:call.kernel.pipeline.get()];
    for (size_t i = 0; i < call.buffers.size(); ++i) {
      [encoder setBuffer:call.buffers[i].object.get() offset:call.buffers[i].offset atIndex:i];
    }
    if (!call.params.empty()) {
      [encoder setBytes:call.params.data() length:call.params.size() * sizeof(uint32_t) atIndex:30];
    }
    [encoder dispatchThreadgroups:MTLSizeMake(call.groups, 1, 1) threadsPerThreadgroup:MTLSizeMake(call.threads, 1, 1)];
    if (pass.barriers) [encoder memoryBarrierWithScope:MTLBarrierScopeBuffers];
  }
  if (pass.update != nil) [encoder updateFence:pass.update];
  [encoder endEncoding];
  if (pass.signal_event != nil) [commands encodeSignalEvent:pass.signal_event value:1];
  return commands;
}

}  // namespace

Gpu::Gpu() : pool_([NSAutoreleasePool new]) {
  NSArray* devices = MTLCopyAllDevices();
  device_ = Ref<id<MTLDevice>>([[devices objectAtIndex:0] retain]);
  [devices release];
  queue_ = Ref<id<MTLCommandQueue>>([device() newCommandQueueWithMaxCommandBufferCount:8]);
}

Gpu::~Gpu() { [pool_ release]; }

Buffer Gpu::buffer(size_t words, MTLResourceOptions hazards) const {
  const MTLResourceOptions how = MTLResourceStorageModeShared | hazards;
  return {Ref<id<MTLBuffer>>([device() newBufferWithLength:words * sizeof(uint32_t) options:how])};
}

Kernel Gpu::kernel(const std::string& source, const std::string& name, const Settings& settings) const {
  MTLCompileOptions* options = [[MTLCompileOptions new] autorelease];
  [options setFastMathEnabled:settings.fast_math];
  if (!settings.macro.empty()) {
    [options setPreprocessorMacros:[NSDictionary dictionaryWithObject:string(settings.value)
                                                               forKey:string(settings.macro)]];
  }
  const bool complete = source.find("#include") != std::string::npos;
  const std::string head = complete ? "" : "#include <metal_stdlib>\nusing namespace metal;\n";
  NSError* error = nil;
  const Ref library([device() newLibraryWithSource:string(head + source) options:options error:&error]);
  if (!library) return {{}, words_of(error)};
  MTLFunctionConstantValues* values = [[MTLFunctionConstantValues new] autorelease];
  for (const Settings::Constant& constant : settings.constants) {
    [values setConstantValue:&constant.value type:constant.type atIndex:constant.index];
  }
  const Ref function([library.get() newFunctionWithName:string(name) constantValues:values error:&error]);
  if (!function) return {{}, words_of(error)};
  MTLComputePipelineDescriptor* descriptor = [[MTLComputePipelineDescriptor new] autorelease];
  [descriptor setComputeFunction:function.get()];
  [descriptor setMaxTotalThreadsPerThreadgroup:settings.most_threads];
  const Ref pipeline([device() newComputePipelineStateWithDescriptor:descriptor
                                                             options:MTLPipelineOptionNone
                                                          reflection:nullptr
                                                               error:&error]);
  if (!pipeline) return {{}, words_of(error)};
  return {pipeline, ""};
}

std::vector<std::string> Gpu::run_all(const std::vector<std::vector<Pass>>& command_buffers) const {
  NSMutableArray* committed = [NSMutableArray array];
  {
    const Hold hold;
    for (const std::vector<Pass>& passes : command_buffers) {
      id<MTLCommandBuffer> commands = [queue() commandBuffer];
      for (const Pass& pass : passes) encode(commands, pass);
      [commands commit];
      [committed addObject:commands];
    }
  }
  std::vector<std::string> errors;
  for (id<MTLCommandBuffer> commands in committed) {
    [commands waitUntilCompleted];
    errors.push_back([commands status] == MTLCommandBufferStatusCompleted ? "" : words_of([commands error]));
  }
  return errors;
}

std::vector<Options> orders() {
  std::vector<Options> all;
  for (const unsigned width : {8u, 32u}) {
    all.push_back({.simd_width = width, .order = Order::ascending});
    all.push_back({.simd_width = width, .order = Order::descending});
    for (const uint64_t seed : {1u, 2u, 3u})
      all.push_back({.simd_width = width, .order = Order::shuffled, .seed = seed});
  }
  return all;
}

std::string without(const std::string& source, const std::string& part) {
  std::string rest = source;
  return rest.erase(source.find(part), part.size());
}

}  // namespace rota::test::metal
