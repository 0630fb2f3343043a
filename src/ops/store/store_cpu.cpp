#include <array>
#include <cstring>
#include <utility>

#include "codec/dense/dense.params.h"
#include "ops/store/store.h"
#include "rota/dtype.h"

namespace rota::ops {
namespace {

template <DType T>
struct Element {
  using Bits = std::uint16_t;
};
template <>
struct Element<DType::f32> {
  using Bits = std::uint32_t;
};

// The same type passes its bits on untouched, signalling NaN included.
template <DType From, DType To>
typename Element<To>::Bits convert(typename Element<From>::Bits bits) noexcept {
  if constexpr (From == To) {
    return bits;
  } else {
    float wide = 0;
    if constexpr (From == DType::f32) wide = std::bit_cast<float>(bits);
    if constexpr (From == DType::f16) wide = f32_from_f16(bits);
    if constexpr (From == DType::bf16) wide = f32_from_bf16(bits);
    if constexpr (To == DType::f32) return std::bit_cast<std::uint32_t>(wide);
    if constexpr (To == DType::f16) return f16_from_f32(wide);
    if constexpr (To == DType::bf16) return bf16_from_f32(wide);
  }
}

template <class Bits>
Bits load(const std::byte* from) noexcept {
  Bits bits;
  std::memcpy(&bits, from, sizeof(bits));
  return bits;
}

struct Strides {
  std::uint64_t from, to;  // bytes
};

template <DType From, DType To>
void convert_row(const std::byte* from, std::byte* to, std::uint64_t count, Strides strides) noexcept {
  using FromBits = typename Element<From>::Bits;
  using ToBits = typename Element<To>::Bits;
  if (strides.from == sizeof(FromBits) && strides.to == sizeof(ToBits)) {  // compilers vectorize this one
    if constexpr (From == To) {
      std::memcpy(to, from, count * sizeof(ToBits));
    } else {
      for (std::uint64_t i = 0; i < count; ++i) {
        const ToBits bits = convert<From, To>(load<FromBits>(from + i * sizeof(FromBits)));
        std::memcpy(to + i * sizeof(ToBits), &bits, sizeof(bits));
      }
    }
    return;
  }
  for (std::uint64_t i = 0; i < count; ++i) {
    const ToBits bits = convert<From, To>(load<FromBits>(from + i * strides.from));
    std::memcpy(to + i * strides.to, &bits, sizeof(bits));
  }
}

using ConvertRow = void (*)(const std::byte*, std::byte*, std::uint64_t, Strides) noexcept;

// By the numbers of both types.
constexpr auto kConvertRow = []<std::size_t... Pair>(std::index_sequence<Pair...>) {
  constexpr std::size_t kTypes = kDTypes.size();
  return std::array<ConvertRow, kTypes * kTypes>{
      convert_row<kDTypes[Pair / kTypes].dtype, kDTypes[Pair % kTypes].dtype>...};
}(std::make_index_sequence<kDTypes.size() * kDTypes.size()>());

static_assert(kF32 == static_cast<uint>(DType::f32) && kF16 == static_cast<uint>(DType::f16) &&
              kBf16 == static_cast<uint>(DType::bf16));

}  // namespace

// A row is one head vector of one token.
void store_cpu(const runtime::CpuCall& call) noexcept {
  const auto& p = call.params_as<StoreParams>();
  const std::uint32_t from_type = call.constants[0];
  const std::uint32_t to_type = call.constants[1];
  const std::uint64_t from_bytes = kDTypes[from_type].bytes;
  const std::uint64_t to_bytes = kDTypes[to_type].bytes;
  // A stride of 0 stands for "never taken", where rows are one element wide.
  const Strides strides{(p.dim > 1 ? p.from_dim_stride : 1) * from_bytes, (p.dim > 1 ? p.to_dim_stride : 1) * to_bytes};
  const ConvertRow convert_row = kConvertRow[from_type * kDTypes.size() + to_type];
  const auto* const plan = reinterpret_cast<const std::uint32_t*>(call.bound[2]);

  for (std::uint64_t row = call.first_row; row < call.last_row; ++row) {
    const std::uint64_t head = row % p.heads;
    const std::uint32_t* const entry = plan + row / p.heads * kPlanWords;
    const std::uint64_t from = p.from_offset + entry[0] * p.from_token_stride + head * p.from_head_stride;
    const std::uint64_t to =
        p.to_offset + entry[1] * p.to_page_stride + entry[2] * p.to_slot_stride + head * p.to_head_stride;
    convert_row(call.bound[0] + from * from_bytes, call.bound[1] + to * to_bytes, p.dim, strides);
  }
}

}  // namespace rota::ops
