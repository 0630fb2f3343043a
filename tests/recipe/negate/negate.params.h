#include "runtime/shared.h"

ROTA_PARAMS_BEGIN

constexpr uint kNegateGroupSize = 64;

struct NegateParams {
  Wide offset;
  Wide elements;
};

ROTA_PARAMS_END
