// clang as the compiler of Metal: C++ text in, a shared library out, kept on disk by a hash of all that goes in.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "msl/rota/launch.h"

namespace rota::test::metal {

enum class Math { safe, fast };

struct Checked {
  std::string error;  // the compiler's words; empty: compiles
};
Checked check_text(const std::string& text, Math math);

// A loaded kernel. Two of the same text share its memory of threadgroups, so only one may run at a time.
class Binary {
 public:
  ~Binary();
  Binary(const Binary&) = delete;
  Binary& operator=(const Binary&) = delete;

  const rota_msl::Program& program() const { return *program_; }
  // What Metal counts: the variables, without what lies between them here.
  size_t threadgroup_bytes() const;
  // Where the library's data lies, which kernels may read.
  uintptr_t first() const { return first_; }
  uintptr_t last() const { return last_; }

 private:
  friend struct Compiled compile_text(const std::string& text, Math math);
  explicit Binary(void* handle);

  void* handle_;
  const rota_msl::Program* program_ = nullptr;
  uintptr_t first_ = 0;
  uintptr_t last_ = 0;
};

struct Compiled {
  std::unique_ptr<Binary> binary;  // null: `error` says why
  std::string error;
};
Compiled compile_text(const std::string& text, Math math);

uint64_t compiler_runs();

}  // namespace rota::test::metal
