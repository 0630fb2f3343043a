#include "core/cpu_features.h"

#include <fstream>

#include "core/cpuid.h"

#if defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif
#if defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace rota::core {

std::string cpu_name() {
#if defined(__APPLE__)
  char brand[256] = {};
  std::size_t size = sizeof(brand) - 1;
  if (sysctlbyname("machdep.cpu.brand_string", brand, &size, nullptr, 0) == 0) return brand;
#else
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
#endif
  return "CPU";
}

std::vector<std::string> cpu_features() {
  std::vector<std::string> found;
#if defined(__x86_64__)
  for (const X86FeatureInfo& info : kX86Features) {
    if (has(info.feature)) found.emplace_back(info.name);
  }
#elif defined(__aarch64__) && defined(__linux__)
  found.emplace_back("neon");
  const unsigned long bits = getauxval(AT_HWCAP);
  if ((bits & HWCAP_ASIMDHP) != 0) found.emplace_back("fp16");
  if ((bits & HWCAP_ASIMDDP) != 0) found.emplace_back("dotprod");
  if ((getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0) found.emplace_back("i8mm");
  if ((bits & HWCAP_SVE) != 0) found.emplace_back("sve");
#elif defined(__aarch64__)
  found.emplace_back("neon");
#endif
  return found;
}

}  // namespace rota::core
