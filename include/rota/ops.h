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

// Every op records commands into an encoder. A bad argument is an error that the encoder keeps and submit() returns; no
// command of such a call runs. Spans are read during the call only.

namespace rota::inline ROTA_ABI {

// A source and a target of store().
struct StorePair {
  View from;
  SlotView to;
};

struct Store {
  std::span<const StorePair> pairs;     // such as K and V: each has the same tokens and positions
  std::span<const TokenRun> sequences;  // together all tokens of the source, one sequence after the other

  // Counts written elements that are infinite or NaN once stored. An f32 beyond the range of f16 becomes infinite.
  std::optional<Counter> non_finite = {};
};

// Copies head vectors into slots, and converts between f32, f16 and bf16. If a sequence has more tokens than its
// capacity, the newest stay.
ROTA_API void store(Encoder& encoder, const Store& call);

// Which two coordinates of a head vector make pair p. There are rope_dim / 2 pairs.
enum class Pairing : std::uint8_t {
  halves,          // p and p + rope_dim / 2: GPT-NeoX, and most models in transformers
  interleaved,     // 2p and 2p + 1: GPT-J, Llama as Meta stores it
  section_halves,  // as `halves`, but inside the coordinates of each section: 2-D vision rope
};

// How the pairs of sections follow each other.
enum class SectionOrder : std::uint8_t {
  contiguous,   // one section after the other: mrope, vision
  interleaved,  // the first three sections take turns, pair by pair, as long as they last: imrope
};

// Where the frequencies of a section begin.
enum class SectionFrequencies : std::uint8_t {
  shared,  // a pair's frequency does not depend on its section: mrope, imrope
  own,     // every section begins again at the highest frequency: vision
};

// Positions with several axes (time, height, width): each axis turns the pairs of its section.
struct RopeSections {
  std::vector<std::uint32_t> pairs;  // per axis; at most 4 axes, rope_dim / 2 pairs in all
  Required<SectionOrder> order;
  Required<SectionFrequencies> frequencies;
};

// Where YaRN's ramp begins and ends.
enum class YarnRamp : std::uint8_t {
  whole_pairs,  // at whole pairs: transformers' truncate
  exact,        // at fractions of a pair: gpt-oss
};

// YaRN makes the context longer. Pairs that turn more than beta_fast times in the original context keep their
// frequency, those that turn less than beta_slow times have it divided by `factor`, and between the two is a ramp.
struct Yarn {
  Required<double> factor;
  Required<std::uint64_t> original_context;  // tokens
  double beta_fast = 32, beta_slow = 1;      // turns
  double extrapolation = 1;                  // share of the ramp that is applied, 0 to 1
  YarnRamp ramp = YarnRamp::whole_pairs;
};

// How a model rotates: pair p by position * theta^(-2p / exponent_dim) / factors[p] / interpolation radians.
// docs/rope.md lists the values of many models.
struct Rotary {
  Required<Pairing> pairing;
  Required<double> theta;
  std::optional<std::uint64_t> rope_dim = {};       // coordinates in pairs, from the first on; none: the whole head
  std::optional<std::uint64_t> turning_pairs = {};  // pairs that turn, from the first on; none: all
  std::optional<std::uint64_t> exponent_dim = {};   // none: rope_dim, or with SectionFrequencies::own a section's dims
  std::vector<float> factors = {};                  // one per pair, or empty: Llama 3, LongRoPE
  double interpolation = 1;                         // linear scaling
  std::optional<Yarn> yarn = {};                    // instead of linear scaling
  std::optional<double> magnitude = {};             // scale of all pairs; none: 1, or with YaRN 0.1 ln(factor) + 1
  std::optional<RopeSections> sections = {};        // none: positions have one axis
};

// The RMS norm of each head vector, x / sqrt(mean(x^2) + epsilon) * (weight + weight_offset), in f32. If the sum of
// squares overflows, the head vector becomes zeros.
struct HeadNorm {
  Required<double> epsilon;
  std::optional<View> weight = {};  // [1, 1, dim] for all heads, or [1, heads, dim]; none: 1
  double weight_offset = 0;         // 1 for Gemma 3, whose files store weight - 1
};

// A source and a target of rope().
struct RopeTensor {
  View from;                          // [tokens, heads, dim], dim <= 4096
  MutView to;                         // the same view as `from`, or other bytes
  std::optional<HeadNorm> norm = {};  // before the rotation

