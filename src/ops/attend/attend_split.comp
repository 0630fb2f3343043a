#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

// One workgroup: one split's keys of one kv head, for all vectors of its query tile. Four tiles of 64 keys at a time: a lane
// has four keys (a quad) for the logits, then four dims for the values. Each stored word is loaded by one lane, once.
// No subgroup operation, and every sum in a fixed order: the subgroups of a device change no bit.

#include "codec/dense/dense.glsl"
#include "codec/turbo/levels.glsl"
#include "ops/attend/attend.params.h"

layout(constant_id = kAttendSplitConstantKeyFormat) const uint kKeyFormat = kSealedFormat + 4u;
layout(constant_id = kAttendSplitConstantValueFormat) const uint kValueFormat = kSealedFormat + 4u;
layout(constant_id = kAttendSplitConstantKeyDim) const uint kKeyDim = 128u;
layout(constant_id = kAttendSplitConstantValueDim) const uint kValueDim = 128u;
layout(constant_id = kAttendSplitConstantVectors) const uint kVectors = 4u;
layout(constant_id = kAttendSplitConstantHasMean) const bool kHasMean = true;
layout(constant_id = kAttendSplitConstantKeyUnits) const bool kKeyUnits = true;  // dense rows are whole units of 16 bytes
layout(constant_id = kAttendSplitConstantValueUnits) const bool kValueUnits = true;

layout(local_size_x = kAttendGroupSize) in;

layout(push_constant) uniform Push { AttendSplitParams p; };
layout(set = 0, binding = kAttendSplitBindingKeys) readonly buffer Keys { uvec4 key_units[]; };
layout(set = 0, binding = kAttendSplitBindingValues) readonly buffer Values { uvec4 value_units[]; };
layout(set = 0, binding = kAttendSplitBindingPlan) readonly buffer Plan { uint plan[]; };
layout(set = 0, binding = kAttendSplitBindingQueries) readonly buffer Queries { vec4 queries[]; };
layout(set = 0, binding = kAttendSplitBindingKeyTable) readonly buffer KeyTable { uint key_table[]; };
layout(set = 0, binding = kAttendSplitBindingValueTable) readonly buffer ValueTable { uint value_table[]; };
layout(set = 0, binding = kAttendSplitBindingPartials) writeonly buffer Partials { float partials[]; };

#include "ops/attend/plan.glsl"

const uint kLanes = kAttendGroupSize;
const uint kQuadTokens = 4u;
const uint kTileQuads = kTileTokens / kQuadTokens;
const uint kBlockTiles = kKeyBlock / kTileTokens;  // kBlockTiles * kTileQuads is kLanes
const float kLevelScale = 1.0 / float(1 << kScaleExponent);

const uint kKeyBits = kKeyFormat < kSealedFormat ? 0u : kKeyFormat - kSealedFormat;
const uint kValueBits = kValueFormat < kSealedFormat ? 0u : kValueFormat - kSealedFormat;
const bool kKeysSealed = kKeyBits != 0u;
const bool kValuesSealed = kValueBits != 0u;

// Codes lie in one plane or two.
const uint kKeyLowBits = kKeyBits == 3u ? 2u : kKeyBits == 5u || kKeyBits == 6u ? 4u : kKeyBits;
const uint kKeyHighBits = kKeyBits - kKeyLowBits;
const uint kValueLowBits = kValueBits == 3u ? 2u : kValueBits == 5u || kValueBits == 6u ? 4u : kValueBits;
const uint kValueHighBits = kValueBits - kValueLowBits;

// A byte of a plane has so many cells, one each of as many columns of keys or quads of values.
const uint kKeyLowCells = kKeysSealed ? 8u / (kKeysSealed ? kKeyLowBits : 1u) : 1u;
const uint kKeyHighCells = 8u / (kKeyHighBits == 0u ? 1u : kKeyHighBits);
const uint kValueLowCells = kValuesSealed ? 8u / (kValuesSealed ? kValueLowBits : 1u) : 1u;
const uint kValueHighCells = 8u / (kValueHighBits == 0u ? 1u : kValueHighBits);

