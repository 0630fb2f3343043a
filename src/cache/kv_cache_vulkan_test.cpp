#include <gtest/gtest.h>

#include <array>
#include <utility>

#include "backend/vulkan/backend.h"
#include "harness/failing_driver.h"
#include "harness/on_device.h"
#include "runtime/device_state.h"

// Failures of the driver in the middle of a step, put in by replacing one of its functions.

namespace rota::test {
namespace {

// Lets some allocations pass.
struct Memory {
  static inline PFN_vkAllocateMemory original = nullptr;
  static inline int left = 0;

  static VkResult VKAPI_PTR allocate(VkDevice device, const VkMemoryAllocateInfo* info,
                                     const VkAllocationCallbacks* callbacks, VkDeviceMemory* memory) {
    return left-- > 0 ? original(device, info, callbacks, memory) : VK_ERROR_OUT_OF_DEVICE_MEMORY;
  }
};

// Pipelines that the driver builds.
struct Builds {
  static inline PFN_vkCreateComputePipelines original = nullptr;
  static inline int count = 0;

  static VkResult VKAPI_PTR build(VkDevice device, VkPipelineCache cache, uint32_t infos,
                                  const VkComputePipelineCreateInfo* info, const VkAllocationCallbacks* callbacks,
                                  VkPipeline* pipelines) {
    ++count;
    return original(device, cache, infos, info, callbacks, pipelines);
  }
};

class KvCacheFailures : public OnDevice {
 protected:
  vk::DeviceFunctions& driver() {
    return dynamic_cast<vk::VulkanBackend&>(runtime::Inside::of(device)->backend()).context()->vk;
  }

  Status extend(std::uint64_t tokens) {
    Encoder encoder = device.encoder();
    auto step = cache->extend(encoder, sequence, tokens);
    if (!step) return step.error();
    const View x{.buffer = zeros, .dtype = DType::f32, .shape = {.tokens = tokens, .heads = 1, .dim = 16}};
    step->append(encoder, 0, x, x);
    auto fence = std::move(encoder).submit();
    return fence ? fence->wait() : Status(fence.error());
  }

  void expect_unchanged(std::uint64_t length) {
    EXPECT_EQ(cache->length(sequence).value(), length);
    EXPECT_EQ(cache->counters().seals, 0U);
    EXPECT_EQ(cache->counters().sealed.used, 0U);
    EXPECT_EQ(cache->counters().dense.used, 2 * ((length + 63) / 64));
  }

  void open() {
    cache = KvCache::create(device, spec).value();
    zeros.write(std::vector<std::byte>(zeros.size_bytes())).value();
    sequence = cache->open_sequence().value();
    extend(200).value();
  }

