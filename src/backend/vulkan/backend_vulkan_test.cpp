#include "backend/vulkan/backend.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>

#include "harness/failing_driver.h"
#include "harness/on_vulkan.h"

// Failures are the driver's own, put in by replacing one of its functions.

namespace rota::vk {
namespace {

using test::expect_error;
using test::lost_at_submit;
using test::make_pair;
using test::no_pipeline;
using test::run_store;

VkResult VKAPI_PTR no_memory(VkDevice, const VkMemoryAllocateInfo*, const VkAllocationCallbacks*, VkDeviceMemory*) {
  return VK_ERROR_OUT_OF_DEVICE_MEMORY;
}

VkResult VKAPI_PTR lost_at_wait(VkDevice, uint32_t, const VkFence*, VkBool32, uint64_t) { return VK_ERROR_DEVICE_LOST; }

// Drops one barrier of those that pass through it.
struct BarrierThief {
  static inline PFN_vkCmdPipelineBarrier original = nullptr;
  static inline int calls_before_theft = 0;

  static void VKAPI_PTR steal(VkCommandBuffer commands, VkPipelineStageFlags from, VkPipelineStageFlags to,
                              VkDependencyFlags flags, uint32_t memory_count, const VkMemoryBarrier* memory,
                              uint32_t buffer_count, const VkBufferMemoryBarrier* buffers, uint32_t image_count,
                              const VkImageMemoryBarrier* images) {
    if (calls_before_theft-- == 0) return;
    original(commands, from, to, flags, memory_count, memory, buffer_count, buffers, image_count, images);
  }
};

class OnVulkanEitherWay : public OnVulkan, public testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(Descriptors, OnVulkanEitherWay, testing::Bool(),
                         [](const auto& pushed) { return pushed.param ? "Pushed" : "FromAPool"; });

TEST_P(OnVulkanEitherWay, AMissingBarrierIsSeenByValidation) {
  backend_of(device).context()->pushes_descriptors &= GetParam();
  constexpr Shape kShape{.tokens = 4, .heads = 2, .dim = 8};
  std::vector<Buffer> buffers;
  for (int i = 0; i < 3; ++i) buffers.push_back(device.allocate(4 * 2 * 8 * 4).value());
  const auto chain = [&] {
    Encoder encoder = device.encoder();
    const TokenRun run{.tokens = 4, .position = 0, .capacity = 4};
    for (std::size_t i = 1; i < buffers.size(); ++i) {
      const StorePair pair{View::token_major(buffers[i - 1], DType::f32, kShape),
                           SlotView::token_major(buffers[i], DType::f32, {.page_slots = 4, .heads = 2, .dim = 8})};
      store(encoder, {.pairs = {&pair, 1}, .sequences = {&run, 1}});
    }
    return std::move(encoder).submit().value().wait();
  };
  ASSERT_OK(chain());
  ASSERT_TRUE(log.take().empty());

  Context& context = *backend_of(device).context();
  BarrierThief::original = context.vk.vkCmdPipelineBarrier;
  BarrierThief::calls_before_theft = 1;  // the first one opens the batch, the second stands between the copies
  context.vk.vkCmdPipelineBarrier = BarrierThief::steal;
  ASSERT_OK(chain());
  context.vk.vkCmdPipelineBarrier = BarrierThief::original;
  const auto messages = log.take();
  EXPECT_TRUE(std::ranges::any_of(messages, [](const std::string& message) {
    return message.find("SYNC-HAZARD-READ-AFTER-WRITE") != std::string::npos;
  })) << "the hazard went unseen";
}

TEST_F(OnVulkan, DeviceMemoryThatRunsOutIsAnError) {
  backend_of(device).context()->vk.vkAllocateMemory = no_memory;
  expect_error(device.allocate(1000), Errc::out_of_memory, {"allocate", "1000 bytes", "VK_ERROR_OUT_OF_DEVICE_MEMORY"});
}

TEST_F(OnVulkan, UploadMemoryThatRunsOutIsKeptByTheEncoder) {
  auto pair = small_pair();
  backend_of(device).context()->vk.vkAllocateMemory = no_memory;
  expect_error(run_store(device, {pair.view}, runs_of(sequences)), Errc::out_of_memory,
               {"VK_ERROR_OUT_OF_DEVICE_MEMORY"});
}

TEST_F(OnVulkan, APipelineThatTheDriverRefusesIsAnErrorAndIsTriedAgain) {
  auto pair = small_pair();
  Context& context = *backend_of(device).context();
  const auto original = std::exchange(context.vk.vkCreateComputePipelines, no_pipeline);
  expect_error(run_store(device, {pair.view}, runs_of(sequences)), Errc::pipeline_failed,
               {"store: the driver refuses the kernel", "VK_ERROR_INVALID_SHADER_NV"});
  context.vk.vkCreateComputePipelines = original;
  ASSERT_OK(run_store(device, {pair.view}, runs_of(sequences)));
  pair.store_by_definition(sequences);
  pair.expect_as_defined();
}

TEST_F(OnVulkan, ADeviceLostAtSubmitStaysLost) {
  auto pair = small_pair();
  Context& context = *backend_of(device).context();
  const auto original = std::exchange(context.vk.vkQueueSubmit, lost_at_submit);
  expect_error(run_store(device, {pair.view}, runs_of(sequences)), Errc::device_lost, {"vkQueueSubmit"});
  context.vk.vkQueueSubmit = original;
  expect_error(run_store(device, {pair.view}, runs_of(sequences)), Errc::device_lost, {"open it anew"});
  expect_error(device.allocate(16), Errc::device_lost, {"open it anew"});
  std::array<std::byte, 4> bytes{};
  expect_error(pair.view.to.buffer.read(bytes), Errc::device_lost, {"open it anew"});
  expect_error(pair.view.to.buffer.write(bytes), Errc::device_lost, {"open it anew"});

  Device again = open_another();
  auto fresh = make_pair(again, random, {.tokens = 4, .pool = {.page_slots = 8, .heads = 2, .dim = 6}});
  EXPECT_OK(run_store(again, {fresh.view}, runs_of(sequences)));
}

TEST_F(OnVulkan, ADeviceLostWhileWaitingIsAnErrorOfTheFence) {
  auto pair = small_pair();
  Context& context = *backend_of(device).context();
  const auto original = std::exchange(context.vk.vkWaitForFences, lost_at_wait);
  expect_error(run_store(device, {pair.view}, runs_of(sequences)), Errc::device_lost, {"vkWaitForFences"});
  context.vk.vkWaitForFences = original;
}

TEST_F(OnVulkan, CopiesThroughStagingWhereTheHostCannotSeeTheMemory) {
  backend_of(device).context()->maps_device_memory = false;
  constexpr std::uint64_t kBytes = (33U << 20) + 4;  // three parts, the last one short
  Buffer buffer = device.allocate(kBytes).value();
  ASSERT_EQ(runtime::Inside::of(buffer)->memory()->host(), nullptr);
  std::vector<std::byte> written(kBytes - 4);
  std::mt19937 fast(1);
  for (std::byte& byte : written) byte = static_cast<std::byte>(fast());
  ASSERT_OK(buffer.write(written, 4));
  std::vector<std::byte> read(kBytes - 4);
  ASSERT_OK(buffer.read(read, 4));
  EXPECT_TRUE(read == written);

  auto pair = small_pair();
  ASSERT_OK(run_store(device, {pair.view}, runs_of(sequences)));
  pair.store_by_definition(sequences);
  pair.expect_as_defined();
}

TEST_F(OnVulkan, AViewBeyondOneBindingIsRefusedWithTheLimit) {
  const std::uint64_t limit = device.info().limits.max_binding_bytes;
  if (limit >= device.info().limits.max_buffer_bytes) {
    expect_error(device.allocate(limit + 4096), Errc::out_of_memory, {"in one buffer"});
    return;
  }
  Buffer large = device.allocate(limit + 4096).value();
  Buffer source = device.allocate(4096).value();
  const std::uint64_t slots = large.size_bytes() / 1024;
  StorePair pair{View::token_major(source, DType::f32, {.tokens = 1, .heads = 1, .dim = 256}),
                 SlotView::token_major(large, DType::f32, {.page_slots = slots, .heads = 1, .dim = 256})};
  expect_error(run_store(device, {pair}, {{.tokens = 1, .position = 0, .capacity = slots}}), Errc::unsupported,
               {"store: pairs[0].to spans", "vulkan:0 can address", std::to_string(limit)});

  // A view of its far end is fine: the limit is the view's, not the buffer's.
  pair.to.shape.page_slots = 2;
  pair.to.offset = (large.size_bytes() - 2048) / 4;
  EXPECT_OK(run_store(device, {pair}, {{.tokens = 1, .position = 1, .capacity = 2}}));
}

class PipelineFile : public OnVulkan {
 protected:
  PipelineFile() { std::filesystem::remove(path); }
  ~PipelineFile() override { std::filesystem::remove(path); }

