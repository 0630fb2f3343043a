#include "gguf/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <fstream>
#include <limits>
#include <system_error>
#include <utility>

namespace rota::tool {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are read as the file has them");

constexpr std::uint64_t kMostKeyBytes = 65535;                        // the format's own limit
constexpr std::uint64_t kMostArchitectureBytes = 64;                  // far beyond any that there is
constexpr std::uint64_t kMostNameBytes = 256;                         // the rest of longer ones is left out
constexpr std::uint64_t kMostParts = 65535;                           // of a split model: its number has 16 bits
constexpr std::uint64_t kMostMetadataBytes = std::uint64_t{1} << 28;  // so that any file is done with soon
constexpr unsigned kMostNesting = 8;
constexpr std::uint64_t kMostDimensions = 8;
constexpr std::uint64_t kLeastKeyValueBytes = 8 + 4 + 1;    // an empty key, a type, a byte
constexpr std::uint64_t kLeastTensorBytes = 8 + 4 + 4 + 8;  // an empty name, no dimensions, a type, an offset
constexpr std::size_t kLongestQuote = 64;                   // of a file's own words in a message

// What says how a cache is shaped. Keys in a file begin with the architecture and a dot.
constexpr auto kShapeKeys = std::to_array<std::string_view>({
    "attention.head_count",
    "attention.head_count_kv",
    "attention.indexer.key_length",
    "attention.key_length",
    "attention.key_length_mla",
    "attention.key_length_swa",
    "attention.kv_lora_rank",
    "attention.recurrent_layers",
    "attention.shared_kv_layers",
    "attention.sliding_window",
    "attention.sliding_window_pattern",
    "attention.value_length",
    "attention.value_length_swa",
    "block_count",
    "context_length",
    "embedding_length",
    "full_attention_interval",
    "nextn_predict_layers",
    "ssm.state_size",
});

static_assert(std::ranges::is_sorted(kShapeKeys));

bool is_shape_key(std::string_view key, std::string_view architecture) {
  if (architecture.empty() || !key.starts_with(architecture)) return false;
  key.remove_prefix(architecture.size());
  return key.starts_with('.') && std::ranges::binary_search(kShapeKeys, key.substr(1));
}

enum class Type : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };

struct TypeInfo {
  std::string_view name;
  std::uint64_t bytes;  // of one value; the least of a string and of an array
  bool is_whole = false, is_signed = false;
};

constexpr auto kTypes = std::to_array<TypeInfo>({{"u8", 1, true},
                                                 {"i8", 1, true, true},
                                                 {"u16", 2, true},
                                                 {"i16", 2, true, true},
                                                 {"u32", 4, true},
                                                 {"i32", 4, true, true},
                                                 {"f32", 4},
                                                 {"bool", 1, true},
                                                 {"string", 8},
                                                 {"array", 12},
                                                 {"u64", 8, true},
                                                 {"i64", 8, true, true},
                                                 {"f64", 8}});

const TypeInfo& info(Type type) { return kTypes[static_cast<std::uint32_t>(type)]; }
bool is_fixed(Type type) { return type != Type::string && type != Type::array; }

// What is wrong with the file. Goes no further than read_gguf().
struct Malformed {
  std::string message;
};

[[noreturn]] void refuse(std::string what, std::string_view wanted) {
  throw Malformed{fmt::format("{}; wanted {}", std::move(what), wanted)};
}

std::string in_quotes(std::string_view text) {
  return fmt::format("\"{}{}\"", text.substr(0, kLongestQuote), text.size() > kLongestQuote ? "..." : "");
}

// Takes a source from its front to its end, through a small window.
class Reader {
 public:
  explicit Reader(ByteSource& source) : source_(source), end_(source.size_bytes()) {}

  std::uint64_t position() const noexcept { return position_; }
  std::uint64_t left() const noexcept { return end_ - position_; }

