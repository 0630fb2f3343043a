#include "core/cpuid.h"

#if defined(__x86_64__)

#include <cpuid.h>
#include <immintrin.h>

namespace rota::core {
namespace {

constexpr std::uint32_t kOsUsesXsave = std::uint32_t{1} << 27;  // in ecx of leaf 1; without it XGETBV is no instruction

[[gnu::target("xsave")]] std::uint64_t read_xcr0() noexcept { return static_cast<std::uint64_t>(_xgetbv(0)); }

}  // namespace

// Not the compiler's __builtin_cpu_supports, which asks a variable of the compiler's library: zig's has none.
CpuidWords read_cpuid() noexcept {
  CpuidWords words;
  std::uint32_t eax = 0;
  std::uint32_t ebx = 0;
  std::uint32_t ecx = 0;
  std::uint32_t edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return words;
  words.leaf1_ecx = ecx;
  if ((ecx & kOsUsesXsave) != 0) words.xcr0 = read_xcr0();
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return words;
  words.leaf7_ebx = ebx;
  words.leaf7_ecx = ecx;
  words.leaf7_edx = edx;
  const std::uint32_t last = eax;
  if (last >= 1 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0) words.leaf7_1_eax = eax;
  return words;
}

bool has(X86Feature feature) noexcept {
  static const CpuidWords words = read_cpuid();
  return has(words, feature);
}

}  // namespace rota::core

#endif
