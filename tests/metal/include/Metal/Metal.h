// Metal's compute API as Rota's backend uses it, for machines without it: names, selectors, types and numbers are those
// of Apple's documentation. tests/metal implements it in software; with clang's own target the backend is also
// type-checked against it for macOS.

#pragma once

#import <Foundation/Foundation.h>

typedef double CFTimeInterval;

typedef struct {
  NSUInteger width, height, depth;
} MTLSize;

static inline MTLSize MTLSizeMake(NSUInteger width, NSUInteger height, NSUInteger depth) {
  MTLSize size = {width, height, depth};
  return size;
}

typedef NSUInteger MTLResourceOptions;
enum {
  MTLResourceStorageModeShared = 0 << 4,
  MTLResourceStorageModePrivate = 2 << 4,
  MTLResourceHazardTrackingModeUntracked = 1 << 8,
  MTLResourceHazardTrackingModeTracked = 2 << 8,
};

typedef NSUInteger MTLStorageMode;
enum { MTLStorageModeShared = 0, MTLStorageModeManaged = 1, MTLStorageModePrivate = 2 };

typedef NSUInteger MTLDataType;
enum { MTLDataTypeInt = 29, MTLDataTypeUInt = 33, MTLDataTypeBool = 53, MTLDataTypeFloat = 3 };

typedef NSUInteger MTLCommandBufferStatus;
enum {
  MTLCommandBufferStatusNotEnqueued = 0,
  MTLCommandBufferStatusEnqueued = 1,
  MTLCommandBufferStatusCommitted = 2,
  MTLCommandBufferStatusScheduled = 3,
  MTLCommandBufferStatusCompleted = 4,
  MTLCommandBufferStatusError = 5,
};

typedef NSUInteger MTLBarrierScope;
enum { MTLBarrierScopeBuffers = 1 << 0 };

typedef NSUInteger MTLDispatchType;
enum { MTLDispatchTypeSerial = 0, MTLDispatchTypeConcurrent = 1 };

typedef NSUInteger MTLPipelineOption;
enum { MTLPipelineOptionNone = 0 };

typedef NSInteger MTLGPUFamily;
enum {
  MTLGPUFamilyApple7 = 1007,
  MTLGPUFamilyApple8 = 1008,
  MTLGPUFamilyApple9 = 1009,
  MTLGPUFamilyMac2 = 2002,
  MTLGPUFamilyMetal3 = 5001,
};

typedef NSUInteger MTLLanguageVersion;
enum { MTLLanguageVersion2_3 = (2 << 16) + 3, MTLLanguageVersion3_0 = (3 << 16) + 0 };

@protocol MTLDevice
, MTLCommandBuffer, MTLCommandQueue, MTLFunction;

@protocol MTLBuffer <NSObject>
- (id<MTLDevice>)device;
- (MTLStorageMode)storageMode;
- (void*)contents;  // null unless the storage is shared
- (NSUInteger)length;
@end

@protocol MTLEvent <NSObject>
@end

@protocol MTLSharedEvent <MTLEvent>
@property(readwrite) uint64_t signaledValue;
@end

@protocol MTLFence <NSObject>
@end

// The members of classes are here because the runtime of gcc wants them in the interface.
@interface MTLCompileOptions : NSObject {
  BOOL _fastMathEnabled;
  MTLLanguageVersion _languageVersion;
  NSDictionary* _preprocessorMacros;
}
@property(nonatomic) BOOL fastMathEnabled;
@property(nonatomic) MTLLanguageVersion languageVersion;
@property(nonatomic, copy) NSDictionary* preprocessorMacros;  // NSString to NSString or NSNumber
@end

@interface MTLFunctionConstantValues : NSObject {
 @public
  void* _values;
}
- (void)setConstantValue:(const void*)value type:(MTLDataType)type atIndex:(NSUInteger)index;
@end

@protocol MTLLibrary <NSObject>
- (id<MTLFunction>)newFunctionWithName:(NSString*)name
                        constantValues:(MTLFunctionConstantValues*)values
                                 error:(NSError**)error;
@end

@protocol MTLFunction <NSObject>
- (NSString*)name;
@end

@protocol MTLComputePipelineState <NSObject>
- (NSUInteger)maxTotalThreadsPerThreadgroup;
- (NSUInteger)threadExecutionWidth;
- (NSUInteger)staticThreadgroupMemoryLength;
@end

// Asked for only where the class exists.
@interface MTLBinaryArchiveDescriptor : NSObject {
  NSURL* _url;
}
@property(nonatomic, copy) NSURL* url;
@end

