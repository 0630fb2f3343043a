#include "fibers.h"

#include <sys/mman.h>

#include <new>

#include "machine.h"

asm(R"(.text
.globl rota_metal_switch
.type rota_metal_switch, @function
rota_metal_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size rota_metal_switch, .-rota_metal_switch
)");

namespace rota::test::metal {

namespace {

constexpr size_t kGuardBytes = 4096;
constexpr size_t kStride = kStackBytes + kGuardBytes;
constexpr unsigned kSavedRegisters = 6;

}  // namespace

StackMemory stack_memory() {
  static const StackMemory memory = [] {
    const size_t bytes = kMostThreads * kStride;
    void* first = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (first == MAP_FAILED) throw std::bad_alloc();
    for (unsigned i = 0; i < kMostThreads; ++i)
      mprotect(static_cast<char*>(first) + i * kStride, kGuardBytes, PROT_NONE);
    return StackMemory{static_cast<char*>(first), bytes};
  }();
  return memory;
}

void* fresh_stack(unsigned thread, void (*entry)()) {
  // Different lines of the cache for threads that are at the same place of a kernel.
  const size_t color = size_t{thread} % 16 * 256;
  auto* top = reinterpret_cast<uintptr_t*>(stack_memory().first + (thread + 1) * kStride - color);
  *--top = 0;
  *--top = reinterpret_cast<uintptr_t>(entry);
  for (unsigned i = 0; i < kSavedRegisters; ++i) *--top = 0;
  return top;
}

}  // namespace rota::test::metal
