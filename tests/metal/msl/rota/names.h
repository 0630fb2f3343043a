// Words that are keywords of MSL, and constructors of vectors. Included last: macros must not touch the library.

#pragma once

#define kernel static
#define device
#define constant const
#define thread
#define threadgroup
#define is_function_constant_defined(NAME) rota_msl::is_function_constant_set(&NAME)

// Kernels forbid the optimiser where fast math would break them; -ffp-contract=off does so for all of a kernel.
#define optnone always_inline

// The translator writes these where a kernel declares a variable of the threadgroup, and after the declaration.
#define ROTA_MSL_SECTION(NAME) static __attribute__((section(#NAME), used))
#define ROTA_MSL_THREADGROUP(KERNEL) ROTA_MSL_SECTION(rota_threadgroup_##KERNEL)
#define ROTA_MSL_DECLARED(KERNEL, NAME)                      \
  ROTA_MSL_THREADGROUP(KERNEL) char rota_msl_gap_##NAME[64]; \
  ROTA_MSL_SECTION(rota_variables_##KERNEL)                  \
  rota_msl::Variable rota_msl_variable_##NAME = {&NAME, sizeof(NAME), alignof(decltype(NAME))};

namespace rota_msl {
bool is_function_constant_set(const void* value);  // while a library is only checked
}

#define ROTA_MSL_MAKE(TYPE, ...) rota_msl::make<TYPE>(__VA_ARGS__)
#define float2(...) ROTA_MSL_MAKE(float2, __VA_ARGS__)
#define float3(...) ROTA_MSL_MAKE(float3, __VA_ARGS__)
#define float4(...) ROTA_MSL_MAKE(float4, __VA_ARGS__)
#define half2(...) ROTA_MSL_MAKE(half2, __VA_ARGS__)
#define half3(...) ROTA_MSL_MAKE(half3, __VA_ARGS__)
#define half4(...) ROTA_MSL_MAKE(half4, __VA_ARGS__)
#define char2(...) ROTA_MSL_MAKE(char2, __VA_ARGS__)
#define char4(...) ROTA_MSL_MAKE(char4, __VA_ARGS__)
#define uchar2(...) ROTA_MSL_MAKE(uchar2, __VA_ARGS__)
#define uchar4(...) ROTA_MSL_MAKE(uchar4, __VA_ARGS__)
#define short2(...) ROTA_MSL_MAKE(short2, __VA_ARGS__)
#define short4(...) ROTA_MSL_MAKE(short4, __VA_ARGS__)
#define ushort2(...) ROTA_MSL_MAKE(ushort2, __VA_ARGS__)
#define ushort4(...) ROTA_MSL_MAKE(ushort4, __VA_ARGS__)
#define int2(...) ROTA_MSL_MAKE(int2, __VA_ARGS__)
#define int3(...) ROTA_MSL_MAKE(int3, __VA_ARGS__)
#define int4(...) ROTA_MSL_MAKE(int4, __VA_ARGS__)
#define uint2(...) ROTA_MSL_MAKE(uint2, __VA_ARGS__)
#define uint3(...) ROTA_MSL_MAKE(uint3, __VA_ARGS__)
#define uint4(...) ROTA_MSL_MAKE(uint4, __VA_ARGS__)
#define long2(...) ROTA_MSL_MAKE(long2, __VA_ARGS__)
#define ulong2(...) ROTA_MSL_MAKE(ulong2, __VA_ARGS__)
#define bool2(...) ROTA_MSL_MAKE(bool2, __VA_ARGS__)
#define bool3(...) ROTA_MSL_MAKE(bool3, __VA_ARGS__)
#define bool4(...) ROTA_MSL_MAKE(bool4, __VA_ARGS__)