// Keys: four dims are a column. A unit of 16 bytes, or four of them of dense keys, has so many columns of a quad.
const uint kColumns = (kKeyDim + 3u) / 4u;
const uint kUnitColumns = kKeysSealed ? kKeyLowCells : kKeyUnits && kKeyFormat != kF32 ? 2u : 1u;

// Values: a lane has a column, and more where there are more than lanes; else groups of lanes share the quads. A unit
// has so many quads of a column.
const uint kValueColumns = (kValueDim + 3u) / 4u;
const uint kTurns = (kValueColumns + kLanes - 1u) / kLanes;
const uint kGroups = kValueColumns > kLanes ? 1u : kLanes / kValueColumns;
const uint kUnitQuads = kValueHighBits == 0u ? kValueLowCells : kValueHighCells;

shared float key_levels[64];
shared float value_levels[64];
shared vec4 query[kVectors * kColumns];
shared vec4 weights[kVectors * kLanes];  // of a quad's keys
shared float lane_numbers[2u * kVectors * kLaneNumbers];
shared float tile_max_logits[kVectors * kBlockTiles];
shared float page_dots[kVectors * kBlockTiles];
shared uvec2 seen[kVectors];  // keys, from and to
shared float slopes[kVectors];
shared float positions[kVectors];  // of the query token, from the first key

const uint kDots = kVectors * kLaneNumbers;  // in lane_numbers, after the largest logits

// The workgroup's present work.
QueryTile query_tile;
PlanSequence sequence;
uint heads, kv_head;
uint first_partial;
uvec2 range;  // of keys, from and to

// This lane's, for each vector: its quad's logits and share of the mean's product, what it has added up, and of each of
// its columns the output, [vector][turn]. Globals: arrays of such sizes do not come back from functions.
const uint kOuts = kVectors * kTurns;
vec4 logits[kVectors];
float dots[kVectors];
float max_logits[kVectors];
float exp_sums[kVectors];
vec4 outs[kOuts];

vec4 halves(uvec2 words) { return vec4(unpackHalf2x16(words.x), unpackHalf2x16(words.y)); }

// Pages hold no infinity and no NaN, but whoever made the page may have erred.
vec4 finite_halves(uvec2 words) {
  const uvec2 low_exponents = words & 0x7c00u;
  const uvec2 high_exponents = words & 0x7c000000u;
  words &= mix(uvec2(0xffffffffu), uvec2(0xffff0000u), equal(low_exponents, uvec2(0x7c00u)));
  words &= mix(uvec2(0xffffffffu), uvec2(0x0000ffffu), equal(high_exponents, uvec2(0x7c000000u)));
  return halves(words);
}

void read_levels() {
  for (uint code = gl_LocalInvocationIndex; code < 64u; code += kLanes) {
    if (kKeysSealed && kKeyBits < kUniformBits && code < 1u << kKeyBits) {
      key_levels[code] = float(LEVEL_IN(key_table, kKeyBits, code));
    }
    if (kValuesSealed && kValueBits < kUniformBits && code < 1u << kValueBits) {
      value_levels[code] = float(LEVEL_IN(value_table, kValueBits, code));
    }
  }
}

vec4 levels_of_keys(uvec4 codes) {
  if (kKeyBits == kUniformBits) return vec4(codes) - 128.0;
  return vec4(key_levels[codes.x], key_levels[codes.y], key_levels[codes.z], key_levels[codes.w]);
}

vec4 levels_of_values(uvec4 codes) {
  if (kValueBits == kUniformBits) return vec4(codes) - 128.0;
  return vec4(value_levels[codes.x], value_levels[codes.y], value_levels[codes.z], value_levels[codes.w]);
}

