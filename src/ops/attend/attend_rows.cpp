#include "ops/attend/attend_rows.h"

#include <algorithm>
#include <bit>
#include <iterator>

#include "codec/turbo/pack.h"
#include "codec/turbo/turbo.h"
#include "core/extent.h"

namespace rota::ops {
namespace {

constexpr std::uint64_t kNever = ~std::uint64_t{0};

std::uintptr_t address_of(const std::byte* at) noexcept { return reinterpret_cast<std::uintptr_t>(at); }

}  // namespace

SideRows::SideRows(const std::byte* memory, const SlotStrides& strides, const Shape& shape, PlanReader plan,
                   const AttendSimd& simd) noexcept
    : memory_(memory),
      strides_(strides),
      shape_(shape),
      plan_(plan),
      simd_(simd),
      dtype_(static_cast<DType>(dense_type(shape.format))),
      layout_{shape.side, sealed_bits(shape.format), shape.dim, shape.page, shape.has_mean ? 1U : 0U},
      page_shift_(std::countr_zero(shape.page)),
      scales_at_(scales_offset(layout_)),
      tiles_at_(tiles_offset(layout_)),
      tile_bytes_(tile_bytes(layout_)),
      high_at_(plane_offset(layout_, 0, plane_count(layout_.bits) - 1) - plane_offset(layout_, 0, 0)),
      to_f32_(codec::row_converter(dtype_, DType::f32)) {
  if (!sealed()) return;
  const auto levels = codec::levels_of(layout_.bits);
  std::ranges::transform(levels, levels_, [](std::int8_t level) { return static_cast<float>(level) * kLevelScale; });
  const int more = shape.side == kKeys ? 128 : 0;
  for (std::size_t i = 0; i < std::size(table_); ++i) {
    table_[i] = static_cast<std::uint8_t>(levels[i % levels.size()] + more);
  }
  if (layout_.bits == 8) table_[0] = static_cast<std::uint8_t>(more ^ 128);  // codes are 128 more than their levels
}

void SideRows::select(const SequenceHead& of) noexcept {
  head_ = of;
  tile_ = kNever;
}

const float* SideRows::rows(std::uint64_t key, std::uint64_t count) noexcept {
  for (std::uint64_t i = 0; i < count; ++i) {
    float* const row = rows_ + i * stride();
    if (sealed()) {
      unpack(key + i);
      const std::uint8_t* const codes = codes_ + (key + i) % kTileTokens * shape_.dim;
      for (std::uint32_t d = 0; d < shape_.dim; ++d) row[d] = levels_[codes[d]];
      const std::uint32_t scale = codec::load_half(page_ + scales_at_ + 2 * std::size_t{sealed_slot(key + i)});
      token_scales_[i] = codec::finite_half(scale & ~kWithoutMean);
      with_mean_[i] = shape_.has_mean && (scale & kWithoutMean) == 0;
    } else {
      to_f32_({run_at(head_, key + i).row, strides_.dim}, {reinterpret_cast<std::byte*>(row), 1}, shape_.dim);
      token_scales_[i] = 1;
      with_mean_[i] = false;
    }
    std::fill(row + shape_.dim, row + stride(), 0.0F);
  }
  return rows_;
}

SideRows::Run SideRows::run_at(const SequenceHead& of, std::uint64_t key) const noexcept {
  const PlanSide& side = side_of(of);
  std::uint64_t page = side.sinks;
  std::uint64_t slot = key;
  std::uint64_t count = kNever;
  if (!shape_.sinks) {
    auto position = static_cast<std::uint32_t>(key);  // as all of the plan
    if (side.ring != 0) position %= side.ring;
    if (side.ring != 0) count = side.ring - position;
    page = physical_page(side, position / shape_.page);
    slot = position % shape_.page;
    count = std::min(count, shape_.page - slot);
  }
  const std::uint64_t element = strides_.offset + page * strides_.page + slot * strides_.slot + of.head * strides_.head;
  return {memory_ + element * info(dtype_).bytes, count};
}

void SideRows::find_rows(const SequenceHead& of, const KeyRange& keys, const std::byte** at) const noexcept {
  const std::uint64_t stride = strides_.slot * info(dtype_).bytes;
  const std::uint64_t block = core::round_down(keys.begin, kKeyBlock);
  for (std::uint64_t key = keys.begin; key < keys.end;) {
    const Run run = run_at(of, key);
    const std::uint64_t count = std::min(run.count, keys.end - key);
    for (std::uint64_t i = 0; i < count; ++i) at[key - block + i] = run.row + i * stride;
    key += count;
  }
  std::fill(at, at + (keys.begin - block), at[keys.begin - block]);
  std::fill(at + (keys.end - block), at + kKeyBlock, at[keys.end - block - 1]);
}

void SideRows::locate_tiles(const SequenceHead& of, const KeyRange& keys) noexcept {
  const std::uint64_t block = core::round_down(keys.begin, kKeyBlock);
  for (std::uint64_t nth = 0; nth < kBlockTiles; ++nth) {
    const std::uint64_t key = std::clamp(block + nth * kTileTokens, keys.begin, keys.end - 1);
    const std::byte* const page = page_of(of, key);
    const std::uint64_t slot = core::round_down(sealed_slot(key), kTileTokens);
    located_[nth] = {page + tile_at(key), page + scales_at_ + 2 * slot};
    // Scales and means are prefetched at once: they are needed before codes are, and there are few.
    const std::byte* const end = located_[nth].scales + std::size_t{2} * kTileTokens;
    for (const std::byte* at = slot == 0 ? page : located_[nth].scales; at < end; at += kLineBytes) {
      __builtin_prefetch(at, 0, 2);
    }
  }
  located_head_ = of;
  located_keys_ = keys;
}

void SideRows::find_tiles(const KeyRange& keys, const SequenceHead& next_head, const KeyRange& next_keys,
                          Tiles& tiles) noexcept {
  if (located_head_ != head_ || located_keys_ != keys) locate_tiles(head_, keys);
  const std::array<Located, kBlockTiles> now = located_;
  locate_tiles(next_head, next_keys);
  tiles.count = 0;
  tiles.dim = shape_.dim;
  tiles.table = table_;
  const std::uint64_t first = keys.begin % kKeyBlock / kTileTokens, last = (keys.end - 1) % kKeyBlock / kTileTokens;
  for (std::uint64_t nth = first; nth <= last; ++nth) {
    const std::uint64_t quarter = tiles.count * (tile_bytes_ / kBlockTiles);
    Tile& tile = tiles.at[tiles.count++];
    tile.low = now[nth].low;
    tile.high = tile.low + high_at_;
    tile.scales = now[nth].scales;
    for (std::uint64_t i = 0; i < kBlockTiles; ++i) tile.prefetches[i] = address_of(located_[i].low) + quarter;
  }
}

void SideRows::unpack(std::uint64_t key) noexcept {
  if (key / kTileTokens == tile_) return;
  tile_ = key / kTileTokens;
  page_ = page_of(head_, key);
  codec::unpack_tile(layout_, sealed_slot(key) / kTileTokens, page_, codes_);
}

}  // namespace rota::ops
