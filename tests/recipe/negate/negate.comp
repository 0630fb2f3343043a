#version 450
#extension GL_GOOGLE_include_directive : require

#include "ops/negate/negate.params.h"

layout(local_size_x = kNegateGroupSize) in;
layout(push_constant) uniform Push { NegateParams p; };
layout(set = 0, binding = kNegateBindingX) buffer X { uint x[]; };

void main() {
  const uint i = gl_GlobalInvocationID.x;
  if (i < low(p.elements)) x[low(p.offset) + i] ^= 0x80000000u;
}