vec4 add_scaled(vec4 sum, vec4 by, vec4 a, vec4 b, vec4 c, vec4 d) {
  return fma(by.wwww, d, fma(by.zzzz, c, fma(by.yyyy, b, fma(by.xxxx, a, sum))));
}

// The first word of a key's sealed page, and the first element of a dense row.
uint key_page(uint key) {
  return low(p.k.offset) + plan[sequence.k.page_table + key / p.k_page] * low(p.k.page) + kv_head * low(p.k.head);
}

uint value_page(uint key) {
  return low(p.v.offset) + plan[sequence.v.page_table + key / p.v_page] * low(p.v.page) + kv_head * low(p.v.head);
}

uint dense_row(SlotStrides strides, PlanSide side, uint page_slots, uint key) {
  const uint slot = side.ring == 0u ? key : key % side.ring;
  return low(strides.offset) + plan[side.page_table + slot / page_slots] * low(strides.page) +
         slot % page_slots * low(strides.slot) + kv_head * low(strides.head);
}

uint sink_row(SlotStrides strides, PlanSide side, uint key) {
  return low(strides.offset) + side.sinks * low(strides.page) + key * low(strides.slot) + kv_head * low(strides.head);
}

uint key_row(uint key) {
  return (p.flags & kKeySinks) != 0u ? sink_row(p.k, sequence.k, key) : dense_row(p.k, sequence.k, p.k_page, key);
}

uint value_row(uint key) {
  return (p.flags & kValueSinks) != 0u ? sink_row(p.v, sequence.v, key) : dense_row(p.v, sequence.v, p.v_page, key);
}

// Among a vector's lane_numbers.
uint slot_of(uint lane) { return lane + lane / kTileQuads; }

bool in_range(uint first, uint keys) { return first + keys > range.x && first < range.y; }

// Four elements as numbers, from what load_keys or load_values found.
vec4 dense_numbers(uint format, uvec4 elements) {
  return uintBitsToFloat(uvec4(widen_element(elements.x, format), widen_element(elements.y, format),
                               widen_element(elements.z, format), widen_element(elements.w, format)));
}

uint key_word(uint index) { return key_units[index >> 2][index & 3u]; }
uint value_word(uint index) { return value_units[index >> 2][index & 3u]; }

// A dense column of one key: its four dims. `words` is what load_key_unit found.
vec4 dense_column(uvec4 words, uint nth) {
  if (!kKeyUnits || kKeyFormat == kF32) return dense_numbers(kKeyFormat, words);
  const uvec2 pair = nth == 0u ? words.xy : words.zw;
  if (kKeyFormat == kF16) return halves(pair);
  return uintBitsToFloat(uvec4(pair.x << 16, pair.x & 0xffff0000u, pair.y << 16, pair.y & 0xffff0000u));
}

uvec4 load_key_unit(uint row, uint column) {
  if (kKeyUnits) return key_units[(row + 4u * column) / (kKeyFormat == kF32 ? 4u : 8u)];
  uvec4 elements = uvec4(0u);
  [[unroll]] for (uint i = 0u; i < 4u; i++) {
    if (4u * column + i >= kKeyDim) continue;
    const uint index = row + (4u * column + i) * low(p.k.dim);
    elements[i] = kKeyFormat == kF32 ? key_word(index) : HALF_OF(key_word(index >> 1), index);
  }
  return elements;
}

vec4 load_dense_values(uint row, uint column) {
  if (!kValueUnits) {
    uvec4 elements = uvec4(0u);
    [[unroll]] for (uint i = 0u; i < 4u; i++) {
      if (4u * column + i >= kValueDim) continue;
      const uint index = row + (4u * column + i) * low(p.v.dim);
      elements[i] = kValueFormat == kF32 ? value_word(index) : HALF_OF(value_word(index >> 1), index);
    }
    return dense_numbers(kValueFormat, elements);
  }
  const uint index = row + 4u * column;
  if (kValueFormat == kF32) return uintBitsToFloat(value_units[index / 4u]);
  const uvec2 pair = uvec2(value_word(index / 2u), value_word(index / 2u + 1u));
  if (kValueFormat == kF16) return halves(pair);
  return uintBitsToFloat(uvec4(pair.x << 16, pair.x & 0xffff0000u, pair.y << 16, pair.y & 0xffff0000u));
}

