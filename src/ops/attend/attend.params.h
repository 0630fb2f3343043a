#ifndef ROTA_OPS_ATTEND_PARAMS_H
#define ROTA_OPS_ATTEND_PARAMS_H

#include "codec/turbo/page.shared.h"
#include "codec/turbo/turbo.params.h"
#include "runtime/strides.params.h"

ROTA_PARAMS_BEGIN

// Three kernels. Queries are scaled and rotated. Entries, ranges of keys, give partial results. A row's partial results
// are added first to last, and rotated back.

constexpr uint kAttendGroupSize = 64u;
constexpr uint kMaxAttendDim = 1024u;
constexpr uint kRowStep = 16u;  // rows of scratch are padded to it

// Where keys begin to be looked at, and are added up together, is a multiple of kStepKeys: what a row does not see
// changes no sum of what it sees.
constexpr uint kStepKeys = 256u;

ROTA_SHARED uint padded_row(uint dim) { return (dim + kRowStep - 1u) / kRowStep * kRowStep; }

// The plan: words of one upload. A header, sequences, tables of places, chunks, entries, and which entries a launch
// has.
constexpr uint kPlanChunks = 0u;  // words of the plan that have the first chunk and the first entry
constexpr uint kPlanEntries = 1u;
constexpr uint kPlanSequences = 2u;  // the first sequence itself

constexpr uint kSequenceLength = 0u;
constexpr uint kSequenceQueryTokens = 1u;
constexpr uint kSequenceToken = 2u;  // the first query token
constexpr uint kSequenceFirst = 3u;  // the first key that is there
constexpr uint kSequenceTable = 4u;  // word of the plan with the place of page 0, or where it would be; keys, values
constexpr uint kSequenceRing = 6u;   // slots, or 0; keys, values
constexpr uint kSequenceSinks = 8u;  // the page of sinks; keys, values
constexpr uint kSequenceWords = 10u;

// Queries of one sequence that are served together. Vectors are [row][head of the group].
constexpr uint kChunkSequence = 0u;
constexpr uint kChunkVector = 1u;
constexpr uint kChunkVectors = 2u;
constexpr uint kChunkEntry = 3u;
constexpr uint kChunkEntries = 4u;
constexpr uint kChunkWords = 5u;

// A range of keys for one chunk, with one source of keys and one of values.
constexpr uint kEntryChunk = 0u;
constexpr uint kEntryKey = 1u;
constexpr uint kEntryKeys = 2u;
constexpr uint kEntryPartial = 3u;  // its first partial result: [kv head][vector]
constexpr uint kEntryRotated = 4u;  // whether its values are
constexpr uint kEntryWords = 5u;

// How one side's keys or values are stored: a dense dtype, or this and the bits of sealed codes.
constexpr uint kSealedFormat = 16u;

ROTA_SHARED uint sealed_bits(uint format) { return format < kSealedFormat ? 0u : format - kSealedFormat; }
ROTA_SHARED uint dense_type(uint format) { return format < kSealedFormat ? format : 0u; }

// Flags of AttendPartParams.
constexpr uint kCausal = 1u;
constexpr uint kKeySinks = 2u;  // the dense keys are sinks
constexpr uint kValueSinks = 4u;
constexpr uint kF32Arithmetic = 8u;  // also where bytes would do; GPUs have no other

// Scratch of queries: slopes and sink logits of the heads, then [token][head] as they are, then the same rotated.
ROTA_SHARED uint query_header(uint heads) { return padded_row(2u * heads); }

// A partial result: maximum and sum in its first row step, then the output.
ROTA_SHARED uint partial_floats(uint dim) { return kRowStep + padded_row(dim); }

// Shared memory of the second kernel: queries, weights, and what lanes tell each other.
constexpr uint kLaneRow = kAttendGroupSize + kAttendGroupSize / 16u;  // 17 words for 16 lanes: no bank conflicts
ROTA_SHARED uint attend_shared_bytes(uint vectors, uint k_dim) {
  const uint levels = 2u * 64u;
  const uint per_vector =
      (k_dim + 3u) / 4u * 4u + 4u * kAttendGroupSize + 2u * kLaneRow + 2u * kAttendGroupSize / 16u + 4u;
  return 4u * (levels + vectors * per_vector);
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

// Constants: format of keys, of values; dim of keys, of values; vectors; whether keys have a mean; whether dense keys,
// values lie in whole units.
struct AttendPartParams {
  SlotStrides k;  // of a sealed side: offset, page and head in words
  SlotStrides v;
  uint order;  // word of the plan with this launch's first entry
  uint entries;
  uint kv_heads;
  uint group;
  uint k_page;  // slots
  uint v_page;
  uint tokens;  // of the query
  uint window;  // 0 is none
  uint flags;
  float soft_cap;
};

struct AttendMergeParams {
  Strides to;
  Strides sums;            // log_sum_exp
  RotationShape rotation;  // m is 0 where no value is sealed
  uint first_chunk;
  uint chunks;
  uint kv_heads;
  uint group;
  uint vectors;  // at most, of a chunk
  uint dim;
};

ROTA_PARAMS_END

#endif
