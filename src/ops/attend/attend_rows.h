#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "codec/dense/rows.h"
#include "ops/attend/attend.params.h"
#include "ops/attend/attend_kernels.h"
#include "ops/attend/key_range.h"
#include "ops/attend/plan_reader.h"
#include "runtime/strides.params.h"

namespace rota::ops {

// Keys or values of one head, wherever a sequence has them.
class SideRows {
 public:
  struct Shape {
    std::uint32_t format, dim, page, side;
    bool has_mean, sinks;
  };
  // One head's keys of one sequence.
  struct SequenceHead {
    const PlanSequence* sequence;
    std::uint64_t head;

    bool operator==(const SequenceHead&) const = default;
  };

  static constexpr std::uint64_t kRowsAtOnce = 16;  // that are wide
  static constexpr float kLevelScale = 1.0F / (1 << kScaleExponent);

  SideRows(const std::byte* memory, const SlotStrides& strides, const Shape& shape, PlanReader plan,
           const AttendSimd& simd) noexcept;

  bool sealed() const noexcept { return layout_.bits != 0; }
  bool in_rows() const noexcept { return !sealed() && strides_.dim == 1; }
  DType dtype() const noexcept { return dtype_; }
  std::uint32_t bits() const noexcept { return layout_.bits; }
  std::uint32_t dim() const noexcept { return shape_.dim; }
  std::uint32_t stride() const noexcept { return padded_floats(shape_.dim); }
  // Which of a sealed sequence's pages has the key.
  std::uint64_t sealed_page(std::uint64_t key) const noexcept { return key >> page_shift_; }

  std::uint32_t tile_size() const noexcept { return tile_bytes_; }

  void select(const SequenceHead& of) noexcept;

  // As f32, whatever they are: at most kRowsAtOnce in one tile. Sealed ones are levels; token_scale() has their scales.
  const float* rows(std::uint64_t key, std::uint64_t count) noexcept;
  float token_scale(std::uint64_t i) const noexcept { return token_scales_[i]; }
  bool with_mean(std::uint64_t i) const noexcept { return with_mean_[i]; }

  // Dense rows of the keys of one key block, by their index in it; elsewhere the next one that there is.
  void find_rows(const SequenceHead& of, const KeyRange& keys, const std::byte** at) const noexcept;

  // Sealed tiles of a key block, each with those of another one that it prefetches. Levels of keys are 128 larger than
  // they are.
  void find_tiles(const KeyRange& keys, const SequenceHead& next_head, const KeyRange& next_keys,
                  Tiles& tiles) noexcept;
  // Of the page that has `key`, in halves; null where pages have none.
  const std::byte* mean_of(std::uint64_t key) const noexcept { return shape_.has_mean ? page_of(head_, key) : nullptr; }

 private:
  struct Located {
    const std::byte* low;
    const std::byte* scales;
  };

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
  const std::byte* page_of(const SequenceHead& of, std::uint64_t key) const noexcept {
    const std::uint64_t page = physical_page(side_of(of), sealed_page(key));
    return memory_ + 4 * (strides_.offset + page * strides_.page + of.head * strides_.head);
  }
  std::uint32_t sealed_slot(std::uint64_t key) const noexcept {
    return static_cast<std::uint32_t>(key) & (shape_.page - 1);
  }
  // Of the tile that has `key`, from its page's start.
  std::uint64_t tile_at(std::uint64_t key) const noexcept {
    return tiles_at_ + std::uint64_t{sealed_slot(key) / kTileTokens} * tile_bytes_;
  }
  // Where the tiles of a key block are, the nearest again where there are fewer.
  void locate_tiles(const SequenceHead& of, const KeyRange& keys) noexcept;
  Run run_at(const SequenceHead& of, std::uint64_t key) const noexcept;
  void unpack(std::uint64_t key) noexcept;

  const std::byte* memory_;
  const SlotStrides strides_;
  const Shape shape_;
  const PlanReader plan_;
  const AttendSimd& simd_;
  const DType dtype_;
  const PageLayout layout_;
  // Of sealed pages: a division costs as much as several tokens do, and offsets are asked for every tile.
  const int page_shift_;
  const std::uint32_t scales_at_, tiles_at_, tile_bytes_, high_at_;
  const codec::ConvertRow to_f32_;
  SequenceHead head_{};
  std::array<Located, kBlockTiles> located_{};  // of the last key block that find_tiles() was told of: the next one
  SequenceHead located_head_{};
  KeyRange located_keys_{};
  std::uint64_t tile_ = 0;
  const std::byte* page_ = nullptr;
  float levels_[256];  // by code
  alignas(64) std::uint8_t table_[64];
  float token_scales_[kRowsAtOnce];
  bool with_mean_[kRowsAtOnce];
  alignas(64) float rows_[kRowsAtOnce * kMaxAttendDim];
  std::uint8_t codes_[kTileTokens * kMaxAttendDim];
};

}  // namespace rota::ops
