#pragma once

#include <array>
#include <cstdint>

namespace rota::core {

// Instruction sets that CPU kernels are built for. The baseline is what the compiler may assume.
enum class Isa : std::uint8_t { baseline, avx2, avx512, avx512vnni };

inline constexpr std::array kIsas{Isa::baseline, Isa::avx2, Isa::avx512, Isa::avx512vnni};

constexpr const char* name_of(Isa isa) noexcept {
  switch (isa) {
    case Isa::avx2: return "avx2";
    case Isa::avx512: return "avx512";
    case Isa::avx512vnni: return "avx512vnni";
    default: return "baseline";
  }
}

bool runs_here(Isa isa) noexcept;

// The last of kIsas that runs here, and that limit_isa() allows.
Isa best_isa() noexcept;

// For tests and measurements of what another CPU would run: none after `most`. Of calls recorded and run later.
void limit_isa(Isa most) noexcept;

}  // namespace rota::core
