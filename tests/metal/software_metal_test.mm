// Software Metal itself: kernels that are right pass in every order of threads, and each planted fault is found.

#import <Metal/Metal.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "software_metal.h"
#include "test_kit.h"

namespace rota::test::metal {
namespace {

using ::testing::AssertionFailure;
using ::testing::AssertionResult;
using ::testing::AssertionSuccess;

// Options are those that a test sets, and the environment's afterwards.
class SoftwareMetal : public ::testing::Test {
 protected:
  SoftwareMetal() { set_options({}); }
  ~SoftwareMetal() override { set_options(options_of_environment()); }
};

AssertionResult has(const std::string& message, const std::string& part) {
  if (message.find(part) != std::string::npos) return AssertionSuccess();
  return AssertionFailure() << "'" << message << "' has no '" << part << "'";
}

constexpr char kReverse[] = R"(
kernel void reverse(device uint* data [[buffer(0)]], uint i [[thread_index_in_threadgroup]],
                    uint group [[threadgroup_position_in_grid]]) {
  threadgroup uint values[64];
  values[i] = data[group * 64 + i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  data[group * 64 + i] = values[63 - i];
})";

constexpr char kCopy[] = R"(
kernel void copy(device uint* to [[buffer(0)]], const device uint* from [[buffer(1)]],
                 uint i [[thread_position_in_grid]]) {
  to[i] = from[i];
})";

TEST_F(SoftwareMetal, RunsAKernelInEveryOrder) {
  for (const Options& each : orders()) {
    set_options(each);
    const Gpu gpu;
    const Buffer data = gpu.buffer(256);
    for (unsigned i = 0; i < 256; ++i) data[i] = i;
    EXPECT_EQ(gpu.run({.kernel = gpu.kernel(kReverse, "reverse"), .buffers = {data}, .groups = 4, .threads = 64}), "");
    for (unsigned i = 0; i < 256; ++i) EXPECT_EQ(data[i], i / 64 * 64 + 63 - i % 64);
  }
}

TEST_F(SoftwareMetal, FindsARemovedBarrier) {
  const std::string source = without(kReverse, "threadgroup_barrier(mem_flags::mem_threadgroup);");
  for (const Options& each : orders()) {
    set_options(each);
    const Gpu gpu;
    const Buffer data = gpu.buffer(64);
    EXPECT_TRUE(has(gpu.run({.kernel = gpu.kernel(source, "reverse"), .buffers = {data}, .threads = 64}),
                    "MTLCommandBufferErrorDomain: kernel 'reverse': thread"));
  }
}

TEST_F(SoftwareMetal, RunsOperationsOfSimdgroupsInEveryOrder) {
  constexpr char kSource[] = R"(
kernel void operations(device uint* out [[buffer(0)]], uint i [[thread_index_in_threadgroup]],
                       uint lane [[thread_index_in_simdgroup]], uint width [[threads_per_simdgroup]]) {
  uint sum = simd_sum(i);
  uint other = simd_shuffle_xor(i, 1u);
  uint most = simd_max(lane);
  uint votes = popcount(uint(simd_vote::vote_t(simd_ballot((lane & 1u) != 0u))));
  uint before = simd_prefix_exclusive_sum(1u);
  float3 wide = simd_broadcast(float3(float(i), 1.0, 2.0), 2);
  out[i] = sum + 1000 * uint(other == (i ^ 1u)) + 10000 * uint(most == width - 1u) + 100000 * uint(before == lane) +
           1000000 * uint(votes == width / 2u) + 10000000 * uint(wide.x == float(i / width * width + 2u));
})";
  for (const Options& each : orders()) {
    set_options(each);
    const Gpu gpu;
    const Buffer out = gpu.buffer(64);
    EXPECT_EQ(gpu.run({.kernel = gpu.kernel(kSource, "operations"), .buffers = {out}, .threads = 64}), "");
    for (unsigned i = 0; i < 64; ++i) {
      const unsigned first = i / each.simd_width * each.simd_width;
      const unsigned sum = each.simd_width * (2 * first + each.simd_width - 1) / 2;
      EXPECT_EQ(out[i], 11111000 + sum) << i;
    }
  }
}

