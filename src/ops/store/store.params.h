#ifndef ROTA_OPS_STORE_PARAMS_H
#define ROTA_OPS_STORE_PARAMS_H

#include "runtime/strides.params.h"

ROTA_PARAMS_BEGIN

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
