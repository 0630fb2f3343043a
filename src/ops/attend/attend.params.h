#ifndef ROTA_OPS_ATTEND_PARAMS_H
#define ROTA_OPS_ATTEND_PARAMS_H

#include "codec/turbo/page.shared.h"
#include "codec/turbo/turbo.params.h"
#include "runtime/strides.params.h"

ROTA_PARAMS_BEGIN

// Three kernels. Queries are scaled and rotated. KV splits, ranges of keys, give partial results. A query vector's
// partial results are added first to last, and rotated back.

constexpr uint kAttendGroupSize = 64u;
constexpr uint kMaxAttendDim = 1024u;
constexpr uint kPadFloats = 16u;  // vectors in scratch are padded to it

// Where keys begin to be looked at, and are added up together, is a multiple of kKeyBlock: what a query vector does
// not see changes no sum of what it sees.
constexpr uint kKeyBlock = 256u;

// No KV split has more keys.
constexpr uint kMaxSplitKeys = 4096u;

ROTA_SHARED uint padded_floats(uint dim) { return (dim + kPadFloats - 1u) / kPadFloats * kPadFloats; }

// The plan: words of one upload. A PlanHeader, PlanSequences, page tables, QueryTiles, KvSplits, and the numbers of
// each launch's splits. All are structs of words, which the host copies, the CPU points at, and plan.glsl reads.
struct PlanHeader {
  uint query_tiles;  // words of the plan with the first query tile and the first KV split
  uint splits;
};

struct PlanSide {
  uint page_table;  // word of the plan with the physical page of logical page 0, or where it would be
  uint ring;        // slots, or 0
  uint sinks;       // the page of sinks
};

struct PlanSequence {
  uint tokens;
  uint query_tokens;
  uint first_query_token;  // of the call's
  PlanSide k;
  PlanSide v;
};

// Queries of one sequence that are served together. Vectors are [query token][head of the group].
struct QueryTile {
  uint sequence;
  uint first_vector;
  uint vectors;
  uint first_split;
  uint splits;
};

// A range of keys for one query tile, with one source of keys and one of values.
struct KvSplit {
  uint query_tile;
  uint first_key;
  uint keys;
  uint first_partial;  // of its partial results: [kv head][vector]
  uint rotated;        // whether its values are
};

constexpr uint kPlanHeaderWords = 2u;
constexpr uint kPlanSideWords = 3u;
constexpr uint kPlanSequenceWords = 3u + 2u * kPlanSideWords;
constexpr uint kQueryTileWords = 5u;
constexpr uint kKvSplitWords = 5u;

// How one side's keys or values are stored: a dense dtype, or this and the bits of sealed codes.
constexpr uint kSealedFormat = 16u;

ROTA_SHARED uint sealed_bits(uint format) { return format < kSealedFormat ? 0u : format - kSealedFormat; }
ROTA_SHARED uint dense_type(uint format) { return format < kSealedFormat ? format : 0u; }

// Flags of AttendSplitParams.
constexpr uint kCausal = 1u;
constexpr uint kKeySinks = 2u;  // the dense keys are sinks
constexpr uint kValueSinks = 4u;
constexpr uint kF32Arithmetic = 8u;  // also where bytes would do; GPUs have no other

// Scratch of queries: slopes and sink logits of the heads, then [token][head] as they are, then the same rotated.
ROTA_SHARED uint query_header(uint heads) { return padded_floats(2u * heads); }

// A partial result: max_logit and exp_sum in its first kPadFloats, then the output.
ROTA_SHARED uint partial_floats(uint dim) { return kPadFloats + padded_floats(dim); }

// Shared memory of the second kernel, at most: queries, weights, where rows begin, and what lanes tell each other.
constexpr uint kLaneNumbers = kAttendGroupSize + kAttendGroupSize / 16u;  // 17 words for 16 lanes: no bank conflicts
ROTA_SHARED uint attend_shared_bytes(uint vectors, uint k_dim) {
  const uint levels = 2u * 64u;
  const uint places = 2u * kKeyBlock + kKeyBlock / kTileTokens;
  const uint sums = 2u * kKeyBlock + kLaneNumbers + 2u * kKeyBlock / kTileTokens;
  const uint per_vector = (k_dim + 3u) / 4u * 4u + sums + 6u;
  const uint nothing = 1u;  // of an array that is not used
  return 4u * (levels + places + nothing + vectors * per_vector);
}