PageLayout key_layout() { return PageLayout(kKeys, kKeyBits, kKeyDim, p.k_page, uint(kHasMean)); }
PageLayout value_layout() { return PageLayout(kValues, kValueBits, kValueDim, p.v_page, 0u); }

// The scaled query of a vector of the query tile: its unit in `queries`.
uint query_unit(uint nth) {
  const uint vector = query_tile.first_vector + nth;
  const uint token = sequence.first_query_token + vector / p.group;
  const uint index = token * heads + kv_head * p.group + vector % p.group;
  return (query_header(heads) + index * padded_floats(kKeyDim)) / 4u;
}

// What the vectors ask, and which keys they see.
void read_queries() {
  const uint lane = gl_LocalInvocationIndex;
  const uint rotated = kKeysSealed ? p.tokens * heads * padded_floats(kKeyDim) / 4u : 0u;
  for (uint i = lane; i < kVectors * kColumns; i += kLanes) {
    const uint nth = i / kColumns;
    query[i] = nth < query_tile.vectors ? queries[query_unit(nth) + rotated + i % kColumns] : vec4(0.0);
  }
  for (uint nth = lane; nth < kVectors; nth += kLanes) {
    const uint vector = query_tile.first_vector + nth;
    const uint head = kv_head * p.group + vector % p.group;
    const uint query_tokens = sequence.query_tokens;
    uvec2 sees = uvec2(sequence.first_key, sequence.tokens);
    positions[nth] = float(int(sees.y + vector / p.group) - int(query_tokens + range.x));
    if ((p.flags & kCausal) != 0u) {
      sees.y = sees.y - query_tokens + vector / p.group + 1u;
      if (p.window != 0u && sees.y > p.window) sees.x = max(sees.x, sees.y - p.window);
    }
    seen[nth] = nth < query_tile.vectors ? clamp(sees, range.xx, range.yy) : uvec2(0u);
    slopes[nth] = nth < query_tile.vectors ? queries[head / 4u][head % 4u] : 0.0;
  }
}

void add_to_logits(uint column, vec4 dims[4]) {
  [[unroll]] for (uint g = 0u; g < kVectors; g++) {
    logits[g] = add_scaled(logits[g], query[g * kColumns + column], dims[0], dims[1], dims[2], dims[3]);
  }
}

// A sealed quad of keys against all queries, in units of its scales and without the page's mean.
void find_sealed_products(uint first_key) {
  const PageLayout layout_ = key_layout();
  const uint page = key_page(first_key);
  const uint token = first_key % p.k_page;
  const uint tile = token / kTileTokens;
  const uint quad = token % 16u / kQuadTokens;
  const uint first_column = token % kTileTokens / 16u * kColumns;
  const uint low_units = (page + plane_offset(layout_, tile, 0u) / 4u) / 4u + quad;
  const uint high_units = (page + plane_offset(layout_, tile, 1u) / 4u) / 4u + quad;
  uvec4 high = uvec4(0u);
  for (uint column = 0u; column < kColumns; column += kUnitColumns) {
    const uint nth = first_column + column;
    const uvec4 words = key_units[low_units + nth / kUnitColumns * 4u];
    if (kKeyHighBits != 0u && (column == 0u || nth % kKeyHighCells == 0u)) {
      high = key_units[high_units + nth / kKeyHighCells * 4u];
    }
    [[unroll]] for (uint cell = 0u; cell < kUnitColumns; cell++) {
      vec4 dims[4];
      [[unroll]] for (uint d = 0u; d < 4u; d++) {
        uvec4 codes = bitfieldExtract(words, int(8u * d + cell * kKeyLowBits), int(kKeyLowBits));
        if (kKeyHighBits != 0u) {
          const uint first_bit = 8u * d + (nth + cell) % kKeyHighCells * kKeyHighBits;
          codes |= bitfieldExtract(high, int(first_bit), int(kKeyHighBits)) << kKeyLowBits;
        }
        dims[d] = levels_of_keys(codes);
      }
      add_to_logits(column + cell, dims);
    }
  }
}

