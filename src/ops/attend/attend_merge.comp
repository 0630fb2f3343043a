#version 450
#extension GL_GOOGLE_include_directive : require

#include "codec/dense/dense.glsl"
#include "ops/attend/attend.params.h"

layout(constant_id = 0) const uint kTo = kF32;
layout(constant_id = 1) const uint kSums = 0u;  // 0: nobody asks for log_sum_exp; else its type and 1
layout(constant_id = 2) const bool kSinkLogits = false;
// Whole words: elements side by side, and every row starts on a word.
layout(constant_id = 3) const bool kToWords = true;

layout(local_size_x = kAttendGroupSize) in;

layout(push_constant) uniform Push { AttendMergeParams p; };
layout(set = 0, binding = 0) readonly buffer Plan { uint plan[]; };
layout(set = 0, binding = 1) readonly buffer Partials { float partials[]; };
layout(set = 0, binding = 2) readonly buffer Queries { float queries[]; };
layout(set = 0, binding = 3) readonly buffer Table { uint table[]; };
layout(set = 0, binding = 4) buffer To { uint to_words[]; };
layout(set = 0, binding = 5) buffer Sums { uint sum_words[]; };

const uint kGroupSize = kAttendGroupSize;
#define ROTATED_NUMBER float
#include "codec/turbo/rotation.glsl"

shared float plain_values[kMaxAttendDim];

// A vector's partial results.
struct Parts {
  uint entry;  // word of the first one's entry
  uint entries;
  uint offset;  // of the vector, from where each entry's partial results begin
};

uint partial_of(Parts parts, uint nth) {
  return (plan[parts.entry + nth * kEntryWords + kEntryPartial] + parts.offset) * partial_floats(p.dim);
}

void store_number(uint index, uint bits) {
  if (kTo == kF32) {
    to_words[index] = bits;
  } else {
    STORE_HALF(to_words, index, narrow_element(bits, kTo));
  }
}

uint result_at(uint dim, float inverse, bool any_rotated) {
  float value = plain_values[dim];
  if (any_rotated) {
    const float turned = rotated_value(dim, p.rotation);
    value += is_negated(dim) ? -turned : turned;
  }
  return floatBitsToUint(value * inverse);
}

void write_result(uint row, float inverse, bool any_rotated) {
  for (uint dim = 2u * gl_LocalInvocationID.x; dim < p.dim; dim += 2u * kGroupSize) {
    const uint first = result_at(dim, inverse, any_rotated);
    const bool both = dim + 1u < p.dim;
    const uint second = both ? result_at(dim + 1u, inverse, any_rotated) : 0u;
    const uint index = row + dim * low(p.to.dim);
    if (kTo != kF32 && kToWords && both) {
      to_words[index >> 1] = narrow_element(first, kTo) | narrow_element(second, kTo) << 16;
    } else {
      store_number(index, first);
      if (both) store_number(index + low(p.to.dim), second);
    }
  }
}

void write_log_sum(uint token, uint head, float top, float sum) {
  const uint bits = sum == 0.0 ? 0xff800000u : floatBitsToUint((top + log2(sum)) * kLogOf2);
  const uint index = low(p.sums.offset) + token * low(p.sums.token) + head * low(p.sums.head);
  if (kSums - 1u == kF32) {
    sum_words[index] = bits;
  } else {
    STORE_HALF(sum_words, index, narrow_element(bits, kSums - 1u));
  }
}

void merge_vector(Parts parts, uint token, uint head) {
  const float sink = kSinkLogits ? queries[p.kv_heads * p.group + head] * kLog2OfE : kNoLogit;
  float top = sink;
  for (uint nth = 0u; nth < parts.entries; nth++) top = max(top, partials[partial_of(parts, nth)]);
  precise float sum = kSinkLogits ? exp2(sink - top) : 0.0;
  bool any_rotated = false;
  for (uint nth = 0u; nth < parts.entries; nth++) {
    const uint partial = partial_of(parts, nth);
    if (partials[partial + 1u] == 0.0) continue;
    sum += partials[partial + 1u] * exp2(partials[partial] - top);
    any_rotated = any_rotated || plan[parts.entry + nth * kEntryWords + kEntryRotated] != 0u;
  }

  barrier();  // the last vector has been written
  for (uint dim = gl_LocalInvocationID.x; dim < p.dim; dim += kGroupSize) {
    precise float plain = 0.0;
    precise float rotated = 0.0;
    for (uint nth = 0u; nth < parts.entries; nth++) {
      const uint partial = partial_of(parts, nth);
      if (partials[partial + 1u] == 0.0) continue;
      const float value = partials[partial + kRowStep + dim] * exp2(partials[partial] - top);
      if (plan[parts.entry + nth * kEntryWords + kEntryRotated] != 0u) {
        rotated += value;
      } else {
        plain += value;
      }
    }
    plain_values[dim] = plain;
    rotated_values[dim] = rotated;
  }
  mix_rotated(p.dim, any_rotated ? p.rotation.k : 0u);
  write_result(low(p.to.offset) + token * low(p.to.token) + head * low(p.to.head), sum == 0.0 ? 0.0 : 1.0 / sum,
               any_rotated);
  if (kSums != 0u && gl_LocalInvocationID.x == 0u) write_log_sum(token, head, top, sum);
}

void main() {
  const uint rows = p.chunks * p.kv_heads * p.vectors;
  for (uint row = gl_WorkGroupID.x; row < rows; row += gl_NumWorkGroups.x) {
    const uint nth = row % p.vectors;
    const uint kv_head = row / p.vectors % p.kv_heads;
    const uint chunk = plan[kPlanChunks] + (p.first_chunk + row / p.vectors / p.kv_heads) * kChunkWords;
    const uint vectors = plan[chunk + kChunkVectors];
    if (nth >= vectors) continue;
    const uint vector = plan[chunk + kChunkVector] + nth;
    const uint sequence = kPlanSequences + plan[chunk + kChunkSequence] * kSequenceWords;
    const Parts parts = Parts(plan[kPlanEntries] + plan[chunk + kChunkEntry] * kEntryWords,
                              plan[chunk + kChunkEntries], kv_head * vectors + nth);
    merge_vector(parts, plan[sequence + kSequenceToken] + vector / p.group, kv_head * p.group + vector % p.group);
  }
}
