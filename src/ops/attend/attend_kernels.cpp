#include "ops/attend/attend_kernels.h"

#include <cstring>

#define ROTA_SIMD_BYTES
#define ROTA_SIMD_FILE "ops/attend/attend_simd.h"
#include "core/for_each_isa.h"

#if defined(__x86_64__)
namespace rota::ops::amx {

inline constexpr AttendSimd kAttendSimd = [] {
  AttendSimd simd = avx512vbmi::kAttendSimd;
  simd.matrix = &avx512vbmi::kMatrixSimd;
  return simd;
}();

}  // namespace rota::ops::amx
#endif

namespace rota::ops {

const AttendSimd& attend_simd(core::Isa isa) noexcept {
  static constexpr std::array<AttendSimd, core::kIsas.size()> kByIsa{ROTA_BY_ISA(kAttendSimd)};
  return kByIsa[static_cast<std::size_t>(isa)];
}

}  // namespace rota::ops
