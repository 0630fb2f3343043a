#ifndef ROTA_RUNTIME_STRIDES_PARAMS_H
#define ROTA_RUNTIME_STRIDES_PARAMS_H

#include "core/shared.h"

ROTA_PARAMS_BEGIN

// Where [token, head, dim] is: elements from the start of the binding.
struct Strides {
  Wide offset;
  Wide token;
  Wide head;
  Wide dim;
};

// The same for [page, slot, head, dim].
struct SlotStrides {
  Wide offset;
  Wide page;
  Wide slot;
  Wide head;
  Wide dim;
};

ROTA_PARAMS_END

#endif
