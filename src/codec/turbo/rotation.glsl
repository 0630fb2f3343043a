// The turbo codec's rotation by the invocations of one workgroup, in shared memory: of integers, which give the same
// bits everywhere, or of floats (ROTATED_NUMBER). The includer's workgroup has kGroupSize invocations, and its binding
// `table` is the format's.

#include "codec/turbo/turbo.params.h"

#ifndef ROTATED_NUMBER
#define ROTATED_NUMBER int
#define ROTATED_INTEGERS
#endif

shared ROTATED_NUMBER rotated_values[kMaxTurboDim];

// Hadamard without its factor, of each 2^k values that follow each other. Begins and ends with a barrier.
void mix_rotated(uint dim, uint k) {
  barrier();
  for (uint bit = 0u; bit < k; bit++) {
    const uint step = 1u << bit;
    for (uint pair = gl_LocalInvocationID.x; pair < dim / 2u; pair += kGroupSize) {
      const uint first = (pair >> bit << (bit + 1u)) | (pair & (step - 1u));
      const ROTATED_NUMBER a = rotated_values[first];
      const ROTATED_NUMBER b = rotated_values[first + step];
      rotated_values[first] = a + b;
      rotated_values[first + step] = a - b;
    }
    barrier();
  }
}

// One value of the Hartley transform across the blocks of 2^k values of a shared array, added to `sum`.
#define HARTLEY_SUM(sum, values, dim, rotation)                                                   \
  do {                                                                                            \
    const uint row = (dim) >> rotation.k;                                                         \
    const uint column = (dim) & ((1u << rotation.k) - 1u);                                        \
    uint turn = 0u;                                                                               \
    for (uint b = 0u; b < rotation.m; b++) {                                                      \
      sum += ROTATED_NUMBER(int(table[kHartleyRow + turn])) * values[(b << rotation.k) | column]; \
      turn += row;                                                                                \
      if (turn >= rotation.m) turn -= rotation.m;                                                 \
    }                                                                                             \
  } while (false)

#ifdef ROTATED_INTEGERS

// In units of 2^-shift: HARTLEY of a shared array.
#define HARTLEY(values, dim, rotation, shift) hartley_##values(dim, rotation, shift)
#define DEFINE_HARTLEY(values)                                        \
  int hartley_##values(uint dim, RotationShape rotation, int shift) { \
    int sum = 1 << (shift - 1);                                       \
    HARTLEY_SUM(sum, values, dim, rotation);                          \
    return sum >> shift;                                              \
  }

#else

// After mix_rotated: one value of the whole rotation.
float rotated_value(uint dim, RotationShape rotation) {
  const float factor = hadamard_factor(rotation.k);
  if (rotation.m == 1u) return rotated_values[dim] * factor;
  precise float sum = 0.0;
  HARTLEY_SUM(sum, rotated_values, dim, rotation);
  return sum * (factor * kHartleyUnit);
}

#endif

bool is_negated(uint dim) { return (table[kSigns + (dim >> 5)] >> (dim & 31u) & 1u) != 0u; }
