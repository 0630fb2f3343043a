#ifndef ROTA_CODEC_DENSE_PARAMS_H
#define ROTA_CODEC_DENSE_PARAMS_H

#include "core/shared.h"

ROTA_PARAMS_BEGIN

// DType's numbers, as kernels get them.
constexpr uint kF32 = 0;
constexpr uint kF16 = 1;
constexpr uint kBf16 = 2;

// The exponent's bits of an element: all set where it is infinite or NaN.
ROTA_SHARED uint exponent_mask(uint dtype) { return dtype == kF32 ? 0x7f800000u : dtype == kF16 ? 0x7c00u : 0x7f80u; }

ROTA_PARAMS_END

#endif
