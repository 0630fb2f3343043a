// What the host and a compiled kernel agree on: how a thread learns its place, and which functions of the host a kernel
// calls. The host fills the table after it has loaded the kernel, so that programs need not export the functions.

#pragma once

namespace rota_msl {

// Names are those of the attributes of a kernel's parameters; of a scalar only the first value is meant.
struct Thread {
  void* const* buffers;
  unsigned thread_position_in_grid[3];
  unsigned thread_position_in_threadgroup[3];
  unsigned threadgroup_position_in_grid[3];
  unsigned threadgroups_per_grid[3];
  unsigned threads_per_threadgroup[3];
  unsigned threads_per_grid[3];
  unsigned thread_index_in_threadgroup[3];
  unsigned thread_index_in_simdgroup[3];
  unsigned simdgroup_index_in_threadgroup[3];
  unsigned threads_per_simdgroup[3];
  unsigned thread_execution_width[3];
  unsigned simdgroups_per_threadgroup[3];
};

// One that a kernel shares between the threads of a threadgroup.
struct Variable {
  const void* first;
  unsigned long bytes;
  unsigned long alignment;
};

// Threadgroup memory of a kernel is [first, last): its variables, with memory between them that belongs to none.
struct Program {
  void (*entry)(const Thread*);
  char* threadgroup_first;
  char* threadgroup_last;
  const Variable* variables_first;
  const Variable* variables_last;
};

enum class Atomic { read, write };

}  // namespace rota_msl

// clang-format off

// Calls that -fsanitize=thread puts before each access.
#define ROTA_MSL_ACCESS_HOOKS(X)                                                                   \
  X(read1) X(read2) X(read4) X(read8) X(read16) X(write1) X(write2) X(write4) X(write8) X(write16) \
  X(unaligned_read2) X(unaligned_read4) X(unaligned_read8) X(unaligned_read16)                     \
  X(unaligned_write2) X(unaligned_write4) X(unaligned_write8) X(unaligned_write16)                 \
  X(read_range) X(write_range) X(memcpy) X(memmove) X(memset)

// Calls that the library of this folder makes.
#define ROTA_MSL_THREAD_HOOKS(X) \
  X(threadgroup_barrier) X(simdgroup_barrier) X(simd_exchange) X(lane) X(lanes) X(atomic)

// clang-format on
