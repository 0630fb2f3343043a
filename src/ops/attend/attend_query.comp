#version 450
#extension GL_GOOGLE_include_directive : require

#include "codec/dense/dense.glsl"
#include "ops/attend/attend.params.h"

layout(constant_id = kAttendQueryConstantFrom) const uint kFrom = kF32;
layout(constant_id = kAttendQueryConstantSlopes) const uint kSlopes = 0u;  // 0: there are none; else its type and 1
layout(constant_id = kAttendQueryConstantSinks) const uint kSinks = 0u;

layout(local_size_x = kAttendGroupSize) in;

layout(push_constant) uniform Push { AttendQueryParams p; };
layout(set = 0, binding = kAttendQueryBindingFrom) readonly buffer From { uint from_words[]; };
layout(set = 0, binding = kAttendQueryBindingKeyTable) readonly buffer Table { uint table[]; };
layout(set = 0, binding = kAttendQueryBindingSlopes) readonly buffer Slopes { uint slope_words[]; };
layout(set = 0, binding = kAttendQueryBindingSinks) readonly buffer Sinks { uint sink_words[]; };
layout(set = 0, binding = kAttendQueryBindingQueries) writeonly buffer Queries { float queries[]; };

const uint kGroupSize = kAttendGroupSize;
#define ROTATED_NUMBER float
#include "codec/turbo/rotation.glsl"

void write_head_numbers() {
  for (uint head = gl_LocalInvocationID.x; head < p.heads; head += kGroupSize) {
    float slope = 0.0;
    float sink = 0.0;
    if (kSlopes != 0u) {
      const uint index = low(p.slopes.offset) + head * low(p.slopes.head);
      slope = uintBitsToFloat(widen_element(LOAD_ELEMENT(slope_words, kSlopes - 1u, index), kSlopes - 1u));
    }
    if (kSinks != 0u) {
      const uint index = low(p.sinks.offset) + head * low(p.sinks.head);
      sink = uintBitsToFloat(widen_element(LOAD_ELEMENT(sink_words, kSinks - 1u, index), kSinks - 1u));
    }
    queries[head] = slope;
    queries[p.heads + head] = sink;
  }
}

void write_query(uint vector) {
  const uint stride = padded_floats(p.dim);
  const uint plain = query_header(p.heads) + vector * stride;
  const uint from = low(p.from.offset) + vector / p.heads * low(p.from.token) + vector % p.heads * low(p.from.head);
  barrier();  // the last vector has been read
  for (uint dim = gl_LocalInvocationID.x; dim < stride; dim += kGroupSize) {
    float value = 0.0;
    if (dim < p.dim) {
      const uint index = from + dim * low(p.from.dim);
      value = uintBitsToFloat(widen_element(LOAD_ELEMENT(from_words, kFrom, index), kFrom)) * p.scale;
    }
    queries[plain + dim] = value;
    rotated_values[dim] = p.rotation.m != 0u && is_negated(dim) ? -value : value;
  }
  if (p.rotation.m == 0u) return;
  mix_rotated(p.dim, p.rotation.k);
  const uint rotated = plain + p.tokens * p.heads * stride;
  for (uint dim = gl_LocalInvocationID.x; dim < p.dim; dim += kGroupSize) {
    queries[rotated + dim] = rotated_value(dim, p.rotation);
  }
}

void main() {
  const uint vectors = p.tokens * p.heads;
  for (uint item = gl_WorkGroupID.x; item <= vectors; item += gl_NumWorkGroups.x) {
    if (item < vectors) {
      write_query(item);
    } else {
      write_head_numbers();
    }
  }
}
