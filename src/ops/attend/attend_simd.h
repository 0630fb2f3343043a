// Included by attend_kernels.cpp through core/for_each_isa.h: all that attention has for one instruction set.

#include "ops/attend/rows_simd.h"  // which the others need

#include "ops/attend/dense_simd.h"
#include "ops/attend/tile_simd.h"
#if defined(ROTA_ISA_VBMI)
#include "ops/attend/matrix_simd.h"
#endif

namespace rota::ops::ROTA_ISA {

inline constexpr AttendSimd kAttendSimd{dot,         add_scaled,        scale,      sum_of,   exponentiate,
                                        max_of_four, largest_magnitude, kDenseSimd, kTileSimd};

}  // namespace rota::ops::ROTA_ISA
