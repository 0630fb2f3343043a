#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

// One workgroup: one split's keys of one kv head, for all vectors of its query tile. Four tiles of 64 keys at a time: a
// lane has four keys (a quad) for the logits, then four dims for the values. Each stored word is loaded by one lane, once,
// but for what fills the last batch.
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
layout(set = 0, binding = kAttendSplitBindingValues) readonly buffer ValuePairs { uvec2 value_pairs[]; };  // the same
layout(set = 0, binding = kAttendSplitBindingPlan) readonly buffer Plan { uint plan[]; };
layout(set = 0, binding = kAttendSplitBindingQueries) readonly buffer Queries { vec4 queries[]; };
layout(set = 0, binding = kAttendSplitBindingKeyTable) readonly buffer KeyTable { uint key_table[]; };
layout(set = 0, binding = kAttendSplitBindingValueTable) readonly buffer ValueTable { uint value_table[]; };
layout(set = 0, binding = kAttendSplitBindingPartials) writeonly buffer Partials { vec4 partials[]; };

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
// That decides who adds what: it follows from the format and the dim, not from where rows lie.
const uint kDenseColumns = kKeyFormat == kF32 ? 1u : 2u - (kKeyDim % 8u + 7u) / 8u;
const uint kUnitColumns = kKeysSealed ? kKeyLowCells : kDenseColumns;
const uint kKeyUnitCount = (kColumns + kUnitColumns - 1u) / kUnitColumns;

// Values: a lane has a column, and more where there are more than lanes; else groups of lanes share the quads. A unit
// has so many quads of a column, and so many units of the low plane.
const uint kValueColumns = (kValueDim + 3u) / 4u;
const uint kTurns = (kValueColumns + kLanes - 1u) / kLanes;
const uint kMostTurns = kMaxAttendDim / (4u * kLanes);
const uint kGroups = kValueColumns > kLanes ? 1u : kLanes / kValueColumns;
const uint kUnitQuads = kValueHighBits == 0u ? kValueLowCells : kValueHighCells;
const uint kUnitLows = kUnitQuads / kValueLowCells;

// Loads are made in batches, all of which are in flight before the first is waited for:
//
//   load 0 1 2 3   multiply cell 0 of 0 1 2 3, cell 1 of 0 1 2 3, ...   load 4 5 6 7   multiply ...
//
// without a branch between them, which would have each waited for. A batch is what registers hold beside the sums of
// the vectors, and code that instruction caches hold: so cells of a unit are gone over by a loop. That makes the batch
// a part of the order of sums, so it does not depend on the number of vectors. Only of dense keys and values does it,
// whose columns are added one after the other.
const bool kManyVectors = kVectors * kTurns > 4u;

// Units of the low plane, and those of the high plane that they belong to: where rows end within one, each has its own.
const bool kKeyHighsWhole = kColumns % kKeyHighCells == 0u;
const uint kKeysWanted = kKeyLowCells == 4u ? 2u : kKeyLowCells == 2u ? 4u : 8u;
const uint kKeyBatch = kKeyUnitCount % kKeysWanted == 0u ? kKeysWanted : kKeyUnitCount % 2u == 0u ? 2u : 1u;
const uint kKeyHighLows = kKeyHighsWhole ? kKeyHighCells / kKeyLowCells : 1u;  // of the low plane, for one of the high
const uint kKeyHighBatch = kKeyHighBits == 0u ? 0u : kKeyBatch / kKeyHighLows;

const uint kBlockUnits = kLanes / kUnitQuads;
const uint kUnitBatch = kUnitQuads == 8u ? 1u : kUnitQuads == 4u ? 2u : kUnitQuads == 2u ? 4u : 8u;
const bool kUnitsDivide = kBlockUnits % (kUnitBatch * kGroups) == 0u;

// Of dense keys four lanes read a line of a row together.
const uint kLineLanes = 4u;
const uint kRowLines = (kKeyUnitCount + kLineLanes - 1u) / kLineLanes;
const uint kLinesWanted = kKeyUnits ? (kManyVectors ? 2u : 4u) : 1u;
const uint kLineBatch = kRowLines % kLinesWanted == 0u ? kLinesWanted : 1u;
const uint kMostQuads = 5u;
const uint kQuadBatch = !kValueUnits ? 1u : kValueFormat == kF32 || kTurns > 1u ? 2u : kManyVectors ? kMostQuads : 4u;
const bool kQuadsDivide = kLanes % (kQuadBatch * kGroups) == 0u;

// Of means.
const uint kMeanPages = 8u;
const uint kMeanLanes = kLanes / kMeanPages;
const uint kSplitPages = kMaxSplitKeys / kTileTokens + 1u;  // a split may begin within one

