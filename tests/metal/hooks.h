// What kernels call: see msl/rota/launch.h for the list.

#pragma once

#include <cstddef>

namespace rota::test::metal {

// `table` has a slot for each hook, in the order of the list.
void fill_hooks(void** table);

void hook_threadgroup_barrier(int flags);
void hook_simdgroup_barrier(int flags);
const void* hook_simd_exchange(const void* value, size_t bytes);
unsigned hook_lane();
unsigned hook_lanes();

}  // namespace rota::test::metal
