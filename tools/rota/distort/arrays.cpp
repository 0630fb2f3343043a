#include "distort/arrays.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <utility>

#include "cli/show.h"
#include "distort/npz.h"

namespace rota::tool {
namespace {

constexpr std::string_view kNpy = ".npy";

constexpr NamedType kRawTypes[] = {
    {"f16", NumberType::f16}, {"bf16", NumberType::bf16}, {"f32", NumberType::f32}, {"f64", NumberType::f64}};

Result<NpyHeader> read_description(const Bytes& file) {
  constexpr std::string_view kWanted = R"({"dtype": "f16", "shape": [512, 64]})";
  constexpr std::uint64_t kLargest = 1U << 20;
  if (file.size > kLargest) return wrong(fmt::format("has {}", bytes_text(file.size)), kWanted);
  std::string text(file.size, ' ');
  if (!file.read_at(0, text)) return wrong("cannot be read", kWanted);
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return wrong("is no JSON object", kWanted);
  const auto dtype = json.find("dtype");
  const auto shape = json.find("shape");
  NpyHeader array;
  const auto named = [&](const NamedType& type) { return dtype != json.end() && *dtype == type.name; };
  const auto* const known = std::ranges::find_if(kRawTypes, named);
  if (known == std::end(kRawTypes)) return wrong("dtype is not one of f16, bf16, f32 and f64", kWanted);
  array.type = known->type;
  if (shape == json.end() || !shape->is_array()) return wrong("shape is no list", kWanted);
  for (const auto& size : *shape) {
    if (!size.is_number_unsigned()) return wrong("shape is no list of whole numbers below 2^64", kWanted);
    array.shape.push_back(size.get<std::uint64_t>());
  }
  return array;
}

Result<NpyHeader> npy_header(const Bytes& file) {
  std::vector<char> head(std::min(file.size, kLongestNpyHeader));
  if (!file.read_at(0, head)) return wrong("cannot be read", "a .npy file");
  return parse_npy_header(head, file.size);
}

// Opens the file, has it read, and puts its name before what was wrong.
template <class Read>
auto with_file(const std::filesystem::path& path, std::string_view wanted, Read read) -> decltype(read(Bytes{})) {
  const auto file = file_bytes(path, wanted);
  if (!file) return named(path.string(), file.error());
  auto result = read(*file);
  if (!result) return named(path.string(), result.error());
  return result;
}

}  // namespace

Result<ArrayFile> open_npy(const std::filesystem::path& path) {
  auto header = with_file(path, "a .npy file", npy_header);
  if (!header) return header.error();
  return ArrayFile{.name = path.string(), .path = path, .header = *std::move(header)};
}

Result<ArrayFile> open_raw(const std::filesystem::path& path) {
  std::filesystem::path json = path;
  json.replace_extension(".json");
  auto header = with_file(json, "what the .raw file beside it holds", read_description);
  if (!header) return header.error();
  const auto check = [&](const Bytes& file) { return check_bytes(*header, file.size, "are in it"); };
  if (Status status = with_file(path, "a .raw file", check); !status) return status.error();
  return ArrayFile{.name = path.string(), .path = path, .header = *std::move(header)};
}

Result<std::vector<NamedArray>> open_npz(const std::filesystem::path& path, bool (&wanted)(std::string_view name)) {
  return with_file(path, "a .npz file", [&](const Bytes& file) -> Result<std::vector<NamedArray>> {
    const auto entries = read_zip_directory(file);
    if (!entries) return entries.error();
    std::vector<NamedArray> arrays;
    for (const ZipEntry& entry : *entries) {
      if (!entry.name.ends_with(kNpy)) continue;
      const std::string name = entry.name.substr(0, entry.name.size() - kNpy.size());
      if (!wanted(name)) continue;
      auto header = npz_header(file, entry);
      if (!header) return named(name, header.error());
      arrays.push_back({name,
                        {.name = fmt::format("{}: {}", path.string(), name),
                         .path = path,
                         .header = *std::move(header),
                         .entry = entry}});
    }
    return arrays;
  });
}

Result<Array> ArrayFile::read() const {
  const auto file = file_bytes(path, "the file that was there before");
  if (!file) return named(path.string(), file.error());
  auto array = [&]() -> Result<Array> {
    if (entry) return read_npz_array(*file, *entry, header);
    // It has been held against the file's size; a file that has shrunk since is found here.
    const std::uint64_t bytes = file->size - std::min(file->size, header.data_offset);
    if (const Status status = check_bytes(header, bytes, "are left in it"); !status) return status.error();
    std::vector<char> numbers(bytes);
    if (!file->read_at(header.data_offset, numbers)) return wrong("ends while it is read", "the numbers of its shape");
    return array_of(header, numbers);
  }();
  if (!array) return named(name, array.error());
  return array;
}

}  // namespace rota::tool
