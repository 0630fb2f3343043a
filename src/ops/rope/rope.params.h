#ifndef ROTA_OPS_ROPE_PARAMS_H
#define ROTA_OPS_ROPE_PARAMS_H

#include "runtime/strides.params.h"

ROTA_PARAMS_BEGIN

// Specialization constants of `rope`.
constexpr uint kRopeConstantFrom = 0u;
constexpr uint kRopeConstantTo = 1u;
constexpr uint kRopeConstantFromWords = 2u;
constexpr uint kRopeConstantToWords = 3u;
constexpr uint kRopeConstantUnit = 4u;
constexpr uint kRopeConstantNorm = 5u;
constexpr uint kRopeConstantInPlace = 6u;
constexpr uint kRopeConstantRowLanes = 7u;

// Bindings of `rope`.
constexpr uint kRopeBindingFrom = 0u;
constexpr uint kRopeBindingTo = 1u;
constexpr uint kRopeBindingPositions = 2u;
constexpr uint kRopeBindingPairs = 3u;
constexpr uint kRopeBindingWeight = 4u;

constexpr uint kRopeGroupSize = 64;

// The table of pairs: five columns of one word per pair. Turns are a 64-bit fraction of a full turn:
// position * turns wraps around just as angles do.
constexpr uint kTurnsLow = 0;
constexpr uint kTurnsHigh = 1;
constexpr uint kAxis = 2;
constexpr uint kFirst = 3;  // the two coordinates
constexpr uint kSecond = 4;
constexpr uint kPairColumns = 5;

// What one invocation turns at a time.
constexpr uint kOnePair = 0;        // coordinates anywhere
constexpr uint kTwoPairs = 1;       // whose first coordinates are neighbours, and whose second ones are
constexpr uint kNeighbourPair = 2;  // interleaved: the pair is one word

// Whether heads are normed: kNormed alone, or plus 1 and the weight's dtype.
constexpr uint kNotNormed = 0;
constexpr uint kNormed = 1;

struct RopeParams {
  Strides from;
  Strides to;
  Strides weight;
  uint tokens;
  uint heads;
  uint dim;
  uint pairs;
  float magnitude;
  float epsilon;
  float weight_offset;
  uint units;  // that an invocation serves one after the other: those that turn, then the rest
};

// Sine and cosine of x in [-pi/4, pi/4], z = x^2: x + x z S(z) and 1 - z/2 + z^2 C(z). Minimax for the
// absolute error, which is 1.8e-9 and 1e-10 before rounding.
constexpr float kRadiansPerPhase = 1.46291807926715968e-9f;  // 2 pi / 2^32
constexpr float kSine0 = -0.166666506693f;
constexpr float kSine1 = 0.00833197866303f;
constexpr float kSine2 = -0.000194956362198f;
constexpr float kCosine0 = 0.0416666468664f;
constexpr float kCosine1 = -0.00138873675158f;
constexpr float kCosine2 = 2.44384515951e-5f;

ROTA_PARAMS_END

#endif
