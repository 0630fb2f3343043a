#import "objects.h"

#include <cstring>

using namespace rota::test::metal;

namespace {

struct GivenValues {
  ConstantValues values;
  std::string error;
};

const GivenValues& given_by(MTLFunctionConstantValues* object) {
  static const GivenValues none;
  return object == nil ? none : *static_cast<const GivenValues*>(object->_values);
}

}  // namespace

@implementation MTLFunctionConstantValues

- (id)init {
  self = [super init];
  if (self != nil) _values = new GivenValues();
  return self;
}

- (void)dealloc {
  delete static_cast<GivenValues*>(_values);
  [super dealloc];
}

- (void)setConstantValue:(const void*)value type:(MTLDataType)type atIndex:(NSUInteger)index {
  auto& given = *static_cast<GivenValues*>(_values);
  ConstantValue constant{};
  switch (type) {
    case MTLDataTypeBool: constant.type = ConstantType::boolean; break;
    case MTLDataTypeInt: constant.type = ConstantType::int32; break;
    case MTLDataTypeUInt: constant.type = ConstantType::uint32; break;
    case MTLDataTypeFloat: constant.type = ConstantType::float32; break;
    default: given.error = "software Metal has no function constant of this data type"; return;
  }
  std::memcpy(&constant.bits, value, type == MTLDataTypeBool ? 1 : sizeof(constant.bits));
  given.values[static_cast<unsigned>(index)] = constant;
}

@end

@implementation MTLCompileOptions
@synthesize fastMathEnabled = _fastMathEnabled;
@synthesize languageVersion = _languageVersion;
@synthesize preprocessorMacros = _preprocessorMacros;

- (id)init {
  self = [super init];
  if (self == nil) return nil;
  _fastMathEnabled = YES;
  _languageVersion = MTLLanguageVersion3_0;
  return self;
}

- (void)dealloc {
  [_preprocessorMacros release];
  [super dealloc];
}

@end

@implementation RotaLibrary

- (id)initWithSource:(NSString*)text options:(MTLCompileOptions*)options error:(NSError**)error {
  self = [super init];
  if (self == nil) return nil;
  math = options == nil || [options fastMathEnabled] ? Math::fast : Math::safe;
  std::string definitions;
  NSArray* names = [[[options preprocessorMacros] allKeys] sortedArrayUsingSelector:@selector(compare:)];
  for (NSString* name in names) {
    NSString* value = [[[options preprocessorMacros] objectForKey:name] description];
    definitions += std::string("#define ") + [name UTF8String] + " " + [value UTF8String] + "\n";
  }
  source = read_source([text UTF8String], definitions);
  std::string message = source.error;
  if (take_fault(Fault::library)) message = "the test asked for this error";
  if (message.empty()) message = check_text(translate_library(source), math).error;
  if (message.empty()) return self;
  [self release];
  return rota_fail(error, kLibraryErrors, message);
}

// Empty if the values fit the constants of the source.
- (std::string)checkValues:(const ConstantValues&)values {
  for (const FunctionConstant& constant : source.constants) {
    const auto value = values.find(constant.index);
    const std::string name = "function constant '" + constant.name + "' (index " + std::to_string(constant.index) + ")";
    if (value == values.end()) {
      if (!constant.has_default) return name + " has no value";
    } else if (value->second.type != constant.type) {
      return name + " is " + name_of(constant.type) + ", the value " + name_of(value->second.type);
    }
  }
  return "";
}

- (id<MTLFunction>)newFunctionWithName:(NSString*)name
                        constantValues:(MTLFunctionConstantValues*)values
                                 error:(NSError**)error {
  const ConstantValues& given = given_by(values).values;
  std::string message = given_by(values).error;
  if (message.empty()) message = [self checkValues:given];
  if (!message.empty()) return rota_fail(error, kLibraryErrors, message);
  for (const Kernel& kernel : source.kernels) {
    if (kernel.name != [name UTF8String]) continue;
    Compiled compiled = compile_text(translate_function(source, kernel, given), math);
    if (compiled.binary == nullptr) return rota_fail(error, kLibraryErrors, compiled.error);
    RotaFunction* function = [RotaFunction new];
    function->kernel = kernel.name;
    function->binary = std::move(compiled.binary);
    return function;
  }
  return rota_fail(error, kLibraryErrors, std::string("the library has no function ") + [name UTF8String]);
}

@end

@implementation RotaFunction

- (NSString*)name {
  return rota_string(kernel);
}

@end

@implementation MTLComputePipelineDescriptor
@synthesize computeFunction = _computeFunction;
@synthesize maxTotalThreadsPerThreadgroup = _maxTotalThreadsPerThreadgroup;
@synthesize binaryArchives = _binaryArchives;

- (void)dealloc {
  [_computeFunction release];
  [_binaryArchives release];
  [super dealloc];
}

@end

@implementation RotaPipeline

- (id)initWithDescriptor:(MTLComputePipelineDescriptor*)descriptor error:(NSError**)error {
  self = [super init];
  if (self == nil) return nil;
  std::string message;
  if (take_fault(Fault::pipeline)) message = "the test asked for this error";
  if ([descriptor computeFunction] == nil) message = "the descriptor has no function";
  if ([descriptor maxTotalThreadsPerThreadgroup] > kMostThreads) {
    message = "maxTotalThreadsPerThreadgroup is above " + std::to_string(kMostThreads);
  }
  if (message.empty()) {
    const auto* function = static_cast<RotaFunction*>([descriptor computeFunction]);
    kernel = function->kernel;
    binary = function->binary;
    threadgroup_bytes = binary->threadgroup_bytes();
    most_threads =
        [descriptor maxTotalThreadsPerThreadgroup] == 0 ? kMostThreads : [descriptor maxTotalThreadsPerThreadgroup];
    if (threadgroup_bytes <= kMostThreadgroupBytes) return self;
    message = "Threadgroup memory size (" + std::to_string(threadgroup_bytes) +
              ") exceeds the maximum threadgroup memory allowed (" + std::to_string(kMostThreadgroupBytes) + ")";
  }
  [self release];
  return rota_fail(error, kPipelineErrors, message);
}

- (NSUInteger)maxTotalThreadsPerThreadgroup {
  return most_threads;
}

- (NSUInteger)threadExecutionWidth {
  return options().simd_width;
}

- (NSUInteger)staticThreadgroupMemoryLength {
  return threadgroup_bytes;
}

@end
