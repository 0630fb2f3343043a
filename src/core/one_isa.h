#pragma once

// What core/for_each_isa.h sets for each instruction set in turn, for the one that every CPU has. A header that is
// included through it begins with this, or with core/simd.h, where nothing is set: so it can be opened by an editor,
// and compiled, alone.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "rota/dtype.h"

#define ROTA_SIMD_INLINE [[gnu::always_inline]] ROTA_SIMD inline

#define ROTA_SIMD
#define ROTA_ISA baseline
#define ROTA_ISA_WIDTH 4
#if defined(__aarch64__)
#include <arm_neon.h>
#define ROTA_ISA_FILE "core/isa/neon.h"
#else
#if defined(__x86_64__)
#include <immintrin.h>
#endif
#define ROTA_ISA_FILE "core/isa/baseline.h"
#endif
