#include "ops/attend/side_memory.h"

#include <algorithm>
#include <bit>

namespace rota::ops {

SideMemory::SideMemory(const std::byte* memory, const SlotStrides& strides, const SideShape& shape,
                       PlanReader plan) noexcept
    : memory_(memory),
      strides_(strides),
      shape_(shape),
      plan_(plan),
      dtype_(static_cast<DType>(dense_type(shape.format))),
      layout_{shape.side, sealed_bits(shape.format), shape.dim, shape.page, shape.has_mean ? 1U : 0U},
      page_shift_(std::countr_zero(shape.page)),
      scales_at_(scales_offset(layout_)),
      tiles_at_(tiles_offset(layout_)),
      tile_bytes_(tile_bytes(layout_)),
      high_at_(plane_offset(layout_, 0, plane_count(layout_.bits) - 1) - plane_offset(layout_, 0, 0)) {}

SideMemory::Run SideMemory::run_at(const SequenceHead& of, std::uint64_t key) const noexcept {
  const PlanSide& side = side_of(of);
  std::uint64_t page = side.sinks;
  std::uint64_t slot = key;
  std::uint64_t count = ~std::uint64_t{0};
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

void SideMemory::locate_rows(const HeadBlock& block, RowAddresses& rows) const noexcept {
  const std::uint64_t stride = strides_.slot * info(dtype_).bytes;
  const std::uint64_t first = block.first();
  const KeyRange& keys = block.keys;
  for (std::uint64_t key = keys.begin; key < keys.end;) {
    const Run run = run_at(block.of, key);
    const std::uint64_t count = std::min(run.count, keys.end - key);
    for (std::uint64_t i = 0; i < count; ++i) rows[key - first + i] = run.row + i * stride;
    key += count;
  }
}

void SideMemory::locate_tiles(const HeadBlock& block, TileAddresses& tiles) const noexcept {
  for (std::uint64_t nth = 0; nth < kBlockTiles; ++nth) {
    const std::uint64_t key = std::clamp(block.first() + nth * kTileTokens, block.keys.begin, block.keys.end - 1);
    const std::byte* const in_page = page(block.of, key);
    const std::uint64_t tile = sealed_slot(key) / kTileTokens;
    const std::byte* const scales = in_page + scales_at_ + 2 * tile * kTileTokens;
    tiles[nth] = {in_page + tiles_at_ + tile * tile_bytes_, scales};
    // Scales and means are prefetched at once: they are needed before codes are, and there are few.
    const std::byte* const from = tile == 0 ? in_page : scales;
    prefetch_bytes(from, static_cast<std::uint64_t>(scales - from) + std::uint64_t{2} * kTileTokens);
  }
}

}  // namespace rota::ops
