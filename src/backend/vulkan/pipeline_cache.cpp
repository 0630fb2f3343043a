#include "backend/vulkan/pipeline_cache.h"

#include <array>
#include <cstring>

#include "core/error.h"
#include "core/files.h"

namespace rota::vk {
namespace {

struct FileHeader {
  std::array<char, 8> magic{'R', 'O', 'T', 'A', 'P', 'I', 'P', 'E'};
  std::uint32_t version = 1;
  std::uint32_t reserved = 0;
  std::uint64_t data_bytes = 0;
  std::uint64_t data_hash = 0;
};
static_assert(sizeof(FileHeader) == 32);

constexpr std::uint64_t kMaxFileBytes = std::uint64_t{1} << 30;

// FNV-1a: finds damage, not malice.
std::uint64_t hash_of(std::span<const std::byte> data) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const std::byte byte : data) hash = (hash ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3U;
  return hash;
}

// Whether this very driver and device wrote the data.
bool is_ours(std::span<const std::byte> data, const VkPhysicalDeviceProperties& device) {
  VkPipelineCacheHeaderVersionOne header;
  if (data.size() < sizeof(header)) return false;
  std::memcpy(&header, data.data(), sizeof(header));
  return header.headerVersion == VK_PIPELINE_CACHE_HEADER_VERSION_ONE && header.vendorID == device.vendorID &&
         header.deviceID == device.deviceID &&
         std::memcmp(header.pipelineCacheUUID, device.pipelineCacheUUID, VK_UUID_SIZE) == 0;
}

Error io_error(std::string_view path, std::string_view what) {
  return {Errc::io, core::text("pipeline cache {}: {}", path, what)};
}

}  // namespace

std::vector<std::byte> wrap_pipeline_data(std::span<const std::byte> data) {
  const FileHeader header{.data_bytes = data.size(), .data_hash = hash_of(data)};
  std::vector<std::byte> file(sizeof(header) + data.size());
  std::memcpy(file.data(), &header, sizeof(header));
  if (!data.empty()) std::memcpy(file.data() + sizeof(header), data.data(), data.size());
  return file;
}

Result<std::span<const std::byte>> unwrap_pipeline_data(std::span<const std::byte> file) {
  constexpr FileHeader kWanted;
  FileHeader header;
  if (file.size() < sizeof(header)) return Error{Errc::io, "is too short to be one"};
  std::memcpy(&header, file.data(), sizeof(header));
  const auto data = file.subspan(sizeof(header));
  if (header.magic != kWanted.magic) return Error{Errc::io, "is not a pipeline cache"};
  if (header.version != kWanted.version) {
    return Error{Errc::io, core::text("has version {}; wanted {}", header.version, kWanted.version)};
  }
  if (header.data_bytes != data.size()) return Error{Errc::io, "is cut short or has grown"};
  if (header.data_hash != hash_of(data)) return Error{Errc::io, "is damaged"};
  return data;
}

Result<std::unique_ptr<PipelineCache>> PipelineCache::create(std::shared_ptr<Context> context, std::string path) {
  std::unique_ptr<PipelineCache> made(new PipelineCache(std::move(context), std::move(path)));
  Context& device = *made->context_;
  std::vector<std::byte> file;
  std::span<const std::byte> data;
  if (!made->path_.empty()) {
    auto bytes = core::read_file(made->path_, kMaxFileBytes);
    if (!bytes) return io_error(made->path_, bytes.error().message);
    file = std::move(bytes).value().value_or(std::vector<std::byte>{});
  }
  if (!file.empty()) {
    auto unwrapped = unwrap_pipeline_data(file);
    if (!unwrapped) return io_error(made->path_, unwrapped.error().message + "; remove it to start anew");
    if (is_ours(*unwrapped, device.properties)) data = *unwrapped;
  }
  const VkPipelineCacheCreateInfo create{.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO,
                                         .initialDataSize = data.size(),
                                         .pInitialData = data.data()};
  const VkResult result = device.vk.vkCreatePipelineCache(device.device, &create, nullptr, &made->cache_);
  if (result != VK_SUCCESS) return device.failed("open: vkCreatePipelineCache", result);
  return made;
}

PipelineCache::~PipelineCache() { context_->vk.vkDestroyPipelineCache(context_->device, cache_, nullptr); }

Status PipelineCache::save() const {
  std::vector<std::byte> data;
  const VkResult result = enumerate<std::size_t>(data, [this](std::size_t* size, std::byte* bytes) {
    return context_->vk.vkGetPipelineCacheData(context_->device, cache_, size, bytes);
  });
  if (result != VK_SUCCESS) return context_->failed("save_pipelines: vkGetPipelineCacheData", result);

  if (Status status = core::replace_file(path_, wrap_pipeline_data(data)); !status) {
    return io_error(path_, core::text("cannot be written: {}", status.error().message));
  }
  return {};
}

}  // namespace rota::vk