shared float key_levels[64];
shared float value_levels[64];
shared vec4 query[kVectors * kColumns];
shared vec4 weights[kVectors * kLanes];  // of a quad's keys
shared vec4 line_sums[kKeysSealed ? 1u : kVectors * kLanes];
shared uvec4 key_rows[kKeysSealed ? 1u : kLanes];  // of a quad's keys, the first element
shared uvec4 value_rows[kValuesSealed ? 1u : kLanes];
shared uint value_tiles[kBlockTiles];
shared float lane_numbers[kVectors * kLaneNumbers];
shared float tile_max_logits[kVectors * kBlockTiles];
shared float max_logits[kVectors];  // of the key blocks before
shared float old_scales[kVectors];  // what these are weighed anew with
shared float exp_sums[kVectors * kBlockTiles];
shared float page_dots[kHasMean ? kVectors * kSplitPages : 1u];
shared uvec2 seen[kVectors];  // keys, from and to
shared float slopes[kVectors];
shared float positions[kVectors];  // of the query token, from the first key

// The workgroup's present work.
QueryTile query_tile;
PlanSequence sequence;
uint heads, kv_head;
uint first_partial;
uvec2 range;  // of keys, from and to

// This lane's, for each vector: its quad's logits, and of each of its columns the output, [vector][turn]. Globals: arrays
// of such sizes do not come back from functions.
const uint kOuts = kVectors * kTurns;
vec4 logits[kVectors];
vec4 outs[kOuts];

vec4 add_scaled(vec4 sum, vec4 by, vec4 a, vec4 b, vec4 c, vec4 d) {
  return fma(by.wwww, d, fma(by.zzzz, c, fma(by.yyyy, b, fma(by.xxxx, a, sum))));
}

// Among a vector's lane_numbers.
uint slot_of(uint lane) { return lane + lane / kTileQuads; }

// Among all, the first of a tile: [vector][tile].
uint tile_slot(uint i) { return i / kBlockTiles * kLaneNumbers + i % kBlockTiles * (kTileQuads + 1u); }

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

void add_to_outs(uint turn, uint quad, vec4 tokens[4]) {
  [[unroll]] for (uint g = 0u; g < kVectors; g++) {
    outs[g * kTurns + turn] =
        add_scaled(outs[g * kTurns + turn], weights[g * kLanes + quad], tokens[0], tokens[1], tokens[2], tokens[3]);
  }
}

// The first unit of quads that is this lane's: groups of lanes take turns.
uint first_share() { return kGroups == 1u ? 0u : gl_LocalInvocationIndex / kValueColumns; }

// This lane's column of values in a turn. One that there is not is another's: what it adds up is not written.
uint value_column(uint turn) {
  const uint lane = gl_LocalInvocationIndex;
  return kGroups == 1u ? min(lane + turn * kLanes, kValueColumns - 1u) : lane % kValueColumns;
}

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

// Finds a quad's products. Returns what its values are multiplied with. Pages and scales of a quad that is not in the
// range are another's.
vec4 find_products(uint key_block, uint first_key) {
  const uint lane = gl_LocalInvocationIndex;
  const uint key = clamp(first_key, range.x, range.y - 1u) / kQuadTokens * kQuadTokens;
  const uint k_page = kKeysSealed ? key_page(key) : 0u;
  const uint v_page = kValuesSealed ? value_page(key) : 0u;
  if (!kKeysSealed || !kValuesSealed) find_rows(first_key);
  if (kValuesSealed && lane % kTileQuads == 0u) value_tiles[lane / kTileQuads] = value_tile(v_page, key % p.v_page);
  [[unroll]] for (uint g = 0u; g < kVectors; g++) logits[g] = vec4(0.0);
  if (kKeysSealed) {
    if (in_range(first_key, kQuadTokens)) find_sealed_products(k_page, key % p.k_page);
  } else {
    barrier();
    find_dense_products(key_block);
  }
  // Both are loaded before one is waited for.
  const vec4 v_scales = kValuesSealed ? scale_sizes(value_scales(v_page, key % p.v_page)) : vec4(1.0);
  if (kKeysSealed) {
    const uvec2 scales = key_scales(k_page, key % p.k_page);
    const vec4 sizes = scale_sizes(scales);
    const uint nth_page = key / p.k_page - range.x / p.k_page;
    [[unroll]] for (uint g = 0u; g < kVectors; g++) {
      const vec4 means =
          kHasMean ? mix(vec4(page_dots[g * kSplitPages + nth_page]), vec4(0.0), without_mean(scales)) : vec4(0.0);
      logits[g] = fma(logits[g], sizes, means);
    }
  }
  return v_scales;
}

// Returns what the quad's values are multiplied with.
vec4 find_logits(uint key_block, uint first_key) {
  const uint lane = gl_LocalInvocationIndex;
  const vec4 v_scales = find_products(key_block, first_key);
  [[unroll]] for (uint g = 0u; g < kVectors; g++) {
    logits[g] = mix(vec4(kNoLogit), finished(logits[g], g, first_key), seen_keys(g, first_key));
    lane_numbers[g * kLaneNumbers + slot_of(lane)] =
        max(max(logits[g].x, logits[g].y), max(logits[g].z, logits[g].w));
  }
  barrier();
  for (uint i = lane; i < kVectors * kBlockTiles; i += kLanes) {
    const uint at = tile_slot(i);
    float max_logit = kNoLogit;
    for (uint n = 0u; n < kTileQuads; n++) max_logit = max(max_logit, lane_numbers[at + n]);
    tile_max_logits[i] = max_logit;
  }
  barrier();
  return v_scales;
}