TEST_F(SoftwareMetal, LetsABarrierOfTheSimdgroupOrderItsLanes) {
  const std::string source = R"(
kernel void turn(device uint* out [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  threadgroup uint values[32];
  for (uint round = 0; round < 3; ++round) {
    values[i] = i + round;
    simdgroup_barrier(mem_flags::mem_threadgroup);
    out[i] = values[i ^ 1u];
    simdgroup_barrier(mem_flags::mem_threadgroup);
  }
})";
  for (const Options& each : orders()) {
    set_options(each);
    const Gpu gpu;
    const Buffer out = gpu.buffer(32);
    EXPECT_EQ(gpu.run({.kernel = gpu.kernel(source, "turn"), .buffers = {out}, .threads = 32}), "");
    EXPECT_EQ(out[4], 7u);
    const Kernel wrong = gpu.kernel(without(source, "simdgroup_barrier(mem_flags::mem_threadgroup);"), "turn");
    EXPECT_TRUE(has(gpu.run({.kernel = wrong, .buffers = {out}, .threads = 32}), "a race"));
  }
}

TEST_F(SoftwareMetal, FindsDivergentBarriersAndOperations) {
  const Gpu gpu;
  const Buffer out = gpu.buffer(64);
  const auto run = [&](const std::string& body) {
    const std::string source =
        "kernel void diverge(device uint* out [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {" + body + "}";
    return gpu.run({.kernel = gpu.kernel(source, "diverge"), .buffers = {out}, .threads = 64});
  };
  EXPECT_TRUE(has(run("if (i < 5) threadgroup_barrier(mem_flags::mem_threadgroup); out[i] = 1;"),
                  "divergent threadgroup_barrier: thread 0 waits at a threadgroup_barrier, thread 5"));
  EXPECT_TRUE(
      has(run("if (i < 5) threadgroup_barrier(mem_flags::mem_threadgroup);"
              "else threadgroup_barrier(mem_flags::mem_threadgroup);"),
          "divergent threadgroup_barrier: thread 0 waits at a threadgroup_barrier, thread 5 waits at another one"));
  EXPECT_TRUE(has(run("if ((i & 1u) != 0u) out[i] = simd_sum(i);"), "simd operation in divergent flow: thread 1"));
  EXPECT_TRUE(has(run("for (uint n = 0; n < i; ++n) threadgroup_barrier(mem_flags::mem_threadgroup);"),
                  "divergent threadgroup_barrier"));
  EXPECT_EQ(run("if (i < 32) out[i] = simd_sum(i);"), "") << "whole simdgroups may differ";
}

TEST_F(SoftwareMetal, FindsAccessesOutOfBounds) {
  const Gpu gpu;
  const Kernel copy = gpu.kernel(kCopy, "copy");
  const Buffer small = gpu.buffer(64);
  const Buffer large = gpu.buffer(65);
  large[64] = 7;
  EXPECT_EQ(gpu.run({.kernel = copy, .buffers = {small, large}, .threads = 64}), "");
  EXPECT_TRUE(
      has(gpu.run({.kernel = copy, .buffers = {small, large}, .threads = 65}),
          "thread 64 of threadgroup (0, 0, 0) writes 4 bytes of buffer 0 at byte 256, out of bounds: it has 256"));
  EXPECT_TRUE(has(gpu.run({.kernel = copy, .buffers = {large, small}, .threads = 65}),
                  "reads 4 bytes of buffer 1 at byte 256, out of bounds"));
  EXPECT_EQ(large[64], 7u);
  EXPECT_TRUE(has(gpu.run({.kernel = copy, .buffers = {large}}), "reads 4 bytes of buffer 1, which is not bound"));
  Buffer from_middle = large;
  from_middle.offset = 128;
  EXPECT_TRUE(has(gpu.run({.kernel = copy, .buffers = {small, from_middle}, .threads = 64}),
                  "reads 4 bytes of buffer 1 at byte 132"));
}