  template <class T>
  T take(std::string_view what) {
    T value{};
    take_bytes({reinterpret_cast<std::byte*>(&value), sizeof(T)}, what);
    return value;
  }

  // A count of things that take so many bytes each, or more.
  std::uint64_t take_count(std::uint64_t least_bytes, std::string_view what, std::string_view of = {}) {
    const std::uint64_t at = position_;
    const auto count = take<std::uint64_t>(of.empty() ? what : of);
    if (count > left() / least_bytes) {
      refuse(fmt::format("at byte {}: {}{} is {}", at, what, of, count),
             fmt::format("at most the {} that the {} bytes left have room for: the file is truncated or damaged",
                         left() / least_bytes, left()));
    }
    return count;
  }

  std::string take_string(std::uint64_t most_bytes, std::string_view what) {
    const std::uint64_t at = position_;
    const std::uint64_t bytes = take_count(1, "the length of ", what);
    if (bytes > most_bytes) {
      refuse(fmt::format("at byte {}: {} is {} bytes long", at, what, bytes), fmt::format("at most {}", most_bytes));
    }
    std::string text(bytes, ' ');
    take_bytes(std::as_writable_bytes(std::span(text)), what);
    return text;
  }

  void skip(std::uint64_t bytes, std::string_view what) {
    if (bytes > left()) end_too_early(bytes, what);
    position_ += bytes;
  }

 private:
  [[noreturn]] void end_too_early(std::uint64_t bytes, std::string_view what) const {
    refuse(fmt::format("at byte {}: the file is truncated: it has {} bytes", position_, end_),
           fmt::format("{} more for {}", bytes - left(), what));
  }

  void take_bytes(std::span<std::byte> to, std::string_view what) {
    if (to.size() > left()) end_too_early(to.size(), what);
    while (!to.empty()) {
      if (position_ < window_begin_ || position_ >= window_begin_ + window_bytes_) fill();
      const std::uint64_t from = position_ - window_begin_;
      const std::size_t part = std::min<std::size_t>(to.size(), window_bytes_ - from);
      std::memcpy(to.data(), window_.data() + from, part);
      to = to.subspan(part);
      position_ += part;
    }
  }

  void fill() {
    window_begin_ = position_;
    window_bytes_ = std::min<std::uint64_t>(window_.size(), left());
    if (!source_.read(window_begin_, std::span(window_).first(window_bytes_))) {
      refuse(fmt::format("at byte {}: cannot be read", position_), fmt::format("{} bytes", window_bytes_));
    }
  }

  ByteSource& source_;
  std::uint64_t end_, position_ = 0;
  std::uint64_t window_begin_ = 0, window_bytes_ = 0;
  std::vector<std::byte> window_ = std::vector<std::byte>(std::size_t{64} * 1024);
};

Type take_type(Reader& reader, std::string_view what) {
  const std::uint64_t at = reader.position();
  const auto type = reader.take<std::uint32_t>(what);
  if (type >= kTypes.size()) {
    refuse(fmt::format("at byte {}: {} has type {}", at, what, type), fmt::format("0 to {}", kTypes.size() - 1));
  }
  return static_cast<Type>(type);
}

// An integer that is not negative, or a bool.
std::uint64_t take_whole(Reader& reader, Type type, std::string_view key) {
  const std::uint64_t at = reader.position();
  std::uint64_t value = 0;
  switch (info(type).bytes) {
    case 1: value = reader.take<std::uint8_t>(key); break;
    case 2: value = reader.take<std::uint16_t>(key); break;
    case 4: value = reader.take<std::uint32_t>(key); break;
    default: value = reader.take<std::uint64_t>(key);
  }
  const std::uint64_t sign = std::uint64_t{1} << (8 * info(type).bytes - 1);
  if (info(type).is_signed && (value & sign) != 0)
    refuse(fmt::format("at byte {}: {} is negative", at, key), "0 or more");
  if (type == Type::boolean && value > 1) refuse(fmt::format("at byte {}: {} is {}", at, key, value), "a bool, 0 or 1");
  return value;
}