// With this key block's.
float raised_max_logit(uint g) {
  float max_logit = max_logits[g];
  [[unroll]] for (uint t = 0u; t < kBlockTiles; t++) max_logit = max(max_logit, tile_max_logits[g * kBlockTiles + t]);
  return max_logit;
}

// Logits of this key block become weights; what was added before is weighed anew.
void weigh(uint first_key, vec4 v_scales) {
  const uint lane = gl_LocalInvocationIndex;
  [[unroll]] for (uint g = 0u; g < kVectors; g++) {
    const float max_logit = raised_max_logit(g);
    const float old_scale = exp2(max_logits[g] - max_logit);
    const bvec4 valid = seen_keys(g, first_key);
    const vec4 powers = mix(vec4(0.0), exp2(logits[g] - max_logit), valid);
    weights[g * kLanes + lane] = mix(vec4(0.0), powers * v_scales, valid);
    lane_numbers[g * kLaneNumbers + slot_of(lane)] = (powers.x + powers.y) + (powers.z + powers.w);
    if (lane == 0u) old_scales[g] = old_scale;
    [[unroll]] for (uint turn = 0u; turn < kTurns; turn++) outs[g * kTurns + turn] *= old_scale;
  }
  barrier();
  for (uint i = lane; i < kVectors * kBlockTiles; i += kLanes) {
    const uint at = tile_slot(i);
    float sum = 0.0;
    for (uint n = 0u; n < kTileQuads; n++) sum += lane_numbers[at + n];
    exp_sums[i] = fma(exp_sums[i], old_scales[i / kBlockTiles], sum);
  }
  if (lane < kVectors) max_logits[lane] = raised_max_logit(lane);
}

void add_values(uint key_block) {
  const uvec2 keys = clamp(range, uvec2(key_block), uvec2(key_block + kKeyBlock)) - key_block;
  const uvec2 quads = uvec2(keys.x / kQuadTokens, (keys.y + kQuadTokens - 1u) / kQuadTokens);
  if (first_share() >= kGroups) return;
  if (kValuesSealed) {
    add_sealed_values(quads);
  } else {
    add_dense_values(quads);
  }
}

// max_logit, exp_sum and output of each vector.
void write_partials() {
  const uint lane = gl_LocalInvocationIndex;
  const uint kPartialUnits = partial_floats(kValueDim) / 4u;
  barrier();  // weights have been read
  if (lane < query_tile.vectors) {
    const uint at = lane * kBlockTiles;
    const float sum = (exp_sums[at] + exp_sums[at + 1u]) + (exp_sums[at + 2u] + exp_sums[at + 3u]);
    partials[(first_partial + lane) * kPartialUnits] = vec4(max_logits[lane], sum, 0.0, 0.0);
  }
  [[unroll]] for (uint turn = 0u; turn < kTurns; turn++) {
    [[unroll]] for (uint g = 0u; g < kVectors; g++) weights[g * kLanes + lane] = outs[g * kTurns + turn];
    barrier();
    const uint columns = min(kValueColumns - turn * kLanes, kLanes);
    for (uint i = lane; i < query_tile.vectors * columns; i += kLanes) {
      const uint g = i / columns;
      vec4 sum = vec4(0.0);
      for (uint n = 0u; n < kGroups; n++) sum += weights[g * kLanes + n * columns + i % columns];
      partials[(first_partial + g) * kPartialUnits + kPadFloats / 4u + turn * kLanes + i % columns] = sum;
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
  first_partial = split.first_partial - p.first_partial + kv_head * query_tile.vectors;
  range = split.first_key + uvec2(0u, split.keys);
  if (gl_LocalInvocationIndex < kVectors) max_logits[gl_LocalInvocationIndex] = kNoLogit;
  for (uint i = gl_LocalInvocationIndex; i < kVectors * kBlockTiles; i += kLanes) exp_sums[i] = 0.0;
  [[unroll]] for (uint i = 0u; i < kOuts; i++) outs[i] = vec4(0.0);
}

void main() {
  read_levels();
  for (uint item = gl_WorkGroupID.x; item < p.splits * p.kv_heads; item += gl_NumWorkGroups.x) {
    select(item);
    read_queries();
    if (kHasMean) find_mean_products();
    for (uint key_block = range.x / kKeyBlock * kKeyBlock; key_block < range.y; key_block += kKeyBlock) {
      barrier();  // the last block's rows and weights have been read
      const uint first_key = key_block + kQuadTokens * gl_LocalInvocationIndex;
      weigh(first_key, find_logits(key_block, first_key));
      add_values(key_block);
    }
    write_partials();
  }
}
