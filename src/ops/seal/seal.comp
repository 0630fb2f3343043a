#version 450
#extension GL_GOOGLE_include_directive : require

#include "codec/dense/dense.glsl"
#include "codec/turbo/arithmetic.shared.h"
#include "ops/seal/seal.params.h"
#include "runtime/counter.glsl"

layout(constant_id = kSealConstantDense) const uint kDense = kF16;

layout(local_size_x = kSealGroupSize) in;

layout(push_constant) uniform Push { SealParams p; };
layout(set = 0, binding = kSealBindingDense) readonly buffer Dense { uint dense_words[]; };
layout(set = 0, binding = kSealBindingSealed) buffer Sealed { uint sealed_words[]; };
layout(set = 0, binding = kSealBindingPlan) readonly buffer Plan { uint plan[]; };
layout(set = 0, binding = kSealBindingTable) readonly buffer Table { uint table[]; };
layout(set = 0, binding = kSealBindingCounter) buffer Counted { uint counted[]; };

const uint kGroupSize = kSealGroupSize;
#include "codec/turbo/rotation.glsl"

// A workgroup seals a slice of one head's page, token after token: a whole page would be more steps of a loop than
// Mesa's software driver takes before it stops without a word. A dim belongs to one invocation, and so does every word.
shared int mixed_values[kMaxTurboDim];  // before the rotation; after it, codes
DEFINE_HARTLEY(mixed_values)
shared uint mean_halves[kMaxTurboDim];

// What the invocations of a token gather; there are two sets, so that one can be cleared meanwhile.
const uint kAnyUpper = 0u;
const uint kAnyLower = 1u;
const uint kOwnUpper = 2u;
const uint kOwnLower = 3u;
const uint kGrowthUpper = 4u;
const uint kGrowthLower = 5u;
const uint kMixed = 6u;
const uint kSquareUpper = 7u;
const uint kSquareLower = 8u;
const uint kDots = 9u;
const uint kNorms = 13u;
const uint kLargest = 17u;
const uint kGathered = 18u;
shared uint gathered[2u * kGathered];
uint set_;

const uint kChosen = kCandidates;  // the fourth fit

uint lane() { return gl_LocalInvocationID.x; }
void gather_or(uint what, uint value) { atomicOr(gathered[set_ + what], value); }
void gather_sum(uint what, uint value) { atomicAdd(gathered[set_ + what], value); }
uint gather(uint what) { return gathered[set_ + what]; }

struct Head {
  uint dense;   // first element
  uint sealed;  // first word
  uint tokens;
  uint sinks;
  uint first_token;  // of the slice
};

uint load_half(Head head, uint token, uint dim) {
  const uint index = head.dense + token * low(p.dense.slot) + dim * low(p.dense.dim);
  return convert_element(LOAD_ELEMENT(dense_words, kDense, index), kDense, kF16);
}

// In multiples of 2^-24. NaN is 0, an infinity the largest number.
Limbs fixed_from_half(uint half_bits) {
  uint magnitude = half_bits & 0x7fffu;
  if (magnitude >= 0x7c00u) magnitude = magnitude == 0x7c00u ? 0x7bffu : 0u;
  const int exponent = max(int(magnitude >> 10) - 1, 0);
  const int mantissa = int(magnitude < 0x400u ? magnitude : (magnitude & 0x3ffu) | 0x400u);
  const int first = min(exponent, 20);
  const int upper = ((mantissa << first) >> 20) << (exponent - first);
  const int lower = (mantissa << exponent) & 0xfffff;
  return (half_bits & 0x8000u) != 0u ? Limbs(-upper, -lower) : Limbs(upper, lower);
}

Limbs magnitude_of(Limbs x) {
  const Limbs y = carried(x);
  return y.upper < 0 ? negated(y) : y;
}

bool is_positive(Limbs x) {
  const Limbs y = carried(x);
  return y.upper > 0 || (y.upper == 0 && y.lower > 0);
}

// Every slice makes its page's mean, the first one stores it.
void make_mean(Head head) {
  const uint words = scales_offset(p.layout_) / 4u;
  for (uint word = lane(); word < words; word += kGroupSize) {
    uint pair = 0u;
    for (uint half_index = 0u; half_index < 2u; half_index++) {
      const uint dim = 2u * word + half_index;
      if (dim >= p.layout_.dim) continue;
      Limbs sum = Limbs(0, 0);
      for (uint token = head.sinks; token < head.tokens; token++) {
        const Limbs x = fixed_from_half(load_half(head, token, dim));
        sum = Limbs(sum.upper + x.upper, sum.lower + x.lower);
      }
      const uint mean = head.sinks < head.tokens ? mean_from(sum, head.tokens - head.sinks) : 0u;
      mean_halves[dim] = mean;
      pair |= mean << (16u * half_index);
    }
    if (head.first_token == 0u) sealed_words[head.sealed + word] = pair;
  }
}

