#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace rota::core {

// Instruction sets that CPU kernels are built for, the faster the later. The baseline is what the compiler may assume.
#if defined(__x86_64__)
enum class Isa : std::uint8_t { baseline, avx2, avxvnni, avx512, avx512vnni, avx512vbmi, amx };
inline constexpr std::array kIsas{Isa::baseline,   Isa::avx2,       Isa::avxvnni, Isa::avx512,
                                  Isa::avx512vnni, Isa::avx512vbmi, Isa::amx};
inline constexpr std::array kIsaNames{"baseline", "avx2", "avxvnni", "avx512", "avx512vnni", "avx512vbmi", "amx"};
#elif defined(__aarch64__)
enum class Isa : std::uint8_t { baseline, dotprod, i8mm };
inline constexpr std::array kIsas{Isa::baseline, Isa::dotprod, Isa::i8mm};
inline constexpr std::array kIsaNames{"baseline", "dotprod", "i8mm"};
#else
enum class Isa : std::uint8_t { baseline };
inline constexpr std::array kIsas{Isa::baseline};
inline constexpr std::array kIsaNames{"baseline"};
#endif

constexpr const char* name_of(Isa isa) noexcept { return kIsaNames[static_cast<std::size_t>(isa)]; }

// For AMX it asks Linux for tile registers, which a process has only then.
bool runs_here(Isa isa) noexcept;

// The last of kIsas that runs here, and that limit_isa() allows.
Isa best_isa() noexcept;

// For tests and measurements of what another CPU would run: none after `most`. Of calls recorded and run later.
void limit_isa(Isa most) noexcept;

}  // namespace rota::core
