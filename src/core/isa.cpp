#include "core/isa.h"

#include <array>
#include <atomic>
#include <cstddef>

#include "core/cpuid.h"

#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#if defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#endif
#if defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace rota::core {
namespace {

#if defined(__x86_64__)
// Linux gives a process the tiles of AMX when it asks: they make what a signal saves 8 KiB larger.
bool has_tiles() noexcept {
#if defined(__linux__)
  constexpr long kRequest = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;
  static const bool permitted = syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
  return permitted;
#else
  return false;
#endif
}
#endif

#if defined(__aarch64__) && defined(__APPLE__)
bool has_matrices() noexcept {
  static const bool has = [] {
    int found = 0;
    std::size_t size = sizeof(found);
    return sysctlbyname("hw.optional.arm.FEAT_I8MM", &found, &size, nullptr, 0) == 0 && found != 0;
  }();
  return has;
}
#endif

}  // namespace

bool runs_here(Isa isa) noexcept {
#if defined(__x86_64__)
  const bool avx2 = has(X86Feature::avx2) && has(X86Feature::fma) && has(X86Feature::f16c);
  if (isa == Isa::avx2) return avx2;
  if (isa == Isa::avxvnni) return avx2 && has(X86Feature::avxvnni);
  const bool avx512 = avx2 && has(X86Feature::avx512f) && has(X86Feature::avx512dq) && has(X86Feature::avx512bw);
  if (isa == Isa::avx512) return avx512;
  const bool avx512vnni = avx512 && has(X86Feature::avx512vnni);
  if (isa == Isa::avx512vnni) return avx512vnni;
  const bool avx512vbmi = avx512vnni && has(X86Feature::avx512vbmi);
  if (isa == Isa::avx512vbmi) return avx512vbmi;
  if (isa == Isa::amx) {
    return avx512vbmi && has(X86Feature::amx_tile) && has(X86Feature::amx_int8) && has_tiles();
  }
#elif defined(__aarch64__) && defined(__linux__)
  const bool dotprod = (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
  if (isa == Isa::dotprod) return dotprod;
  if (isa == Isa::i8mm) return dotprod && (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0;
#elif defined(__aarch64__) && defined(__APPLE__)
  if (isa == Isa::dotprod) return true;  // as all of Apple's own CPUs that run macOS
  if (isa == Isa::i8mm) return has_matrices();
#endif
  return isa == Isa::baseline;
}

namespace {

std::atomic<Isa> limit{kIsas.back()};

}  // namespace

Isa best_isa() noexcept {
  // By the limit: sets that are neighbours need not run on the same CPU.
  static const auto best = [] {
    std::array<Isa, kIsas.size()> found{};
    for (std::size_t i = 1; i < kIsas.size(); ++i) found[i] = runs_here(kIsas[i]) ? kIsas[i] : found[i - 1];
    return found;
  }();
  return best[static_cast<std::size_t>(limit.load(std::memory_order_relaxed))];
}

void limit_isa(Isa most) noexcept { limit.store(most, std::memory_order_relaxed); }

}  // namespace rota::core
