#include "engine.h"

#import <Metal/Metal.h>

#include <stdexcept>

namespace rota::test::metal {

namespace {

const char* const kSource = R"(
#include <metal_stdlib>
using namespace metal;
kernel void fill(device float* to [[buffer(0)]], constant float& value [[buffer(1)]],
                 uint i [[thread_position_in_grid]]) {
  to[i] = value;
}
kernel void copy(device float* to [[buffer(0)]], const device float* from [[buffer(1)]],
                 uint i [[thread_position_in_grid]]) {
  to[i] = from[i];
})";

template <class Object>
Object as(void* handle) {
  return static_cast<Object>(handle);
}

void must(const void* made, const char* what) {
  if (made == nullptr) throw std::runtime_error(std::string("the engine has no ") + what);
}

}  // namespace

EngineMemory::~EngineMemory() { [as<id>(buffer_) release]; }

size_t EngineMemory::size_bytes() const { return [as<id<MTLBuffer>>(buffer_) length]; }

float* EngineMemory::host() const { return static_cast<float*>([as<id<MTLBuffer>>(buffer_) contents]); }

EngineEvent::~EngineEvent() { [as<id>(event_) release]; }

uint64_t EngineEvent::value() const { return [as<id<MTLSharedEvent>>(event_) signaledValue]; }

void EngineEvent::signal(uint64_t value) const { [as<id<MTLSharedEvent>>(event_) setSignaledValue:value]; }

EngineCommands::EngineCommands(const Engine& engine, const EngineOrder& order) : engine_(engine) {
  @autoreleasepool {
    buffer_ = [[as<id<MTLCommandQueue>>(engine.queue()) commandBufferWithUnretainedReferences] retain];
    if (order.after != nullptr) {
      [as<id<MTLCommandBuffer>>(buffer_) encodeWaitForEvent:as<id<MTLEvent>>(order.after->event()) value:1];
    }
    encoder_ = [[as<id<MTLCommandBuffer>>(buffer_)
        computeCommandEncoderWithDispatchType:order.serial ? MTLDispatchTypeSerial : MTLDispatchTypeConcurrent] retain];
  }
}

EngineCommands::~EngineCommands() {
  @autoreleasepool {
    end();
    [as<id>(buffer_) release];
  }
}

void EngineCommands::end() {
  if (encoder_ == nullptr) return;
  [as<id<MTLComputeCommandEncoder>>(encoder_) endEncoding];
  [as<id>(encoder_) release];
  encoder_ = nullptr;
}

void EngineCommands::fill(const EngineMemory& memory, float value) {
  const id<MTLComputeCommandEncoder> encoder = as<id<MTLComputeCommandEncoder>>(encoder_);
  [encoder setComputePipelineState:as<id<MTLComputePipelineState>>(engine_.fill_)];
  [encoder setBuffer:as<id<MTLBuffer>>(memory.buffer()) offset:0 atIndex:0];
  [encoder setBytes:&value length:sizeof(value) atIndex:1];
  [encoder dispatchThreadgroups:MTLSizeMake(memory.size_bytes() / sizeof(float), 1, 1)
          threadsPerThreadgroup:MTLSizeMake(1, 1, 1)];
}

void EngineCommands::copy(const EngineMemory& from, const EngineMemory& to) {
  const id<MTLComputeCommandEncoder> encoder = as<id<MTLComputeCommandEncoder>>(encoder_);
  [encoder setComputePipelineState:as<id<MTLComputePipelineState>>(engine_.copy_)];
  [encoder setBuffer:as<id<MTLBuffer>>(to.buffer()) offset:0 atIndex:0];
  [encoder setBuffer:as<id<MTLBuffer>>(from.buffer()) offset:0 atIndex:1];
  [encoder dispatchThreadgroups:MTLSizeMake(to.size_bytes() / sizeof(float), 1, 1)
          threadsPerThreadgroup:MTLSizeMake(1, 1, 1)];
}

void EngineCommands::barrier() {
  [as<id<MTLComputeCommandEncoder>>(encoder_) memoryBarrierWithScope:MTLBarrierScopeBuffers];
}

void EngineCommands::commit() {
  @autoreleasepool {
    end();
    [as<id<MTLCommandBuffer>>(buffer_) commit];
  }
}

std::string EngineCommands::error() {
  @autoreleasepool {
    const id<MTLCommandBuffer> buffer = as<id<MTLCommandBuffer>>(buffer_);
    [buffer waitUntilCompleted];
    NSError* const error = [buffer error];
    return error == nil ? "" : [[error localizedDescription] UTF8String];
  }
}

Engine::Engine(unsigned device) {
  @autoreleasepool {
    NSArray* const devices = [MTLCopyAllDevices() autorelease];
    device_ = [[devices objectAtIndex:device] retain];
    queue_ = [as<id<MTLDevice>>(device_) newCommandQueueWithMaxCommandBufferCount:16];
    fill_ = pipeline("fill");
    copy_ = pipeline("copy");
  }
}

Engine::~Engine() {
  @autoreleasepool {
    for (void* const object : {copy_, fill_, queue_, device_}) [as<id>(object) release];
  }
}

void* Engine::pipeline(const char* name) const {
  const id<MTLDevice> device = as<id<MTLDevice>>(device_);
  MTLCompileOptions* const options = [[MTLCompileOptions new] autorelease];
  const id<MTLLibrary> library = [device newLibraryWithSource:[NSString stringWithUTF8String:kSource]
                                                      options:options
                                                        error:nullptr];
  must(library, "library");
  MTLFunctionConstantValues* const values = [[MTLFunctionConstantValues new] autorelease];
  const id<MTLFunction> function = [library newFunctionWithName:[NSString stringWithUTF8String:name]
                                                 constantValues:values
                                                          error:nullptr];
  must(function, "function");
  MTLComputePipelineDescriptor* const descriptor = [[MTLComputePipelineDescriptor new] autorelease];
  [descriptor setComputeFunction:function];
  const id<MTLComputePipelineState> made = [device newComputePipelineStateWithDescriptor:descriptor
                                                                                 options:MTLPipelineOptionNone
                                                                              reflection:nullptr
                                                                                   error:nullptr];
  [function release];
  [library release];
  must(made, "pipeline");
  return made;
}

std::shared_ptr<EngineMemory> Engine::allocate(size_t bytes, Storage storage, Hazards hazards) const {
  const MTLResourceOptions where =
      storage == Storage::shared ? MTLResourceStorageModeShared : MTLResourceStorageModePrivate;
  const MTLResourceOptions how =
      hazards == Hazards::tracked ? MTLResourceHazardTrackingModeTracked : MTLResourceHazardTrackingModeUntracked;
  void* const buffer = [as<id<MTLDevice>>(device_) newBufferWithLength:bytes options:where | how];
  must(buffer, "memory");
  return std::make_shared<EngineMemory>(buffer);
}

std::unique_ptr<EngineEvent> Engine::make_event() const {
  return std::make_unique<EngineEvent>([as<id<MTLDevice>>(device_) newSharedEvent]);
}

size_t references(void* object) { return [as<id>(object) retainCount]; }

}  // namespace rota::test::metal