@interface MTLComputePipelineDescriptor : NSObject {
  id<MTLFunction> _computeFunction;
  NSUInteger _maxTotalThreadsPerThreadgroup;
  NSArray* _binaryArchives;
}
@property(nonatomic, retain) id<MTLFunction> computeFunction;
@property(nonatomic) NSUInteger maxTotalThreadsPerThreadgroup;
@property(nonatomic, copy) NSArray* binaryArchives;
@end

@protocol MTLBinaryArchive <NSObject>
- (BOOL)addComputePipelineFunctionsWithDescriptor:(MTLComputePipelineDescriptor*)descriptor error:(NSError**)error;
- (BOOL)serializeToURL:(NSURL*)url error:(NSError**)error;
@end

@protocol MTLComputeCommandEncoder <NSObject>
- (id<MTLDevice>)device;
- (void)setComputePipelineState:(id<MTLComputePipelineState>)state;
- (void)setBuffer:(id<MTLBuffer>)buffer offset:(NSUInteger)offset atIndex:(NSUInteger)index;
- (void)setBytes:(const void*)bytes length:(NSUInteger)length atIndex:(NSUInteger)index;
- (void)dispatchThreadgroups:(MTLSize)groups threadsPerThreadgroup:(MTLSize)threads;
- (void)memoryBarrierWithScope:(MTLBarrierScope)scope;
- (void)updateFence:(id<MTLFence>)fence;
- (void)waitForFence:(id<MTLFence>)fence;
- (void)endEncoding;
@end

typedef void (^MTLCommandBufferHandler)(id<MTLCommandBuffer>);

@protocol MTLCommandBuffer <NSObject>
- (id<MTLDevice>)device;
- (id<MTLComputeCommandEncoder>)computeCommandEncoderWithDispatchType:(MTLDispatchType)type;
- (void)addCompletedHandler:(MTLCommandBufferHandler)handler;
- (void)encodeWaitForEvent:(id<MTLEvent>)event value:(uint64_t)value;
- (void)encodeSignalEvent:(id<MTLEvent>)event value:(uint64_t)value;
- (void)commit;
- (void)waitUntilCompleted;
- (MTLCommandBufferStatus)status;
- (NSError*)error;
- (CFTimeInterval)GPUStartTime;
- (CFTimeInterval)GPUEndTime;
@end

// macOS 15: the queue keeps what the set holds resident. Asked for only where the device responds.
@interface MTLResidencySetDescriptor : NSObject {
  NSString* _label;
  NSUInteger _initialCapacity;
}
@property(nonatomic, copy) NSString* label;
@property(nonatomic) NSUInteger initialCapacity;
@end

@protocol MTLResidencySet <NSObject>
- (void)addAllocation:(id<MTLBuffer>)allocation;
- (void)removeAllocation:(id<MTLBuffer>)allocation;
- (void)commit;
- (void)requestResidency;
- (void)endResidency;
@end

@protocol MTLCommandQueue <NSObject>
- (id<MTLDevice>)device;
- (id<MTLCommandBuffer>)commandBuffer;
- (id<MTLCommandBuffer>)commandBufferWithUnretainedReferences;
- (void)addResidencySet:(id<MTLResidencySet>)set;
@end

@protocol MTLDevice <NSObject>
- (NSString*)name;
- (uint64_t)registryID;
- (BOOL)hasUnifiedMemory;
- (BOOL)supportsFamily:(MTLGPUFamily)family;
- (uint64_t)recommendedMaxWorkingSetSize;
- (NSUInteger)maxBufferLength;
- (NSUInteger)maxThreadgroupMemoryLength;
- (MTLSize)maxThreadsPerThreadgroup;
- (id<MTLCommandQueue>)newCommandQueueWithMaxCommandBufferCount:(NSUInteger)count;
- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)length options:(MTLResourceOptions)options;
- (id<MTLFence>)newFence;
- (id<MTLEvent>)newEvent;
- (id<MTLSharedEvent>)newSharedEvent;
- (id<MTLLibrary>)newLibraryWithSource:(NSString*)source options:(MTLCompileOptions*)options error:(NSError**)error;
- (id<MTLComputePipelineState>)newComputePipelineStateWithDescriptor:(MTLComputePipelineDescriptor*)descriptor
                                                             options:(MTLPipelineOption)options
                                                          reflection:(void*)reflection
                                                               error:(NSError**)error;
- (id<MTLBinaryArchive>)newBinaryArchiveWithDescriptor:(MTLBinaryArchiveDescriptor*)descriptor error:(NSError**)error;
- (id<MTLResidencySet>)newResidencySetWithDescriptor:(MTLResidencySetDescriptor*)descriptor error:(NSError**)error;
@end

#ifdef __cplusplus
extern "C" {
#endif
NSArray* MTLCopyAllDevices(void) __attribute__((ns_returns_retained));
#ifdef __cplusplus
}
#endif