  KvCacheSpec spec{
      .groups = {{.layers = {0}, .kv_heads = 1, .head_dim = 16, .k = turbo(4), .v = turbo(4), .page = 64, .tail = 0}},
      .max_tokens = 70'000,
      .max_step_tokens = 60'000,
      .layer_order = LayerOrder::together};
  std::optional<KvCache> cache;
  Buffer zeros = device.allocate(64).value();
  Sequence sequence;
};

TEST_F(KvCacheFailures, ADeviceThatIsLostTakesTheStepBackAndStaysLost) {
  open();
  const auto original = std::exchange(driver().vkQueueSubmit, lost_at_submit);
  expect_error(extend(5), Errc::device_lost, {"vkQueueSubmit"});
  driver().vkQueueSubmit = original;
  expect_unchanged(200);
  expect_error(extend(5), Errc::device_lost, {"open it anew"});
  expect_unchanged(200);
  expect_error(cache->non_finite(), Errc::device_lost, {"open it anew"});
  EXPECT_OK(cache->close(sequence));
  EXPECT_EQ(cache->counters().dense.used, 0U);
}

TEST_F(KvCacheFailures, AKernelThatCannotBeBuiltTakesTheStepBackAndMayBeTriedAgain) {
  open();
  const auto original = std::exchange(driver().vkCreateComputePipelines, no_pipeline);
  expect_error(extend(5), Errc::pipeline_failed, {"refuses the kernel"});
  expect_unchanged(200);
  driver().vkCreateComputePipelines = original;
  EXPECT_OK(extend(5));
  EXPECT_EQ(cache->counters().seals, 6U);
}

TEST_F(KvCacheFailures, MemoryThatRunsOutWhileACacheIsMadeIsAnError) {
  spec.at_once = true;
  Memory::original = std::exchange(driver().vkAllocateMemory, Memory::allocate);
  int failures = 0;
  for (;; ++failures) {
    ASSERT_LT(failures, 100);
    Memory::left = failures;
    const auto made = KvCache::create(device, spec);
    if (made.ok()) break;
    EXPECT_EQ(made.error().code, Errc::out_of_memory);
  }
  driver().vkAllocateMemory = Memory::original;
  EXPECT_EQ(failures, 7) << "sealed, dense and sinks of keys and of values, and the counters";
}

TEST_F(KvCacheFailures, MemoryThatRunsOutInAStepTakesItBack) {
  spec.at_once = true;  // so that it is not the pages'
  open();
  Memory::original = std::exchange(driver().vkAllocateMemory, Memory::allocate);
  Memory::left = 0;
  const Status status = extend(60'000);  // whose plan is larger than any upload before
  driver().vkAllocateMemory = Memory::original;
  expect_error(status, Errc::out_of_memory, {"VK_ERROR_OUT_OF_DEVICE_MEMORY"});
  expect_unchanged(200);
  EXPECT_OK(extend(60'000));
}

TEST_F(KvCacheFailures, AfterPreparationStepsBuildNoPipeline) {
  cache = KvCache::create(device, spec).value();
  zeros.write(std::vector<std::byte>(zeros.size_bytes())).value();
  sequence = cache->open_sequence().value();
  Builds::original = std::exchange(driver().vkCreateComputePipelines, Builds::build);
  Builds::count = 0;
  constexpr std::array<std::uint64_t, 2> kSteps{200, 1};  // the second seals what the first brought
  Buffer out = device.allocate(64).value();
  const auto record = [&](Encoder& encoder, std::uint64_t tokens) {
    auto step = cache->extend(encoder, sequence, tokens).value();
    const View x{.buffer = zeros, .dtype = DType::f32, .shape = {.tokens = tokens, .heads = 1, .dim = 16}};
    step.append(encoder, 0, x, x);
    const View q{.buffer = zeros, .dtype = DType::f32, .shape = {.tokens = 1, .heads = 1, .dim = 16}};
    attend(encoder,
           {.q = q, .kv = step.view(0).value(), .out = MutView::token_major(out, DType::f32, q.shape), .scale = 0.25});
  };
  Encoder rehearsal = device.encoder();
  for (const std::uint64_t tokens : kSteps) record(rehearsal, tokens);
  ASSERT_OK(std::move(rehearsal).prepare());
  EXPECT_GT(Builds::count, 3) << "store, seal, and the kernels of attention over dense and sealed keys";
  EXPECT_EQ(cache->length(sequence).value(), 0U);
  EXPECT_EQ(cache->counters().dense.used, 0U);
  expect_error(std::move(rehearsal).submit(), Errc::invalid_argument, {"the encoder"});  // NOLINT: used on purpose

  Builds::count = 0;
  for (const std::uint64_t tokens : kSteps) {
    Encoder encoder = device.encoder();
    record(encoder, tokens);
    ASSERT_OK(std::move(encoder).submit().value().wait());
  }
  EXPECT_EQ(Builds::count, 0);
  EXPECT_GT(cache->counters().seals, 0U);

  Encoder failing = device.encoder();
  attend(failing, {.q = {}, .kv = {}, .out = {}, .scale = 1.0});
  expect_error(std::move(failing).prepare(), Errc::invalid_argument, {"attend"});
  driver().vkCreateComputePipelines = no_pipeline;
  Encoder unbuilt = device.encoder();
  const RopeTensor x =
      RopeTensor::in_place({.buffer = out, .dtype = DType::f32, .shape = {.tokens = 1, .heads = 1, .dim = 16}});
  const std::array<std::int64_t, 1> positions{3};
  const Rotary rotary{.pairing = Pairing::halves, .theta = 1e4};
  rope(unbuilt, {.tensors = {&x, 1}, .positions = positions, .rotary = rotary});
  expect_error(std::move(unbuilt).prepare(), Errc::pipeline_failed, {"refuses the kernel"});
}

}  // namespace
}  // namespace rota::test
