#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <tuple>
#include <utility>

#include "distort/captures.h"

// Which arrays of a folder or a file are captures, and what their shapes mean.

namespace rota::tool {
namespace {

constexpr std::string_view kParts = "qkv";
constexpr std::string_view kWantedFiles =
    "NAME_q, NAME_k and NAME_v, each .npy, .raw with a .json, or an array of a .npz";

// Errors end the command where they are found; run() says them.
[[noreturn]] void fail(const std::string& name, std::string_view what, std::string_view wanted) {
  throw BadResult(named(name, wrong(std::string(what), wanted)));
}

[[noreturn]] void fail_shape(const ArrayFile& array, std::string_view wanted) {
  fail(array.name, "the shape is " + shape_text(array.header.shape), wanted);
}

// An array that is one of a capture's, found and perhaps not opened yet.
struct Part {
  std::filesystem::path path{};
  std::optional<ArrayFile> array{};
};

std::string name_of(const Part& part) { return part.array ? part.array->name : part.path.string(); }

struct Parts {
  std::optional<Part> q{}, k{}, v{};

  std::optional<Part>& named(char part) { return part == 'q' ? q : part == 'k' ? k : v; }
};

using PartsByName = std::map<std::string, Parts>;

struct PartName {
  std::string name;
  char part;
};

// "layer0" and k of "layer0_k"; the name is empty for "k" alone.
std::optional<PartName> part_name(std::string_view text) {
  if (text.empty() || kParts.find(text.back()) == std::string_view::npos) return {};
  const char part = text.back();
  text.remove_suffix(1);
  if (text.empty()) return PartName{{}, part};
  if (std::string_view("_./").find(text.back()) == std::string_view::npos) return {};
  text.remove_suffix(1);
  return PartName{std::string(text), part};
}

[[noreturn]] void fail_same(const Part& one, const Part& other) {
  fail(name_of(one), fmt::format("is the same part of a capture as {}", name_of(other)), "one array for each part");
}

bool is_part(std::string_view name) { return part_name(name).has_value(); }

void add_npz(const std::filesystem::path& path, const std::string& before, PartsByName& found) {
  for (NamedArray& array : open_npz(path, is_part).value()) {
    const PartName part = part_name(array.name).value_or(PartName{});  // all are parts
    const std::string between = before.empty() || part.name.empty() ? "" : " ";
    const std::string name = before + between + part.name;
    std::optional<Part>& place = found[name.empty() ? path.stem().string() : name].named(part.part);
    Part read{path, std::move(array.array)};
    if (place) fail_same(*place, read);
    place = std::move(read);
  }
}

// Which ending is taken where there are files of both, and what a capture is called whose parts have no name.
struct Taken {
  std::string ending, alone;
};

void add_file(const std::filesystem::path& path, const Taken& taken, PartsByName& found) {
  const bool known = path.extension() == ".npy" || path.extension() == ".raw";
  const auto part = known ? part_name(path.stem().string()) : std::nullopt;
  if (!part) return;
  std::optional<Part>& place = found[part->name.empty() ? taken.alone : part->name].named(part->part);
  if (place && (place->array || place->path.stem() != path.stem())) fail_same(*place, {.path = path});
  if (path.extension() == taken.ending || !place) place = Part{.path = path};
}

PartsByName find_in_folder(const std::filesystem::path& folder, const std::string& alone) {
  PartsByName found;
  std::error_code failure;
  std::filesystem::directory_iterator entry(folder, failure);
  for (; !failure && entry != std::filesystem::directory_iterator(); entry.increment(failure)) {
    if (entry->path().extension() == ".npz") {
      add_npz(entry->path(), entry->path().stem().string(), found);
    } else {
      add_file(entry->path(), {".npy", alone}, found);
    }
  }
  if (failure) fail(folder.string(), failure.message(), "a folder of captures, or a .npz file");
  return found;
}

// A file stands for the capture that it is a part of.
PartsByName find_of_file(const std::filesystem::path& path) {
  PartsByName found;
  if (path.extension() == ".npz") {
    add_npz(path, {}, found);
    return found;
  }
  const std::string stem = path.stem().string();
  const auto part = part_name(stem);
  if (!part) fail(path.string(), "is no part of a capture", kWantedFiles);
  const Taken taken{path.extension() == ".raw" ? ".raw" : ".npy", stem};
  std::error_code ignored;
  for (const char other : kParts) {
    for (const char* const ending : {".npy", ".raw"}) {
      const std::filesystem::path file = path.parent_path() / (stem.substr(0, stem.size() - 1) + other + ending);
      if (std::filesystem::exists(file, ignored)) add_file(file, taken, found);
    }
  }
  return found;
}

ArrayFile opened(const Part& part) {
  if (part.array) return *part.array;
  return (part.path.extension() == ".raw" ? open_raw(part.path) : open_npy(part.path)).value();
}

struct KvShape {
  std::uint64_t heads, tokens, dim;