TEST_F(SoftwareMetal, FindsAccessesOutOfBoundsOfThreadgroupMemory) {
  const Gpu gpu;
  const Buffer out = gpu.buffer(64);
  const auto run = [&](unsigned threads) {
    const Kernel kernel = gpu.kernel(R"(
kernel void k(device uint* x [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  threadgroup uint first[16];
  threadgroup uint second[16], third[4];
  threadgroup vec<uint, 2> fourth;
  first[i] = i;
  second[i] = i;
  if (i == 0u) fourth = uint2(third[0]);
  x[i] = first[i] + second[i];
})",
                                     "k");
    return gpu.run({.kernel = kernel, .buffers = {out}, .threads = threads});
  };
  EXPECT_EQ(run(16), "");
  EXPECT_TRUE(has(run(17), "thread 16 of threadgroup (0, 0, 0) writes threadgroup memory out of bounds of a variable"));
}

TEST_F(SoftwareMetal, FindsThreadgroupsAndThreadsThatShareAWord) {
  const Gpu gpu;
  const Buffer data = gpu.buffer(64);
  const auto run = [&](const std::string& body, unsigned groups) {
    const std::string source =
        "kernel void share(device uint* data [[buffer(0)]], uint i [[thread_index_in_threadgroup]],"
        "uint group [[threadgroup_position_in_grid]]) {" +
        body + "}";
    return gpu.run({.kernel = gpu.kernel(source, "share"), .buffers = {data}, .groups = groups, .threads = 32});
  };
  EXPECT_TRUE(
      has(run("data[i] = i;", 2), "writes buffer 0 at byte 0, which another threadgroup of the dispatch touches"));
  EXPECT_TRUE(has(run("if (group == 0u) data[i] = data[i + 32u]; else data[i + 32u] = 1u;", 2), "another threadgroup"));
  EXPECT_TRUE(has(run("if (data[0] == 5u || group == 1u) data[0] = 1u;", 2), "touches"));
  EXPECT_TRUE(has(run("data[0] = i;", 1), "which another thread touches between the same barriers"));
  EXPECT_TRUE(has(run("data[i] = i; threadgroup_barrier(mem_flags::mem_threadgroup); data[i ^ 1u] = 0u;", 1),
                  "between the same barriers"))
      << "the barrier is not one of device memory";
  EXPECT_EQ(run("data[i] = i; threadgroup_barrier(mem_flags::mem_device); data[i ^ 1u] = 0u;", 1), "");
  EXPECT_EQ(run("atomic_fetch_add_explicit((device atomic_uint*)&data[0], 1u, memory_order_relaxed);", 4), "");
  EXPECT_TRUE(has(run("if (group == 0u) data[0] = 1u; else atomic_fetch_add_explicit((device atomic_uint*)data, 1u,"
                      "memory_order_relaxed);",
                      1),
                  "between the same barriers"));
  EXPECT_TRUE(has(run("if (group == 1u) { if (i == 0u) data[0] = 1u; } else atomic_fetch_add_explicit((device "
                      "atomic_uint*)data, 1u,"
                      "memory_order_relaxed);",
                      2),
                  "another threadgroup"));
}