void find_dense_products(uint first_key) {
  uint rows[4];
  bvec4 there;
  [[unroll]] for (uint t = 0u; t < kQuadTokens; t++) {
    there[t] = in_range(first_key + t, 1u);
    rows[t] = there[t] ? key_row(first_key + t) : 0u;
  }
  for (uint column = 0u; column < kColumns; column += kUnitColumns) {
    uvec4 words[4];
    [[unroll]] for (uint t = 0u; t < kQuadTokens; t++) {
      words[t] = there[t] ? load_key_unit(rows[t], column) : uvec4(0u);
    }
    [[unroll]] for (uint nth = 0u; nth < kUnitColumns; nth++) {
      const mat4 dims = transpose(mat4(dense_column(words[0], nth), dense_column(words[1], nth),
                                       dense_column(words[2], nth), dense_column(words[3], nth)));
      add_to_logits(column + nth, vec4[4](dims[0], dims[1], dims[2], dims[3]));
    }
  }
}

// Each query's product with the mean of this lane's page, in which the page's lanes share.
void find_mean_products(uint first_key) {
  const uint lane = gl_LocalInvocationIndex;
  const uint page_lanes = p.k_page / kQuadTokens;
  [[unroll]] for (uint g = 0u; g < kVectors; g++) dots[g] = 0.0;
  if (in_range(first_key / p.k_page * p.k_page, p.k_page)) {
    const uint page = key_page(first_key) / 4u;
    for (uint unit = lane % page_lanes; unit < kKeyDim / 8u; unit += page_lanes) {
      const uvec4 words = key_units[page + unit];
      [[unroll]] for (uint g = 0u; g < kVectors; g++) {
        const uint at = query_unit(min(g, query_tile.vectors - 1u)) + 2u * unit;
        const vec4 both = fma(queries[at], finite_halves(words.xy), queries[at + 1u] * finite_halves(words.zw));
        dots[g] += (both.x + both.y) + (both.z + both.w);
      }
    }
  }
  [[unroll]] for (uint g = 0u; g < kVectors; g++) lane_numbers[kDots + g * kLaneNumbers + slot_of(lane)] = dots[g];
  barrier();
  const uint pages = kLanes / page_lanes;
  for (uint i = lane; i < kVectors * pages; i += kLanes) {
    float sum = 0.0;
    for (uint n = 0u; n < page_lanes; n++) {
      sum += lane_numbers[kDots + i / pages * kLaneNumbers + slot_of(i % pages * page_lanes + n)];
    }
    page_dots[i] = sum;
  }
  barrier();
  [[unroll]] for (uint g = 0u; g < kVectors; g++) dots[g] = page_dots[g * pages + lane / page_lanes];
}

// Four of a page's scales, with their signs.
uvec2 key_scales(uint page, uint token) {
  const uint word = page + scales_offset(key_layout()) / 4u + token / 2u;
  return uvec2(key_word(word), key_word(word + 1u));
}

uvec2 value_scales(uint page, uint token) {
  const uint word = page + scales_offset(value_layout()) / 4u + token / 2u;
  return uvec2(value_word(word), value_word(word + 1u));
}

// A sign may be that of zero, which compares as no other.
vec4 scale_sizes(uvec2 scales) { return kLevelScale * finite_halves(scales & 0x7fff7fffu); }
bvec4 without_mean(uvec2 scales) {
  return notEqual(uvec4(scales.x, scales.x >> 16, scales.y, scales.y >> 16) & kWithoutMean, uvec4(0u));
}

