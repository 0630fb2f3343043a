#ifndef ROTA_OPS_SEAL_PARAMS_H
#define ROTA_OPS_SEAL_PARAMS_H

#include "codec/turbo/page.shared.h"
#include "codec/turbo/turbo.params.h"
#include "runtime/strides.params.h"

ROTA_PARAMS_BEGIN

constexpr uint kSealGroupSize = 64u;

// What one workgroup takes of a page: as many tokens as a word can hold of, and more would be more steps of a loop than
// Mesa's software driver makes before it stops without a word.
constexpr uint kSliceTokens = 32u;

// One entry of the plan per page.
constexpr uint kDensePage = 0u;
constexpr uint kSealedPage = 1u;
constexpr uint kTokens = 2u;
constexpr uint kSinks = 3u;
constexpr uint kPageWords = 4u;

// ScaleRule's numbers.
constexpr uint kByRms = 0u;
constexpr uint kByLeastSquares = 1u;
constexpr uint kBySearch = 2u;

// What a rotation of levels is rounded to where it has a Hartley part: 2^-7, since Hartley rows come in 2^-13.
constexpr int kUnsealShift = 6;
constexpr float kMaxHalf = 65504.0f;

ROTA_SHARED float unseal_unit(RotationShape shape) {
  const float whole = shape.m > 1u ? 1.0f / 128.0f : 1.0f;
  return whole / float(1u << (shape.k / 2u + uint(kScaleExponent))) *
         ((shape.k & 1u) != 0u ? 0.70710678118654752f : 1.0f);
}

// Of `seal` and `unseal` alike.
struct SealParams {
  SlotStrides dense;   // in elements
  Wide sealed_offset;  // in words
  Wide sealed_page;
  Wide sealed_head;
  PageLayout layout_;
  RotationShape rotation;
  uint heads;
  uint first_page;  // of the plan
  uint pages;
  uint scale_rule;
  uint counter;  // in words
};

ROTA_PARAMS_END

#endif