  bool operator==(const KvShape&) const = default;
};

// (tokens, dim), (heads, tokens, dim) or (1, heads, tokens, dim).
std::optional<KvShape> kv_shape(std::span<const std::uint64_t> shape) {
  if (shape.size() == 4 && shape[0] == 1) shape = shape.subspan(1);
  if (shape.size() == 2) return KvShape{1, shape[0], shape[1]};
  if (shape.size() == 3) return KvShape{shape[0], shape[1], shape[2]};
  return {};
}

KvShape key_shape(const ArrayFile& keys) {
  const auto shape = kv_shape(keys.header.shape);
  if (!shape || shape->heads == 0 || shape->tokens <= kFirstQuery) {
    fail_shape(keys, fmt::format("(tokens, dim), (heads, tokens, dim) or (1, heads, tokens, dim), more than {} tokens",
                                 kFirstQuery));
  }
  if (keys.header.shape.size() == 3 && shape->heads > kFirstQuery) {
    fail(keys.name, fmt::format("the shape is {}: which are heads, and which tokens?", shape_text(keys.header.shape)),
         "(1, heads, tokens, dim)");
  }
  if (const Status status = check_head_dim(shape->dim); !status)
    throw BadResult(named(keys.name, {Errc::io, status.error().message}));
  return *shape;
}

// Says how queries lie, by the sizes that the keys have.
void read_query_shape(const KvShape& keys, const ArrayFile& queries, CaptureFiles& files) {
  std::vector<std::uint64_t> shape = queries.header.shape;
  const bool has_batch = shape.size() == 4 && shape[0] == 1;
  if (has_batch) shape.erase(shape.begin());
  if (shape.size() == 2 && keys.heads == 1) shape.insert(shape.begin(), 1);
  const bool ranks = shape.size() == 3 && shape[2] == keys.dim;
  const bool heads_first = ranks && shape[1] == keys.tokens,
             tokens_first = ranks && !has_batch && shape[0] == keys.tokens;
  if (heads_first && tokens_first) {
    fail(queries.name, fmt::format("the shape is {}: which are heads, and which tokens?", shape_text(shape)),
         fmt::format("(1, query heads, {}, {})", keys.tokens, keys.dim));
  }
  files.query_heads = heads_first ? shape[0] : tokens_first ? shape[1] : 0;
  files.tokens_before_heads = tokens_first;
  if (files.query_heads != 0 && files.query_heads % keys.heads == 0) return;
  fail_shape(queries, fmt::format("({0}, query heads, {1}) or (query heads, {0}, {1}){2}", keys.tokens, keys.dim,
                                  keys.heads == 1 ? "" : fmt::format(", {} query heads or a multiple", keys.heads)));
}

double recorded_scale(const std::filesystem::path& folder, std::uint64_t dim) {
  const double usual = 1 / std::sqrt(static_cast<double>(dim));
  const std::filesystem::path path = folder / "index.json";
  std::error_code failure;
  if (!std::filesystem::exists(path, failure)) return usual;
  if (!std::filesystem::is_regular_file(path, failure)) fail(path.string(), "is no file", "JSON");
  std::ifstream file(path);
  const auto json = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) fail(path.string(), "is no JSON object", "one, with \"softmax_scale\" or without");
  const auto scale = json.find("softmax_scale");
  if (scale == json.end()) return usual;
  const double number = scale->is_number() ? scale->get<double>() : 0;
  if (!std::isfinite(number) || number <= 0) {
    fail(path.string(), "softmax_scale is no positive number", "the factor of logits");
  }
  return number;
}

// "captures" of "captures/" and of "./captures"; "layer0" of "layer0.npz".
std::string source_name(const std::filesystem::path& path, bool is_folder) {
  std::error_code ignored;
  const std::filesystem::path whole = std::filesystem::weakly_canonical(path, ignored);
  if (whole.filename().empty()) return path.string();
  return (is_folder ? whole.filename() : whole.stem()).string();
}

[[noreturn]] void fail_incomplete(const std::filesystem::path& path, const std::string& name, const Parts& parts) {
  const std::string_view has = parts.k ? "k" : parts.v ? "v" : "q";
  const std::string_view lacks = parts.k ? "v" : parts.v ? "k" : "k and no v";
  fail(path.string(), fmt::format("{}: has {}, and no {}", name, has, lacks), kWantedFiles);
}

// Queries may be absent.
CaptureFiles capture_files(const std::filesystem::path& path, const std::string& name, const Parts& parts,
                           Source& source) {
  if (!parts.k || !parts.v) fail_incomplete(path, name, parts);
  CaptureFiles files{.name = name, .keys = opened(*parts.k), .values = opened(*parts.v)};
  if (parts.q) files.queries = opened(*parts.q);
  const KvShape keys = key_shape(files.keys);
  if (kv_shape(files.values.header.shape) != keys) {
    fail_shape(files.values, fmt::format("the keys' {}", shape_text(files.keys.header.shape)));
  }
  if (files.queries) read_query_shape(keys, *files.queries, files);
  if (source.heads == 0) std::tie(source.tokens, source.dim) = std::pair(keys.tokens, keys.dim);
  if (keys.tokens != source.tokens || keys.dim != source.dim) {
    const std::uint64_t others[] = {source.tokens, source.dim};
    fail_shape(files.keys, "the other captures' " + shape_text(others));
  }
  files.kv_heads = keys.heads;
  source.heads += keys.heads;
  if (!files.queries) source.heads_without_queries += keys.heads;
  return files;
}

}  // namespace

Source open_source(const std::filesystem::path& path) {
  std::error_code ignored;
  const bool is_file = std::filesystem::is_regular_file(path, ignored);
  Source source{.name = source_name(path, !is_file)};
  for (const auto& [name, parts] : is_file ? find_of_file(path) : find_in_folder(path, source.name)) {
    source.files.push_back(capture_files(path, name, parts, source));
  }
  if (source.files.empty()) fail(path.string(), "no captures", kWantedFiles);
  std::ranges::sort(source.files, {}, [](const CaptureFiles& files) {
    const HeadName head = head_name(files.name);
    return std::tuple(head.layer.value_or(0), head.head.value_or(0), files.name);
  });
  // What lies beside a .npz file may be anything.
  source.softmax_scale = is_file && path.extension() == ".npz"
                             ? 1 / std::sqrt(static_cast<double>(source.dim))
                             : recorded_scale(is_file ? path.parent_path() : path, source.dim);
  return source;
}

}  // namespace rota::tool
