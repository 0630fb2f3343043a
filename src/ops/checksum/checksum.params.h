#ifndef ROTA_OPS_CHECKSUM_PARAMS_H
#define ROTA_OPS_CHECKSUM_PARAMS_H

#include "core/shared.h"

ROTA_PARAMS_BEGIN

// Bindings of `checksum`.
constexpr uint kChecksumBindingOf = 0u;
constexpr uint kChecksumBindingSums = 1u;

// Bindings of `checksum_clear`.
constexpr uint kClearBindingSums = 0u;

constexpr uint kChecksumGroupSize = 256;

// A workgroup takes one chunk after the other: so many units for each invocation, loaded before one is added.
constexpr uint kUnitWords = 4;
constexpr uint kChunkTurns = 8;
constexpr uint kChunkUnits = kChecksumGroupSize * kChunkTurns;

// In words from the start of the bindings.
struct ChecksumParams {
  Wide first;
  Wide words;
  Wide sum;
};

struct ClearParams {
  Wide first;
  Wide words;
};

ROTA_PARAMS_END

#endif