// What is left of a value when its page's mean is removed.
Limbs centred(uint half_bits, uint dim, bool remove) {
  const Limbs x = fixed_from_half(half_bits);
  if (!remove) return x;
  const Limbs mean = fixed_from_half(mean_halves[dim]);
  return Limbs(x.upper - mean.upper, x.lower - mean.lower);
}

// Gathers magnitudes with and without the mean, and by how much it makes them grow; counts what is not finite.
uint gather_magnitudes(Head head, uint token) {
  uint not_finite = 0u;
  Limbs any = Limbs(0, 0), own = Limbs(0, 0), growth = Limbs(0, 0);
  for (uint dim = lane(); dim < p.layout_.dim; dim += kGroupSize) {
    const uint half_bits = load_half(head, token, dim);
    if (!is_finite_element(half_bits, kF16)) not_finite++;
    const Limbs x = magnitude_of(fixed_from_half(half_bits));
    const Limbs d = magnitude_of(centred(half_bits, dim, p.layout_.has_mean != 0u));
    own = Limbs(own.upper | x.upper, own.lower | x.lower);
    any = Limbs(any.upper | d.upper, any.lower | d.lower);
    growth = Limbs(growth.upper + d.upper - x.upper, growth.lower + d.lower - x.lower);
  }
  gather_or(kOwnUpper, uint(own.upper));
  gather_or(kOwnLower, uint(own.lower));
  gather_or(kAnyUpper, uint(any.upper));
  gather_or(kAnyLower, uint(any.lower));
  growth = carried(growth);
  gather_sum(kGrowthUpper, uint(growth.upper));
  gather_sum(kGrowthLower, uint(growth.lower));
  return not_finite;
}

// Of 16 bits, with the rotation's signs; `shift` drops the others.
int mantissa_of(Limbs x, uint dim, int shift) {
  const Limbs magnitude = magnitude_of(x);
  const int q = shift - 1;
  const uint twice = ((uint(magnitude.upper) << clamp(20 - q, 0, 31)) >> max(q - 20, 0)) |
                     ((uint(magnitude.lower) << max(-q, 0)) >> max(q, 0));
  const int mantissa = int(min((twice + 1u) >> 1, 65535u));
  return (carried(x).upper < 0) != is_negated(dim) ? -mantissa : mantissa;
}

uint index_of(uint twice) {
  if (p.layout_.bits == kUniformBits) return min((twice + 1u) >> 1, kUniformTop);
  uint index = 0u;
  for (uint bit = 1u << (p.layout_.bits - 2u); bit != 0u; bit >>= 1) {
    if (twice >= table[kEdges + index + bit - 1u]) index += bit;
  }
  return index;
}

uint level_of(uint index) { return p.layout_.bits == kUniformBits ? index : table[kMagnitudes + index]; }

uint code_of(uint index, bool positive) {
  const uint middle = 1u << (p.layout_.bits - 1u);
  if (p.layout_.bits == kUniformBits) return positive ? middle + index : middle - index;
  return positive ? middle + index : middle - 1u - index;
}

uint magnitude_at(uint dim, int shift) {
  const uint magnitude = uint(abs(rotated_values[dim]));
  return min(shift == 0 ? magnitude : (magnitude + (1u << (shift - 1))) >> shift, kMaxMagnitude);
}

// Codes are kept where asked: for the step that was chosen.
void gather_fit(uint which, Inverse inverse, int shift, bool keep_codes) {
  Fit fit = Fit(0u, 0u);
  for (uint dim = lane(); dim < p.layout_.dim; dim += kGroupSize) {
    const uint magnitude = magnitude_at(dim, shift);
    const uint index = index_of(twice_in_steps(magnitude, inverse));
    const uint level = level_of(index);
    fit = Fit(fit.dot + magnitude * level, fit.norm + level * level);
    if (keep_codes) mixed_values[dim] = int(code_of(index, rotated_values[dim] > 0 && magnitude != 0u));
  }
  gather_sum(kDots + which, fit.dot);
  gather_sum(kNorms + which, fit.norm);
}

Fit fit_at(uint which) { return Fit(gather(kDots + which), gather(kNorms + which)); }

