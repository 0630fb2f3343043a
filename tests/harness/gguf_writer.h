#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace rota::test {

// Writes GGUF files, sound and otherwise: what it counts itself may be said to be another number.
class GgufWriter {
 public:
  // The numbers that stand for types in a file.
  enum Type : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };

  template <class T>
  static std::string bytes_of(T value) {
    static_assert(std::is_arithmetic_v<T>);
    std::string bytes(sizeof(T), '\0');
    std::memcpy(bytes.data(), &value, sizeof(T));
    return bytes;
  }

  static std::string text(std::string_view value) { return bytes_of(std::uint64_t{value.size()}) + std::string(value); }

  static std::string array_head(Type type, std::uint64_t count) {
    return bytes_of(static_cast<std::uint32_t>(type)) + bytes_of(count);
  }

  GgufWriter& raw(std::string_view key, std::uint32_t type, std::string_view value) {
    keys_ += text(key) + bytes_of(type) + std::string(value);
    ++key_count;
    return *this;
  }

  GgufWriter& number(std::string_view key, std::uint32_t value) { return raw(key, u32, bytes_of(value)); }
  GgufWriter& word(std::string_view key, std::string_view value) { return raw(key, string, text(value)); }

  GgufWriter& numbers(std::string_view key, const std::vector<std::uint32_t>& values) {
    std::string bytes = array_head(u32, values.size());
    for (const std::uint32_t value : values) bytes += bytes_of(value);
    return raw(key, array, bytes);
  }

  GgufWriter& flags(std::string_view key, const std::vector<bool>& values) {
    std::string bytes = array_head(boolean, values.size());
    for (const bool value : values) bytes += value ? '\1' : '\0';
    return raw(key, array, bytes);
  }

  GgufWriter& tensor(std::string_view name, std::initializer_list<std::uint64_t> shape, std::uint64_t offset) {
    tensors_ += text(name) + bytes_of(static_cast<std::uint32_t>(shape.size()));
    for (const std::uint64_t size : shape) tensors_ += bytes_of(size);
    tensors_ += bytes_of(std::uint32_t{0}) + bytes_of(offset);
    ++tensor_count;
    return *this;
  }

  // Up to where the tensors begin.
  std::string metadata() const {
    return magic + bytes_of(version) + bytes_of(tensor_count) + bytes_of(key_count) + keys_;
  }
  std::string file() const { return metadata() + tensors_ + data; }

  std::string magic = "GGUF";
  std::uint32_t version = 3;
  std::uint64_t tensor_count = 0, key_count = 0;
  std::string data{};

 private:
  std::string keys_{}, tensors_{};
};

}  // namespace rota::test
