#import "objects.h"

#include <cstring>
#include <fstream>
#include <sstream>

#include "arena.h"

using namespace rota::test::metal;

NSString* rota_string(const std::string& characters) { return [NSString stringWithUTF8String:characters.c_str()]; }

NSError* rota_error(NSString* domain, const std::string& message) {
  NSDictionary* info = [NSDictionary dictionaryWithObject:rota_string(message) forKey:NSLocalizedDescriptionKey];
  return [NSError errorWithDomain:domain code:1 userInfo:info];
}

id rota_fail(NSError** to, NSString* domain, const std::string& message) {
  if (to != nullptr) *to = rota_error(domain, message);
  return nil;
}

void rota_misuse(const std::string& message) {
  [NSException raise:NSInternalInconsistencyException format:@"%s", message.c_str()];
}

@implementation RotaBuffer

- (id)initWithLength:(NSUInteger)length options:(MTLResourceOptions)options device:(id<MTLDevice>)device {
  self = [super init];
  if (self == nil) return nil;
  owner = device;
  how = options;
  bytes = length;
  memory = Arena::get().allocate(length);
  if (memory == nullptr) {
    [self release];
    return nil;
  }
  if (rota::test::metal::options().poison) std::memset(memory, 0xcd, length);
  add_buffer(memory);
  return self;
}

- (void)dealloc {
  if (memory != nullptr) {
    remove_buffer(memory);
    Arena::get().free(memory, bytes);
  }
  [super dealloc];
}

- (id<MTLDevice>)device {
  return owner;
}

- (MTLStorageMode)storageMode {
  return (how >> 4) & 0xf;
}

- (void*)contents {
  return [self storageMode] == MTLStorageModeShared ? memory : nullptr;
}

- (NSUInteger)length {
  return bytes;
}

@end

@implementation RotaFence

- (id)init {
  self = [super init];
  if (self != nil) fence = std::make_shared<Fence>();
  return self;
}

@end

@implementation RotaEvent

- (id)init {
  self = [super init];
  if (self != nil) timeline = std::make_shared<Timeline>();
  return self;
}

- (uint64_t)signaledValue {
  return timeline->value();
}

- (void)setSignaledValue:(uint64_t)value {
  timeline->signal(value, {});
}

@end

@implementation MTLResidencySetDescriptor
@synthesize label = _label;
@synthesize initialCapacity = _initialCapacity;

- (void)dealloc {
  [_label release];
  [super dealloc];
}

@end

@implementation RotaResidencySet

- (id)init {
  self = [super init];
  if (self != nil) allocations = [NSMutableSet new];
  return self;
}

- (void)dealloc {
  add_resident(-committed);
  [allocations release];
  [super dealloc];
}

- (void)addAllocation:(id<MTLBuffer>)allocation {
  @synchronized(self) {
    [allocations addObject:allocation];
  }
}

- (void)removeAllocation:(id<MTLBuffer>)allocation {
  @synchronized(self) {
    [allocations removeObject:allocation];
  }
}

- (void)commit {
  @synchronized(self) {
    const long now = static_cast<long>([allocations count]);
    add_resident(now - committed);
    committed = now;
  }
}

- (void)requestResidency {
}

- (void)endResidency {
}

@end

@implementation MTLBinaryArchiveDescriptor
@synthesize url = _url;

- (void)dealloc {
  [_url release];
  [super dealloc];
}

@end

namespace {
constexpr char kArchiveMagic[] = "software metal archive\n";
}

@implementation RotaArchive

- (id)initWithDescriptor:(MTLBinaryArchiveDescriptor*)descriptor error:(NSError**)error {
  self = [super init];
  if (self == nil) return nil;
  contents = kArchiveMagic;
  if ([descriptor url] == nil) return self;
  std::ifstream file([[[descriptor url] path] fileSystemRepresentation], std::ios::binary);
  std::ostringstream read;
  read << file.rdbuf();
  contents = read.str();
  if (contents.rfind(kArchiveMagic, 0) == 0) return self;
  [self release];
  return rota_fail(error, kArchiveErrors, "the file is no archive");
}

- (BOOL)addComputePipelineFunctionsWithDescriptor:(MTLComputePipelineDescriptor*)descriptor error:(NSError**)error {
  if ([descriptor computeFunction] == nil) {
    rota_fail(error, kArchiveErrors, "the descriptor has no function");
    return NO;
  }
  contents += static_cast<RotaFunction*>([descriptor computeFunction])->kernel + "\n";
  return YES;
}

- (BOOL)serializeToURL:(NSURL*)url error:(NSError**)error {
  std::ofstream file([[url path] fileSystemRepresentation], std::ios::binary);
  file << contents << std::flush;
  if (file.good()) return YES;
  rota_fail(error, kArchiveErrors, "the file cannot be written");
  return NO;
}

@end