// Drivers' own overflows where x is large, and errs by last places of 1 where it is small, which a large cap multiplies.
vec4 tanh_of(vec4 x) {
  const float kIsOne = 9.2;
  const float kIsSeries = 0.35;  // whose next term is 2^-26 of it
  const vec4 size = mix(abs(x), vec4(kIsOne), greaterThan(abs(x), vec4(kIsOne)));
  const vec4 power = exp2(-2.0 * kLog2OfE * size);
  const vec4 s = size * size;
  vec4 series = fma(s, vec4(-1382.0 / 155925.0), vec4(62.0 / 2835.0));
  series = fma(s, series, vec4(-17.0 / 315.0));
  series = fma(s, series, vec4(2.0 / 15.0));
  series = fma(s, series, vec4(-1.0 / 3.0));
  const vec4 result = mix((1.0 - power) / (1.0 + power), fma(size * s, series, size), lessThan(size, vec4(kIsSeries)));
  return mix(result, -result, lessThan(x, vec4(0.0)));
}

// Soft cap and slope; in powers of two.
vec4 finished(vec4 logit, uint g, uint first_key) {
  if (p.soft_cap > 0.0) logit = p.soft_cap * tanh_of(logit / p.soft_cap);
  const vec4 from_range = vec4(ivec4(int(first_key) - int(range.x)) + ivec4(0, 1, 2, 3));
  if (slopes[g] != 0.0) logit -= slopes[g] * (positions[g] - from_range);
  return logit * kLog2OfE;
}

bvec4 seen_keys(uint g, uint first_key) {
  const uvec4 keys = uvec4(first_key) + uvec4(0u, 1u, 2u, 3u);
  const bvec4 from = greaterThanEqual(keys, seen[g].xxxx);
  const bvec4 to = lessThan(keys, seen[g].yyyy);
  return bvec4(from.x && to.x, from.y && to.y, from.z && to.z, from.w && to.w);
}

void find_logits(uint first_key) {
  const uint lane = gl_LocalInvocationIndex;
  uvec2 scales = uvec2(0u);
  [[unroll]] for (uint g = 0u; g < kVectors; g++) logits[g] = vec4(0.0);
  if (in_range(first_key, kQuadTokens)) {
    if (kKeysSealed) {
      find_sealed_products(first_key);
      scales = key_scales(key_page(first_key), first_key % p.k_page);
    } else {
      find_dense_products(first_key);
    }
  }
  if (kHasMean) find_mean_products(first_key);
  [[unroll]] for (uint g = 0u; g < kVectors; g++) {
    if (kKeysSealed) {
      const vec4 means = kHasMean ? mix(vec4(dots[g]), vec4(0.0), without_mean(scales)) : vec4(0.0);
      logits[g] = fma(logits[g], scale_sizes(scales), means);
    }
    logits[g] = mix(vec4(kNoLogit), finished(logits[g], g, first_key), seen_keys(g, first_key));
    lane_numbers[g * kLaneNumbers + slot_of(lane)] =
        max(max(logits[g].x, logits[g].y), max(logits[g].z, logits[g].w));
  }
  barrier();
  for (uint i = lane; i < kVectors * kBlockTiles; i += kLanes) {
    const uint at = i / kBlockTiles * kLaneNumbers + i % kBlockTiles * (kTileQuads + 1u);
    float max_logit = kNoLogit;
    for (uint n = 0u; n < kTileQuads; n++) max_logit = max(max_logit, lane_numbers[at + n]);
    tile_max_logits[i] = max_logit;
  }
  barrier();
}

