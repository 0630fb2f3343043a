#version 450
#extension GL_GOOGLE_include_directive : require

#include "codec/dense/dense.glsl"
#include "ops/merge/merge.params.h"

layout(constant_id = kMergeConstantFirst) const uint kFirst = kF32;
layout(constant_id = kMergeConstantSecond) const uint kSecond = kF32;
layout(constant_id = kMergeConstantOut) const uint kOut = kF32;
// Whole words: elements side by side, and every row starts on a word.
layout(constant_id = kMergeConstantOutWords) const bool kOutWords = true;
layout(constant_id = kMergeConstantInPlace) const uint kInPlace = kNoPart;

layout(local_size_x = kMergeGroupSize) in;

layout(push_constant) uniform Push { MergeParams p; };
layout(set = 0, binding = kFirstOut) readonly buffer First { uint first_words[]; };
layout(set = 0, binding = kSecondOut) readonly buffer Second { uint second_words[]; };
layout(set = 0, binding = kMergedOut) buffer Out { uint out_words[]; };
layout(set = 0, binding = kFirstLog) readonly buffer FirstLog { uint first_log_words[]; };
layout(set = 0, binding = kSecondLog) readonly buffer SecondLog { uint second_log_words[]; };
layout(set = 0, binding = kMergedLog) buffer Log { uint log_words[]; };
layout(set = 0, binding = kMergeStrides) readonly buffer Views { Strides views[]; };

// What a row takes from each part.
struct Shares {
  uint parts;
  float first, second;
};

shared Shares shares_of[kMergeGroupSize];

uint start_of(uint view, uint row) {
  return low(views[view].offset) + (row / p.heads) * low(views[view].token) + (row % p.heads) * low(views[view].head);
}

// In place a word may change in its other half, which is another row's or invocation's.
uint load_log_in_place(uint row) {
  const uint index = start_of(kMergedLog, row);
  if (p.merged_log == kF32) return log_words[index];
  return HALF_OF(atomicOr(log_words[index >> 1], 0u), index);
}

uint load_first_log(uint row) {
  if ((p.logs_in_place & kFirstPart) != 0u) return load_log_in_place(row);
  const uint index = start_of(kFirstLog, row);
  return LOAD_ELEMENT(first_log_words, p.first_log, index);
}

uint load_second_log(uint row) {
  if ((p.logs_in_place & kSecondPart) != 0u) return load_log_in_place(row);
  const uint index = start_of(kSecondLog, row);
  return LOAD_ELEMENT(second_log_words, p.second_log, index);
}

void store_log(uint row, uint f32_bits) {
  const uint index = start_of(kMergedLog, row);
  const uint bits = narrow_element(f32_bits, p.merged_log);
  if (p.merged_log == kF32) {
    log_words[index] = bits;
  } else {
    STORE_HALF(log_words, index, bits);
  }
}

// One invocation does this for a row: the logarithm that it reads may be the one that it writes.
Shares weigh_row(uint row) {
  const uint first_bits = widen_element(load_first_log(row), p.first_log);
  const uint second_bits = widen_element(load_second_log(row), p.second_log);
  Shares shares = Shares(parts_with_keys(first_bits, second_bits), 0.0, 0.0);
  uint log_bits = shares.parts == kSpoilt ? kNaNBits : (shares.parts & kFirstPart) != 0u ? first_bits : second_bits;
  if (shares.parts == kBothParts) {
    const float first = uintBitsToFloat(first_bits);
    const float second = uintBitsToFloat(second_bits);
    const float larger = max(first, second);
    precise float distance = min(first, second) - larger;
    const float weight = distance > kNoWeight ? exp(distance) : 0.0;
    const float whole = 1.0 + weight;
    const vec2 parts = vec2(1.0 / whole, weight / whole);
    shares.first = first == larger ? parts.x : parts.y;
    shares.second = first == larger ? parts.y : parts.x;
    precise float sum = larger + log(whole);
    log_bits = floatBitsToUint(sum);
  }
  if (p.merged_log != kNoLog) store_log(row, log_bits);
  return shares;
}

// Words of the result that several invocations write parts of.
const bool kSharedWords = kOut != kF32 && !kOutWords;

uint load_out(uint index) {
  const uint word_index = kOut == kF32 ? index : index >> 1;
  const uint word = kSharedWords ? atomicOr(out_words[word_index], 0u) : out_words[word_index];
  return kOut == kF32 ? word : HALF_OF(word, index);
}

uint load_first(uint start, uint d) {
  const uint index = start + d * low(views[kFirstOut].dim);
  if ((kInPlace & kFirstPart) != 0u) return load_out(index);
  return LOAD_ELEMENT(first_words, kFirst, index);
}

uint load_second(uint start, uint d) {
  const uint index = start + d * low(views[kSecondOut].dim);
  if ((kInPlace & kSecondPart) != 0u) return load_out(index);
  return LOAD_ELEMENT(second_words, kSecond, index);
}

struct Row {
  uint first, second, merged;  // first elements
  Shares shares;
};

uint merged_element(Row row, uint d) {
  const uint parts = row.shares.parts;
  uint bits = parts == kSpoilt ? kNaNBits : 0u;
  uint first = 0u;
  if ((parts & kFirstPart) != 0u) bits = first = widen_element(load_first(row.first, d), kFirst);
  if ((parts & kSecondPart) != 0u) bits = widen_element(load_second(row.second, d), kSecond);
  if (parts == kBothParts) {
    precise float sum = row.shares.first * uintBitsToFloat(first) + row.shares.second * uintBitsToFloat(bits);
    bits = floatBitsToUint(sum);
  }
  return narrow_element(bits, kOut);
}

void store_element(uint index, uint bits) {
  if (kOut == kF32) {
    out_words[index] = bits;
  } else {
    STORE_HALF(out_words, index, bits);
  }
}

// Two neighbouring elements at a time: one word of a 16-bit type.
void merge_two(Row row, uint d) {
  const uint stride = low(views[kMergedOut].dim);
  const uint index = row.merged + d * stride;
  const uint first = merged_element(row, d);
  if (d + 1u == p.dim) {
    store_element(index, first);
    return;
  }
  const uint second = merged_element(row, d + 1u);
  if (kOut != kF32 && kOutWords) {
    out_words[index >> 1] = first | (second << 16);
  } else {
    store_element(index, first);
    store_element(index + stride, second);
  }
}

void main() {
  const uint lane = gl_LocalInvocationID.x % p.row_lanes;
  const uint place = gl_LocalInvocationID.x / p.row_lanes;
  const uint group_rows = kMergeGroupSize / p.row_lanes;
  const uint rows = p.tokens * p.heads;

  for (uint first_row = gl_WorkGroupID.x * group_rows; first_row < rows; first_row += gl_NumWorkGroups.x * group_rows) {
    const uint index = first_row + place;
    const bool live = index < rows;
    // The last lane: where lanes run in order, a missing barrier shows.
    if (live && lane == p.row_lanes - 1u) shares_of[place] = weigh_row(index);
    barrier();
    if (live) {
      const Row row = Row(start_of(kFirstOut, index), start_of(kSecondOut, index), start_of(kMergedOut, index),
                          shares_of[place]);
      for (uint d = 2u * lane; d < p.dim; d += 2u * p.row_lanes) merge_two(row, d);
    }
    barrier();  // before the next rows' shares
  }
}
