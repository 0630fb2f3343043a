#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

namespace rota::test {

// Zeros as far as a test can count; only what is touched takes memory.
class Reserved {
 public:
  explicit Reserved(std::uint64_t bytes)
      : bytes_(bytes),
        memory_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    EXPECT_NE(memory_, MAP_FAILED);
  }
  ~Reserved() { munmap(memory_, bytes_); }

  Reserved(const Reserved&) = delete;
  Reserved& operator=(const Reserved&) = delete;

  std::byte* data() const { return static_cast<std::byte*>(memory_); }

 private:
  std::uint64_t bytes_;
  void* memory_;
};

}  // namespace rota::test
