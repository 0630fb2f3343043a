// Included by unseal_cpu.cpp through core/for_each_isa.h. Every instruction set gives the same bits.

#include "codec/dense/lanes.h"
#include "codec/turbo/rotation_lanes.h"

namespace rota::ops::ROTA_ISA {

namespace lanes = codec::ROTA_ISA;

// Levels in scratch.mixed to values, in f32.
ROTA_LANES void unseal_token(const UnsealCall& call, float factor, const float* mean, UnsealScratch& scratch) noexcept {
  const std::uint64_t dim = call.params.layout_.dim;
  const float limit = call.params.limit;
  const std::uint64_t size = std::uint64_t{1} << call.params.rotation.k;
  auto* const mixed = reinterpret_cast<lanes::I32s*>(scratch.mixed);
  auto* const other = reinterpret_cast<lanes::I32s*>(scratch.other);
  lanes::hadamard(mixed, dim, size);
  const lanes::I32s* rotated = mixed;
  if (call.params.rotation.m > 1) {
    lanes::hartley(
        mixed, other,
        {reinterpret_cast<const std::int32_t*>(call.table + kHartleyRow), call.params.rotation.m, size, kUnsealShift});
    rotated = other;
  }
  for (std::uint64_t i = 0; i < dim; i += lanes::kLanes) {
    const auto negated = lanes::load_bits<lanes::I32s>(scratch.negated + i);
    const lanes::I32s turned = (rotated[i / lanes::kLanes] ^ negated) - negated;
    lanes::F32s value = __builtin_convertvector(turned, lanes::F32s) * factor;
    value += lanes::load_bits<lanes::F32s>(mean + i);
    value = value > limit ? lanes::all(limit) : value;
    value = value < -limit ? lanes::F32s{} - limit : value;
    std::memcpy(scratch.values + i, &value, sizeof(value));
  }
}

}  // namespace rota::ops::ROTA_ISA