  Result<Device> open_with_file() {
    DeviceOptions options = test::options_under_test();
    options.pipeline_cache = path.string();
    options.on_validation_message = [this](std::string_view message) { log.add(message); };
    return Device::open(options);
  }

  void use(Device& opened) {
    auto pair = make_pair(opened, random, {.tokens = 4, .pool = {.page_slots = 8, .heads = 2, .dim = 6}});
    ASSERT_OK(run_store(opened, {pair.view}, runs_of(sequences)));
    pair.store_by_definition(sequences);
    pair.expect_as_defined();
  }

  const std::filesystem::path path =
      std::filesystem::path(testing::TempDir()) / ("rota-pipelines-" + std::to_string(getpid()));
};

TEST_F(PipelineFile, IsWrittenOnRequestAndReadAtOpen) {
  {
    Device first = open_with_file().value();
    use(first);
    EXPECT_FALSE(std::filesystem::exists(path)) << "nobody asked for it yet";
    ASSERT_OK(first.save_pipelines());
  }
  ASSERT_GT(std::filesystem::file_size(path), 32U);
  Device second = open_with_file().value();
  use(second);
  EXPECT_OK(second.save_pipelines());
}

TEST_F(PipelineFile, ThatIsDamagedIsAnError) {
  {
    Device first = open_with_file().value();
    use(first);
    ASSERT_OK(first.save_pipelines());
  }
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(40);
  const int byte = file.get();
  file.seekp(40);
  file.put(static_cast<char>(byte ^ 1));
  file.close();
  expect_error(open_with_file(), Errc::io, {path.string(), "is damaged", "remove it"});
  std::filesystem::resize_file(path, 50);
  expect_error(open_with_file(), Errc::io, {"cut short"});
  std::filesystem::resize_file(path, 3);
  expect_error(open_with_file(), Errc::io, {"too short"});
}

TEST_F(PipelineFile, MayBeSavedByManyThreadsAtOnce) {
  Device opened = open_with_file().value();
  use(opened);
  std::vector<std::thread> threads;
  std::vector<Status> outcomes(4);
  for (Status& outcome : outcomes) {
    threads.emplace_back([&] {
      for (int i = 0; i < 25 && outcome.ok(); ++i) outcome = opened.save_pipelines();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Status& outcome : outcomes) EXPECT_OK(outcome);
  EXPECT_OK(open_with_file());
}

TEST_F(PipelineFile, IsNotWrittenThroughALinkThatSomeonePlanted) {
  const std::filesystem::path victim = path.string() + ".victim";
  std::ofstream(victim) << "precious";
  std::vector<std::filesystem::path> links;
  for (int number = 0; number < 1000; ++number) {
    links.push_back(path.string() + "." + std::to_string(getpid()) + "." + std::to_string(number) + ".unfinished");
    std::filesystem::create_symlink(victim, links.back());
  }
  Device opened = open_with_file().value();
  use(opened);
  EXPECT_OK(opened.save_pipelines());
  EXPECT_EQ(std::filesystem::file_size(victim), 8U);
  EXPECT_OK(open_with_file());
  for (const std::filesystem::path& link : links) std::filesystem::remove(link);
  std::filesystem::remove(victim);
}

TEST_F(PipelineFile, ThatIsNoFileIsAnErrorAtOnce) {
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  expect_error(open_with_file(), Errc::io, {path.string(), "is no regular file"});
}

TEST_F(PipelineFile, OfAnotherDriverStartsAnew) {
  const std::vector<std::byte> foreign(64, std::byte{7});
  const auto bytes = wrap_pipeline_data(foreign);
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
  Device opened = open_with_file().value();
  use(opened);
}

std::size_t data_bytes_given_to_the_driver = 0;

VkResult VKAPI_PTR note_the_data(VkDevice, const VkPipelineCacheCreateInfo* create, const VkAllocationCallbacks*,
                                 VkPipelineCache*) {
  data_bytes_given_to_the_driver = create->initialDataSize;
  return VK_ERROR_OUT_OF_HOST_MEMORY;
}

TEST_F(PipelineFile, ReachesTheDriverOnlyIfItIsTheDriversOwn) {
  Device first = open_with_file().value();
  use(first);
  ASSERT_OK(first.save_pipelines());
  const std::shared_ptr<Context> context = backend_of(first).context();
  const auto original = std::exchange(context->vk.vkCreatePipelineCache, note_the_data);
  const std::size_t whole = std::filesystem::file_size(path) - 32;
  EXPECT_FALSE(PipelineCache::create(context, path.string()).ok());
  EXPECT_EQ(data_bytes_given_to_the_driver, whole);

  std::vector<char> file(whole + 32);
  std::ifstream(path, std::ios::binary).read(file.data(), std::ssize(file));
  file[32 + 16] ^= 1;  // the driver's UUID
  const auto bytes = wrap_pipeline_data(std::as_bytes(std::span(file).subspan(32)));
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
  EXPECT_FALSE(PipelineCache::create(context, path.string()).ok());
  EXPECT_EQ(data_bytes_given_to_the_driver, 0U);
  context->vk.vkCreatePipelineCache = original;
}

TEST_F(PipelineFile, ThatNobodyNamedCannotBeSaved) {
  expect_error(device.save_pipelines(), Errc::invalid_argument, {"save_pipelines", "pipeline_cache"});
}

TEST_F(PipelineFile, InAFolderThatDoesNotExistCannotBeSaved) {
  DeviceOptions options = test::options_under_test();
  options.pipeline_cache = "/nonexistent/folder/pipelines";
  Device opened = Device::open(options).value();
  expect_error(opened.save_pipelines(), Errc::io, {"/nonexistent/folder/pipelines", "cannot be written"});
}

TEST(VulkanDevice, ThatIsNotThereIsAnError) {
  expect_error(Device::open({.device = "vulkan:99"}), Errc::no_device, {"\"vulkan:99\"", "Vulkan offers"});
  for (const char* id : {"vulkan:", "vulkan:x", "vulkan:0x", "vulkan:-1", "vulkan:99999999999999999999"}) {
    expect_error(Device::open({.device = id}), Errc::no_device, {id, "wanted vulkan:<index>"});
  }
}

}  // namespace
}  // namespace rota::vk
