#pragma once

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

}  // namespace rota
