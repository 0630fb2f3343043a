#ifndef ROTA_OPS_SEAL_PARAMS_H
#define ROTA_OPS_SEAL_PARAMS_H

#include "codec/turbo/page.shared.h"
#include "codec/turbo/turbo.params.h"
#include "runtime/strides.params.h"

ROTA_PARAMS_BEGIN

// Specialization constants of `seal`.
constexpr uint kSealConstantDense = 0u;

// Bindings of `seal`.
constexpr uint kSealBindingDense = 0u;
constexpr uint kSealBindingSealed = 1u;
constexpr uint kSealBindingPlan = 2u;
constexpr uint kSealBindingTable = 3u;
constexpr uint kSealBindingCounter = 4u;

// Specialization constants of `unseal`.
constexpr uint kUnsealConstantDense = 0u;
constexpr uint kUnsealConstantDenseWords = 1u;

// Bindings of `unseal`.
constexpr uint kUnsealBindingSealed = 0u;
constexpr uint kUnsealBindingDense = 1u;
constexpr uint kUnsealBindingPlan = 2u;
constexpr uint kUnsealBindingTable = 3u;

constexpr uint kSealGroupSize = 64u;

// One entry of the plan per page.
constexpr uint kDensePage = 0u;
constexpr uint kSealedPage = 1u;
constexpr uint kTokens = 2u;
constexpr uint kSinks = 3u;
constexpr uint kPageWords = 4u;

// ScaleRule's numbers; what is neither is least_squares.
constexpr uint kByRms = 0u;
constexpr uint kBySearch = 2u;

// What a rotation of levels is rounded to where it has a Hartley part: 2^-7, since Hartley rows come in 2^-13.
constexpr int kUnsealShift = 6;

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
  float unit;    // of rotated levels, without the token's scale
  float limit;   // of restored values: the largest of the dtype that f16 holds
};

ROTA_PARAMS_END

#endif
