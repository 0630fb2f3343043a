#version 450
#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require

#include "ops/checksum/checksum.params.h"

layout(local_size_x = kChecksumGroupSize) in;

layout(push_constant) uniform Push { ChecksumParams p; };
layout(set = 0, binding = kChecksumBindingOf) readonly buffer Of { uvec4 units[]; };
layout(set = 0, binding = kChecksumBindingSums) buffer Sums { uint sums[]; };

shared uint lane_sums[kChecksumGroupSize];

uint word_at(uint index) { return units[index / kUnitWords][index % kUnitWords]; }

// Whole units of the range, chunk by chunk.
uint sum_units(uint first_unit, uint last_unit) {
  const uint lane = gl_LocalInvocationID.x;
  uvec4 sum = uvec4(0u);
  for (uint chunk = first_unit + gl_WorkGroupID.x * kChunkUnits; chunk < last_unit;
       chunk += gl_NumWorkGroups.x * kChunkUnits) {
    if (last_unit - chunk >= kChunkUnits) {
      uvec4 loaded[kChunkTurns];
      [[unroll]] for (uint turn = 0u; turn < kChunkTurns; turn++) {
        loaded[turn] = units[chunk + turn * kChecksumGroupSize + lane];
      }
      [[unroll]] for (uint turn = 0u; turn < kChunkTurns; turn++) sum += loaded[turn];
    } else {
      for (uint unit = chunk + lane; unit < last_unit; unit += kChecksumGroupSize) sum += units[unit];
    }
  }
  return sum.x + sum.y + sum.z + sum.w;
}

void main() {
  const uint lane = gl_LocalInvocationID.x;
  const uint first = low(p.first);
  const uint last = first + low(p.words);
  const uint first_unit = (first + kUnitWords - 1u) / kUnitWords;
  const uint last_unit = last / kUnitWords;

  uint sum = sum_units(first_unit, last_unit);
  // Words before the first whole unit and behind the last, at most three each.
  if (gl_WorkGroupID.x == 0u && lane < kUnitWords) {
    const uint units_begin = min(first_unit * kUnitWords, last);
    const uint units_end = max(last_unit * kUnitWords, units_begin);
    if (first + lane < units_begin) sum += word_at(first + lane);
    if (units_end + lane < last) sum += word_at(units_end + lane);
  }

  lane_sums[lane] = sum;
  barrier();
  for (uint lanes = kChecksumGroupSize / 2u; lanes > 0u; lanes /= 2u) {
    if (lane < lanes) lane_sums[lane] += lane_sums[lane + lanes];
    barrier();
  }
  if (lane == 0u) atomicAdd(sums[low(p.sum)], lane_sums[0]);
}