// Logits of this key block become weights; what was added before is weighed anew.
void weigh(uint first_key) {
  const uint lane = gl_LocalInvocationIndex;
  vec4 scales = vec4(1.0);
  if (kValuesSealed && in_range(first_key, kQuadTokens)) {
    scales = scale_sizes(value_scales(value_page(first_key), first_key % p.v_page));
  }
  [[unroll]] for (uint g = 0u; g < kVectors; g++) {
    float max_logit = max_logits[g];
    [[unroll]] for (uint t = 0u; t < kBlockTiles; t++) max_logit = max(max_logit, tile_max_logits[g * kBlockTiles + t]);
    const float old_scale = exp2(max_logits[g] - max_logit);
    const bvec4 valid = seen_keys(g, first_key);
    const vec4 powers = mix(vec4(0.0), exp2(logits[g] - max_logit), valid);
    weights[g * kLanes + lane] = mix(vec4(0.0), powers * scales, valid);
    exp_sums[g] = fma(exp_sums[g], old_scale, (powers.x + powers.y) + (powers.z + powers.w));
    [[unroll]] for (uint turn = 0u; turn < kTurns; turn++) outs[g * kTurns + turn] *= old_scale;
    max_logits[g] = max_logit;
  }
  barrier();
}

// The first unit of quads that is this lane's: groups of lanes take turns.
uint first_share() { return kGroups == 1u ? 0u : gl_LocalInvocationIndex / kValueColumns; }

void add_sealed_values(uint key_block, uint column, uint turn) {
  const PageLayout layout_ = value_layout();
  for (uint unit = first_share(); unit < kLanes / kUnitQuads; unit += kGroups) {
    const uint quad = unit * kUnitQuads;
    const uint key = key_block + quad * kQuadTokens;
    if (!in_range(key, kUnitQuads * kQuadTokens)) continue;
    const uint page = value_page(key);
    const uint tile = key % p.v_page / kTileTokens;
    const uint tile_quad = key % kTileTokens / kQuadTokens;
    const uint low_units = (page + plane_offset(layout_, tile, 0u) / 4u) / 4u + column;
    uvec4 high = uvec4(0u);
    if (kValueHighBits != 0u) {
      const uint high_units = (page + plane_offset(layout_, tile, 1u) / 4u) / 4u + column;
      high = value_units[high_units + tile_quad / kUnitQuads * kValueColumns];
    }
    [[unroll]] for (uint first = 0u; first < kUnitQuads; first += kValueLowCells) {
      const uvec4 words = value_units[low_units + (tile_quad + first) / kValueLowCells * kValueColumns];
      [[unroll]] for (uint cell = 0u; cell < kValueLowCells; cell++) {
        vec4 tokens[4];
        [[unroll]] for (uint t = 0u; t < kQuadTokens; t++) {
          uvec4 codes = bitfieldExtract(words, int(8u * t + cell * kValueLowBits), int(kValueLowBits));
          if (kValueHighBits != 0u) {
            const uint first_bit = 8u * t + (first + cell) * kValueHighBits;
            codes |= bitfieldExtract(high, int(first_bit), int(kValueHighBits)) << kValueLowBits;
          }
          tokens[t] = levels_of_values(codes);
        }
        [[unroll]] for (uint g = 0u; g < kVectors; g++) {
          outs[g * kTurns + turn] = add_scaled(outs[g * kTurns + turn], weights[g * kLanes + quad + first + cell],
                                               tokens[0], tokens[1], tokens[2], tokens[3]);
        }
      }
    }
  }
}

void add_dense_values(uint key_block, uint column, uint turn) {
  for (uint quad = first_share(); quad < kLanes; quad += kGroups) {
    const uint key = key_block + quad * kQuadTokens;
    if (!in_range(key, kQuadTokens)) continue;
    vec4 tokens[4];
    [[unroll]] for (uint t = 0u; t < kQuadTokens; t++) {
      tokens[t] = in_range(key + t, 1u) ? load_dense_values(value_row(key + t), column) : vec4(0.0);
    }
    [[unroll]] for (uint g = 0u; g < kVectors; g++) {
      const vec4 by = weights[g * kLanes + quad];
      // What a vector does not see may be NaN: a weight of zero is not enough.
      [[unroll]] for (uint t = 0u; t < kQuadTokens; t++) {
        if (by[t] != 0.0) outs[g * kTurns + turn] = fma(vec4(by[t]), tokens[t], outs[g * kTurns + turn]);
      }
    }
  }
}

