#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "codec/dense/rows.h"
#include "codec/dense/type_pairs.h"
#include "core/cursor.h"
#include "ops/rope/rope.h"
#include "ops/rope/rope_rows.h"

#define ROTA_SIMD_FILE "ops/rope/rope_simd.h"
#include "core/for_each_isa.h"

namespace rota::ops {
namespace {

constexpr std::array<RopeRows, core::kIsas.size()> kRopeRowsByIsa{ROTA_BY_ISA(kRopeRows)};

// Every section begins one run at most.
struct Runs {
  std::array<RopeRun, kMaxAxes> runs;
  std::size_t count = 0;

  Runs(const std::uint32_t* pairs, std::uint32_t size) noexcept {
    const std::uint32_t* const first = pairs + std::uint64_t{kFirst} * size;
    const std::uint32_t* const second = pairs + std::uint64_t{kSecond} * size;
    for (std::uint32_t p = 0; p < size; ++p) {
      const bool goes_on = p > 0 && first[p] == first[p - 1] + 1 && second[p] == second[p - 1] + 1;
      if (!goes_on) runs[count++] = {p, 0, first[p], second[p]};
      ++runs[count - 1].pairs;
    }
  }
};

bool has_several_axes(const std::uint32_t* pairs, std::uint32_t size) noexcept {
  const std::span axes(pairs + std::uint64_t{kAxis} * size, size);
  return std::ranges::any_of(axes, [](std::uint32_t axis) { return axis != 0; });
}

std::byte* bytes_of(float* values) noexcept { return reinterpret_cast<std::byte*>(values); }

struct Place {
  std::uint64_t token, head;
};

// The rows of one view.
struct Rows {
  std::byte* first;
  std::uint64_t token_bytes, head_bytes;
  std::uint64_t stride;  // of a row's elements
  DType dtype;

  Rows(std::byte* bound, const Strides& strides, DType type) noexcept
      : first(bound + strides.offset * info(type).bytes),
        token_bytes(strides.token * info(type).bytes),
        head_bytes(strides.head * info(type).bytes),
        stride(strides.dim),
        dtype(type) {}

  std::byte* at(Place place) const noexcept { return first + place.token * token_bytes + place.head * head_bytes; }
  std::byte* element(Place place, std::uint64_t d) const noexcept { return at(place) + d * stride * info(dtype).bytes; }
};

// What happens to one row after the other of a call.
class RowTurner {
 public:
  RowTurner(const runtime::CpuCall& call, core::Isa isa) noexcept
      : p_(call.params_as<RopeParams>()),
        from_(call.bound[kRopeBindingFrom], p_.from, static_cast<DType>(call.constants[kRopeConstantFrom])),
        to_(call.bound[kRopeBindingTo], p_.to, static_cast<DType>(call.constants[kRopeConstantTo])),
        norm_(call.constants[kRopeConstantNorm]),
        weight_(call.bound[kRopeBindingWeight], p_.weight,
                norm_ > kNormed ? static_cast<DType>(norm_ - kNormed - 1) : DType::f32),
        through_row_(norm_ != kNotNormed || from_.stride != 1),
        into_row_(to_.stride != 1),
        rest_moves_(rope_dim() < p_.dim && (norm_ != kNotNormed || call.constants[kRopeConstantInPlace] == 0)),
        isa_(isa),
        rows_(kRopeRowsByIsa[static_cast<std::size_t>(isa)]),
        turn_row_(rows_.turn_row[codec::type_pair(through_row_ ? DType::f32 : from_.dtype,
                                                  into_row_ ? DType::f32 : to_.dtype)]),
        runs_(table_of(call), unit_of(call) == kNeighbourPair ? 0 : p_.pairs),
        call_{p_,
              reinterpret_cast<const std::uint32_t*>(call.bound[kRopeBindingPositions]),
              table_of(call),
              unit_of(call),
              has_several_axes(table_of(call), p_.pairs),
              {runs_.runs.data(), runs_.count}} {}

  void begin_token(std::uint64_t token) noexcept { rows_.fill_turns(call_, token, scratch_); }

  // How many rows lie between the one that turns and the one that is fetched.
  std::uint64_t rows_ahead() const noexcept {
    return 1 + kBytesAhead / (std::uint64_t{p_.dim} * std::max(info(from_.dtype).bytes, info(to_.dtype).bytes));
  }

