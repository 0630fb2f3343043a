#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

// One workgroup: one split's keys of one kv head, for all vectors of its query tile. Four tiles of 64 keys at a time: a lane
// has four keys (a quad) for the logits, then four dims for the values. Each stored word is loaded by one lane, once.
// No subgroup operation, and every sum in a fixed order: the subgroups of a device change no bit.

#include "codec/dense/dense.glsl"
#include "codec/turbo/codes.glsl"
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

const uint kKeyBits = kKeyFormat < kSealedFormat ? 0u : kKeyFormat - kSealedFormat;
const uint kValueBits = kValueFormat < kSealedFormat ? 0u : kValueFormat - kSealedFormat;
const bool kKeysSealed = kKeyBits != 0u;
const bool kValuesSealed = kValueBits != 0u;

// Codes lie in one plane or two.
const uint kKeyLowBits = ROTA_LOW_PLANE_BITS(kKeyBits);
const uint kKeyHighBits = kKeyBits - kKeyLowBits;
const uint kValueLowBits = ROTA_LOW_PLANE_BITS(kValueBits);
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

vec4 add_scaled(vec4 sum, vec4 by, vec4 a, vec4 b, vec4 c, vec4 d) {
  return fma(by.wwww, d, fma(by.zzzz, c, fma(by.yyyy, b, fma(by.xxxx, a, sum))));
}

// Among a vector's lane_numbers.
uint slot_of(uint lane) { return lane + lane / kTileQuads; }

bool in_range(uint first, uint keys) { return first + keys > range.x && first < range.y; }

uint key_word(uint index) { return key_units[index >> 2][index & 3u]; }
uint value_word(uint index) { return value_units[index >> 2][index & 3u]; }

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
    uvec2 sees = uvec2(0u, sequence.tokens);  // as far as the range goes
    positions[nth] = float(int(sees.y + vector / p.group) - int(query_tokens + range.x));
    if ((p.flags & kCausal) != 0u) {
      sees.y = sees.y - query_tokens + vector / p.group + 1u;
      if (p.window != 0u && sees.y > p.window) sees.x = sees.y - p.window;
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

// The first unit of quads that is this lane's: groups of lanes take turns.
uint first_share() { return kGroups == 1u ? 0u : gl_LocalInvocationIndex / kValueColumns; }

#include "ops/attend/split_dense.glsl"
#include "ops/attend/split_sealed.glsl"

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