Inverse candidate_at(uint which, Length length_) {
  const uint constants = kInverses + 2u * which;
  return inverse_of_length(length_, table[constants], table[constants + 1u], p.rotation.k / 2u);
}

// Quantizes what is rotated: codes of this invocation's dims into shared memory; returns the scale.
uint quantize(int exponent) {
  uint any = 0u;
  for (uint dim = lane(); dim < p.layout_.dim; dim += kGroupSize) any |= uint(abs(rotated_values[dim]));
  gather_or(kMixed, any);
  barrier();
  const int shift = max(top_bit(gather(kMixed)) - 14, 0);
  uint upper = 0u, lower = 0u;
  for (uint dim = lane(); dim < p.layout_.dim; dim += kGroupSize) {
    const uint magnitude = magnitude_at(dim, shift);
    const uint square = magnitude * magnitude;
    upper += square >> 16;
    lower += square & 0xffffu;
  }
  gather_sum(kSquareUpper, upper);
  gather_sum(kSquareLower, lower);
  barrier();
  const Length length_ = length_from(gather(kSquareUpper), gather(kSquareLower));
  Inverse chosen = candidate_at(kMiddleCandidate, length_);
  if (p.scale_rule == kBySearch && p.layout_.bits == kUniformBits) {
    uint largest = 0u;
    for (uint dim = lane(); dim < p.layout_.dim; dim += kGroupSize) largest = max(largest, magnitude_at(dim, shift));
    atomicMax(gathered[set_ + kLargest], largest);
    barrier();
    chosen = inverse_of_largest(gather(kLargest));
  } else if (p.scale_rule == kBySearch) {
    for (uint which = 0u; which < kCandidates; which++) gather_fit(which, candidate_at(which, length_), shift, false);
    barrier();
    Fit best = fit_at(0u);
    for (uint which = 1u; which < kCandidates; which++) {
      if (fits_better(fit_at(which), best)) best = fit_at(which);
    }
    chosen = inverse_of_fit(best);
  }
  gather_fit(kChosen, chosen, shift, true);
  barrier();
  if (p.scale_rule == kByRms) {
    return scale_from(length_.root, table[kInverses + 2u * kMiddleCandidate], shift + exponent + 2 + int(chosen.shift),
                      p.rotation.k);
  }
  const Fit fit = fit_at(kChosen);
  return scale_from(fit.dot, fit.norm, shift + exponent, p.rotation.k);
}

// From the mantissas, of which each invocation has written its own.
void rotate() {
  if (p.rotation.m > 1u) barrier();
  for (uint dim = lane(); dim < p.layout_.dim; dim += kGroupSize) {
    rotated_values[dim] = p.rotation.m > 1u ? HARTLEY(mixed_values, dim, p.rotation, 13) : mixed_values[dim];
  }
  mix_rotated(p.layout_.dim, p.rotation.k);
}

// Codes into shared memory; returns the scale.
uint seal_token(Head head, uint token) {
  const bool has_mean = p.layout_.has_mean != 0u;
  // The mean is left alone where removing it makes the sum of magnitudes larger.
  const bool grows = is_positive(Limbs(int(gather(kGrowthUpper)), int(gather(kGrowthLower))));
  const uint sign = has_mean && grows ? kWithoutMean : 0u;
  const uint upper = gather(grows ? kOwnUpper : kAnyUpper);
  const uint lower = gather(grows ? kOwnLower : kAnyLower);
  if ((upper | lower) == 0u) {
    for (uint dim = lane(); dim < p.layout_.dim; dim += kGroupSize) mixed_values[dim] = 0;
    return sign;
  }
  const int shift = (upper != 0u ? 20 + top_bit(upper) : top_bit(lower)) - 15;
  for (uint dim = lane(); dim < p.layout_.dim; dim += kGroupSize) {
    mixed_values[dim] = mantissa_of(centred(load_half(head, token, dim), dim, has_mean && !grows), dim, shift);
  }
  rotate();
  return sign | quantize(shift - 24 + kScaleExponent);
}

// A word's first part takes the place of what was there, the others join it.
void put_word(uint index, uint bits, bool first) {
  if (first) {
    sealed_words[index] = bits;
  } else {
    sealed_words[index] |= bits;
  }
}

