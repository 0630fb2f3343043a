#include <array>
#include <cmath>
#include <span>
#include <utility>

#include "codec/dense/rows.h"
#include "ops/rope/rope.h"

namespace rota::ops {
namespace {

struct RopeScratch {
  // By pair, or for neighbours by coordinate.
  alignas(64) float cosine[kMaxRopeDim];
  alignas(64) float sine[kMaxRopeDim];
  alignas(64) float row[kMaxRopeDim];
  alignas(64) float weight[kMaxRopeDim];
};

// A call as the rows' code sees it.
struct RopeCall {
  // Pairs whose first coordinates lie side by side, and whose second ones do.
  struct Run {
    std::uint64_t pair, pairs, first, second;
  };

  const RopeParams& params;
  const std::uint32_t* positions;
  const std::uint32_t* pairs;
  std::uint32_t unit;
  std::span<const Run> runs;
};

struct RopeRows {
  using TurnRow = void (*)(const RopeCall&, const RopeScratch&, const std::byte* from, std::byte* to) noexcept;
  using TurnRows = std::array<TurnRow, kDTypes.size() * kDTypes.size()>;  // by both types' numbers

  void (*fill_turns)(const RopeCall&, std::uint64_t token, RopeScratch&) noexcept;
  float (*sum_of_squares)(const float* row, std::uint64_t dim) noexcept;
  TurnRows turn_row;
};

}  // namespace
}  // namespace rota::ops

#define ROTA_LANES_FILE "ops/rope/rope_lanes.h"
#include "core/for_each_isa.h"

namespace rota::ops {
namespace {

constexpr std::array<RopeRows, core::kIsas.size()> kRopeRowsByIsa{ROTA_BY_ISA(kRopeRows)};

// Every section begins one run at most.
struct Runs {
  std::array<RopeCall::Run, kMaxAxes> runs;
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

// What happens to one row after the other of a call.
class RowTurner {
 public:
  RowTurner(const runtime::CpuCall& call, core::Isa isa) noexcept
      : p_(call.params_as<RopeParams>()),
        from_(static_cast<DType>(call.constants[RopeConstant::kFrom])),
        to_(static_cast<DType>(call.constants[RopeConstant::kTo])),
        norm_(call.constants[RopeConstant::kNorm]),
        in_place_(call.constants[RopeConstant::kInPlace] != 0),
        bound_(call.bound),
        pairs_(reinterpret_cast<const std::uint32_t*>(call.bound[3])),
        unit_(call.constants[RopeConstant::kUnit]),
        runs_(pairs_, unit_ == kNeighbourPair ? 0 : p_.pairs),
        call_{
            p_, reinterpret_cast<const std::uint32_t*>(call.bound[2]), pairs_, unit_, {runs_.runs.data(), runs_.count}},
        rows_(kRopeRowsByIsa[static_cast<std::size_t>(isa)]),
        widen_(codec::row_converter(from_, DType::f32, isa)),
        narrow_(codec::row_converter(DType::f32, to_, isa)),
        convert_(codec::row_converter(from_, to_, isa)) {}

  void begin_token(std::uint64_t token) noexcept { rows_.fill_turns(call_, token, scratch_); }

  void turn(std::uint64_t token, std::uint64_t head) noexcept {
    const codec::SourceRow from{
        bound_[0] + (p_.from.offset + token * p_.from.token + head * p_.from.head) * info(from_).bytes, p_.from.dim};
    const codec::TargetRow to{bound_[1] + (p_.to.offset + token * p_.to.token + head * p_.to.head) * info(to_).bytes,
                              p_.to.dim};
    auto* const row = reinterpret_cast<std::byte*>(scratch_.row);
    const std::uint64_t rope_dim = 2ULL * p_.pairs;
    const bool normed = norm_ != kNotNormed;

    const bool through_row = normed || from.stride != 1;
    if (through_row) widen_(from, {row}, normed ? p_.dim : rope_dim);
    if (normed) norm_row(head);

    const DType source = through_row ? DType::f32 : from_;
    const bool into_row = to.stride != 1;
    const DType target = into_row ? DType::f32 : to_;
    rows_.turn_row[static_cast<std::size_t>(source) * kDTypes.size() + static_cast<std::size_t>(target)](
        call_, scratch_, through_row ? row : from.at, into_row ? row : to.at);
    if (into_row) narrow_({row}, to, rope_dim);

    // The rest only moves.
    const codec::TargetRow rest{to.at + rope_dim * to.stride * info(to_).bytes, to.stride};
    if (normed) {
      narrow_({row + rope_dim * sizeof(float)}, rest, p_.dim - rope_dim);
    } else if (!in_place_) {
      convert_({from.at + rope_dim * from.stride * info(from_).bytes, from.stride}, rest, p_.dim - rope_dim);
    }
  }

 private:
  void norm_row(std::uint64_t head) noexcept {
    const float mean = rows_.sum_of_squares(scratch_.row, p_.dim) / static_cast<float>(p_.dim);
    const float scale = 1.0F / std::sqrt(mean + p_.epsilon);
    if (norm_ == kNormed) {
      for (std::uint64_t d = 0; d < p_.dim; ++d) scratch_.row[d] *= scale;
      return;
    }
    load_weight(p_.weight.offset + head * p_.weight.head);
    for (std::uint64_t d = 0; d < p_.dim; ++d) scratch_.row[d] = scratch_.row[d] * scale * scratch_.weight[d];
  }

  void load_weight(std::uint64_t at) noexcept {
    if (weight_loaded_ && weight_at_ == at) return;
    const auto dtype = static_cast<DType>(norm_ - kNormed - 1);
    codec::row_converter(dtype, DType::f32)({bound_[4] + at * info(dtype).bytes, p_.weight.dim},
                                            {reinterpret_cast<std::byte*>(scratch_.weight)}, p_.dim);
    for (std::uint64_t d = 0; d < p_.dim; ++d) scratch_.weight[d] += p_.weight_offset;
    weight_at_ = at;
    weight_loaded_ = true;
  }

  const RopeParams& p_;
  const DType from_, to_;
  const std::uint32_t norm_;
  const bool in_place_;
  const std::array<std::byte*, runtime::kMaxBindings> bound_;
  const std::uint32_t* const pairs_;
  const std::uint32_t unit_;
  const Runs runs_;
  const RopeCall call_;
  const RopeRows& rows_;
  const codec::ConvertRow widen_, narrow_, convert_;
  std::uint64_t weight_at_ = 0;
  bool weight_loaded_ = false;
  RopeScratch scratch_;
};

}  // namespace

// A row is one head vector of one token.
void rope_cpu(const runtime::CpuCall& call, core::Isa isa) noexcept {
  const std::uint64_t heads = call.params_as<RopeParams>().heads;
  RowTurner turner(call, isa);
  for (std::uint64_t row = call.first_row; row < call.last_row; ++row) {
    if (row == call.first_row || row % heads == 0) turner.begin_token(row / heads);
    turner.turn(row / heads, row % heads);
  }
}

void rope_cpu(const runtime::CpuCall& call) noexcept { rope_cpu(call, core::best_isa()); }

}  // namespace rota::ops
