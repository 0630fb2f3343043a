// Memory of buffers. Beside each word lies a record of who touched it last, at an address that is a function of the
// word's address; between buffers lies memory that belongs to none.

#pragma once

#include <cstddef>
#include <cstdint>

namespace rota::test::metal {

// Numbers of intervals (machine.h) and of threads. 0: never touched.
struct Word {
  uint32_t write;
  uint32_t read;
  uint32_t other_read;  // by a dispatch or threadgroup that is not ordered with that of `read`
  uint16_t writer;
  uint16_t reader;
};

class Arena {
 public:
  static Arena& get();

  // Page-aligned and zero; null if the arena is full.
  void* allocate(size_t bytes);
  void free(void* memory, size_t bytes);

  // Memory that no one has, which stands for a buffer that is not bound.
  char* unbound(unsigned index) const { return unbound_ + index * kUnboundBytes; }
  static constexpr size_t kUnboundBytes = size_t{4} << 30;

  // All that is remembered of accesses.
  void forget();

  Word* word_of(uintptr_t address) const {
    return words_ + (address - reinterpret_cast<uintptr_t>(memory_)) / sizeof(uint32_t);
  }

 private:
  Arena();

  char* memory_;
  char* unbound_;
  Word* words_;
};

}  // namespace rota::test::metal
