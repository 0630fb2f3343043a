#include "ops/attend/attend_kernels.h"

#include <cstring>

#define ROTA_LANES_FILE "ops/attend/attend_lanes.h"
#include "core/for_each_isa.h"

namespace rota::ops {

const AttendLanes& attend_lanes(core::Isa isa) noexcept {
  static constexpr std::array<AttendLanes, core::kIsas.size()> kByIsa{ROTA_BY_ISA(kAttendLanes)};
  return kByIsa[static_cast<std::size_t>(isa)];
}

}  // namespace rota::ops
