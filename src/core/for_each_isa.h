// Includes ROTA_SIMD_FILE once per instruction set, in a namespace ROTA_ISA of its own. Only functions marked
// ROTA_SIMD or ROTA_SIMD_INLINE use the instructions: what headers define stays safe on every CPU. Sets that differ
// only in what they do with bytes are for files that define ROTA_SIMD_BYTES; others are the set before them. What AMX
// adds to AVX-512 stands in a namespace amx.

#include "core/one_isa.h"
#include "core/simd.h"
#include ROTA_SIMD_FILE
#undef ROTA_ISA_FILE
#undef ROTA_SIMD
#undef ROTA_ISA_WIDTH
#undef ROTA_ISA

#if defined(__x86_64__)

#define ROTA_ISA avx2
#define ROTA_ISA_WIDTH 8
#define ROTA_SIMD [[gnu::target("avx2,fma,f16c")]]
#define ROTA_ISA_FILE "core/isa/avx2.h"
#include "core/simd.h"
#include ROTA_SIMD_FILE
#undef ROTA_ISA_FILE
#undef ROTA_SIMD
#undef ROTA_ISA_WIDTH
#undef ROTA_ISA

#if defined(ROTA_SIMD_BYTES)

#define ROTA_ISA avxvnni
#define ROTA_ISA_WIDTH 8
#define ROTA_ISA_VNNI 1
#define ROTA_SIMD [[gnu::target("avx2,fma,f16c,avxvnni")]]
#define ROTA_ISA_FILE "core/isa/avx2.h"
#include "core/simd.h"
#include ROTA_SIMD_FILE
#undef ROTA_ISA_FILE
#undef ROTA_SIMD
#undef ROTA_ISA_VNNI
#undef ROTA_ISA_WIDTH
#undef ROTA_ISA

#endif

#define ROTA_ISA avx512
#define ROTA_ISA_WIDTH 16
#define ROTA_SIMD [[gnu::target("avx2,fma,f16c,avx512f,avx512dq,avx512bw")]]
#define ROTA_ISA_FILE "core/isa/avx512.h"
#include "core/simd.h"
#include ROTA_SIMD_FILE
#undef ROTA_ISA_FILE
#undef ROTA_SIMD
#undef ROTA_ISA_WIDTH
#undef ROTA_ISA

#if defined(ROTA_SIMD_BYTES)

#define ROTA_ISA avx512vnni
#define ROTA_ISA_WIDTH 16
#define ROTA_ISA_VNNI 1
#define ROTA_SIMD [[gnu::target("avx2,fma,f16c,avx512f,avx512dq,avx512bw,avx512vnni")]]
#define ROTA_ISA_FILE "core/isa/avx512.h"
#include "core/simd.h"
#include ROTA_SIMD_FILE
#undef ROTA_ISA_FILE
#undef ROTA_SIMD
#undef ROTA_ISA_VNNI
#undef ROTA_ISA_WIDTH
#undef ROTA_ISA

#define ROTA_ISA avx512vbmi
#define ROTA_ISA_WIDTH 16
#define ROTA_ISA_VNNI 1
#define ROTA_ISA_VBMI 1
#define ROTA_SIMD [[gnu::target("avx2,fma,f16c,avx512f,avx512dq,avx512bw,avx512vnni,avx512vbmi")]]
#define ROTA_ISA_FILE "core/isa/avx512.h"
#include "core/simd.h"
#include ROTA_SIMD_FILE
#undef ROTA_ISA_FILE
#undef ROTA_SIMD
#undef ROTA_ISA_VBMI
#undef ROTA_ISA_VNNI
#undef ROTA_ISA_WIDTH
#undef ROTA_ISA

// For each instruction set of kIsas, by its number: what `name` is there.
#define ROTA_BY_ISA(name) \
  {baseline::name, avx2::name, avxvnni::name, avx512::name, avx512vnni::name, avx512vbmi::name, amx::name}

#else

#define ROTA_BY_ISA(name) \
  {baseline::name, avx2::name, avx2::name, avx512::name, avx512::name, avx512::name, avx512::name}

#endif
#elif defined(__aarch64__)

#define ROTA_ISA dotprod
#define ROTA_ISA_WIDTH 4
#define ROTA_ISA_DOTPROD 1
#if defined(__clang__)
#define ROTA_SIMD [[gnu::target("dotprod")]]
#else
#define ROTA_SIMD [[gnu::target("arch=armv8.2-a+dotprod")]]
#endif
#define ROTA_ISA_FILE "core/isa/neon.h"
#include "core/simd.h"
#include ROTA_SIMD_FILE
#undef ROTA_ISA_FILE
#undef ROTA_SIMD
#undef ROTA_ISA_DOTPROD
#undef ROTA_ISA_WIDTH
#undef ROTA_ISA

#if defined(ROTA_SIMD_BYTES)

#define ROTA_ISA i8mm
#define ROTA_ISA_WIDTH 4
#define ROTA_ISA_DOTPROD 1
#define ROTA_ISA_I8MM 1
#if defined(__clang__)
#define ROTA_SIMD [[gnu::target("dotprod,i8mm")]]
#else
#define ROTA_SIMD [[gnu::target("arch=armv8.2-a+dotprod+i8mm")]]
#endif
#define ROTA_ISA_FILE "core/isa/neon.h"
#include "core/simd.h"
#include ROTA_SIMD_FILE
#undef ROTA_ISA_FILE
#undef ROTA_SIMD
#undef ROTA_ISA_I8MM
#undef ROTA_ISA_DOTPROD
#undef ROTA_ISA_WIDTH
#undef ROTA_ISA

#define ROTA_BY_ISA(name) {baseline::name, dotprod::name, i8mm::name}

#else

#define ROTA_BY_ISA(name) {baseline::name, dotprod::name, dotprod::name}

#endif
#else
#define ROTA_BY_ISA(name) {baseline::name}
#endif