TEST_F(SoftwareMetal, FindsAMissingBarrierBetweenDispatches) {
  const Gpu gpu;
  const Kernel copy = gpu.kernel(kCopy, "copy");
  const Buffer a = gpu.buffer(64), b = gpu.buffer(64), c = gpu.buffer(64);
  const Call first{.kernel = copy, .buffers = {b, a}, .threads = 64};
  const Call second{.kernel = copy, .buffers = {c, b}, .threads = 64};
  const Call unrelated{.kernel = copy, .buffers = {gpu.buffer(64), a}, .threads = 64};
  const std::string unordered = "that no barrier or fence orders before this one";
  EXPECT_TRUE(has(gpu.run({Pass{.calls = {first, second}}}),
                  "reads buffer 1 at byte 0, which an earlier dispatch touches " + unordered));
  EXPECT_TRUE(has(gpu.run({Pass{.calls = {second, first}}}), "writes buffer 0 at byte 0, which an earlier dispatch"));
  EXPECT_TRUE(has(gpu.run({Pass{.calls = {first, first}}}), unordered));
  EXPECT_TRUE(has(gpu.run({Pass{.calls = {second, unrelated, first}}}), unordered));
  EXPECT_EQ(gpu.run({Pass{.calls = {first, unrelated}}}), "") << "both only read";
  EXPECT_EQ(gpu.run({Pass{.calls = {first, second}, .barriers = true}}), "");
  EXPECT_EQ(gpu.run({Pass{.calls = {first, second}, .type = MTLDispatchTypeSerial}}), "");
  EXPECT_TRUE(has(gpu.run({Pass{.calls = {first}}, Pass{.calls = {second}}}), unordered)) << "encoders are not ordered";
}

TEST_F(SoftwareMetal, FindsAMissingFenceBetweenCommandBuffers) {
  const Gpu gpu;
  const Kernel copy = gpu.kernel(kCopy, "copy");
  const Buffer a = gpu.buffer(64), b = gpu.buffer(64), c = gpu.buffer(64);
  const Call first{.kernel = copy, .buffers = {b, a}, .threads = 64};
  const Call second{.kernel = copy, .buffers = {c, b}, .threads = 64};
  const Call third{.kernel = copy, .buffers = {a, c}, .threads = 64};
  const auto fence = gpu.fence(), other = gpu.fence();
  using Errors = std::vector<std::string>;
  const auto errors = gpu.run_all({{Pass{.calls = {first}}}, {Pass{.calls = {second}}}, {Pass{.calls = {first}}}});
  EXPECT_EQ(errors[0], "");
  EXPECT_TRUE(has(errors[1], "no barrier or fence"));
  EXPECT_EQ(gpu.run({Pass{.calls = {second}}}), "") << "the host has waited";
  EXPECT_EQ(
      gpu.run_all({{Pass{.calls = {first}, .update = fence.get()}}, {Pass{.calls = {second}, .wait = fence.get()}}}),
      Errors(2));
  EXPECT_EQ(gpu.run_all({{Pass{.calls = {first}, .update = fence.get()}},
                         {Pass{.calls = {second}, .wait = fence.get(), .update = other.get()}},
                         {Pass{.calls = {third}, .wait = other.get()}}}),
            Errors(3))
      << "fences order what waited for fences";
  EXPECT_TRUE(has(
      gpu.run_all({{Pass{.calls = {first}, .update = fence.get()}}, {Pass{.calls = {second}, .wait = other.get()}}})[1],
      "no barrier or fence"));
}

TEST_F(SoftwareMetal, OrdersEncodersByEventsAndTrackedBuffers) {
  const Gpu gpu;
  const Kernel copy = gpu.kernel(kCopy, "copy");
  using Errors = std::vector<std::string>;
  const auto calls_on = [&](MTLResourceOptions hazards) {
    const Buffer a = gpu.buffer(64, hazards), b = gpu.buffer(64, hazards), c = gpu.buffer(64, hazards);
    return std::pair{Call{.kernel = copy, .buffers = {b, a}, .threads = 64},
                     Call{.kernel = copy, .buffers = {c, b}, .threads = 64}};
  };
  const auto [first, second] = calls_on(MTLResourceHazardTrackingModeUntracked);
  const auto event = gpu.event(), other = gpu.event();
  EXPECT_EQ(gpu.run_all({{Pass{.calls = {first}, .signal_event = event.get()}},
                         {Pass{.calls = {second}, .wait_event = event.get()}}}),
            Errors(2));
  EXPECT_EQ([event.get() signaledValue], 1u);
  [other.get() setSignaledValue:1];  // by the host, after nothing
  EXPECT_TRUE(has(gpu.run_all({{Pass{.calls = {first}, .signal_event = event.get()}},
                               {Pass{.calls = {second}, .wait_event = other.get()}}})[1],
                  "no barrier or fence"));

  const auto [tracked_first, tracked_second] = calls_on(MTLResourceHazardTrackingModeTracked);
  EXPECT_EQ(gpu.run_all({{Pass{.calls = {tracked_first}}}, {Pass{.calls = {tracked_second}}}}), Errors(2));
  EXPECT_EQ(gpu.run({Pass{.calls = {tracked_first}}, Pass{.calls = {tracked_second}}}), "");
  EXPECT_TRUE(has(gpu.run({Pass{.calls = {tracked_first, tracked_second}}}), "no barrier or fence"))
      << "inside of an encoder barriers order";
}

