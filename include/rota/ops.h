#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "rota/encoder.h"
#include "rota/export.h"
#include "rota/kv_view.h"
#include "rota/token_run.h"
#include "rota/view.h"

// Every op records work into an encoder. A bad argument is kept by the encoder and returned by
// submit(); nothing of a refused call runs. Spans are read during the call only.

namespace rota::inline ROTA_ABI {

struct StorePair {
  View from;
  SlotView to;
};

struct Store {
  std::span<const StorePair> pairs;     // K and V, say: the same tokens and positions for each
  std::span<const TokenRun> sequences;  // take the source's tokens one after the other, all of them
  // Counts elements written that are infinite or NaN as stored: an f32 beyond f16's range becomes infinite.
  std::optional<Counter> non_finite = {};
};

// Copies head vectors into a cache, converting between f32, f16 and bf16. Of more tokens than a
// sequence's capacity the newest stay.
ROTA_API void store(Encoder& encoder, const Store& call);

// Which two coordinates of a head a rotation turns. There are rope_dim / 2 pairs.
enum class Pairing : std::uint8_t {
  halves,          // p with p + rope_dim / 2: GPT-NeoX, and most models in transformers
  interleaved,     // 2p with 2p + 1: GPT-J, Llama as Meta stores it
  section_halves,  // each section has coordinates of its own, paired by halves: 2-D vision rope
};

enum class SectionOrder : std::uint8_t {
  contiguous,   // one section after the other: mrope, vision
  interleaved,  // the first three take turns, pair by pair, as long as they last: imrope
};

enum class SectionFrequencies : std::uint8_t {
  shared,  // a pair's frequency does not depend on its section: mrope, imrope
  own,     // every section begins again at the highest frequency: vision
};

// Positions with several axes (time, height, width): which axis turns which pairs.
struct RopeSections {
  std::vector<std::uint32_t> pairs;  // per axis, 4 axes at most, rope_dim / 2 together
  Required<SectionOrder> order;
  Required<SectionFrequencies> frequencies;
};

enum class YarnRamp : std::uint8_t {
  whole_pairs,  // begins and ends at whole pairs: transformers' truncate
  exact,        // gpt-oss
};

// A longer context by dividing slow frequencies: pairs that turn more often than beta_fast in the original
// context keep theirs, those below beta_slow are divided by `factor`, and between is a ramp.
struct Yarn {
  Required<double> factor;
  Required<std::uint64_t> original_context;
  double beta_fast = 32, beta_slow = 1;
  double extrapolation = 1;  // how much of the ramp is applied, from 0 to 1
  YarnRamp ramp = YarnRamp::whole_pairs;
};

// How a model rotates: pair p by position * theta^(-2p / exponent_dim) / factors[p] / interpolation radians.
// docs/rope.md has it for many models.
struct Rotary {
  Required<Pairing> pairing;
  Required<double> theta;
  std::optional<std::uint64_t> rope_dim = {};       // coordinates in pairs, from the first; else the whole head
  std::optional<std::uint64_t> turning_pairs = {};  // pairs that turn, from the first; else all
  std::optional<std::uint64_t> exponent_dim = {};   // else rope_dim, or twice the pairs of a section of its own
  std::vector<float> factors = {};                  // one per pair: Llama 3, LongRoPE
  double interpolation = 1;                         // linear scaling
  std::optional<Yarn> yarn = {};                    // instead of linear scaling
  std::optional<double> magnitude = {};             // scales all pairs; else 1, or with YaRN 0.1 ln(factor) + 1
  std::optional<RopeSections> sections = {};        // else one axis
};

// RMS norm of each head vector: x / sqrt(mean(x^2) + epsilon) * (weight + weight_offset), in f32: a head whose sum of
// squares overflows becomes zeros.
struct HeadNorm {
  Required<double> epsilon;
  std::optional<View> weight = {};  // {1, 1, dim} for all heads, or {1, heads, dim}
  double weight_offset = 0;         // 1 for Gemma 3, whose files hold weight - 1
};

struct RopeTensor {
  View from;   // heads of at most 4096
  MutView to;  // in other bytes than `from` spans, or exactly where it is
  std::optional<HeadNorm> norm = {};

