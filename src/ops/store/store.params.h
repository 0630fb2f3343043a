#ifndef ROTA_OPS_STORE_PARAMS_H
#define ROTA_OPS_STORE_PARAMS_H

#include "runtime/strides.params.h"

ROTA_PARAMS_BEGIN

// Specialization constants of `store`.
constexpr uint kStoreConstantFrom = 0u;
constexpr uint kStoreConstantTo = 1u;
constexpr uint kStoreConstantFromWords = 2u;
constexpr uint kStoreConstantToWords = 3u;
constexpr uint kStoreConstantCounts = 4u;

// Bindings of `store`.
constexpr uint kStoreBindingFrom = 0u;
constexpr uint kStoreBindingTo = 1u;
constexpr uint kStoreBindingPlan = 2u;
constexpr uint kStoreBindingCounter = 3u;

// One entry of the plan per token that stays: token in the source, page, slot in the page.
constexpr uint kPlanWords = 3;

constexpr uint kStoreGroupSize = 64;

struct StoreParams {
  Strides from;
  SlotStrides to;
  Wide tokens;
  uint heads;
  uint dim;
  uint counter;  // in words
};

ROTA_PARAMS_END

#endif