struct ArrayHead {
  Type type;
  std::uint64_t count;
};

ArrayHead take_array_head(Reader& reader, std::string_view key) {
  const Type type = take_type(reader, key);
  return {type, reader.take_count(info(type).bytes, "the count of ", key)};
}

void check_length(const Reader& reader) {
  if (reader.position() <= kMostMetadataBytes) return;
  refuse(fmt::format("at byte {}: the metadata goes on", reader.position()),
         fmt::format("at most {} bytes of it", kMostMetadataBytes));
}

void skip_value(Reader& reader, Type type, std::string_view key, unsigned nesting = 0) {
  if (is_fixed(type)) {
    reader.skip(info(type).bytes, key);
    return;
  }
  if (type == Type::string) {
    reader.skip(reader.take_count(1, "the length of ", key), key);
    return;
  }
  if (nesting == kMostNesting) {
    refuse(fmt::format("at byte {}: {} has arrays in arrays", reader.position(), key),
           fmt::format("at most {} deep", kMostNesting));
  }
  const ArrayHead head = take_array_head(reader, key);
  if (is_fixed(head.type)) {
    reader.skip(head.count * info(head.type).bytes, key);  // no more than is left: take_array_head saw to it
    return;
  }
  for (std::uint64_t index = 0; index < head.count; ++index) {
    skip_value(reader, head.type, key, nesting + 1);
    check_length(reader);
  }
}

[[noreturn]] void refuse_type(const Reader& reader, std::string_view key, Type type, std::string_view wanted) {
  refuse(fmt::format("at byte {}: {} is of type {}", reader.position(), key, info(type).name), wanted);
}

std::uint64_t take_number(Reader& reader, Type type, std::string_view key) {
  if (!info(type).is_whole) refuse_type(reader, key, type, "an integer");
  return take_whole(reader, type, key);
}

void keep_shape(Reader& reader, Type type, const std::string& key, GgufHeader& header) {
  if (header.numbers.contains(key) || header.arrays.contains(key)) {
    refuse(fmt::format("at byte {}: {} is there again", reader.position(), key), "each key once");
  }
  if (type != Type::array) {
    header.numbers[key] = take_number(reader, type, key);
    return;
  }
  const ArrayHead head = take_array_head(reader, key);
  if (!info(head.type).is_whole) refuse_type(reader, key, head.type, "an array of integers or bools");
  if (head.count > kMostModelLayers) {
    refuse(fmt::format("at byte {}: {} has {} values", reader.position(), key, head.count),
           fmt::format("one for each layer, at most {}", kMostModelLayers));
  }
  std::vector<std::uint64_t>& values = header.arrays[key];
  for (std::uint64_t index = 0; index < head.count; ++index) values.push_back(take_whole(reader, head.type, key));
}

struct Prelude {
  std::uint32_t version;
  std::uint64_t tensors, keys;
};

Prelude take_prelude(Reader& reader) {
  constexpr std::uint32_t kMagic = 0x46554747;  // "GGUF"
  if (reader.take<std::uint32_t>("\"GGUF\", which begins the file") != kMagic)
    refuse("does not begin with \"GGUF\"", "a GGUF file");
  const auto version = reader.take<std::uint32_t>("the version");
  if (version == 1) refuse("is of GGUF version 1", "2 or 3: convert the model anew");
  if ((version & 0xffffU) == 0 && version != 0) refuse("is a big-endian file", "a little-endian one");
  if (version != 2 && version != 3) refuse(fmt::format("is of GGUF version {}", version), "2 or 3");
  const std::uint64_t tensors = reader.take_count(1, "the count of tensors");
  return {version, tensors, reader.take_count(kLeastKeyValueBytes, "the count of keys")};
}

