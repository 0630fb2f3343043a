#include "backend/vulkan/pipeline_cache.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/error.h"

namespace rota::vulkan {
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

Result<std::vector<std::byte>> read_file(const std::string& path) {
  std::error_code code;
  const std::uint64_t size = std::filesystem::file_size(path, code);
  if (code == std::errc::no_such_file_or_directory) return std::vector<std::byte>{};
  if (code) return io_error(path, code.message());
  if (size > kMaxFileBytes) return io_error(path, core::text("is {} bytes long; at most {}", size, kMaxFileBytes));
  std::vector<std::byte> bytes(size);
  std::ifstream file(path, std::ios::binary);
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size));
  if (!file) return io_error(path, "cannot be read");
  return bytes;
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
    auto bytes = read_file(made->path_);
    if (!bytes) return bytes.error();
    file = std::move(bytes).value();
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

  // Readers see the old file or the new one, never half of one; nor do two writers meet.
  static std::atomic<std::uint32_t> files_written = 0;
  const std::vector<std::byte> bytes = wrap_pipeline_data(data);
  const std::string unfinished = core::text("{}.{}.{}.unfinished", path_, getpid(), files_written++);
  std::ofstream file(unfinished, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  file.close();
  std::error_code code;
  if (file) std::filesystem::rename(unfinished, path_, code);
  if (!file || code) {
    std::error_code ignored;
    std::filesystem::remove(unfinished, ignored);
    return io_error(path_, code ? code.message() : "cannot be written");
  }
  return {};
}

}  // namespace rota::vulkan