// A word is four dims of one token in each of its line's cells. Where a line ends among 16 tokens, it goes on with the
// next 16: so a line belongs to the same invocation always.
void pack_keys(Head head, uint token, uint plane_index, bool is_live) {
  const Plane plane = plane_of(p.layout_.bits, plane_index);
  const uint cells = 8u / plane.bits;
  const uint token_cells = p.layout_.dim / 4u;
  const uint first = token % kTileTokens / 16u * token_cells;
  const uint first_line = first / cells;
  const uint end_line = (first + token_cells + cells - 1u) / cells;
  const uint skipped = (lane() + kGroupSize - first_line % kGroupSize) % kGroupSize;
  for (uint line = first_line + skipped; line < end_line; line += kGroupSize) {
    const uint begin = max(first, line * cells) - first;
    const uint end = min(first + token_cells, (line + 1u) * cells) - first;
    const CodePlace place = code_place(p.layout_, plane_index, token, 4u * begin);
    uint word = 0u;
    for (uint dim = 4u * begin; is_live && dim < 4u * end; dim++) {
      const uint bits = bitfieldExtract(uint(mixed_values[dim]), int(plane.first_bit), int(plane.bits));
      word |= bits << (8u * (dim % 4u) + place.low_bit + (dim / 4u - begin) * plane.bits);
    }
    put_word(head.sealed + place.byte / 4u, word, place.low_bit == 0u);
  }
}

// A word is one dim of several tokens.
void pack_values(Head head, uint token, uint plane_index, bool is_live) {
  const Plane plane = plane_of(p.layout_.bits, plane_index);
  for (uint dim = lane(); dim < p.layout_.dim; dim += kGroupSize) {
    const CodePlace place = code_place(p.layout_, plane_index, token, dim);
    const uint bits = is_live ? bitfieldExtract(uint(mixed_values[dim]), int(plane.first_bit), int(plane.bits)) : 0u;
    const uint shift = place.byte % 4u * 8u + place.low_bit;
    put_word(head.sealed + place.byte / 4u, bits << shift, shift == 0u);
  }
}

void clear_gathered(uint set) {
  if (lane() < kGathered) gathered[set + lane()] = 0u;
}

void clear_slice(Head head) {
  for (uint plane = 0u; plane < plane_count(p.layout_.bits); plane++) {
    const uint first = head.sealed + slice_offset(p.layout_, head.first_token, plane) / 4u;
    const uint words = slice_bytes(p.layout_, plane) / 4u;
    for (uint word = lane(); word < words; word += kGroupSize) sealed_words[first + word] = 0u;
  }
  const uint scales = head.sealed + (scales_offset(p.layout_) + 2u * head.first_token) / 4u;
  for (uint word = lane(); word < kSliceTokens / 2u; word += kGroupSize) sealed_words[scales + word] = 0u;
}

void seal_slice(Head head) {
  uint not_finite = 0u;
  uint scales = 0u;
  clear_gathered(0u);
  if (p.layout_.has_mean != 0u) make_mean(head);
  if (head.first_token >= head.tokens) {
    clear_slice(head);
    return;
  }
  barrier();
  for (uint token = head.first_token; token < head.first_token + kSliceTokens; token++) {
    const bool is_live = token < head.tokens;
    uint scale = 0u;
    if (is_live) {
      set_ = token % 2u * kGathered;
      not_finite += gather_magnitudes(head, token);
      barrier();
      clear_gathered(kGathered - set_);
      scale = seal_token(head, token);
    }
    barrier();
    for (uint plane = 0u; plane < plane_count(p.layout_.bits); plane++) {
      if (p.layout_.side == kKeys) {
        pack_keys(head, token, plane, is_live);
      } else {
        pack_values(head, token, plane, is_live);
      }
    }
    scales = token % 2u == 0u ? scale : scales | scale << 16;
    if (lane() == 0u && token % 2u == 1u) {
      sealed_words[head.sealed + (scales_offset(p.layout_) + 2u * token) / 4u] = scales;
    }
  }
  ADD_TO_COUNTER(counted, p.counter, not_finite);
}

void main() {
  const uint slices = p.layout_.tokens / kSliceTokens;
  const uint row = gl_WorkGroupID.x / slices;
  const uint entry = (p.first_page + row / p.heads) * kPageWords;
  const uint head = row % p.heads;
  seal_slice(Head(low(p.dense.offset) + plan[entry + kDensePage] * low(p.dense.page) + head * low(p.dense.head),
                  low(p.sealed_offset) + plan[entry + kSealedPage] * low(p.sealed_page) + head * low(p.sealed_head),
                  plan[entry + kTokens], plan[entry + kSinks], gl_WorkGroupID.x % slices * kSliceTokens));
}
