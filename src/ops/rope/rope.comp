#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_memory_scope_semantics : require

#include "codec/dense/dense.glsl"
#include "ops/rope/rope.params.h"

layout(constant_id = kRopeConstantFrom) const uint kFrom = kF32;
layout(constant_id = kRopeConstantTo) const uint kTo = kF32;
// Whole words: elements side by side, and every row starts on a word.
layout(constant_id = kRopeConstantFromWords) const bool kFromWords = true;
layout(constant_id = kRopeConstantToWords) const bool kToWords = true;
layout(constant_id = kRopeConstantUnit) const uint kUnit = kOnePair;
layout(constant_id = kRopeConstantNorm) const uint kNorm = kNotNormed;
layout(constant_id = kRopeConstantInPlace) const bool kInPlace = false;
layout(constant_id = kRopeConstantRowLanes) const uint kRowLanes = kRopeGroupSize;

layout(local_size_x = kRopeGroupSize) in;

layout(push_constant) uniform Push { RopeParams p; };
layout(set = 0, binding = kRopeBindingFrom) readonly buffer From { uint from_words[]; };
layout(set = 0, binding = kRopeBindingTo) buffer To { uint to_words[]; };
layout(set = 0, binding = kRopeBindingPositions) readonly buffer Positions { uint positions[]; };
layout(set = 0, binding = kRopeBindingPairs) readonly buffer Pairs { uint pairs[]; };
layout(set = 0, binding = kRopeBindingWeight) readonly buffer Weight { uint weight_words[]; };

shared float sums[kRopeGroupSize];

// Words that several invocations write parts of.
const bool kSharedWords = kTo != kF32 && (!kToWords || kUnit == kOnePair);

struct Row {
  uint token, head;
  uint from, to, weight;  // first elements
  float scale;            // of its norm
};

// In place, `from` and `to` are one view, and a word may change in its other half meanwhile.
uint load_word(uint index) {
  if (!kInPlace) return from_words[index];
  if (kSharedWords) return atomicOr(to_words[index], 0u);
  return to_words[index];
}

float load_one(Row row, uint d) {
  const uint index = row.from + d * low(p.from.dim);
  const uint bits = kFrom == kF32 ? load_word(index) : HALF_OF(load_word(index >> 1), index);
  return uintBitsToFloat(widen_element(bits, kFrom));
}

// Coordinates d and d + 1; d is even.
vec2 load_two(Row row, uint d) {
  if (kFrom == kF32 || !kFromWords) return vec2(load_one(row, d), load_one(row, d + 1u));
  const uint word = load_word((row.from + d) >> 1);
  return vec2(uintBitsToFloat(widen_element(word & 0xffffu, kFrom)), uintBitsToFloat(widen_element(word >> 16, kFrom)));
}

void store_one(Row row, uint d, uint bits) {
  const uint index = row.to + d * low(p.to.dim);
  if (kTo == kF32) {
    to_words[index] = bits;
  } else {
    STORE_HALF(to_words, index, bits);
  }
}

void store_two_bits(Row row, uint d, uvec2 bits) {
  if (kTo != kF32 && kToWords) {
    to_words[(row.to + d) >> 1] = bits.x | (bits.y << 16);
  } else {
    store_one(row, d, bits.x);
    store_one(row, d + 1u, bits.y);
  }
}

uint narrow(float value) { return narrow_element(floatBitsToUint(value), kTo); }

void store_two(Row row, uint d, vec2 values) { store_two_bits(row, d, uvec2(narrow(values.x), narrow(values.y))); }

float normed(Row row, uint d, float value) {
  if (kNorm == kNotNormed) return value;
  precise float scaled = value * row.scale;
  if (kNorm > kNormed) {
    const uint dtype = kNorm - kNormed - 1u;
    const uint bits = LOAD_ELEMENT(weight_words, dtype, row.weight + d * low(p.weight.dim));
    precise float weight = uintBitsToFloat(widen_element(bits, dtype)) + p.weight_offset;
    scaled = scaled * weight;
  }
  return scaled;
}

vec2 normed_two(Row row, uint d, vec2 values) {
  return vec2(normed(row, d, values.x), normed(row, d + 1u, values.y));
}

// Cosine and sine of a pair's angle, times the magnitude.
vec2 turn_of(Row row, uint pair) {
  const uint position = positions[pairs[kAxis * p.pairs + pair] * p.tokens + row.token];
  uint carried, unused;
  umulExtended(position, pairs[kTurnsLow * p.pairs + pair], carried, unused);
  const uint phase = position * pairs[kTurnsHigh * p.pairs + pair] + carried;  // in 2^-32 turns

  const uint quarter = (phase + 0x20000000u) >> 30;  // the nearest one
  precise float x = float(int(phase - (quarter << 30))) * kRadiansPerPhase;
  precise float z = x * x;
  precise float sine = x + x * z * (kSine0 + z * (kSine1 + z * kSine2));
  precise float cosine = (1.0 - 0.5 * z) + z * z * (kCosine0 + z * (kCosine1 + z * kCosine2));
  vec2 turn = (quarter & 1u) == 0u ? vec2(cosine, sine) : vec2(-sine, cosine);
  if ((quarter & 2u) != 0u) turn = -turn;
  precise vec2 scaled = turn * p.magnitude;
  return scaled;
}

