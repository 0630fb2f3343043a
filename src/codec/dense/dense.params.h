#ifndef ROTA_CODEC_DENSE_PARAMS_H
#define ROTA_CODEC_DENSE_PARAMS_H

#include "runtime/shared.h"

ROTA_PARAMS_BEGIN

// DType's numbers, as kernels get them.
constexpr uint kF32 = 0;
constexpr uint kF16 = 1;
constexpr uint kBf16 = 2;

ROTA_PARAMS_END

#endif
