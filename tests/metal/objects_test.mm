// Software Metal's objects: lifetimes, failures on demand, traffic, and the kernels of the library.

#import <Metal/Metal.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "software_metal.h"
#include "test_kit.h"

namespace rota::test::metal {
namespace {

constexpr char kCopy[] = R"(
kernel void copy(device uint* to [[buffer(0)]], const device uint* from [[buffer(1)]],
                 uint i [[thread_position_in_grid]]) {
  to[i] = from[i];
})";

class SoftwareMetalObjects : public ::testing::Test {
 protected:
  SoftwareMetalObjects() { set_options({}); }
  ~SoftwareMetalObjects() override { set_options(options_of_environment()); }
};

TEST_F(SoftwareMetalObjects, AreCountedAndEnd) {
  const auto all = [] {
    size_t sum = 0;
    for (int i = 0; i < static_cast<int>(Kind::count); ++i) {
      if (static_cast<Kind>(i) != Kind::device) sum += live(static_cast<Kind>(i));
    }
    return sum;
  };
  EXPECT_EQ(all(), 0u);
  {
    const Gpu gpu;
    const Buffer data = gpu.buffer(64);
    const Kernel copy = gpu.kernel(kCopy, "copy");
    const auto fence = gpu.fence();
    EXPECT_EQ(gpu.run({Pass{.calls = {{.kernel = copy, .buffers = {data, data}}}, .update = fence.get()}}), "");
    EXPECT_EQ(live(Kind::buffer), 1u);
    EXPECT_EQ(live(Kind::queue), 1u);
    EXPECT_EQ(live(Kind::pipeline), 1u);
    EXPECT_EQ(live(Kind::fence), 1u);
  }
  EXPECT_EQ(all(), 0u);
}

TEST_F(SoftwareMetalObjects, FailWhenATestAsks) {
  const Gpu gpu;
  fail_next(Fault::library);
  EXPECT_NE(gpu.kernel(kCopy, "copy").error, "");
  fail_next(Fault::pipeline);
  EXPECT_NE(gpu.kernel(kCopy, "copy").error, "");
  const Kernel copy = gpu.kernel(kCopy, "copy");
  EXPECT_EQ(copy.error, "");
  fail_allocation(2);
  const Buffer first = gpu.buffer(1), second = gpu.buffer(1), third = gpu.buffer(1);
  EXPECT_TRUE(first.object);
  EXPECT_FALSE(second.object);
  EXPECT_TRUE(third.object);
  fail_next(Fault::command_buffer);
  const std::vector<Pass> passes = {Pass{.calls = {{.kernel = copy, .buffers = {first, third}}}}};
  const auto errors = gpu.run_all({passes, passes});
  EXPECT_NE(errors[0], "");
  EXPECT_EQ(errors[1], "") << "later ones still run";
  set_device_count(0);
  NSArray* none = MTLCopyAllDevices();
  EXPECT_EQ([none count], 0u);
  [none release];
  set_device_count(1);
}

TEST_F(SoftwareMetalObjects, HaveTheLimitsOfADevice) {
  const Gpu gpu;
  EXPECT_STREQ([[gpu.device() name] UTF8String], "Software Metal");
  EXPECT_TRUE([gpu.device() supportsFamily:MTLGPUFamilyApple7]);
  EXPECT_TRUE([gpu.device() supportsFamily:MTLGPUFamilyMetal3]);
  EXPECT_FALSE([gpu.device() supportsFamily:MTLGPUFamilyApple9]);
  EXPECT_EQ([gpu.device() newBufferWithLength:[gpu.device() maxBufferLength] + 1 options:0], nil);
  const Ref largest([gpu.device() newBufferWithLength:[gpu.device() maxBufferLength] options:0]);
  EXPECT_TRUE(largest);
  set_options({.simd_width = 16});
  EXPECT_EQ([gpu.kernel(kCopy, "copy").pipeline.get() threadExecutionWidth], 16u);
}

TEST_F(SoftwareMetalObjects, RunHandlersAndLimitCommandBuffers) {
  const Gpu gpu;
  std::atomic<int> handled{0};
  std::atomic<int>* const counter = &handled;
  const Ref queue([gpu.device() newCommandQueueWithMaxCommandBufferCount:2]);
  auto hold = std::make_unique<Hold>();
  id<MTLCommandBuffer> last = nil;
  for (int i = 0; i < 2; ++i) {
    last = [queue.get() commandBuffer];
    [last addCompletedHandler:^(id<MTLCommandBuffer> done) {
      EXPECT_EQ([done status], static_cast<NSUInteger>(MTLCommandBufferStatusCompleted));
      ++*counter;
    }];
    [last commit];
  }
  EXPECT_EQ([last status], static_cast<NSUInteger>(MTLCommandBufferStatusCommitted));
  EXPECT_EQ(handled, 0);
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    hold.reset();
  });
  (void)[queue.get() commandBuffer];  // waits for one of the two
  EXPECT_GE(handled, 1);
  [last waitUntilCompleted];
  EXPECT_EQ(handled, 2);
  EXPECT_GE([last GPUEndTime], [last GPUStartTime]);
  later.join();
}

