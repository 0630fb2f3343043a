#include "core/isa.h"

#include <algorithm>
#include <atomic>

#include "core/cpuid.h"

#if defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace rota::core {

bool runs_here(Isa isa) noexcept {
#if defined(__x86_64__)
  const bool avx2 = has(X86Feature::avx2) && has(X86Feature::fma) && has(X86Feature::f16c);
  if (isa == Isa::avx2) return avx2;
  const bool avx512 = avx2 && has(X86Feature::avx512f) && has(X86Feature::avx512dq) && has(X86Feature::avx512bw);
  if (isa == Isa::avx512) return avx512;
  if (isa == Isa::avx512vnni) return avx512 && has(X86Feature::avx512vnni);
#elif defined(__aarch64__) && defined(__linux__)
  if (isa == Isa::dotprod) return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#elif defined(__aarch64__) && defined(__APPLE__)
  if (isa == Isa::dotprod) return true;  // as all of Apple's own CPUs that run macOS
#endif
  return isa == Isa::baseline;
}

namespace {

std::atomic<Isa> limit{kIsas.back()};

}  // namespace

Isa best_isa() noexcept {
  static const Isa best = [] {
    Isa found = Isa::baseline;
    for (const Isa isa : kIsas) found = runs_here(isa) ? isa : found;
    return found;
  }();
  return std::min(best, limit.load(std::memory_order_relaxed));
}

void limit_isa(Isa most) noexcept { limit.store(most, std::memory_order_relaxed); }

}  // namespace rota::core