TEST_F(SoftwareMetal, RefusesWhatIsNoMetal) {
  const Gpu gpu;
  const auto error = [&](const std::string& source) { return gpu.kernel(source, "k").error; };
  EXPECT_TRUE(has(error("kernel void k(device float* x [[buffer(0)]]) { x[0] = float(double(x[0])); }"),
                  "MTLLibraryErrorDomain: program_source:3: error: 'double' is not supported in Metal"));
  EXPECT_TRUE(has(error("kernel void k(device float* x [[buffer(0)]]) { x[0] = y; }"),
                  "program_source:3:55: error: use of undeclared identifier 'y'"));
  EXPECT_TRUE(has(error("kernel void k(device float* x [[buffer(31)]]) { x[0] = 1.0; }"), "out of bounds"));
  const std::string sized = "constant uint n_tmp [[function_constant(0)]];\n"
                            "constant uint n = is_function_constant_defined(n_tmp) ? n_tmp : 4u;\n";
  EXPECT_TRUE(has(
      error(sized + "kernel void k(device uint* x [[buffer(0)]]) { threadgroup uint t[n]; t[0] = 1u; x[0] = t[0]; }"),
      "error:"));
  EXPECT_TRUE(has(error(sized + "kernel void k(device uint* x [[buffer(0)]]) { uint t[n]; t[0] = 1u; x[0] = t[0]; }"),
                  "error:"));
  EXPECT_TRUE(has(gpu.kernel(kCopy, "paste").error, "no function paste"));
}

TEST_F(SoftwareMetal, RefusesRecursion) {
  const Gpu gpu;
  const auto error = [&](const std::string& functions) {
    return gpu.kernel(functions + "kernel void k(device uint* x [[buffer(0)]]) { x[0] = f(x[0]); }", "k").error;
  };
  EXPECT_TRUE(has(error("uint f(uint n) {\n return n < 2u ? n : n * f(n - 1u); }\n"),
                  "program_source:4: error: recursion is not supported in Metal"));
  EXPECT_TRUE(has(error("uint g(uint n);\nuint f(uint n) { return n == 0u ? 0u : g(n - 1u); }\n"
                        "uint g(uint n) { return f(n) + 1u; }\n"),
                  "recursion is not supported in Metal"));
  EXPECT_EQ(error("uint f(uint n, uint m) { return n + m; }\nuint f(uint n) { return f(n, max(n, f(1u, 2u))); }\n"),
            "");
}

