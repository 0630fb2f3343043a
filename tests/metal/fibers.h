// Stacks of the threads of a threadgroup, and switching between them.

#pragma once

#include <cstddef>
#include <cstdint>

// Saves the caller's registers on its stack and its stack pointer in *save, and continues where `load` was saved.
extern "C" void rota_metal_switch(void** save, void* load);

namespace rota::test::metal {

constexpr size_t kStackBytes = 64 << 10;

// The memory of all stacks; below each lies a page that no one may touch.
struct StackMemory {
  char* first;
  size_t bytes;
};
StackMemory stack_memory();

// What rota_metal_switch loads to call `entry` on the stack of a thread. `entry` must not return.
void* fresh_stack(unsigned thread, void (*entry)());

}  // namespace rota::test::metal
