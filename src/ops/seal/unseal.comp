#version 450
#extension GL_GOOGLE_include_directive : require

#include "codec/dense/dense.glsl"
#include "codec/turbo/levels.glsl"
#include "ops/seal/seal.params.h"

layout(constant_id = kUnsealConstantDense) const uint kDense = kF16;
// Whole words: elements side by side, and every row starts on a word.
layout(constant_id = kUnsealConstantDenseWords) const bool kDenseWords = true;

layout(local_size_x = kSealGroupSize) in;

layout(push_constant) uniform Push { SealParams p; };
layout(set = 0, binding = kUnsealBindingSealed) readonly buffer Sealed { uint sealed_words[]; };
layout(set = 0, binding = kUnsealBindingDense) buffer Dense { uint dense_words[]; };
layout(set = 0, binding = kUnsealBindingPlan) readonly buffer Plan { uint plan[]; };
layout(set = 0, binding = kUnsealBindingTable) readonly buffer Table { uint table[]; };

const uint kGroupSize = kSealGroupSize;
#include "codec/turbo/rotation.glsl"
DEFINE_HARTLEY(rotated_values)

struct Head {
  uint sealed;  // first word
  uint dense;   // first element
  uint tokens;
};

uint half_at(Head head, uint byte) { return HALF_OF(sealed_words[head.sealed + byte / 4u], byte / 2u); }

// Pages hold no infinity and no NaN, but whoever made the page may have erred.
float finite_half(uint half_bits) {
  return (half_bits & 0x7c00u) != 0x7c00u ? uintBitsToFloat(f32_bits_from_f16(half_bits)) : 0.0;
}

int level_at(Head head, uint token, uint dim) {
  uint code = 0u;
  for (uint plane = 0u; plane < plane_count(p.layout_.bits); plane++) {
    const Plane part = plane_of(p.layout_.bits, plane);
    const CodePlace place = code_place(p.layout_, plane, token, dim);
    const uint word = sealed_words[head.sealed + place.byte / 4u];
    code |= bitfieldExtract(word, int(place.byte % 4u * 8u + place.low_bit), int(part.bits)) << part.first_bit;
  }
  if (p.layout_.bits == kUniformBits) return int(code) - (1 << (kUniformBits - 1u));
  return LEVEL_IN(table, p.layout_.bits, code);
}

uint value_at(Head head, uint dim, float factor, bool has_mean) {
  int turned = p.rotation.m > 1u ? HARTLEY(rotated_values, dim, p.rotation, kUnsealShift) : rotated_values[dim];
  if (is_negated(dim)) turned = -turned;
  precise float value = float(turned) * factor;
  precise float with_mean = value + (has_mean ? finite_half(half_at(head, 2u * dim)) : 0.0);
  return narrow_element(floatBitsToUint(clamp(with_mean, -p.limit, p.limit)), kDense);
}

void store_two(uint index, uint first, uint second) {
  const uint next = index + low(p.dense.dim);
  if (kDense == kF32) {
    dense_words[index] = first;
    dense_words[next] = second;
  } else if (kDenseWords) {
    dense_words[index >> 1] = first | second << 16;
  } else {
    STORE_HALF(dense_words, index, first);
    STORE_HALF(dense_words, next, second);
  }
}

void unseal_token(Head head, uint token) {
  for (uint dim = gl_LocalInvocationID.x; dim < p.layout_.dim; dim += kGroupSize) {
    rotated_values[dim] = level_at(head, token, dim);
  }
  mix_rotated(p.layout_.dim, p.rotation.k);
  const uint scale = half_at(head, scales_offset(p.layout_) + 2u * token);
  precise float factor = finite_half(scale & ~kWithoutMean) * p.unit;
  const bool has_mean = p.layout_.has_mean != 0u && (scale & kWithoutMean) == 0u;
  const uint row = head.dense + token * low(p.dense.slot);
  for (uint dim = 2u * gl_LocalInvocationID.x; dim < p.layout_.dim; dim += 2u * kGroupSize) {
    store_two(row + dim * low(p.dense.dim), value_at(head, dim, factor, has_mean),
              value_at(head, dim + 1u, factor, has_mean));
  }
  barrier();  // before the next token's levels
}

void main() {
  const uint slices = p.layout_.tokens / kSliceTokens;
  const uint row = gl_WorkGroupID.x / slices;
  const uint entry = (p.first_page + row / p.heads) * kPageWords;
  const uint index = row % p.heads;
  const Head head =
      Head(low(p.sealed_offset) + plan[entry + kSealedPage] * low(p.sealed_page) + index * low(p.sealed_head),
           low(p.dense.offset) + plan[entry + kDensePage] * low(p.dense.page) + index * low(p.dense.head),
           plan[entry + kTokens]);
  const uint first_token = gl_WorkGroupID.x % slices * kSliceTokens;
  for (uint token = first_token; token < min(head.tokens, first_token + kSliceTokens); token++) {
    unseal_token(head, token);
  }
}
