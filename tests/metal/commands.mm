#import "objects.h"

#include <chrono>

using namespace rota::test::metal;

namespace {

constexpr NSUInteger kMostBytes = 4096;  // of setBytes

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

@class RotaCommandBuffer;

@interface RotaEncoder : NSObject <MTLComputeCommandEncoder> {
 @public
  Counted<Kind::encoder> counted;
  RotaCommandBuffer* owner;
  RecordedEncoder* record;  // null after endEncoding
  RotaPipeline* pipeline;
  RecordedBuffer buffers[kBufferCount];
  bool bound[kBufferCount];
}
@end

@interface RotaCommandBuffer : NSObject <MTLCommandBuffer> {
 @public
  Counted<Kind::command_buffer> counted;
  std::shared_ptr<Worker> worker;
  id<MTLDevice> device;  // exists for ever
  RecordedCommands commands;
  std::unique_ptr<Submission> submission;
  NSMutableArray* handlers;
  NSMutableArray* references;  // nil: whoever encodes keeps them alive
  bool encoding;
  bool over;
  std::mutex mutex;
  std::condition_variable changed;
  MTLCommandBufferStatus state;
  NSError* failure;
  double start, end;
}
- (id)initWithQueue:(RotaQueue*)queue;
- (void)keep:(id)object;
- (RecordedEncoder*)addEncoder;
@end

@implementation RotaEncoder

- (void)dealloc {
  if (record != nullptr) rota_misuse("an encoder ends without endEncoding");
  [pipeline release];
  [owner release];
  [super dealloc];
}

- (id<MTLDevice>)device {
  return [owner device];
}

- (RecordedEncoder*)open {
  if (record == nullptr) rota_misuse("a command is encoded after endEncoding");
  return record;
}

- (void)setComputePipelineState:(id<MTLComputePipelineState>)state {
  [self open];
  [state retain];
  [pipeline release];
  pipeline = static_cast<RotaPipeline*>(state);
}

- (void)bind:(const RecordedBuffer&)buffer {
  [self open];
  if (buffer.index >= kBufferCount) rota_misuse("a buffer is bound to an index above 30");
  buffers[buffer.index] = buffer;
  bound[buffer.index] = true;
}

- (void)setBuffer:(id<MTLBuffer>)buffer offset:(NSUInteger)offset atIndex:(NSUInteger)index {
  if (buffer == nil) {
    [self open];
    if (index < kBufferCount) bound[index] = false;
    return;
  }
  if (offset >= [buffer length]) rota_misuse("a buffer is bound with an offset that is not below its length");
  [owner keep:buffer];
  const RotaBuffer* bound_buffer = static_cast<RotaBuffer*>(buffer);
  [self bind:{static_cast<unsigned>(index),
              static_cast<char*>(bound_buffer->memory),
              [buffer length],
              offset,
              {},
              (bound_buffer->how & MTLResourceHazardTrackingModeUntracked) == 0}];
}

- (void)setBytes:(const void*)bytes length:(NSUInteger)length atIndex:(NSUInteger)index {
  if (length == 0 || length > kMostBytes) rota_misuse("setBytes takes 1 to 4096 bytes");
  const char* first = static_cast<const char*>(bytes);
  [self bind:{static_cast<unsigned>(index), nullptr, length, 0,
              std::make_shared<std::vector<char>>(first, first + length)}];
}

- (void)dispatchThreadgroups:(MTLSize)groups threadsPerThreadgroup:(MTLSize)threads {
  RecordedDispatch dispatch;
  if (pipeline == nil) {
    rota_misuse("a dispatch has no pipeline");
    return;
  }
  dispatch.kernel = pipeline->kernel;
  dispatch.binary = pipeline->binary;
  const NSUInteger sizes[2][3] = {{groups.width, groups.height, groups.depth},
                                  {threads.width, threads.height, threads.depth}};
  for (int d = 0; d < 3; ++d) {
    dispatch.groups[d] = static_cast<unsigned>(sizes[0][d]);
    dispatch.threads[d] = static_cast<unsigned>(sizes[1][d]);
  }
  const std::string kernel = "kernel '" + dispatch.kernel + "': ";
  const NSUInteger count = threads.width * threads.height * threads.depth;
  if (count == 0 || groups.width * groups.height * groups.depth == 0) dispatch.error = kernel + "an empty dispatch";
  if (count > pipeline->most_threads) {
    dispatch.error = kernel + std::to_string(count) + " threads in a threadgroup, above the maximum of " +
                     std::to_string(pipeline->most_threads);
  }
  for (unsigned i = 0; i < kBufferCount; ++i) {
    if (bound[i]) dispatch.buffers.push_back(buffers[i]);
  }
  [self open]->commands.push_back(std::move(dispatch));
}

- (void)memoryBarrierWithScope:(MTLBarrierScope)scope {
  [self open];
  if (take_barrier_fault()) return;
  if ((scope & MTLBarrierScopeBuffers) != 0) [self open]->commands.push_back(RecordedBarrier{});
}

- (void)updateFence:(id<MTLFence>)fence {
  [self open]->commands.push_back(RecordedUpdate{static_cast<RotaFence*>(fence)->fence});
}

- (void)waitForFence:(id<MTLFence>)fence {
  [self open]->commands.push_back(RecordedWait{static_cast<RotaFence*>(fence)->fence});
}

- (void)endEncoding {
  [self open];
  record = nullptr;
  owner->encoding = false;
}

@end

@implementation RotaCommandBuffer

- (id)initWithQueue:(RotaQueue*)queue {
  self = [super init];
  if (self == nil) return nil;
  device = queue->owner;
  worker = queue->worker;
  worker->acquire();
  handlers = [NSMutableArray new];
  return self;
}

- (void)dealloc {
  if (state == MTLCommandBufferStatusNotEnqueued) {
    for (NSValue* value in handlers) Block_release([value pointerValue]);
    worker->release();
  }
  [handlers release];
  [references release];
  [failure release];
  [super dealloc];
}

- (void)keep:(id)object {
  [references addObject:object];
}

- (id<MTLComputeCommandEncoder>)computeCommandEncoderWithDispatchType:(MTLDispatchType)type {
  RecordedEncoder* record = [self addEncoder];
  encoding = true;
  record->serial = type == MTLDispatchTypeSerial;
  RotaEncoder* encoder = [[RotaEncoder new] autorelease];
  encoder->owner = [self retain];
  encoder->record = record;
  return encoder;
}

- (RecordedEncoder*)addEncoder {
  if (encoding || state != MTLCommandBufferStatusNotEnqueued) rota_misuse("an encoder is open, or all is committed");
  commands.encoders.push_back(std::make_unique<RecordedEncoder>());
  commands.encoders.back()->number = next_encoder();
  return commands.encoders.back().get();
}

- (id<MTLDevice>)device {
  return device;
}

- (void)encodeWaitForEvent:(id<MTLEvent>)event value:(uint64_t)value {
  if (!commands.encoders.empty()) rota_misuse("software Metal waits for events before the first encoder only");
  if (state != MTLCommandBufferStatusNotEnqueued) rota_misuse("all is committed");
  commands.waits.push_back({static_cast<RotaEvent*>(event)->timeline, value});
}

- (void)encodeSignalEvent:(id<MTLEvent>)event value:(uint64_t)value {
  [self addEncoder]->commands.push_back(RecordedSignal{static_cast<RotaEvent*>(event)->timeline, value});
}

- (void)addCompletedHandler:(MTLCommandBufferHandler)handler {
  if (state != MTLCommandBufferStatusNotEnqueued) rota_misuse("a handler is added after commit");
  void* copy = static_cast<void*>(Block_copy(handler));
  [handlers addObject:[NSValue valueWithPointer:copy]];
}

- (void)commit {
  if (encoding || state != MTLCommandBufferStatusNotEnqueued) rota_misuse("commit twice, or before endEncoding");
  state = MTLCommandBufferStatusCommitted;
  submission = std::make_unique<Submission>(commands);
  RotaCommandBuffer* buffer = [self retain];
  worker->add([buffer] { [buffer run]; });
}

- (void)run {
  NSAutoreleasePool* pool = [NSAutoreleasePool new];
  const double from = seconds();
  const std::string error = submission->run();
  const std::shared_ptr<Worker> queue = worker;
  {
    const std::lock_guard lock(mutex);
    start = from;
    end = seconds();
    if (!error.empty()) failure = [rota_error(kCommandBufferErrors, error) retain];
    state = error.empty() ? MTLCommandBufferStatusCompleted : MTLCommandBufferStatusError;
  }
  [references removeAllObjects];
  for (NSValue* value in handlers) {
    auto handler = reinterpret_cast<MTLCommandBufferHandler>([value pointerValue]);
    handler(self);
    Block_release(handler);
  }
  {
    const std::lock_guard lock(mutex);
    over = true;
    changed.notify_all();
  }
  [pool release];
  [self release];
  queue->release();
}

- (void)waitUntilCompleted {
  std::unique_lock lock(mutex);
  if (state == MTLCommandBufferStatusNotEnqueued) rota_misuse("waits for a command buffer that is not committed");
  changed.wait(lock, [self] { return over; });
}

- (MTLCommandBufferStatus)status {
  const std::lock_guard lock(mutex);
  return state;
}

- (NSError*)error {
  const std::lock_guard lock(mutex);
  return failure;
}

- (CFTimeInterval)GPUStartTime {
  const std::lock_guard lock(mutex);
  return start;
}

- (CFTimeInterval)GPUEndTime {
  const std::lock_guard lock(mutex);
  return end;
}

@end

@implementation RotaQueue

- (id)initWithMaxCommandBufferCount:(NSUInteger)count device:(id<MTLDevice>)device {
  self = [super init];
  if (self == nil) return nil;
  owner = device;
  worker = Worker::start(count);
  return self;
}

- (id<MTLDevice>)device {
  return owner;
}

- (void)dealloc {
  if (worker != nullptr) Worker::stop(worker);
  [super dealloc];
}

- (id<MTLCommandBuffer>)commandBuffer {
  RotaCommandBuffer* buffer = [[[RotaCommandBuffer alloc] initWithQueue:self] autorelease];
  buffer->references = [NSMutableArray new];
  return buffer;
}

- (id<MTLCommandBuffer>)commandBufferWithUnretainedReferences {
  return [[[RotaCommandBuffer alloc] initWithQueue:self] autorelease];
}

- (void)addResidencySet:(id<MTLResidencySet>)set {
}

@end
