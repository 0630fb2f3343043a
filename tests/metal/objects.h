// The classes behind the protocols. They are only what Objective-C needs; the work is done in C++ beside them.

#pragma once

#import <Metal/Metal.h>

#include <memory>
#include <string>
#include <vector>

#include "compile.h"
#include "control.h"
#include "submit.h"
#include "translate.h"

NSString* const kLibraryErrors = @"MTLLibraryErrorDomain";
NSString* const kPipelineErrors = @"MTLComputePipelineErrorDomain";
NSString* const kCommandBufferErrors = @"MTLCommandBufferErrorDomain";
NSString* const kArchiveErrors = @"MTLBinaryArchiveDomain";

// Both are autoreleased.
NSString* rota_string(const std::string& characters);
NSError* rota_error(NSString* domain, const std::string& message);

// Sets *to where there is one, and returns nil.
id rota_fail(NSError** to, NSString* domain, const std::string& message);

// As Metal's validation does: a program that misuses the API must not go on.
void rota_misuse(const std::string& message);

@interface RotaBuffer : NSObject <MTLBuffer> {
 @public
  rota::test::metal::Counted<rota::test::metal::Kind::buffer> counted;
  id<MTLDevice> owner;  // exists for ever
  MTLResourceOptions how;
  void* memory;
  NSUInteger bytes;
}
// Nil if there is no memory.
- (id)initWithLength:(NSUInteger)length options:(MTLResourceOptions)options device:(id<MTLDevice>)device;
@end

@interface RotaEvent : NSObject <MTLSharedEvent> {
 @public
  rota::test::metal::Counted<rota::test::metal::Kind::event> counted;
  std::shared_ptr<rota::test::metal::Timeline> timeline;
}
@end

@interface RotaFence : NSObject <MTLFence> {
 @public
  rota::test::metal::Counted<rota::test::metal::Kind::fence> counted;
  std::shared_ptr<rota::test::metal::Fence> fence;
}
@end

@interface RotaLibrary : NSObject <MTLLibrary> {
 @public
  rota::test::metal::Counted<rota::test::metal::Kind::library> counted;
  rota::test::metal::Source source;
  rota::test::metal::Math math;
}
// Nil if it does not compile.
- (id)initWithSource:(NSString*)text options:(MTLCompileOptions*)options error:(NSError**)error;
@end

@interface RotaFunction : NSObject <MTLFunction> {
 @public
  rota::test::metal::Counted<rota::test::metal::Kind::function> counted;
  std::string kernel;
  std::shared_ptr<const rota::test::metal::Binary> binary;
}
@end

@interface RotaPipeline : NSObject <MTLComputePipelineState> {
 @public
  rota::test::metal::Counted<rota::test::metal::Kind::pipeline> counted;
  std::string kernel;
  std::shared_ptr<const rota::test::metal::Binary> binary;
  NSUInteger most_threads;
  NSUInteger threadgroup_bytes;
}
// Nil if the device cannot run it.
- (id)initWithDescriptor:(MTLComputePipelineDescriptor*)descriptor error:(NSError**)error;
@end

@interface RotaArchive : NSObject <MTLBinaryArchive> {
 @public
  rota::test::metal::Counted<rota::test::metal::Kind::archive> counted;
  std::string contents;
}
// Nil if there is a file that is none of an archive.
- (id)initWithDescriptor:(MTLBinaryArchiveDescriptor*)descriptor error:(NSError**)error;
@end

@interface RotaResidencySet : NSObject <MTLResidencySet> {
 @public
  rota::test::metal::Counted<rota::test::metal::Kind::residency_set> counted;
  NSMutableSet* allocations;
  long committed;
}
@end

@interface RotaQueue : NSObject <MTLCommandQueue> {
 @public
  rota::test::metal::Counted<rota::test::metal::Kind::queue> counted;
  id<MTLDevice> owner;  // exists for ever
  std::shared_ptr<rota::test::metal::Worker> worker;
}
- (id)initWithMaxCommandBufferCount:(NSUInteger)count device:(id<MTLDevice>)device;
@end