vec2 turned(vec2 pair, vec2 turn) {
  precise float first = pair.x * turn.x - pair.y * turn.y;
  precise float second = pair.x * turn.y + pair.y * turn.x;
  return vec2(first, second);
}

void turn_unit(Row row, uint unit) {
  if (kUnit == kNeighbourPair) {
    const vec2 values = normed_two(row, 2u * unit, load_two(row, 2u * unit));
    store_two(row, 2u * unit, turned(values, turn_of(row, unit)));
    return;
  }
  const uint pair = kUnit == kTwoPairs ? 2u * unit : unit;
  const uint first = pairs[kFirst * p.pairs + pair];
  const uint second = pairs[kSecond * p.pairs + pair];
  if (kUnit == kTwoPairs) {
    const vec2 firsts = normed_two(row, first, load_two(row, first));
    const vec2 seconds = normed_two(row, second, load_two(row, second));
    const vec2 left = turned(vec2(firsts.x, seconds.x), turn_of(row, pair));
    const vec2 right = turned(vec2(firsts.y, seconds.y), turn_of(row, pair + 1u));
    store_two(row, first, vec2(left.x, right.x));
    store_two(row, second, vec2(left.y, right.y));
  } else {
    const float value = normed(row, first, load_one(row, first));
    const float other = normed(row, second, load_one(row, second));
    const vec2 result = turned(vec2(value, other), turn_of(row, pair));
    store_one(row, first, narrow(result.x));
    store_one(row, second, narrow(result.y));
  }
}

// Coordinates d and d + 1, which do not turn.
void move_two(Row row, uint d) {
  if (kInPlace && kNorm == kNotNormed) return;
  const bool both = d + 1u < p.dim;
  if (kNorm != kNotNormed) {
    const uint first = narrow(normed(row, d, load_one(row, d)));
    if (both) {
      store_two_bits(row, d, uvec2(first, narrow(normed(row, d + 1u, load_one(row, d + 1u)))));
    } else {
      store_one(row, d, first);
    }
    return;
  }
  const uint stride = low(p.from.dim);
  const uint first = convert_element(LOAD_ELEMENT(from_words, kFrom, row.from + d * stride), kFrom, kTo);
  if (both) {
    const uint second = LOAD_ELEMENT(from_words, kFrom, row.from + (d + 1u) * stride);
    store_two_bits(row, d, uvec2(first, convert_element(second, kFrom, kTo)));
  } else {
    store_one(row, d, first);
  }
}

// The lanes of a row add in an order of their own, the same at every launch. A row beyond the last has no coordinates.
float scale_of_norm(Row row, uint lane, uint dim) {
  const uint base = gl_LocalInvocationID.x - lane;
  float sum = 0.0;
  for (uint d = lane; d < dim; d += kRowLanes) {
    const float value = load_one(row, d);
    sum += value * value;
  }
  sums[base + lane] = sum;
  barrier();
  for (uint step = kRowLanes / 2u; step > 0u; step /= 2u) {
    if (lane < step) sums[base + lane] += sums[base + lane + step];
    barrier();
  }
  const float mean = sums[base] / float(p.dim) + p.epsilon;
  // Before the next row's sums; and in place loads may have been atomics, which no other lane's store may overtake.
  controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsBuffer | gl_StorageSemanticsShared,
                 gl_SemanticsAcquireRelease);
  // One step of Newton: drivers promise little of inversesqrt. In this order nothing on the way is denormal.
  const float guess = inversesqrt(mean);
  precise float half_of_one = 0.5 * ((mean * guess) * guess);
  return guess == 0.0 ? 0.0 : guess * (1.5 - half_of_one);
}

void main() {
  const uint lane = gl_LocalInvocationID.x % kRowLanes;
  const uint group_rows = kRopeGroupSize / kRowLanes;
  const uint rows = p.tokens * p.heads;
  const uint rope_units = kUnit == kTwoPairs ? p.pairs / 2u : p.pairs;

  for (uint first_row = gl_WorkGroupID.x * group_rows; first_row < rows; first_row += gl_NumWorkGroups.x * group_rows) {
    const uint index = first_row + gl_LocalInvocationID.x / kRowLanes;
    const bool live = index < rows;
    Row row;
    row.token = index / p.heads;
    row.head = index % p.heads;
    row.from = low(p.from.offset) + row.token * low(p.from.token) + row.head * low(p.from.head);
    row.to = low(p.to.offset) + row.token * low(p.to.token) + row.head * low(p.to.head);
    row.weight = low(p.weight.offset) + row.head * low(p.weight.head);
    row.scale = kNorm == kNotNormed ? 1.0 : scale_of_norm(row, lane, live ? p.dim : 0u);
    for (uint unit = lane; live && unit < p.units; unit += kRowLanes) {
      if (unit < rope_units) {
        turn_unit(row, unit);
      } else {
        move_two(row, 2u * (p.pairs + unit - rope_units));
      }
    }
  }
}
