#import "objects.h"

using namespace rota::test::metal;

namespace {

// As large as those of a Mac with an M1.
constexpr uint64_t kWorkingSetBytes = uint64_t{8} << 30;
constexpr NSUInteger kMostBufferBytes = NSUInteger{4} << 30;

}  // namespace

@interface RotaDevice : NSObject <MTLDevice> {
  Counted<Kind::device> counted;
  uint64_t number;
}
- (id)initWithNumber:(uint64_t)given;
@end

@implementation RotaDevice

- (id)initWithNumber:(uint64_t)given {
  self = [super init];
  if (self != nil) number = given;
  return self;
}

- (NSString*)name {
  return @"Software Metal";
}

- (uint64_t)registryID {
  return 0x726f7461 + number;  // "rota"
}

- (BOOL)hasUnifiedMemory {
  return YES;
}

- (BOOL)supportsFamily:(MTLGPUFamily)family {
  return family == MTLGPUFamilyApple7 || family == MTLGPUFamilyMac2 || family == MTLGPUFamilyMetal3;
}

- (uint64_t)recommendedMaxWorkingSetSize {
  return kWorkingSetBytes;
}

- (NSUInteger)maxBufferLength {
  return kMostBufferBytes;
}

- (NSUInteger)maxThreadgroupMemoryLength {
  return kMostThreadgroupBytes;
}

- (MTLSize)maxThreadsPerThreadgroup {
  return MTLSizeMake(kMostThreads, kMostThreads, kMostThreads);
}

- (id<MTLCommandQueue>)newCommandQueueWithMaxCommandBufferCount:(NSUInteger)count {
  return [[RotaQueue alloc] initWithMaxCommandBufferCount:count device:self];
}

- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)length options:(MTLResourceOptions)options {
  if (take_allocation_fault() || length == 0 || length > kMostBufferBytes) return nil;
  return [[RotaBuffer alloc] initWithLength:length options:options device:self];
}

- (id<MTLFence>)newFence {
  return [RotaFence new];
}

- (id<MTLEvent>)newEvent {
  return [RotaEvent new];
}

- (id<MTLSharedEvent>)newSharedEvent {
  return [RotaEvent new];
}

- (id<MTLLibrary>)newLibraryWithSource:(NSString*)source options:(MTLCompileOptions*)options error:(NSError**)error {
  return [[RotaLibrary alloc] initWithSource:source options:options error:error];
}

- (id<MTLComputePipelineState>)newComputePipelineStateWithDescriptor:(MTLComputePipelineDescriptor*)descriptor
                                                             options:(MTLPipelineOption)options
                                                          reflection:(void*)reflection
                                                               error:(NSError**)error {
  return [[RotaPipeline alloc] initWithDescriptor:descriptor error:error];
}

- (id<MTLBinaryArchive>)newBinaryArchiveWithDescriptor:(MTLBinaryArchiveDescriptor*)descriptor error:(NSError**)error {
  return [[RotaArchive alloc] initWithDescriptor:descriptor error:error];
}

- (id<MTLResidencySet>)newResidencySetWithDescriptor:(MTLResidencySetDescriptor*)descriptor error:(NSError**)error {
  return [RotaResidencySet new];
}

@end

NSArray* MTLCopyAllDevices(void) {
  // The same however often they are asked for, as objects of Metal's devices are.
  static RotaDevice* const devices[] = {[[RotaDevice alloc] initWithNumber:0], [[RotaDevice alloc] initWithNumber:1]};
  return [[NSArray alloc] initWithObjects:devices count:device_count()];
}