constexpr float kNoLogit = -1e30f;  // of no key; finite, so that differences are numbers
// NOLINTBEGIN(modernize-use-std-numbers): GLSL has none
constexpr float kLog2OfE = 1.44269504f;
constexpr float kLogOf2 = 0.693147181f;
// NOLINTEND(modernize-use-std-numbers)

struct HeadNumbers {
  Wide offset;
  Wide head;
};

// Of attend_query. Types of what may be missing are 0, or the type and 1.
constexpr uint kAttendQueryConstantFrom = 0u;
constexpr uint kAttendQueryConstantSlopes = 1u;
constexpr uint kAttendQueryConstantSinks = 2u;

constexpr uint kAttendQueryBindingFrom = 0u;
constexpr uint kAttendQueryBindingKeyTable = 1u;
constexpr uint kAttendQueryBindingSlopes = 2u;
constexpr uint kAttendQueryBindingSinks = 3u;
constexpr uint kAttendQueryBindingQueries = 4u;

struct AttendQueryParams {
  Strides from;
  HeadNumbers slopes;
  HeadNumbers sinks;
  RotationShape rotation;  // m is 0 where no key is sealed
  uint tokens;
  uint heads;
  uint dim;
  float scale;
};

// Of attend_split.
constexpr uint kAttendSplitConstantKeyFormat = 0u;
constexpr uint kAttendSplitConstantValueFormat = 1u;
constexpr uint kAttendSplitConstantKeyDim = 2u;
constexpr uint kAttendSplitConstantValueDim = 3u;
constexpr uint kAttendSplitConstantVectors = 4u;   // of a query tile, at most
constexpr uint kAttendSplitConstantHasMean = 5u;   // keys do
constexpr uint kAttendSplitConstantKeyUnits = 6u;  // dense rows are whole units of 16 bytes
constexpr uint kAttendSplitConstantValueUnits = 7u;

constexpr uint kAttendSplitBindingKeys = 0u;
constexpr uint kAttendSplitBindingValues = 1u;
constexpr uint kAttendSplitBindingPlan = 2u;
constexpr uint kAttendSplitBindingQueries = 3u;
constexpr uint kAttendSplitBindingKeyTable = 4u;
constexpr uint kAttendSplitBindingValueTable = 5u;
constexpr uint kAttendSplitBindingPartials = 6u;

struct AttendSplitParams {
  SlotStrides k;  // of a sealed side: offset, page and head in words
  SlotStrides v;
  uint first_split;  // word of the plan with the number of this launch's first one
  uint splits;
  uint kv_heads;
  uint group;
  uint k_page;  // slots
  uint v_page;
  uint tokens;  // of the query
  uint window;  // 0 is none
  uint flags;
  float soft_cap;
  uint first_partial;  // of the binding
};

// Of attend_merge.
constexpr uint kAttendMergeConstantTo = 0u;
constexpr uint kAttendMergeConstantLogSum = 1u;  // 0 where nobody asks for it, or its type and 1
constexpr uint kAttendMergeConstantSinkLogits = 2u;
constexpr uint kAttendMergeConstantToWords = 3u;  // elements side by side, and every output starts on a word

constexpr uint kAttendMergeBindingPlan = 0u;
constexpr uint kAttendMergeBindingPartials = 1u;
constexpr uint kAttendMergeBindingQueries = 2u;
constexpr uint kAttendMergeBindingValueTable = 3u;
constexpr uint kAttendMergeBindingTo = 4u;
constexpr uint kAttendMergeBindingLogSum = 5u;

struct AttendMergeParams {
  Strides to;
  Strides log_sum_exp;
  RotationShape rotation;  // m is 0 where no value is sealed
  uint first_query_tile;
  uint query_tiles;
  uint kv_heads;
  uint group;
  uint vectors;  // at most, of a query tile
  uint dim;
};

ROTA_PARAMS_END

#endif
