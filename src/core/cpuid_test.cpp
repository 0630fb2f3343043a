#include "core/cpuid.h"

#if defined(__x86_64__)

#include <cpuid.h>
#include <gtest/gtest.h>

#include <limits>

namespace rota::core {
namespace {

constexpr std::uint32_t kAllBits = std::numeric_limits<std::uint32_t>::max();

// A CPU that has everything, with an operating system that saves what xcr0 says.
CpuidWords everything(std::uint64_t xcr0) {
  return {.leaf1_ecx = kAllBits,
          .leaf7_ebx = kAllBits,
          .leaf7_ecx = kAllBits,
          .leaf7_edx = kAllBits,
          .leaf7_1_eax = kAllBits,
          .xcr0 = xcr0};
}

TEST(Cpuid, TheTableIsInTheOrderOfTheFeatures) {
  for (std::size_t i = 0; i < kX86Features.size(); ++i) {
    EXPECT_EQ(static_cast<std::size_t>(kX86Features[i].feature), i) << kX86Features[i].name;
  }
}

TEST(Cpuid, EachFeatureIsABitOfItsOwn) {
  for (const X86FeatureInfo& of : kX86Features) {
    CpuidWords words = everything(kSavedTiles);
    words.*of.word &= ~(std::uint32_t{1} << of.bit);
    for (const X86FeatureInfo& info : kX86Features) {
      EXPECT_EQ(has(words, info.feature), info.feature != of.feature) << info.name << " without " << of.name;
    }
  }
}

TEST(Cpuid, WhatTheSystemDoesNotSaveIsNotUsed) {
  for (const X86FeatureInfo& info : kX86Features) {
    const bool of_xmm = info.feature < X86Feature::avx;
    const bool of_ymm = info.feature < X86Feature::avx512f;
    const bool of_zmm = info.feature < X86Feature::amx_tile;
    EXPECT_EQ(has(everything(0x00), info.feature), of_xmm) << info.name << " with nothing saved";
    EXPECT_EQ(has(everything(0x03), info.feature), of_xmm) << info.name << " with XMM";
#if !defined(__APPLE__)
    EXPECT_EQ(has(everything(0x07), info.feature), of_ymm) << info.name << " with YMM";
    EXPECT_EQ(has(everything(0x27), info.feature), of_ymm) << info.name << " with YMM and masks";
    EXPECT_EQ(has(everything(0x67), info.feature), of_ymm) << info.name << " with half of ZMM";
#endif
    EXPECT_EQ(has(everything(0xe7), info.feature), of_zmm) << info.name << " with ZMM";
    EXPECT_EQ(has(everything(0x200e7), info.feature), of_zmm) << info.name << " with the shapes of tiles";
    EXPECT_TRUE(has(everything(0x600e7), info.feature)) << info.name << " with tiles";
  }
}

TEST(Cpuid, AgreesWithTheCompilersOwn) {
  __builtin_cpu_init();
  std::size_t compared = 0;
#if defined(__clang__)
  constexpr auto kTileBit = bit_AMXTILE, kInt8Bit = bit_AMXINT8;
#else
  constexpr auto kTileBit = bit_AMX_TILE, kInt8Bit = bit_AMX_INT8;
#endif
// The builtin takes a literal only. A CPU may have a bit's neighbour, too: the bit is compared as well.
#define ROTA_EXPECT_AS_COMPILER(of, flag, mask)                                          \
  {                                                                                      \
    const X86FeatureInfo& info = kX86Features[static_cast<std::size_t>(X86Feature::of)]; \
    EXPECT_EQ(has(X86Feature::of), __builtin_cpu_supports(flag) != 0) << (flag);         \
    EXPECT_EQ(std::uint32_t{1} << info.bit, static_cast<std::uint32_t>(mask)) << (flag); \
    EXPECT_STREQ(info.name, flag);                                                       \
    ++compared;                                                                          \
  }
  ROTA_EXPECT_AS_COMPILER(sse4_2, "sse4.2", bit_SSE4_2)
  ROTA_EXPECT_AS_COMPILER(avx, "avx", bit_AVX)
  ROTA_EXPECT_AS_COMPILER(avx2, "avx2", bit_AVX2)
  ROTA_EXPECT_AS_COMPILER(fma, "fma", bit_FMA)
  ROTA_EXPECT_AS_COMPILER(f16c, "f16c", bit_F16C)
  ROTA_EXPECT_AS_COMPILER(avxvnni, "avxvnni", bit_AVXVNNI)
  ROTA_EXPECT_AS_COMPILER(avx512f, "avx512f", bit_AVX512F)
  ROTA_EXPECT_AS_COMPILER(avx512dq, "avx512dq", bit_AVX512DQ)
  ROTA_EXPECT_AS_COMPILER(avx512bw, "avx512bw", bit_AVX512BW)
  ROTA_EXPECT_AS_COMPILER(avx512vl, "avx512vl", bit_AVX512VL)
  ROTA_EXPECT_AS_COMPILER(avx512vbmi, "avx512vbmi", bit_AVX512VBMI)
  ROTA_EXPECT_AS_COMPILER(avx512vnni, "avx512vnni", bit_AVX512VNNI)
  ROTA_EXPECT_AS_COMPILER(avx512bf16, "avx512bf16", bit_AVX512BF16)
  ROTA_EXPECT_AS_COMPILER(amx_tile, "amx-tile", kTileBit)
  ROTA_EXPECT_AS_COMPILER(amx_int8, "amx-int8", kInt8Bit)
#undef ROTA_EXPECT_AS_COMPILER
  EXPECT_EQ(compared, kX86Features.size());
}

}  // namespace
}  // namespace rota::core

#endif
