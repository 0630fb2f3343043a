#pragma once

#include <array>
#include <cstdint>

namespace rota::core {

// Instruction sets that CPU kernels are built for. The baseline is what the compiler may assume.
enum class Isa : std::uint8_t { baseline, avx2, avx512 };

inline constexpr std::array kIsas{Isa::baseline, Isa::avx2, Isa::avx512};

constexpr const char* name_of(Isa isa) noexcept {
  return isa == Isa::avx512 ? "avx512" : isa == Isa::avx2 ? "avx2" : "baseline";
}

bool runs_here(Isa isa) noexcept;

// The last of kIsas that runs here.
Isa best_isa() noexcept;

}  // namespace rota::core
