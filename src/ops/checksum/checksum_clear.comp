#version 450
#extension GL_GOOGLE_include_directive : require

#include "ops/checksum/checksum.params.h"

layout(local_size_x = kChecksumGroupSize) in;

layout(push_constant) uniform Push { ClearParams p; };
layout(set = 0, binding = kClearBindingSums) buffer Sums { uint sums[]; };

void main() {
  const uint stride = gl_NumWorkGroups.x * kChecksumGroupSize;
  for (uint i = gl_GlobalInvocationID.x; i < low(p.words); i += stride) sums[low(p.first) + i] = 0u;
}