template <class Use>
void for_each_key(Reader& reader, std::uint64_t keys, Use&& use) {
  for (std::uint64_t index = 0; index < keys; ++index) {
    const std::string key = reader.take_string(kMostKeyBytes, fmt::format("key {}", index));
    const std::string shown = in_quotes(key);
    const Type type = take_type(reader, shown);
    if (!use(key, shown, type)) return;
    check_length(reader);
  }
}

// Of no more bytes than a name has; what is longer is refused.
std::string take_architecture(Reader& reader, Type type) {
  if (type != Type::string) refuse_type(reader, "general.architecture", type, "a string");
  std::string name = reader.take_string(kMostArchitectureBytes, "general.architecture");
  if (name.empty()) refuse("general.architecture is empty", "a name");
  return name;
}

// The architecture is the first key of most files, and need not be.
std::string find_architecture(ByteSource& source) {
  Reader reader(source);
  const Prelude prelude = take_prelude(reader);
  std::string architecture;
  for_each_key(reader, prelude.keys, [&](const std::string& key, const std::string& shown, Type type) {
    if (key == "general.architecture") {
      architecture = take_architecture(reader, type);
      return false;
    }
    skip_value(reader, type, shown);
    return true;
  });
  return architecture;
}

std::string take_name(Reader& reader) {
  const std::uint64_t bytes = reader.take_count(1, "the length of ", "general.name");
  std::string name(std::min(bytes, kMostNameBytes), ' ');
  for (char& letter : name) letter = reader.take<char>("general.name");
  reader.skip(bytes - name.size(), "general.name");
  return name;
}

// Walks the list of tensors. A file that was cut short, or whose head alone was fetched, lacks their data.
bool holds_tensors(Reader& reader, std::uint64_t tensors) {
  if (tensors > reader.left() / kLeastTensorBytes) return false;
  std::uint64_t last_offset = 0;
  try {
    for (std::uint64_t index = 0; index < tensors; ++index) {
      reader.skip(reader.take_count(1, "the length of ", "a tensor's name"), "a tensor's name");
      const auto dimensions = reader.take<std::uint32_t>("a tensor's dimensions");
      if (dimensions > kMostDimensions) return false;
      reader.skip(sizeof(std::uint64_t) * std::uint64_t{dimensions} + sizeof(std::uint32_t),
                  "a tensor's shape and type");
      last_offset = std::max(last_offset, reader.take<std::uint64_t>("a tensor's offset"));
      check_length(reader);
    }
  } catch (const Malformed&) {
    return false;
  }
  return tensors == 0 || last_offset < reader.left();
}

GgufHeader read_header(ByteSource& source) {
  GgufHeader header{.architecture = find_architecture(source)};
  Reader reader(source);
  const Prelude prelude = take_prelude(reader);
  header.version = prelude.version;
  header.tensors = prelude.tensors;
  bool named = false;
  for_each_key(reader, prelude.keys, [&](const std::string& key, const std::string& shown, Type type) {
    if (key == "general.architecture") {
      if (std::exchange(named, true)) refuse("general.architecture is there again", "each key once");
      take_architecture(reader, type);
    } else if (key == "general.name" && type == Type::string) {
      header.name = take_name(reader);
    } else if (key == "split.no") {
      header.part = take_number(reader, type, key);
    } else if (key == "split.count") {
      header.parts = take_number(reader, type, key);
    } else if (is_shape_key(key, header.architecture)) {
      keep_shape(reader, type, key.substr(header.architecture.size() + 1), header);
    } else {
      skip_value(reader, type, shown);
    }
    return true;
  });
  if (header.parts == 0) header.parts = 1;  // as models are marked that were merged again
  if (header.parts > kMostParts || header.part >= header.parts) {
    refuse(fmt::format("is part {} of {}, by split.no and split.count", header.part, header.parts),
           fmt::format("a part below the count, which is at most {}", kMostParts));
  }
  header.holds_tensors = holds_tensors(reader, prelude.tensors);
  return header;
}

