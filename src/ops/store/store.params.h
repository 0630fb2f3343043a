#ifndef ROTA_OPS_STORE_PARAMS_H
#define ROTA_OPS_STORE_PARAMS_H

#include "runtime/strides.params.h"

ROTA_PARAMS_BEGIN

// One entry of the plan per token that stays: token in the source, page, slot in the page.
constexpr uint kPlanWords = 3;

constexpr uint kStoreGroupSize = 64;

// Offsets and strides in elements; offsets from the start of the binding.
struct StoreParams {
  Strides from;
  Wide to_offset;
  Wide to_page_stride;
  Wide to_slot_stride;
  Wide to_head_stride;
  Wide to_dim_stride;
  Wide tokens;
  uint heads;
  uint dim;
};

ROTA_PARAMS_END

#endif
