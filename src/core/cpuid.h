#pragma once

#if defined(__x86_64__)

#include <array>
#include <cstddef>
#include <cstdint>

namespace rota::core {

// What CPUID and XGETBV answer, as far as features stand in it; 0 where a CPU has no such leaf.
struct CpuidWords {
  std::uint32_t leaf1_ecx = 0;
  std::uint32_t leaf7_ebx = 0;
  std::uint32_t leaf7_ecx = 0;
  std::uint32_t leaf7_edx = 0;
  std::uint32_t leaf7_1_eax = 0;
  std::uint64_t xcr0 = 0;  // registers that the operating system saves
};

CpuidWords read_cpuid() noexcept;

// All that the library asks a CPU of x86-64 for.
enum class X86Feature : std::uint8_t {
  sse4_2,
  avx,
  avx2,
  fma,
  f16c,
  avxvnni,
  avx512f,
  avx512dq,
  avx512bw,
  avx512vl,
  avx512vbmi,
  avx512vnni,
  avx512bf16,
  amx_tile,
  amx_int8,
};

struct X86FeatureInfo {
  X86Feature feature;
  const char* name;  // as the compilers' flags spell it
  std::uint32_t CpuidWords::* word;
  unsigned bit;
  std::uint64_t saved;  // what of xcr0 its registers need
};

inline constexpr std::uint64_t kSavedYmm = 0x06;  // with XMM
// macOS saves what AVX-512 adds from its first use on, and does not show it before.
#if defined(__APPLE__)
inline constexpr std::uint64_t kSavedZmm = kSavedYmm;
#else
inline constexpr std::uint64_t kSavedZmm = 0xe6;  // with masks and with both halves of ZMM
#endif

inline constexpr std::uint64_t kSavedTiles = kSavedZmm | 0x60000;

// By number of the feature.
inline constexpr std::array kX86Features{
    X86FeatureInfo{X86Feature::sse4_2, "sse4.2", &CpuidWords::leaf1_ecx, 20, 0},
    X86FeatureInfo{X86Feature::avx, "avx", &CpuidWords::leaf1_ecx, 28, kSavedYmm},
    X86FeatureInfo{X86Feature::avx2, "avx2", &CpuidWords::leaf7_ebx, 5, kSavedYmm},
    X86FeatureInfo{X86Feature::fma, "fma", &CpuidWords::leaf1_ecx, 12, kSavedYmm},
    X86FeatureInfo{X86Feature::f16c, "f16c", &CpuidWords::leaf1_ecx, 29, kSavedYmm},
    X86FeatureInfo{X86Feature::avxvnni, "avxvnni", &CpuidWords::leaf7_1_eax, 4, kSavedYmm},
    X86FeatureInfo{X86Feature::avx512f, "avx512f", &CpuidWords::leaf7_ebx, 16, kSavedZmm},
    X86FeatureInfo{X86Feature::avx512dq, "avx512dq", &CpuidWords::leaf7_ebx, 17, kSavedZmm},
    X86FeatureInfo{X86Feature::avx512bw, "avx512bw", &CpuidWords::leaf7_ebx, 30, kSavedZmm},
    X86FeatureInfo{X86Feature::avx512vl, "avx512vl", &CpuidWords::leaf7_ebx, 31, kSavedZmm},
    X86FeatureInfo{X86Feature::avx512vbmi, "avx512vbmi", &CpuidWords::leaf7_ecx, 1, kSavedZmm},
    X86FeatureInfo{X86Feature::avx512vnni, "avx512vnni", &CpuidWords::leaf7_ecx, 11, kSavedZmm},
    X86FeatureInfo{X86Feature::avx512bf16, "avx512bf16", &CpuidWords::leaf7_1_eax, 5, kSavedZmm},
    X86FeatureInfo{X86Feature::amx_tile, "amx-tile", &CpuidWords::leaf7_edx, 24, kSavedTiles},
    X86FeatureInfo{X86Feature::amx_int8, "amx-int8", &CpuidWords::leaf7_edx, 25, kSavedTiles},
};

// Whether programs may use it: the CPU has it, and the operating system saves its registers.
constexpr bool has(const CpuidWords& words, X86Feature feature) noexcept {
  const X86FeatureInfo& info = kX86Features[static_cast<std::size_t>(feature)];
  return (words.*info.word >> info.bit & 1) != 0 && (words.xcr0 & info.saved) == info.saved;
}

// The same of the CPU that runs this, asked once.
bool has(X86Feature feature) noexcept;

}  // namespace rota::core

#endif
