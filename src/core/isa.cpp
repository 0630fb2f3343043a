#include "core/isa.h"

namespace rota::core {

bool runs_here(Isa isa) noexcept {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
  if (isa == Isa::avx2) return avx2;
  if (isa == Isa::avx512) {
    return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw");
  }
#endif
  return isa == Isa::baseline;
}

Isa best_isa() noexcept {
  static const Isa best = [] {
    Isa found = Isa::baseline;
    for (const Isa isa : kIsas) found = runs_here(isa) ? isa : found;
    return found;
  }();
  return best;
}

}  // namespace rota::core