TEST_F(SoftwareMetal, TakesFunctionConstantsAndMacros) {
  constexpr char kSource[] = R"(
#ifndef SIZE
#define SIZE 2u
#endif
constant uint size = SIZE;
constant uint count_tmp [[function_constant(0)]];
constant uint count = is_function_constant_defined(count_tmp) ? count_tmp : 20u;
constant bool wide_tmp [[function_constant(3)]];
constant bool wide = is_function_constant_defined(wide_tmp) ? wide_tmp : true;
kernel void k(device uint* out [[buffer(0)]]) {
  threadgroup uint sizes[size];
  sizes[0] = sizeof(sizes);
  out[0] = count;
  out[1] = wide ? 1u : 0u;
  out[2] = sizes[0];
})";
  const Gpu gpu;
  const Buffer out = gpu.buffer(3);
  EXPECT_EQ(gpu.run({.kernel = gpu.kernel(kSource, "k"), .buffers = {out}}), "");
  EXPECT_EQ((std::vector{out[0], out[1], out[2]}), (std::vector{20u, 1u, 8u}));
  const Settings settings{.macro = "SIZE",
                          .value = "5u",
                          .constants = {{0, MTLDataTypeUInt, 9}, {3, MTLDataTypeBool, 0}, {7, MTLDataTypeInt, 1}}};
  EXPECT_EQ(gpu.run({.kernel = gpu.kernel(kSource, "k", settings), .buffers = {out}}), "");
  EXPECT_EQ((std::vector{out[0], out[1], out[2]}), (std::vector{9u, 0u, 20u}));
  EXPECT_EQ(gpu.kernel(kSource, "k", {.constants = {{3, MTLDataTypeUInt, 1}}}).error,
            "MTLLibraryErrorDomain: function constant 'wide_tmp' (index 3) is bool, the value uint");
  EXPECT_TRUE(has(
      gpu.kernel("constant uint n [[function_constant(0)]]; kernel void k(device uint* x [[buffer(0)]]) { x[0] = n; }",
                 "k")
          .error,
      "'n' (index 0) has no value"));
}

TEST_F(SoftwareMetal, LimitsThreadsAndMemoryOfThreadgroups) {
  const Gpu gpu;
  const auto with_bytes = [&](unsigned words) {
    return gpu.kernel("kernel void k(device uint* x [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {"
                      "threadgroup uint t[" +
                          std::to_string(words) + "]; t[i] = 1u; x[i] = t[i]; }",
                      "k");
  };
  EXPECT_EQ(with_bytes(8192).error, "");
  EXPECT_EQ([with_bytes(8192).pipeline.get() staticThreadgroupMemoryLength], 32768u);
  EXPECT_TRUE(has(with_bytes(8448).error, "Threadgroup memory size (33792) exceeds"));
  const Buffer out = gpu.buffer(2048);
  const Kernel kernel = with_bytes(1024);
  EXPECT_EQ(gpu.run({.kernel = kernel, .buffers = {out}, .threads = 1024}), "");
  EXPECT_TRUE(has(gpu.run({.kernel = kernel, .buffers = {out}, .threads = 1025}), "1025 threads in a threadgroup"));
  const Kernel narrow = gpu.kernel(kCopy, "copy", {.most_threads = 64});
  EXPECT_EQ([narrow.pipeline.get() maxTotalThreadsPerThreadgroup], 64u);
  EXPECT_TRUE(has(gpu.run({.kernel = narrow, .buffers = {out, out}, .threads = 65}), "above the maximum of 64"));
}

TEST_F(SoftwareMetal, PoisonsMemoryOfThreadgroupsAndZeroesBuffers) {
  const Gpu gpu;
  const Buffer out = gpu.buffer(4);
  const Kernel kernel =
      gpu.kernel("kernel void k(device uint* x [[buffer(0)]], uint i [[threadgroup_position_in_grid]]) {"
                 "threadgroup uint t[2]; x[i] = t[1]; t[1] = 5u; }",
                 "k");
  EXPECT_EQ(out[0], 0u);
  EXPECT_EQ(gpu.run({.kernel = kernel, .buffers = {out}, .groups = 4}), "");
  for (unsigned i = 0; i < 4; ++i) EXPECT_EQ(out[i], 0x7fc0deadu);
  set_options({.poison = true});
  EXPECT_EQ(gpu.buffer(4)[3], 0xcdcdcdcdu);
}

TEST_F(SoftwareMetal, BreaksNansUnlessMathIsSafe) {
  constexpr char kSource[] = R"(
kernel void k(device uint* x [[buffer(0)]]) {
  float value = as_type<float>(x[0]);
  x[1] = value != value ? 1u : 0u;
})";
  const Gpu gpu;
  const Buffer data = gpu.buffer(2);
  data[0] = 0x7fc00000;
  EXPECT_EQ(gpu.run({.kernel = gpu.kernel(kSource, "k"), .buffers = {data}}), "");
  EXPECT_EQ(data[1], 1u);
  EXPECT_EQ(gpu.run({.kernel = gpu.kernel(kSource, "k", {.fast_math = true}), .buffers = {data}}), "");
  EXPECT_EQ(data[1], 0u);
}

