#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

#include "codec/dense/dense.glsl"
#include "ops/attend/attend.params.h"

layout(constant_id = kAttendMergeConstantTo) const uint kTo = kF32;
layout(constant_id = kAttendMergeConstantLogSum) const uint kLogSum = 0u;  // 0: nobody asks for log_sum_exp; else its type and 1
layout(constant_id = kAttendMergeConstantSinkLogits) const bool kSinkLogits = false;
// Whole words: elements side by side, and every output starts on a word.
layout(constant_id = kAttendMergeConstantToWords) const bool kToWords = true;

// A workgroup merges a query vector's partial results. Lanes read what they begin with, all at once, into a table; then
// each has four dims, and adds them up first to last, with several in flight.

layout(local_size_x = kAttendGroupSize) in;

layout(push_constant) uniform Push { AttendMergeParams p; };
layout(set = 0, binding = kAttendMergeBindingPlan) readonly buffer Plan { uint plan[]; };
layout(set = 0, binding = kAttendMergeBindingPartials) readonly buffer Partials { vec4 partials[]; };
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

// What is known of those of some splits that follow each other.
const uint kTableRows = 256u;
shared uint first_units[kTableRows];  // of the partial result
shared float row_max_logits[kTableRows];
shared float row_weights[kTableRows];   // 2^(its max_logit - the vector's)
shared float row_exp_sums[kTableRows];
shared uint row_kinds[kTableRows];
const uint kSawNothing = 0u;
const uint kPlain = 1u;
const uint kRotated = 2u;
// Rows whose values are in flight together: there are multiples of them, the last ones kSawNothing.
const uint kAhead = 16u;

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

uint rows_from(PartialResults results, uint first) { return min(results.splits - first, kTableRows); }

// Begins and ends with a barrier.
void read_table(PartialResults results, uint first) {
  const uint rows = rows_from(results, first);
  barrier();
  for (uint row = gl_LocalInvocationID.x; row < (rows + kAhead - 1u) / kAhead * kAhead; row += kGroupSize) {
    const KvSplit split = kv_split_at(results.first_split + first + min(row, rows - 1u));
    const uint unit = (split.first_partial + results.offset) * (partial_floats(p.dim) / 4u);
    const vec4 head = partials[unit];
    first_units[row] = unit;
    row_max_logits[row] = head.x;
    row_exp_sums[row] = head.y;
    row_kinds[row] = row >= rows || head.y == 0.0 ? kSawNothing : split.rotated != 0u ? kRotated : kPlain;
  }
  barrier();
}

// Begins and ends with a barrier.
void weigh_table(uint rows, float max_logit) {
  barrier();
  for (uint row = gl_LocalInvocationID.x; row < rows; row += kGroupSize) {
    row_weights[row] = exp2(row_max_logits[row] - max_logit);
  }
  barrier();
}

// The table's share of four dims, in order. What does not count is not selected, rather than branched over, which would
// have each load waited for.
void add_rows(uint rows, uint unit, inout vec4 plain, inout vec4 rotated) {
  for (uint first = 0u; first < rows; first += kAhead) {
    vec4 values[kAhead];
    [[unroll]] for (uint i = 0u; i < kAhead; i++) values[i] = partials[first_units[first + i] + unit];
    [[unroll]] for (uint i = 0u; i < kAhead; i++) {
      const uint kind = row_kinds[first + i];
      const vec4 sum = fma(vec4(row_weights[first + i]), values[i], mix(plain, rotated, bvec4(kind == kRotated)));
      plain = mix(plain, sum, bvec4(kind == kPlain));
      rotated = mix(rotated, sum, bvec4(kind == kRotated));
    }
  }
}

void add_dims(PartialResults results, uint column, uint first) {
  const uint dim = 4u * column;
  vec4 plain, rotated;
  [[unroll]] for (uint i = 0u; i < 4u; i++) {
    plain[i] = plain_values[dim + i];
    rotated[i] = rotated_values[dim + i];
  }
  add_rows(rows_from(results, first), kPadFloats / 4u + column, plain, rotated);
  [[unroll]] for (uint i = 0u; i < 4u; i++) {
    plain_values[dim + i] = plain[i];
    rotated_values[dim + i] = rotated[i];
  }
}

void merge_vector(PartialResults results, uint token, uint head) {
  const float sink = kSinkLogits ? queries[p.kv_heads * p.group + head] * kLog2OfE : kNoLogit;
  float max_logit = sink;
  for (uint first = 0u; first < results.splits; first += kTableRows) {
    read_table(results, first);
    for (uint row = 0u; row < rows_from(results, first); row++) max_logit = max(max_logit, row_max_logits[row]);
  }
  float exp_sum = kSinkLogits ? exp2(sink - max_logit) : 0.0;
  bool any_rotated = false;
  barrier();  // the last vector has been written
  for (uint dim = gl_LocalInvocationID.x; dim < p.dim; dim += kGroupSize) plain_values[dim] = rotated_values[dim] = 0.0;
  for (uint first = 0u; first < results.splits; first += kTableRows) {
    if (results.splits > kTableRows) read_table(results, first);  // else it is there
    weigh_table(rows_from(results, first), max_logit);
    for (uint row = 0u; row < rows_from(results, first); row++) {
      if (row_kinds[row] == kSawNothing) continue;
      exp_sum = fma(row_exp_sums[row], row_weights[row], exp_sum);
      any_rotated = any_rotated || row_kinds[row] == kRotated;
    }
    for (uint column = gl_LocalInvocationID.x; 4u * column < p.dim; column += kGroupSize) {
      add_dims(results, column, first);
    }
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
