#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "codec/codecs.h"
#include "ops/attend/attend_kernels.h"
#include "ops/attend/key_blocks.h"
#include "rota/dtype.h"
#include "runtime/strides.params.h"

namespace rota::ops {

struct SideShape {
  std::uint32_t format, dim, page, side;
  bool has_mean, sinks;
  const std::uint32_t* table;  // of the codec, where the side is sealed
};

inline constexpr float kLevelScale =
    1.0F / (1 << kScaleExponent);  // levels times it and their token's scale are numbers

// By the index of a key in its block.
using RowAddresses = std::array<const std::byte*, kKeyBlock>;

struct TileAddress {
  const std::byte* low;
  const std::byte* scales;
};
using TileAddresses = std::array<TileAddress, kBlockTiles>;

// Where the keys or the values of a launch lie. Reads page tables and no number.
class SideMemory {
 public:
  SideMemory(const std::byte* memory, const SlotStrides& strides, const SideShape& shape, PlanReader plan) noexcept;

  bool sealed() const noexcept { return layout_.bits != 0; }
  bool in_rows() const noexcept { return !sealed() && strides_.dim == 1; }
  DType dtype() const noexcept { return dtype_; }
  std::uint64_t dim_stride() const noexcept { return strides_.dim; }
  std::uint32_t dim() const noexcept { return shape_.dim; }
  std::uint32_t padded_dim() const noexcept { return padded_floats(shape_.dim); }

  const PageLayout& layout() const noexcept { return layout_; }
  std::uint32_t bits() const noexcept { return layout_.bits; }
  std::int32_t level(std::uint32_t code) const noexcept { return codec::level_in(shape_.table, layout_.bits, code); }
  std::uint32_t tile_size() const noexcept { return tile_bytes_; }
  std::uint32_t high_plane() const noexcept { return high_at_; }  // from a tile's start
  // Which of a sequence's sealed pages has the key, and where in it.
  std::uint64_t sealed_page(std::uint64_t key) const noexcept { return key >> page_shift_; }
  std::uint32_t sealed_slot(std::uint64_t key) const noexcept {
    return static_cast<std::uint32_t>(key) & (shape_.page - 1);
  }

  // A dense row, and the sealed page that has a key.
  const std::byte* row(const SequenceHead& of, std::uint64_t key) const noexcept { return run_at(of, key).row; }
  const std::byte* page(const SequenceHead& of, std::uint64_t key) const noexcept {
    const std::uint64_t physical = physical_page(side_of(of), sealed_page(key));
    return memory_ + 4 * (strides_.offset + physical * strides_.page + of.head * strides_.head);
  }
  // Of the page that has the key, in halves; null where pages have none.
  const std::byte* mean(const SequenceHead& of, std::uint64_t key) const noexcept {
    return shape_.has_mean ? page(of, key) : nullptr;
  }
  const std::byte* scale(const std::byte* page_of_key, std::uint64_t key) const noexcept {
    return page_of_key + scales_at_ + 2 * std::size_t{sealed_slot(key)};
  }

  // Of the keys that a block has.
  void locate_rows(const HeadBlock& block, RowAddresses& rows) const noexcept;
  // Of a whole block: where it has fewer keys, the nearest again.
  void locate_tiles(const HeadBlock& block, TileAddresses& tiles) const noexcept;

 private:
  // Slots that follow each other in memory: the first one's row, and how many.
  struct Run {
    const std::byte* row;
    std::uint64_t count;
  };

  const PlanSide& side_of(const SequenceHead& of) const noexcept {
    return shape_.side == kKeys ? of.sequence->k : of.sequence->v;
  }
  std::uint64_t physical_page(const PlanSide& side, std::uint64_t page) const noexcept {
    return plan_.word(static_cast<std::uint32_t>(side.page_table + page));
  }
  Run run_at(const SequenceHead& of, std::uint64_t key) const noexcept;

  const std::byte* memory_;
  const SlotStrides strides_;
  const SideShape shape_;
  const PlanReader plan_;
  const DType dtype_;
  const PageLayout layout_;
  // Of sealed pages: a division costs as much as several tokens do, and offsets are asked for every tile.
  const int page_shift_;
  const std::uint32_t scales_at_, tiles_at_, tile_bytes_, high_at_;
};

}  // namespace rota::ops
