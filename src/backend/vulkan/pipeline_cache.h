#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/vulkan/context.h"

namespace rota::vk {

// The file: magic, version, size and hash of the driver's data, then the data. Drivers trust
// their data, so what is damaged never reaches one.
std::vector<std::byte> wrap_pipeline_data(std::span<const std::byte> data);
Result<std::span<const std::byte>> unwrap_pipeline_data(std::span<const std::byte> file);

// Pipelines that the driver has built, kept in a file where the caller names one.
class PipelineCache {
 public:
  // A missing file, or one of another driver or device, starts an empty cache; a damaged one is an error.
  static Result<std::unique_ptr<PipelineCache>> create(std::shared_ptr<Context> context, std::string path);
  ~PipelineCache();

  PipelineCache(const PipelineCache&) = delete;
  PipelineCache& operator=(const PipelineCache&) = delete;

  VkPipelineCache handle() const noexcept { return cache_; }
  Status save() const;

 private:
  PipelineCache(std::shared_ptr<Context> context, std::string path) noexcept
      : context_(std::move(context)), path_(std::move(path)) {}

  std::shared_ptr<Context> context_;
  std::string path_;
  VkPipelineCache cache_ = VK_NULL_HANDLE;
};

}  // namespace rota::vk
