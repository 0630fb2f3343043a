#include "codec/turbo/turbo.params.h"

// A code's level by its format's table; codes of kUniformBits need none. Buffers cannot be arguments of functions.
#define LEVEL_IN(table, bits, code)                                                 \
  ((code) >> ((bits) - 1u) != 0u ? int(table[kMagnitudes + (code) - (1u << ((bits) - 1u))]) \
                                 : -int(table[kMagnitudes + (1u << ((bits) - 1u)) - 1u - (code)]))