TEST_F(SoftwareMetalObjects, ReleaseTheHandlersOfWhatIsNeverCommitted) {
  const Gpu gpu;
  const auto held = std::make_shared<int>(0);
  @autoreleasepool {
    const auto copy = held;
    [[gpu.queue() commandBuffer] addCompletedHandler:^(id<MTLCommandBuffer>) {
      ++*copy;
    }];
  }
  EXPECT_EQ(held.use_count(), 1);
  EXPECT_EQ(*held, 0);
}

TEST_F(SoftwareMetalObjects, KnowTheirDeviceAndStorage) {
  const Gpu gpu;
  const Buffer shared = gpu.buffer(4);
  EXPECT_EQ([shared.object.get() storageMode], NSUInteger { MTLStorageModeShared });
  EXPECT_EQ([shared.object.get() device], gpu.device());
  EXPECT_EQ([gpu.queue() device], gpu.device());
  EXPECT_EQ([[gpu.queue() commandBuffer] device], gpu.device());
  const Ref hidden([gpu.device() newBufferWithLength:16 options:MTLResourceStorageModePrivate]);
  EXPECT_EQ([hidden.get() contents], nullptr);
  set_device_count(2);
  NSArray* const devices = [MTLCopyAllDevices() autorelease];
  set_device_count(1);
  EXPECT_NE([[devices objectAtIndex:0] registryID], [[devices objectAtIndex:1] registryID]);
}

TEST_F(SoftwareMetalObjects, NoticeABufferThatEndsTooEarly) {
  const Gpu gpu;
  const Kernel copy = gpu.kernel(kCopy, "copy");
  const Buffer to = gpu.buffer(64);
  id<MTLCommandBuffer> commands = [gpu.queue() commandBufferWithUnretainedReferences];
  id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoderWithDispatchType:MTLDispatchTypeSerial];
  {
    const Buffer from = gpu.buffer(64);
    [encoder setComputePipelineState:copy.pipeline.get()];
    [encoder setBuffer:to.object.get() offset:0 atIndex:0];
    [encoder setBuffer:from.object.get() offset:0 atIndex:1];
    [encoder dispatchThreadgroups:MTLSizeMake(1, 1, 1) threadsPerThreadgroup:MTLSizeMake(64, 1, 1)];
  }
  [encoder endEncoding];
  [commands commit];
  [commands waitUntilCompleted];
  EXPECT_EQ([commands status], static_cast<NSUInteger>(MTLCommandBufferStatusError));
}

TEST_F(SoftwareMetalObjects, CountTraffic) {
  const Gpu gpu;
  const Kernel copy = gpu.kernel(kCopy, "copy");
  const Kernel spread = gpu.kernel(
      "kernel void spread(device uint* to [[buffer(0)]], const device uint* from [[buffer(1)]],"
      "uint i [[thread_position_in_grid]]) { uint sum = 0; for (uint n = 0; n < 4; ++n) sum += from[i * 16 + (n & 1u)];"
      "to[i] = sum; }",
      "spread");
  const Buffer to = gpu.buffer(64), from = gpu.buffer(1024);
  set_options({.simd_width = 32, .traffic = true});
  (void)take_traffic();
  EXPECT_EQ(gpu.run({Pass{.calls = {{.kernel = copy, .buffers = {to, from}, .threads = 64},
                                    {.kernel = spread, .buffers = {to, from}, .threads = 64}},
                          .barriers = true}}),
            "");
  const std::vector<Traffic> traffic = take_traffic();
  ASSERT_EQ(traffic.size(), 2u);
  ASSERT_EQ(traffic[0].buffers.size(), 2u);
  EXPECT_EQ(traffic[0].kernel, "copy");
  EXPECT_EQ(traffic[0].buffers[0].bytes_written, 256u);
  EXPECT_EQ(traffic[0].buffers[1].bytes_read, 256u);
  EXPECT_EQ(traffic[0].buffers[1].lines_read, 4u);
  EXPECT_EQ(traffic[1].buffers[0].lines_written, 4u);
  EXPECT_EQ(traffic[1].buffers[1].distinct_bytes_read, 64u * 8);
  EXPECT_GE(traffic[1].buffers[1].lines_read, 64u * 2);
}

