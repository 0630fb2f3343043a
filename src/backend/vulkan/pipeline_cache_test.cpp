#include "backend/vulkan/pipeline_cache.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstring>

namespace rota::vk {
namespace {

std::vector<std::byte> any_bytes(std::size_t most) {
  std::vector<std::byte> bytes;
  for (const auto byte : *rc::gen::resize(static_cast<int>(most), rc::gen::arbitrary<std::vector<std::uint8_t>>())) {
    bytes.push_back(static_cast<std::byte>(byte));
  }
  return bytes;
}

RC_GTEST_PROP(PipelineData, ComesBackAsItWas, ()) {
  const auto data = any_bytes(200);
  const auto file = wrap_pipeline_data(data);
  const auto back = unwrap_pipeline_data(file);
  RC_ASSERT(back.ok());
  RC_ASSERT(std::ranges::equal(*back, data));
}

RC_GTEST_PROP(PipelineData, WithAnyByteChangedIsRefused, ()) {
  auto file = wrap_pipeline_data(any_bytes(100));
  const auto place = *rc::gen::inRange<std::size_t>(0, file.size());
  RC_PRE(place < 12 || place >= 16);  // the reserved word says nothing
  file[place] ^= static_cast<std::byte>(*rc::gen::inRange(1, 256));
  RC_ASSERT(!unwrap_pipeline_data(file).ok());
}

RC_GTEST_PROP(PipelineData, OfAnyOtherLengthIsRefused, ()) {
  auto file = wrap_pipeline_data(any_bytes(100));
  const auto size = *rc::gen::inRange<std::size_t>(0, 300);
  RC_PRE(size != file.size());
  file.resize(size);
  RC_ASSERT(!unwrap_pipeline_data(file).ok());
}

TEST(PipelineData, WithHugeSizeIsRefused) {
  auto file = wrap_pipeline_data(std::vector<std::byte>(8));
  const std::uint64_t huge = ~std::uint64_t{0} - 20;
  std::memcpy(file.data() + 16, &huge, sizeof(huge));
  EXPECT_FALSE(unwrap_pipeline_data(file).ok());
}

}  // namespace
}  // namespace rota::vk
