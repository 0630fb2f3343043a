#ifndef ROTA_OPS_NEGATE_PARAMS_H
#define ROTA_OPS_NEGATE_PARAMS_H

#include "core/shared.h"

ROTA_PARAMS_BEGIN

constexpr uint kNegateGroupSize = 64;
constexpr uint kNegateBindingX = 0;

struct NegateParams {
  Wide offset;
  Wide elements;
};

ROTA_PARAMS_END

#endif