TEST_F(SoftwareMetalObjects, WriteArchivesAndCountResidency) {
  const Gpu gpu;
  const std::string path = ::testing::TempDir() + "software_metal_archive" + std::to_string(getpid());
  MTLBinaryArchiveDescriptor* descriptor = [[MTLBinaryArchiveDescriptor new] autorelease];
  NSURL* url = [NSURL fileURLWithPath:[NSString stringWithUTF8String:path.c_str()]];
  NSError* error = nil;
  const Ref archive([gpu.device() newBinaryArchiveWithDescriptor:descriptor error:&error]);
  EXPECT_TRUE([archive.get() serializeToURL:url error:&error]);
  [descriptor setUrl:url];
  const Ref again([gpu.device() newBinaryArchiveWithDescriptor:descriptor error:&error]);
  EXPECT_TRUE(again);
  std::ofstream(path) << "something else";
  const Ref wrong([gpu.device() newBinaryArchiveWithDescriptor:descriptor error:&error]);
  EXPECT_FALSE(wrong);
  std::remove(path.c_str());

  const Ref set([gpu.device() newResidencySetWithDescriptor:[[MTLResidencySetDescriptor new] autorelease]
                                                      error:&error]);
  const Buffer buffer = gpu.buffer(1);
  [set.get() addAllocation:buffer.object.get()];
  EXPECT_EQ(resident_allocations(), 0u);
  [set.get() commit];
  EXPECT_EQ(resident_allocations(), 1u);
  [set.get() removeAllocation:buffer.object.get()];
  [set.get() commit];
  EXPECT_EQ(resident_allocations(), 0u);
}

std::string kernel_text(const std::string& name) {
  std::ifstream file(std::string(ROTA_TEST_KERNELS) + "/" + name + ".metal");
  EXPECT_TRUE(file.good()) << name;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST_F(SoftwareMetalObjects, CompileEveryKernelOfTheLibrary) {
  const Gpu gpu;
  for (const char* name : {"attend_merge", "attend_query", "attend_split", "checksum", "checksum_clear", "merge",
                           "rope", "seal", "store", "unseal"}) {
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(gpu.kernel(kernel_text(name), name).error, "") << name;
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    RecordProperty(name, std::to_string(time.count()));
  }
}

TEST_F(SoftwareMetalObjects, RunTheKernelStore) {
  constexpr uint32_t kTokens = 5, kHeads = 3, kDim = 7;
  for (const Options& each : orders()) {
    set_options(each);
    const Gpu gpu;
    const Kernel store =
        gpu.kernel(kernel_text("store"), "store", {.constants = {{0, MTLDataTypeUInt, 0}, {1, MTLDataTypeUInt, 0}}});
    const Buffer from = gpu.buffer(kTokens * kHeads * kDim), to = gpu.buffer(kTokens * kHeads * kDim);
    const Buffer plan = gpu.buffer(kTokens * 3), counter = gpu.buffer(1);
    for (uint32_t i = 0; i < kTokens * kHeads * kDim; ++i) from[i] = i;
    // The last token of the source goes to the first slot of the only page.
    for (uint32_t i = 0; i < kTokens; ++i) plan[i * 3] = kTokens - 1 - i, plan[i * 3 + 2] = i;
    const std::vector<uint32_t> params = {0,
                                          0,
                                          kHeads * kDim,
                                          0,
                                          kDim,
                                          0,
                                          1,
                                          0,  // from: offset, token, head, value
                                          0,
                                          0,
                                          0,
                                          0,
                                          kHeads * kDim,
                                          0,
                                          kDim,
                                          0,
                                          1,
                                          0,  // to: offset, page, slot, head, value
                                          kTokens,
                                          0,
                                          kHeads,
                                          kDim,
                                          0,
                                          0};
    Call call{.kernel = store, .buffers = {from, to, plan, counter}, .groups = 1, .threads = 64, .params = params};
    EXPECT_EQ(gpu.run(call), "");
    for (uint32_t i = 0; i < kTokens * kHeads * kDim; ++i) {
      EXPECT_EQ(to[i], (kTokens - 1 - i / (kHeads * kDim)) * kHeads * kDim + i % (kHeads * kDim));
    }
    call.params[12] = kHeads * kDim + 1;  // the slots' stride
    EXPECT_NE(gpu.run(call).find("writes 4 bytes of buffer 1"), std::string::npos);
  }
}

// Threadgroups meet in an atomic word, threads in threadgroup memory.
TEST_F(SoftwareMetalObjects, RunTheKernelChecksum) {
  constexpr uint32_t kWords = 9001;
  for (const Options& each : orders()) {
    set_options(each);
    const Gpu gpu;
    const std::string text = kernel_text("checksum");
    const Buffer data = gpu.buffer((kWords + 3) / 4 * 4), sum = gpu.buffer(1);
    uint32_t expected = 0;
    for (uint32_t i = 0; i < kWords; ++i) expected += data[i] = i * 2654435761u;
    const Call call{.kernel = gpu.kernel(text, "checksum"),
                    .buffers = {data, sum},
                    .groups = 3,
                    .threads = 256,
                    .params = {0, 0, kWords, 0, 0, 0}};
    EXPECT_EQ(gpu.run(call), "");
    EXPECT_EQ(sum[0], expected);
    Call wrong = call;
    wrong.kernel = gpu.kernel(without(text, "    threadgroup_barrier(mem_flags::mem_threadgroup);"), "checksum");
    EXPECT_NE(gpu.run(wrong).find("a race"), std::string::npos);
  }
}

}  // namespace
}  // namespace rota::test::metal
