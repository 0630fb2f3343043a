#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace rota::mtl {

// How a specialization constant is set in MSL. One that bounds an array must be a macro of the whole library: function
// constants are no constant expressions there.
enum class MslConstantKind : std::uint8_t { macro, function };
enum class MslConstantType : std::uint8_t { uint, boolean };

struct MslConstant {
  std::uint32_t index;  // as runtime::Constants has it
  MslConstantKind kind;
  MslConstantType type;
};

// A kernel in Metal's shading language, made from its GLSL at build time. Its entry point has the kernel's name;
// binding i is buffer i, and params are buffer kMslParamsBuffer.
struct MslKernel {
  std::string_view name;
  const char* text;
  std::span<const MslConstant> constants;
  std::uint32_t group_size;
};

inline constexpr std::uint32_t kMslParamsBuffer = 30;

// Every kernel of this build.
std::span<const MslKernel> msl_kernels() noexcept;

}  // namespace rota::mtl
