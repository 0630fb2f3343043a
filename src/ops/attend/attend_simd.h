// Included by attend_kernels.cpp through core/for_each_isa.h: all that attention has for one instruction set.

#include "ops/attend/rows_simd.h"  // which the others need

#include "ops/attend/dense_simd.h"
#include "ops/attend/tile_simd.h"
#if defined(ROTA_ISA_DOTPROD)
#include "ops/attend/tile_quads_simd.h"
#else
#include "ops/attend/tile_broadcasts_simd.h"
#endif
#if defined(ROTA_ISA_VBMI)
#include "ops/attend/matrix_simd.h"
#endif

namespace rota::ops::ROTA_ISA {

template <std::uint32_t kBits, std::uint32_t kVectors>
constexpr DotKeys dot_of() {
  if constexpr (kVectors >= terms_of(kBits)) return dot_keys<kBits, kVectors>;
  return nullptr;
}
template <std::uint32_t kBits, std::uint32_t kVectors>
constexpr AddValues add_of() {
  if constexpr (kVectors >= terms_of(kBits)) return add_values<kBits, kVectors>;
  return nullptr;
}
template <std::uint32_t kBits>
inline constexpr std::array<DotKeys, kBlockSizes> kDotKeys{dot_of<kBits, 1>(), dot_of<kBits, 2>(), dot_of<kBits, 4>(),
                                                           dot_of<kBits, 8>()};
template <std::uint32_t kBits>
inline constexpr std::array<AddValues, kBlockSizes> kAddValues{add_of<kBits, 1>(), add_of<kBits, 2>(),
                                                               add_of<kBits, 4>(), add_of<kBits, 8>()};

inline constexpr TileSimd kTileSimd{
    {nullptr, nullptr, decode<2, true>, decode<3, true>, decode<4, true>, decode<5, true>, decode<6, true>, nullptr,
     decode<8, true>},
    {nullptr, nullptr, decode<2, false>, decode<3, false>, decode<4, false>, decode<5, false>, decode<6, false>,
     nullptr, decode<8, false>},
#if defined(ROTA_ISA_VNNI) || defined(ROTA_ISA_DOTPROD)  // where there are registers enough to decode while multiplying
    {kDotKeys<0>, kDotKeys<1>, kDotKeys<2>, kDotKeys<3>, kDotKeys<4>, kDotKeys<5>, kDotKeys<6>, {}, kDotKeys<8>},
    {kAddValues<0>,
     kAddValues<1>,
     kAddValues<2>,
     kAddValues<3>,
     kAddValues<4>,
     kAddValues<5>,
     kAddValues<6>,
     {},
     kAddValues<8>},
#elif ROTA_ISA_WIDTH >= 8  // for small products, of codes that are quickly levels
    {kDotKeys<kDecoded>, kDotKeys<kDecodedTwice>, {}, {}, kDotKeys<4>},
    {kAddValues<kDecoded>, kAddValues<kDecodedTwice>, {}, {}, kAddValues<4>},
#else
    {kDotKeys<kDecoded>, kDotKeys<kDecodedTwice>},
    {kAddValues<kDecoded>, kAddValues<kDecodedTwice>},
#endif
    dot_mean,
    read_scales,
    quantize,
    {weigh<1>, weigh<2>},
#if defined(ROTA_ISA_DOTPROD)
    {.more = {{{simd::KeyProducts::kMore, simd::KeyProducts::kMore},
               {simd::ValueProducts::kMore, simd::ValueProducts::kMore}}},
     .quads_together = simd::kQuadsTogether},
#endif
};

inline constexpr AttendSimd kAttendSimd{dot,         add_scaled,        scale,      sum_of,   exponentiate,
                                        max_of_four, largest_magnitude, kDenseSimd, kTileSimd};

}  // namespace rota::ops::ROTA_ISA