  // Meanwhile the row at `next` is fetched: hardware does not see what will be written.
  void turn(Place place, Place next) noexcept {
    if (norm_ != kNotNormed) {
      norm_row(place);
    } else if (through_row_) {
      widen(place, rope_dim());
    }
    // A target that is not side by side gets its elements from the row, too.
    std::byte* const row = bytes_of(scratch_.row);
    turn_row_(call_, scratch_,
              {through_row_ ? row : from_.at(place), into_row_ ? row : to_.at(place), from_.at(next), to_.at(next)});
    if (into_row_) narrow(place, 0, rope_dim());
    if (rest_moves_) move_rest(place);
  }

 private:
  static constexpr std::uint64_t kBytesAhead = 2048;

  static std::uint32_t unit_of(const runtime::CpuCall& call) noexcept { return call.constants[kRopeConstantUnit]; }
  static const std::uint32_t* table_of(const runtime::CpuCall& call) noexcept {
    return reinterpret_cast<const std::uint32_t*>(call.bound[kRopeBindingPairs]);
  }
  std::uint64_t rope_dim() const noexcept { return 2ULL * p_.pairs; }

  void widen(Place place, std::uint64_t count) noexcept {
    codec::row_converter(from_.dtype, DType::f32, isa_)({from_.at(place), from_.stride}, {bytes_of(scratch_.row)},
                                                        count);
  }

  void narrow(Place place, std::uint64_t first, std::uint64_t count) noexcept {
    codec::row_converter(DType::f32, to_.dtype, isa_)({bytes_of(scratch_.row + first)},
                                                      {to_.element(place, first), to_.stride}, count);
  }

  void move_rest(Place place) noexcept {
    const std::uint64_t count = p_.dim - rope_dim();
    if (norm_ != kNotNormed) {
      narrow(place, rope_dim(), count);
    } else {
      codec::row_converter(from_.dtype, to_.dtype, isa_)({from_.element(place, rope_dim()), from_.stride},
                                                         {to_.element(place, rope_dim()), to_.stride}, count);
    }
  }

  void norm_row(Place place) noexcept {
    const bool side_by_side = from_.stride == 1;
    if (!side_by_side) widen(place, p_.dim);
    const float squares = rows_.widen_and_square[static_cast<std::size_t>(side_by_side ? from_.dtype : DType::f32)](
        side_by_side ? from_.at(place) : bytes_of(scratch_.row), scratch_.row, p_.dim);
    const float scale = 1.0F / std::sqrt(squares / static_cast<float>(p_.dim) + p_.epsilon);
    rows_.scale_row(scratch_.row, scale, norm_ == kNormed ? nullptr : weight_at({0, place.head}), p_.dim);
  }

  // Of one head, or of all where they share it.
  const float* weight_at(Place place) noexcept {
    const std::byte* const from = weight_.at(place);
    if (weight_in_scratch_ == from) return scratch_.weight;
    codec::row_converter(weight_.dtype, DType::f32, isa_)({from, weight_.stride}, {bytes_of(scratch_.weight)}, p_.dim);
    for (std::uint64_t d = 0; d < p_.dim; ++d) scratch_.weight[d] += p_.weight_offset;
    weight_in_scratch_ = from;
    return scratch_.weight;
  }

  const RopeParams p_;
  const Rows from_, to_;
  const std::uint32_t norm_;
  const Rows weight_;
  const bool through_row_, into_row_;  // of scratch
  const bool rest_moves_;
  const core::Isa isa_;
  const RopeRows& rows_;
  const RopeRows::TurnRow turn_row_;
  const Runs runs_;
  const RopeCall call_;
  const std::byte* weight_in_scratch_ = nullptr;
  RopeScratch scratch_;
};

Place place_of(const core::Cursor& cursor) noexcept { return {cursor.row, cursor.column}; }

}  // namespace

// A row is one head vector of one token.
void rope_cpu(const runtime::CpuCall& call, core::Isa isa) noexcept {
  const std::uint64_t heads = call.params_as<RopeParams>().heads;
  auto& turner = call.emplace<RowTurner>(call, isa);
  core::Cursor cursor(call.first_item, heads);
  const std::uint64_t rows_ahead = std::min(turner.rows_ahead(), call.last_item - call.first_item);
  core::Cursor next(call.first_item + rows_ahead, heads);
  for (std::uint64_t row = call.first_item; row < call.last_item; ++row) {
    if (row == call.first_item || cursor.column == 0) turner.begin_token(cursor.row);
    turner.turn(place_of(cursor), place_of(row + rows_ahead < call.last_item ? next : cursor));
    cursor.advance();
    next.advance();
  }
}

void rope_cpu(const runtime::CpuCall& call) noexcept { rope_cpu(call, core::best_isa()); }

}  // namespace rota::ops
