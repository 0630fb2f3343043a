#pragma once

#include <cstring>
#include <span>

#include "gguf/gguf.h"

namespace rota::test {

// Bytes of the caller's own. Asking for any beyond their end is a defect of the reader, and ends the program.
class MemoryBytes final : public tool::ByteSource {
 public:
  explicit MemoryBytes(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::uint64_t size_bytes() const noexcept override { return bytes_.size(); }
  bool read(std::uint64_t offset, std::span<std::byte> to) override {
    if (offset > bytes_.size() || to.size() > bytes_.size() - offset) __builtin_trap();
    std::memcpy(to.data(), bytes_.data() + offset, to.size());
    return true;
  }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace rota::test