void add_values(uint key_block) {
  const uint lane = gl_LocalInvocationIndex;
  [[unroll]] for (uint turn = 0u; turn < kTurns; turn++) {
    const uint column = kGroups == 1u ? lane + turn * kLanes : lane % kValueColumns;
    if (column >= kValueColumns || first_share() >= kGroups) continue;
    if (kValuesSealed) {
      add_sealed_values(key_block, column, turn);
    } else {
      add_dense_values(key_block, column, turn);
    }
  }
}

// max_logit, exp_sum and output of each vector.
void write_partials() {
  const uint lane = gl_LocalInvocationIndex;
  barrier();  // weights have been read
  [[unroll]] for (uint g = 0u; g < kVectors; g++) lane_numbers[g * kLaneNumbers + slot_of(lane)] = exp_sums[g];
  barrier();
  for (uint g = lane; g < query_tile.vectors; g += kLanes) {
    float sum = 0.0;
    for (uint i = 0u; i < kLanes; i++) sum += lane_numbers[g * kLaneNumbers + slot_of(i)];
    partials[(first_partial + g) * partial_floats(kValueDim) + 1u] = sum;
  }
  [[unroll]] for (uint g = 0u; g < kVectors; g++) {
    if (lane == 0u && g < query_tile.vectors) partials[(first_partial + g) * partial_floats(kValueDim)] = max_logits[g];
  }
  [[unroll]] for (uint turn = 0u; turn < kTurns; turn++) {
    [[unroll]] for (uint g = 0u; g < kVectors; g++) weights[g * kLanes + lane] = outs[g * kTurns + turn];
    barrier();
    const uint columns = min(kValueColumns - turn * kLanes, kLanes);
    for (uint i = lane; i < query_tile.vectors * columns; i += kLanes) {
      const uint g = i / columns;
      vec4 sum = vec4(0.0);
      for (uint n = 0u; n < kGroups; n++) sum += weights[g * kLanes + n * columns + i % columns];
      const uint column = turn * kLanes + i % columns;
      const uint at = (first_partial + g) * partial_floats(kValueDim) + kPadFloats + 4u * column;
      [[unroll]] for (uint n = 0u; n < 4u; n++) partials[at + n] = sum[n];
    }
    barrier();
  }
}

void select(uint item) {
  const KvSplit split = kv_split_at(plan[p.first_split + item / p.kv_heads]);
  query_tile = query_tile_at(split.query_tile);
  sequence = plan_sequence(query_tile.sequence);
  heads = p.kv_heads * p.group;
  kv_head = item % p.kv_heads;
  first_partial = split.first_partial + kv_head * query_tile.vectors;
  range = split.first_key + uvec2(0u, split.keys);
  [[unroll]] for (uint g = 0u; g < kVectors; g++) {
    max_logits[g] = kNoLogit;
    exp_sums[g] = 0.0;
  }
  [[unroll]] for (uint i = 0u; i < kOuts; i++) outs[i] = vec4(0.0);
}

void main() {
  read_levels();
  for (uint item = gl_WorkGroupID.x; item < p.splits * p.kv_heads; item += gl_NumWorkGroups.x) {
    select(item);
    read_queries();
    barrier();
    for (uint key_block = range.x / kKeyBlock * kKeyBlock; key_block < range.y; key_block += kKeyBlock) {
      const uint first_key = key_block + kQuadTokens * gl_LocalInvocationIndex;
      find_logits(first_key);
      weigh(first_key);
      add_values(key_block);
    }
    write_partials();
  }
}
