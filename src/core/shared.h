// Included by C++ and by GLSL: the types and macros of params structs and of functions that both languages compile.
//
// `Wide` is a 64-bit number on both sides. A GPU kernel reads its low word only: whatever the kernel can address fits
// in 32 bits, and runtime/target.h refuses the rest.
#if defined(__cplusplus)
#pragma once
#include <cstdint>
#define ROTA_PARAMS_BEGIN namespace rota::ops {
#define ROTA_PARAMS_END }
#define ROTA_SHARED inline
#define ROTA_SHARED_CONSTANT constexpr
namespace rota::ops {
using uint = std::uint32_t;
using Wide = std::uint64_t;
}  // namespace rota::ops
#else
#define ROTA_PARAMS_BEGIN
#define ROTA_PARAMS_END
#define ROTA_SHARED
#define ROTA_SHARED_CONSTANT
#define constexpr const
#define Wide uvec2
#define low(wide) ((wide).x)
#endif
