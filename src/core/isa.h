#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace rota::core {

// Instruction sets that CPU kernels are built for, each with all that the ones before it have. The baseline is what the
// compiler may assume.
#if defined(__x86_64__)
enum class Isa : std::uint8_t { baseline, avx2, avx512, avx512vnni };
inline constexpr std::array kIsas{Isa::baseline, Isa::avx2, Isa::avx512, Isa::avx512vnni};
inline constexpr std::array kIsaNames{"baseline", "avx2", "avx512", "avx512vnni"};
#elif defined(__aarch64__)
enum class Isa : std::uint8_t { baseline, dotprod };
inline constexpr std::array kIsas{Isa::baseline, Isa::dotprod};
inline constexpr std::array kIsaNames{"baseline", "dotprod"};
#else
enum class Isa : std::uint8_t { baseline };
inline constexpr std::array kIsas{Isa::baseline};
inline constexpr std::array kIsaNames{"baseline"};
#endif

constexpr const char* name_of(Isa isa) noexcept { return kIsaNames[static_cast<std::size_t>(isa)]; }

bool runs_here(Isa isa) noexcept;

// The last of kIsas that runs here, and that limit_isa() allows.
Isa best_isa() noexcept;

// For tests and measurements of what another CPU would run: none after `most`. Of calls recorded and run later.
void limit_isa(Isa most) noexcept;

}  // namespace rota::core
