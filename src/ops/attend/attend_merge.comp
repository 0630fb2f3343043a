#version 450
#extension GL_GOOGLE_include_directive : require

#include "codec/dense/dense.glsl"
#include "ops/attend/attend.params.h"

layout(constant_id = kAttendMergeConstantTo) const uint kTo = kF32;
layout(constant_id = kAttendMergeConstantLogSum) const uint kLogSum = 0u;  // 0: nobody asks for log_sum_exp; else its type and 1
layout(constant_id = kAttendMergeConstantSinkLogits) const bool kSinkLogits = false;
// Whole words: elements side by side, and every output starts on a word.
layout(constant_id = kAttendMergeConstantToWords) const bool kToWords = true;

layout(local_size_x = kAttendGroupSize) in;

layout(push_constant) uniform Push { AttendMergeParams p; };
layout(set = 0, binding = kAttendMergeBindingPlan) readonly buffer Plan { uint plan[]; };
layout(set = 0, binding = kAttendMergeBindingPartials) readonly buffer Partials { float partials[]; };
layout(set = 0, binding = kAttendMergeBindingQueries) readonly buffer Queries { float queries[]; };
layout(set = 0, binding = kAttendMergeBindingValueTable) readonly buffer Table { uint table[]; };
layout(set = 0, binding = kAttendMergeBindingTo) buffer To { uint to_words[]; };
layout(set = 0, binding = kAttendMergeBindingLogSum) buffer LogSum { uint log_sum_words[]; };

const uint kGroupSize = kAttendGroupSize;
#define ROTATED_NUMBER float
#include "codec/turbo/rotation.glsl"

#include "ops/attend/plan.glsl"

shared float plain_values[kMaxAttendDim];

// A vector's partial results.
struct PartialResults {
  uint first_split;
  uint splits;
  uint offset;  // of the vector, from where each split's partial results begin
};

uint partial_of(PartialResults results, KvSplit split) {
  return (split.first_partial + results.offset) * partial_floats(p.dim);
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

void write_result(uint first, float inverse, bool any_rotated) {
  for (uint dim = 2u * gl_LocalInvocationID.x; dim < p.dim; dim += 2u * kGroupSize) {
    const uint one = result_at(dim, inverse, any_rotated);
    const bool both = dim + 1u < p.dim;
    const uint other = both ? result_at(dim + 1u, inverse, any_rotated) : 0u;
    const uint index = first + dim * low(p.to.dim);
    if (kTo != kF32 && kToWords && both) {
      to_words[index >> 1] = narrow_element(one, kTo) | narrow_element(other, kTo) << 16;
    } else {
      store_number(index, one);
      if (both) store_number(index + low(p.to.dim), other);
    }
  }
}

void write_log_sum(uint token, uint head, float max_logit, float exp_sum) {
  const uint bits = exp_sum == 0.0 ? 0xff800000u : floatBitsToUint((max_logit + log2(exp_sum)) * kLogOf2);
  const uint index = low(p.log_sum_exp.offset) + token * low(p.log_sum_exp.token) + head * low(p.log_sum_exp.head);
  if (kLogSum - 1u == kF32) {
    log_sum_words[index] = bits;
  } else {
    STORE_HALF(log_sum_words, index, narrow_element(bits, kLogSum - 1u));
  }
}

void merge_vector(PartialResults results, uint token, uint head) {
  const float sink = kSinkLogits ? queries[p.kv_heads * p.group + head] * kLog2OfE : kNoLogit;
  float max_logit = sink;
  for (uint nth = 0u; nth < results.splits; nth++) {
    max_logit = max(max_logit, partials[partial_of(results, kv_split_at(results.first_split + nth))]);
  }
  precise float exp_sum = kSinkLogits ? exp2(sink - max_logit) : 0.0;
  bool any_rotated = false;
  for (uint nth = 0u; nth < results.splits; nth++) {
    const KvSplit split = kv_split_at(results.first_split + nth);
    const uint partial = partial_of(results, split);
    if (partials[partial + 1u] == 0.0) continue;
    exp_sum += partials[partial + 1u] * exp2(partials[partial] - max_logit);
    any_rotated = any_rotated || split.rotated != 0u;
  }

  barrier();  // the last vector has been written
  for (uint dim = gl_LocalInvocationID.x; dim < p.dim; dim += kGroupSize) {
    precise float plain = 0.0;
    precise float rotated = 0.0;
    for (uint nth = 0u; nth < results.splits; nth++) {
      const KvSplit split = kv_split_at(results.first_split + nth);
      const uint partial = partial_of(results, split);
      if (partials[partial + 1u] == 0.0) continue;
      const float value = partials[partial + kPadFloats + dim] * exp2(partials[partial] - max_logit);
      if (split.rotated != 0u) {
        rotated += value;
      } else {
        plain += value;
      }
    }
    plain_values[dim] = plain;
    rotated_values[dim] = rotated;
  }
  mix_rotated(p.dim, any_rotated ? p.rotation.k : 0u);
  write_result(low(p.to.offset) + token * low(p.to.token) + head * low(p.to.head), exp_sum == 0.0 ? 0.0 : 1.0 / exp_sum,
               any_rotated);
  if (kLogSum != 0u && gl_LocalInvocationID.x == 0u) write_log_sum(token, head, max_logit, exp_sum);
}

void main() {
  const uint items = p.query_tiles * p.kv_heads * p.vectors;
  for (uint item = gl_WorkGroupID.x; item < items; item += gl_NumWorkGroups.x) {
    const uint nth = item % p.vectors;
    const uint kv_head = item / p.vectors % p.kv_heads;
    const QueryTile tile = query_tile_at(p.first_query_tile + item / p.vectors / p.kv_heads);
    if (nth >= tile.vectors) continue;
    const uint vector = tile.first_vector + nth;
    merge_vector(PartialResults(tile.first_split, tile.splits, kv_head * tile.vectors + nth),
                 plan_sequence(tile.sequence).first_query_token + vector / p.group,
                 kv_head * p.group + vector % p.group);
  }
}