class FileBytes final : public ByteSource {
 public:
  FileBytes(const std::filesystem::path& path, std::uint64_t size_bytes)
      : file_(path, std::ios::binary), size_bytes_(size_bytes) {}

  bool is_open() const { return file_.is_open(); }
  std::uint64_t size_bytes() const noexcept override { return size_bytes_; }
  bool read(std::uint64_t offset, std::span<std::byte> to) override {
    if (offset > static_cast<std::uint64_t>(std::numeric_limits<std::streamoff>::max())) return false;
    return file_.seekg(static_cast<std::streamoff>(offset)) &&
           file_.read(reinterpret_cast<char*>(to.data()), static_cast<std::streamsize>(to.size()));
  }

 private:
  std::ifstream file_;
  std::uint64_t size_bytes_;
};

// "model-00002-of-00005.gguf"
std::string part_ending(std::uint64_t part, std::uint64_t parts) {
  return fmt::format("-{:05}-of-{:05}.gguf", part + 1, parts);
}

struct Parts {
  std::string base;  // what all parts' names begin with; empty if this one's name is not that of a part
  std::uint64_t bytes = 0, found = 0;
};

Parts look_for_parts(const std::filesystem::path& path, const GgufHeader& header) {
  const std::string ending = part_ending(header.part, header.parts);
  const std::string own = path.string();
  if (!own.ends_with(ending)) return {};
  Parts parts{.base = own.substr(0, own.size() - ending.size())};
  for (std::uint64_t part = 0; part < header.parts; ++part) {
    std::error_code error;
    const std::uint64_t bytes = std::filesystem::file_size(parts.base + part_ending(part, header.parts), error);
    if (error) continue;
    parts.bytes += bytes;  // sizes of files that are there: far below 2^64
    ++parts.found;
  }
  return parts;
}

Error wrong(const std::filesystem::path& path, std::string_view what) {
  return {Errc::io, fmt::format("{}: {}", path.string(), what)};
}

}  // namespace

std::optional<std::uint64_t> GgufHeader::number(std::string_view key) const {
  const auto found = numbers.find(key);
  return found == numbers.end() ? std::nullopt : std::optional(found->second);
}

Result<GgufHeader> read_gguf(ByteSource& source) {
  try {
    return read_header(source);
  } catch (const Malformed& malformed) {
    return Error{Errc::io, malformed.message};
  }
}

Result<GgufFile> read_gguf_file(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    return wrong(path, error ? error.message() : "is no file; wanted a GGUF file");
  }
  const std::uint64_t size_bytes = std::filesystem::file_size(path, error);
  if (error) return wrong(path, error.message());
  FileBytes source(path, size_bytes);
  if (!source.is_open()) return wrong(path, "cannot be opened; wanted a file that may be read");
  auto header = read_gguf(source);
  if (!header) return wrong(path, header.error().message);
  if (header->part > 0) {
    return wrong(path, fmt::format("is part {} of {}; wanted part 1, which has the metadata: its name ends with {}",
                                   header->part + 1, header->parts, part_ending(0, header->parts)));
  }
  GgufFile file{.header = *std::move(header)};
  if (!file.header.holds_tensors) {
    file.incomplete = fmt::format("the file is truncated: it has {} bytes, and ends before its tensors do", size_bytes);
  } else if (file.header.parts == 1 && file.header.tensors == 0) {
    file.incomplete = "the file has no tensors";
  } else if (file.header.parts == 1) {
    file.weights_bytes = size_bytes;
  } else if (const Parts parts = look_for_parts(path, file.header); parts.found == file.header.parts) {
    file.weights_bytes = parts.bytes;
  } else {
    file.incomplete =
        fmt::format("{} of its {} parts are here", std::max<std::uint64_t>(parts.found, 1), file.header.parts);
  }
  return file;
}

}  // namespace rota::tool