  static RopeTensor in_place(const MutView& x, std::optional<HeadNorm> norm = {}) {
    return {.from = x, .to = x, .norm = std::move(norm)};
  }
};

struct Rope {
  std::span<const RopeTensor> tensors;      // such as Q and K: each has the same tokens; done one after the other
  std::span<const std::int64_t> positions;  // [axis][token], 0 to 2^31 - 1
  const Rotary& rotary;
};

// Normalizes head vectors if asked, and rotates them by their positions. Coordinates from rope_dim on are not rotated;
// without a norm they are copied as store() does. The error is at most 2 units in the last place of the type of `to`,
// plus 1e-6 of the pair's length; a norm adds 1e-6 + dim * 2e-9 of that length.
ROTA_API void rope(Encoder& encoder, const Rope& call);

// A page for seal().
struct SealPage {
  Required<std::uint64_t> from;              // page of slots
  Required<std::uint64_t> to;                // sealed page
  std::optional<std::uint64_t> tokens = {};  // in the page, from the first slot on; none: all. The rest seals as zeros
  std::uint64_t sinks = 0;                   // first tokens that do not count in the key mean
};

struct Seal {
  SlotView from;
  SealedView to;                    // other bytes than those of `from`
  std::span<const SealPage> pages;  // of any layers and sequences; all heads of each
  Counter non_finite;               // counts values that f16 cannot hold: NaN seals as 0, the others as +-65504
};

// Compresses pages. Every device gives the same bytes, which docs/page-format.md defines.
ROTA_API void seal(Encoder& encoder, const Seal& call);

// A page for unseal().
struct UnsealPage {
  Required<std::uint64_t> from;              // sealed page
  Required<std::uint64_t> to;                // page of slots
  std::optional<std::uint64_t> tokens = {};  // to restore, from the first on; none: all. Other slots stay as they are
};

struct Unseal {
  SealedView from;
  SlotView to;  // other bytes than those of `from`
  std::span<const UnsealPage> pages;
};

// Restores the values that readers of sealed pages see. All are finite. Every device gives the same bits.
ROTA_API void unseal(Encoder& encoder, const Unseal& call);

// Which keys a query sees, besides what a window leaves out.
enum class Mask : std::uint8_t {
  causal,  // the query tokens are the newest of their sequence; each sees its own key and those before it
  none,    // all keys
};

// How sealed keys and values are multiplied.
enum class Arithmetic : std::uint8_t {
  stored,  // as precisely as the codec deserves: a CPU multiplies bytes, which adds less than a tenth of its error
  f32,
};

struct Attend {
  View q;                  // [query token, query head, key dim], one sequence after the other
  const KvView& kv;        // query heads are a multiple of its heads; a window is exactly that many keys
  MutView out;             // [query token, query head, value dim]
  Required<double> scale;  // of the dot products, usually 1 / sqrt(head_dim)
  std::span<const std::uint64_t> query_tokens = {};  // of each sequence; empty: one each
  Mask mask = Mask::causal;
  std::optional<double> soft_cap = {};      // a logit x becomes cap * tanh(x / cap): Gemma 2
  std::optional<View> sink_logits = {};     // [1, query heads, 1]: one more logit for each head, without a key: gpt-oss
  std::optional<View> alibi_slopes = {};    // [1, query heads, 1]: a logit falls by slope * distance
  std::optional<MutView> log_sum_exp = {};  // [query token, query head, 1], for merge()
  Arithmetic arithmetic = Arithmetic::stored;
};

// Attention over keys and values as they are stored. The result of a query depends only on the query, its keys and
// values, and on which of them are sealed: threads, batch, physical pages and a ring's start do not change a bit. A
// query that sees no key gives zeros.
ROTA_API void attend(Encoder& encoder, const Attend& call);

// The result of attention over some keys: outputs, and for each the natural logarithm of the sum of exp(logit).
struct AttentionState {
  View out;          // [token, head, dim], dim <= 4096
  View log_sum_exp;  // [token, head, 1]; -infinity: there were no keys, and `out` is not read
};

struct Merge {
  AttentionState first, second;
  MutView out;                              // other bytes than both states, or the same view as a state's `out`
  std::optional<MutView> log_sum_exp = {};  // other bytes than both states, or the same view as a state's own
};

// The result of attention over the keys of both states, if they have no key in common: docs/merge.md. The error of
// `out` is at most a unit in the last place of its type plus 1e-6 of the larger of the two elements; that of
// `log_sum_exp` at most a unit in the last place plus 1e-6.
ROTA_API void merge(Encoder& encoder, const Merge& call);

// Whole 32-bit words of a buffer.
struct WordRange {
  Buffer buffer;
  std::uint64_t offset_bytes = 0;      // a multiple of 4
  Required<std::uint64_t> size_bytes;  // a multiple of 4
};

struct Checksum {
  std::span<const WordRange> of;
  Buffer sums;                          // one u32 per range, overwritten; other bytes than the ranges
  std::uint64_t sums_offset_bytes = 0;  // a multiple of 4
};

// The sum of the little-endian words of each range, modulo 2^32, as fast as the device reads: docs/checksum.md. Every
// device gives the same sums.
ROTA_API void checksum(Encoder& encoder, const Checksum& call);

}  // namespace rota::inline ROTA_ABI