  static RopeTensor in_place(const MutView& x, std::optional<HeadNorm> norm = {}) {
    return {.from = x, .to = x, .norm = std::move(norm)};
  }
};

struct Rope {
  std::span<const RopeTensor> tensors;      // Q and K, say: the same tokens for each; one after the other
  std::span<const std::int64_t> positions;  // [axis][token], from 0 to 2^31 - 1
  const Rotary& rotary;
};

// Rotates head vectors by their positions, after their norm if asked; what is beyond rope_dim is copied as by store(),
// or normed. Off by at most 2 last places of `to` and 1e-6 of a pair's length; a norm adds 1e-6 + dim * 2e-9 of it.
ROTA_API void rope(Encoder& encoder, const Rope& call);

struct SealPage {
  Required<std::uint64_t> from;              // page of slots
  Required<std::uint64_t> to;                // sealed page
  std::optional<std::uint64_t> tokens = {};  // slots that hold one, from the first; else all. The rest seals to zeros
  std::uint64_t sinks = 0;                   // tokens, from the first, that the key mean leaves out
};

struct Seal {
  SlotView from;
  SealedView to;                    // in other bytes than `from` spans
  std::span<const SealPage> pages;  // of any layers and sequences, every head of each
  // Counts values that f16 cannot hold: NaN seals as 0, the others as +-65504.
  Counter non_finite;
};

// Compresses pages. Every device gives the same bytes: docs/page-format.md.
ROTA_API void seal(Encoder& encoder, const Seal& call);

struct UnsealPage {
  Required<std::uint64_t> from;              // sealed page
  Required<std::uint64_t> to;                // page of slots
  std::optional<std::uint64_t> tokens = {};  // to restore, from the first; else all. Other slots stay as they are
};

struct Unseal {
  SealedView from;
  SlotView to;  // in other bytes than `from` spans
  std::span<const UnsealPage> pages;
};

// Restores what a reader of sealed pages sees, finite always. Every device gives the same bits.
ROTA_API void unseal(Encoder& encoder, const Unseal& call);

enum class Mask : std::uint8_t {
  causal,  // a sequence's query tokens are its newest; each sees itself and what comes before
  none,    // each sees all keys
};

// How sealed keys and values are multiplied.
enum class Arithmetic : std::uint8_t {
  stored,  // no more precisely than the codec deserves: a CPU takes bytes, and adds less than a tenth of its error
  f32,
};

struct Attend {
  View q;                  // the sequences' query tokens, one sequence after the other
  const KvView& kv;        // a multiple of its heads are q's; a window is exactly so many keys
  MutView out;             // [token, query head, value dim]
  Required<double> scale;  // of the dot products; usually 1 / sqrt(head_dim)
  std::span<const std::uint64_t> query_tokens = {};  // of each sequence; else one each
  Mask mask = Mask::causal;
  std::optional<double> soft_cap = {};      // a logit x becomes cap * tanh(x / cap): Gemma 2
  std::optional<View> sink_logits = {};     // {1, query heads, 1}: one more logit for each head, of no key: gpt-oss
  std::optional<View> alibi_slopes = {};    // {1, query heads, 1}: logits fall by slope * distance
  std::optional<MutView> log_sum_exp = {};  // [token, query head, 1]: of each row's logits, for merge()
  Arithmetic arithmetic = Arithmetic::stored;
};

// Attention over keys and values as they are stored. A row's result depends on its query, its keys and values and where
// they are sealed alone: no thread count, batch, placement or ring start changes a bit. A row without keys gives zeros.
ROTA_API void attend(Encoder& encoder, const Attend& call);

// What attention over some keys gives: outputs, and per row the natural logarithm of the sum of exp(logit).
struct AttentionState {
  View out;          // [token, head, dim], heads of at most 4096
  View log_sum_exp;  // [token, head, 1]; -infinity: no keys, and `out` is not looked at
};

struct Merge {
  AttentionState first, second;
  // In other bytes than the parts span, or exactly where a part's own is.
  MutView out;
  std::optional<MutView> log_sum_exp = {};
};

// What attention over the keys of both parts would give, if they share none: docs/merge.md. Off by at most a last place
// of the result and 1e-6 of the larger element, or 1e-6 for log_sum_exp.
ROTA_API void merge(Encoder& encoder, const Merge& call);

// Whole 32-bit words of a buffer: offset and size are multiples of 4.
struct WordRange {
  Buffer buffer;
  std::uint64_t offset_bytes = 0;
  Required<std::uint64_t> size_bytes;
};

struct Checksum {
  std::span<const WordRange> of;
  // Where the sums go, one u32 for each range, overwritten. In other bytes than the ranges.
  Buffer sums;
  std::uint64_t sums_offset_bytes = 0;  // a multiple of 4
};

// Adds up the little-endian words of each range, modulo 2^32, as fast as the device reads: docs/checksum.md. Every
// device gives the same.
ROTA_API void checksum(Encoder& encoder, const Checksum& call);

}  // namespace rota::inline ROTA_ABI