TEST_F(SoftwareMetal, RunsThreadsAndThreadgroupsInTheOrderAskedFor) {
  constexpr char kSource[] = R"(
kernel void k(device uint* x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  x[1 + atomic_fetch_add_explicit((device atomic_uint*)x, 1u, memory_order_relaxed)] = i;
})";
  const auto order = [&](const Options& each) {
    set_options(each);
    const Gpu gpu;
    const Buffer data = gpu.buffer(65);
    EXPECT_EQ(gpu.run({.kernel = gpu.kernel(kSource, "k"), .buffers = {data}, .groups = 4, .threads = 16}), "");
    return std::vector<uint32_t>(&data[1], &data[64] + 1);
  };
  const std::vector<uint32_t> up = order({.order = Order::ascending});
  const std::vector<uint32_t> down = order({.order = Order::descending});
  EXPECT_TRUE(std::is_sorted(up.begin(), up.end()));
  EXPECT_TRUE(std::is_sorted(down.rbegin(), down.rend()));
  const std::vector<uint32_t> shuffled = order({.order = Order::shuffled, .seed = 1});
  EXPECT_TRUE(std::is_permutation(up.begin(), up.end(), shuffled.begin()));
  EXPECT_NE(shuffled, order({.order = Order::shuffled, .seed = 2}));
}

// Constants that have no value, such as a shift by -1, are computed when the kernel is loaded.
TEST_F(SoftwareMetal, LoadsConstantsWithoutAValue) {
  constexpr char kSource[] = R"(
constant uint n_tmp [[function_constant(0)]];
constant uint n = is_function_constant_defined(n_tmp) ? n_tmp : 0u;
constant uint bit = (1u << (n - 1u));
constant float root = rsqrt(float(n));
kernel void k(device float* x [[buffer(0)]]) { if (n != 0u) x[0] = root * float(bit); })";
  const Gpu gpu;
  const Buffer data = gpu.buffer(1);
  EXPECT_EQ(gpu.run({.kernel = gpu.kernel(kSource, "k"), .buffers = {data}}), "");
  EXPECT_EQ(data[0], 0u);
  EXPECT_EQ(gpu.run({.kernel = gpu.kernel(kSource, "k", {.constants = {{0, MTLDataTypeUInt, 4}}}), .buffers = {data}}),
            "");
  EXPECT_EQ(data[0], 0x40800000u);
}

TEST_F(SoftwareMetal, SurvivesAStackThatIsFull) {
  const Gpu gpu;
  const Buffer data = gpu.buffer(1 << 16);
  const Kernel kernel = gpu.kernel(R"(
kernel void k(device uint* x [[buffer(0)]]) {
  uint all[40000];
  for (uint i = 0; i < 40000u; ++i) all[i] = x[i] * 3u;
  for (uint i = 0; i < 40000u; ++i) x[i] = all[all[i] % 40000u];
})",
                                   "k");
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(has(gpu.run({.kernel = kernel, .buffers = {data}}), "needs too much stack"));
}

TEST_F(SoftwareMetal, SurvivesADivisionByZero) {
  const Gpu gpu;
  const Buffer data = gpu.buffer(2);
  const Kernel kernel = gpu.kernel("kernel void k(device uint* x [[buffer(0)]]) { x[0] = x[0] / x[1]; }", "k");
  EXPECT_TRUE(has(gpu.run({.kernel = kernel, .buffers = {data}}), "divides an integer by zero"));
  EXPECT_TRUE(has(gpu.run({.kernel = kernel, .buffers = {data}}), "divides an integer by zero"));
  data[1] = 1;
  EXPECT_EQ(gpu.run({.kernel = kernel, .buffers = {data}}), "");
}

}  // namespace
}  // namespace rota::test::metal
