#include "core/cpu_features.h"

#include <fstream>

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
  __builtin_cpu_init();
// The builtin takes a literal only.
#define ROTA_ADD_IF_SUPPORTED(feature) \
  if (__builtin_cpu_supports(feature)) found.emplace_back(feature)
  ROTA_ADD_IF_SUPPORTED("sse4.2");
  ROTA_ADD_IF_SUPPORTED("avx");
  ROTA_ADD_IF_SUPPORTED("avx2");
  ROTA_ADD_IF_SUPPORTED("fma");
  ROTA_ADD_IF_SUPPORTED("avx512f");
  ROTA_ADD_IF_SUPPORTED("avx512bw");
  ROTA_ADD_IF_SUPPORTED("avx512vl");
  ROTA_ADD_IF_SUPPORTED("avx512vbmi");
  ROTA_ADD_IF_SUPPORTED("avx512vnni");
  ROTA_ADD_IF_SUPPORTED("avx512bf16");
#undef ROTA_ADD_IF_SUPPORTED
#elif defined(__aarch64__) && defined(__linux__)
  found.emplace_back("neon");
  const unsigned long bits = getauxval(AT_HWCAP);
  if ((bits & HWCAP_ASIMDHP) != 0) found.emplace_back("fp16");
  if ((bits & HWCAP_ASIMDDP) != 0) found.emplace_back("dotprod");
  if ((bits & HWCAP_SVE) != 0) found.emplace_back("sve");
#elif defined(__aarch64__)
  found.emplace_back("neon");
#endif
  return found;
}

}  // namespace rota::core
