#version 450
#extension GL_GOOGLE_include_directive : require

#include "codec/dense/dense.glsl"
#include "ops/store/store.params.h"
#include "runtime/counter.glsl"

layout(constant_id = kStoreConstantFrom) const uint kFrom = kF32;
layout(constant_id = kStoreConstantTo) const uint kTo = kF32;
// Whole words: elements side by side, and every row starts on a word.
layout(constant_id = kStoreConstantFromWords) const bool kFromWords = true;
layout(constant_id = kStoreConstantToWords) const bool kToWords = true;
layout(constant_id = kStoreConstantCounts) const bool kCounts = false;

layout(local_size_x = kStoreGroupSize) in;

layout(push_constant) uniform Push { StoreParams p; };
layout(set = 0, binding = kStoreBindingFrom) readonly buffer From { uint from_words[]; };
layout(set = 0, binding = kStoreBindingTo) buffer To { uint to_words[]; };
layout(set = 0, binding = kStoreBindingPlan) readonly buffer Plan { uint plan[]; };
layout(set = 0, binding = kStoreBindingCounter) buffer Counted { uint counted[]; };

void store_pair(uint row, uint d, uint first, uint second, bool both) {
  const uint index = row + d * low(p.to.dim);
  if (kTo == kF32) {
    to_words[index] = first;
    if (both) to_words[index + low(p.to.dim)] = second;
  } else if (kToWords && both) {
    to_words[index >> 1] = first | (second << 16);
  } else {
    STORE_HALF(to_words, index, first);
    if (both) STORE_HALF(to_words, index + low(p.to.dim), second);
  }
}

// An invocation moves two neighbouring elements of a row at a time: one word of a 16-bit type.
void main() {
  const uint row_pairs = (p.dim + 1u) / 2u;
  const uint pairs = low(p.tokens) * p.heads * row_pairs;
  const uint stride = gl_NumWorkGroups.x * kStoreGroupSize;
  uint not_finite = 0u;
  for (uint i = gl_GlobalInvocationID.x; i < pairs; i += stride) {
    const uint d = (i % row_pairs) * 2u;
    const uint head = (i / row_pairs) % p.heads;
    const uint entry = (i / row_pairs / p.heads) * kPlanWords;
    const bool both = d + 1u < p.dim;

    const uint from_row = low(p.from.offset) + plan[entry] * low(p.from.token) + head * low(p.from.head);
    const uint to_row = low(p.to.offset) + plan[entry + 1u] * low(p.to.page) +
                        plan[entry + 2u] * low(p.to.slot) + head * low(p.to.head);

    uint first, second = 0u;
    if (kFromWords && kFrom != kF32) {
      const uint word = from_words[(from_row + d) >> 1];
      first = word & 0xffffu;
      second = word >> 16;
    } else {
      first = LOAD_ELEMENT(from_words, kFrom, from_row + d * low(p.from.dim));
      if (both) second = LOAD_ELEMENT(from_words, kFrom, from_row + (d + 1u) * low(p.from.dim));
    }
    first = convert_element(first, kFrom, kTo);
    second = convert_element(second, kFrom, kTo);
    store_pair(to_row, d, first, second, both);
    if (kCounts) not_finite += uint(!is_finite_element(first, kTo)) + uint(both && !is_finite_element(second, kTo));
  }
  if (kCounts) ADD_TO_COUNTER(counted, p.counter, not_finite);
}
