#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "rota/encoder.h"
#include "rota/export.h"
#include "rota/token_run.h"
#include "rota/view.h"

// Every op records work into an encoder. A bad argument is kept by the encoder and returned by
// submit(); nothing of a refused call runs. Spans are read during the call only.

namespace rota {

struct StorePair {
  View from;
  SlotView to;
};

struct Store {
  std::span<const StorePair> pairs;     // K and V, say: the same tokens and positions for each
  std::span<const TokenRun> sequences;  // take the source's tokens one after the other, all of them
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
  std::span<const std::uint32_t> pairs = {};  // per axis, 4 at most, rope_dim / 2 together; empty: one axis
  SectionOrder order = SectionOrder::contiguous;
  SectionFrequencies frequencies = SectionFrequencies::shared;
};

enum class YarnRamp : std::uint8_t { whole_pairs, exact };  // where it begins and ends

// Spares fast pairs from interpolation: those that turn more often than beta_fast in the original
// context keep their frequency, those below beta_slow are interpolated, and between is a ramp.
struct Yarn {
  Required<std::uint64_t> original_context;
  double beta_fast = 32, beta_slow = 1;
  double extrapolation = 1;  // how much is spared, from 0 to 1
  YarnRamp ramp = YarnRamp::whole_pairs;
};

// How a model rotates. Pair p turns by position * theta^(-2p / exponent_dim) / factors[p] / interpolation
// radians. Coordinates beyond rope_dim belong to no pair.
struct Rotary {
  Required<Pairing> pairing;
  Required<double> theta;
  std::optional<std::uint64_t> rope_dim = {};       // coordinates that turn, from the first; else the whole head
  std::optional<std::uint64_t> turning_pairs = {};  // of them, from the first; else all: Gemma 4's proportional rope
  std::optional<std::uint64_t> exponent_dim = {};   // else rope_dim, or twice the pairs of a section of its own
  std::span<const float> factors = {};              // one per pair: Llama 3, LongRoPE
  double interpolation = 1;                         // by which a longer context divides positions
  std::optional<Yarn> yarn = {};
  std::optional<double> magnitude = {};  // scales what turns; else 1, or with YaRN 0.1 ln(interpolation) + 1
  RopeSections sections = {};
};

// RMS norm of each head vector: x / sqrt(mean(x^2) + epsilon) * (weight + weight_offset).
struct HeadNorm {
  Required<double> epsilon;
  std::optional<View> weight = {};  // {1, 1, dim} for all heads, or {1, heads, dim}
  double weight_offset = 0;         // 1 for Gemma, whose files hold weight - 1
};

struct RopeTensor {
  View from;
  MutView to;  // elsewhere, or exactly where `from` is
  std::optional<HeadNorm> norm = {};

  static RopeTensor in_place(MutView x, std::optional<HeadNorm> norm = {}) {
    return {.from = x, .to = x, .norm = std::move(norm)};
  }
};

struct Rope {
  std::span<const RopeTensor> tensors;      // Q and K, say: the same tokens for each
  std::span<const std::int64_t> positions;  // [axis][token], from 0 to 2^31 - 1
  Rotary rotary;
};

// Rotates head vectors by their positions, after their norm if asked. Coordinates beyond rope_dim are copied
// as store() would, or normed. Angles are exact to 1e-8 wherever the position; arithmetic is in f32.
ROTA_API void rope(Encoder& encoder, const Rope& call);

}  // namespace rota
