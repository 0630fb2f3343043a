#ifndef ROTA_OPS_MERGE_PARAMS_H
#define ROTA_OPS_MERGE_PARAMS_H

#include "codec/dense/dense.params.h"
#include "runtime/strides.params.h"

ROTA_PARAMS_BEGIN

constexpr uint kMergeGroupSize = 64;

// Specialization constants.
constexpr uint kMergeConstantFirst = 0u;
constexpr uint kMergeConstantSecond = 1u;
constexpr uint kMergeConstantOut = 2u;
constexpr uint kMergeConstantOutWords = 3u;
constexpr uint kMergeConstantInPlace = 4u;

// Bindings: the views of a call, then their strides, which are too many for params.
constexpr uint kFirstOut = 0;
constexpr uint kSecondOut = 1;
constexpr uint kMergedOut = 2;
constexpr uint kFirstLog = 3;
constexpr uint kSecondLog = 4;
constexpr uint kMergedLog = 5;
constexpr uint kMergeViews = 6;
constexpr uint kMergeStrides = kMergeViews;

// Sets of parts: those that have keys, or those whose view is the result's.
constexpr uint kNoPart = 0;
constexpr uint kFirstPart = 1;
constexpr uint kSecondPart = 2;
constexpr uint kBothParts = 3;
constexpr uint kSpoilt = 4;  // in place of a set: a logarithm is NaN or +infinity

constexpr uint kNoLog = 3;  // in place of the type of a result that nobody asks for

struct MergeParams {
  uint tokens;
  uint heads;
  uint dim;
  uint row_lanes;  // invocations that share a row, a power of two
  uint first_log;  // types
  uint second_log;
  uint merged_log;
  uint logs_in_place;
};

// Numbers as the bits of an f32: a driver may assume that no float is infinite or NaN.
constexpr uint kMinusInfinityBits = 0xff800000u;
constexpr uint kNaNBits = 0x7fc00000u;

// The exponential of this and all below is less than half of the smallest f32.
constexpr float kNoWeight = -104.0f;

ROTA_SHARED bool is_spoilt(uint log_bits) {
  return log_bits != kMinusInfinityBits && (log_bits & exponent_mask(kF32)) == exponent_mask(kF32);
}

// Which parts of a row have keys, from their logarithms.
ROTA_SHARED uint parts_with_keys(uint first_log_bits, uint second_log_bits) {
  if (is_spoilt(first_log_bits) || is_spoilt(second_log_bits)) return kSpoilt;
  return (first_log_bits == kMinusInfinityBits ? kNoPart : kFirstPart) |
         (second_log_bits == kMinusInfinityBits ? kNoPart : kSecondPart);
}

ROTA_PARAMS_END

#endif
