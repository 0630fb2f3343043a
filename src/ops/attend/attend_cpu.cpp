#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "codec/dense/rows.h"
#include "codec/turbo/rotation.h"
#include "core/cursor.h"
#include "ops/attend/attend.h"
#include "ops/attend/attend_kernels.h"
#include "ops/attend/plan_reader.h"

namespace rota::ops {
namespace {

const float* floats_of(const std::byte* at) noexcept { return reinterpret_cast<const float*>(at); }
const std::uint32_t* words_of(const std::byte* at) noexcept { return reinterpret_cast<const std::uint32_t*>(at); }

float element_at(const std::byte* memory, std::uint32_t dtype, std::uint64_t index) noexcept {
  float value = 0;
  const auto type = static_cast<DType>(dtype);
  codec::row_converter(type, DType::f32)({memory + index * info(type).bytes, 1},
                                         {reinterpret_cast<std::byte*>(&value), 1}, 1);
  return value;
}

// A work item is one vector of one query tile and one kv head: its splits' partial results, first to last.
class VectorMerge {
 public:
  explicit VectorMerge(const runtime::CpuCall& call) noexcept
      : call_(call),
        p_(call.params_as<AttendMergeParams>()),
        plan_(words_of(call.bound[kAttendMergeBindingPlan])),
        sink_logits_(floats_of(call.bound[kAttendMergeBindingQueries]) + std::size_t{p_.kv_heads} * p_.group),
        has_sinks_(call.constants[kAttendMergeConstantSinkLogits] != 0),
        rotation_(p_.rotation, words_of(call.bound[kAttendMergeBindingValueTable])),
        simd_(attend_simd(core::best_isa())) {}

  void run(std::uint64_t first_item, std::uint64_t last_item) noexcept {
    core::Cursor vector(first_item, p_.vectors);
    core::Cursor head(vector.row, p_.kv_heads);
    for (std::uint64_t item = first_item; item < last_item; ++item) {
      merge(plan_.query_tile(p_.first_query_tile + head.row), static_cast<std::uint32_t>(head.column),
            static_cast<std::uint32_t>(vector.column));
      vector.advance();
      if (vector.column == 0) head.advance();
    }
  }

 private:
  void merge(const QueryTile& tile, std::uint32_t kv_head, std::uint32_t nth) noexcept {
    if (nth >= tile.vectors) return;
    const std::uint32_t vector = tile.first_vector + nth;
    const std::uint64_t token = std::uint64_t{plan_.sequence(tile.sequence).first_query_token} + vector / p_.group;
    const std::uint64_t head = std::uint64_t{kv_head} * p_.group + vector % p_.group;
    add_partials(tile, std::uint64_t{kv_head} * tile.vectors + nth,
                 has_sinks_ ? sink_logits_[head] * kLog2OfE : kNoLogit);
    write_output(token, head);
    if (call_.constants[kAttendMergeConstantLogSum] != 0) write_log_sum(token, head);
  }

  // `offset` is the vector's, from where each split's partial results begin.
  void add_partials(const QueryTile& tile, std::uint64_t offset, float sink_logit) noexcept {
    const float* const partials = floats_of(call_.bound[kAttendMergeBindingPartials]);
    const std::span<const KvSplit> splits(&plan_.kv_split(tile.first_split), tile.splits);
    const auto partial_of = [&](const KvSplit& split) {
      return partials + (split.first_partial + offset) * partial_floats(p_.dim);
    };
    max_logit_ = sink_logit;
    for (const KvSplit& split : splits) max_logit_ = std::max(max_logit_, partial_of(split)[0]);
    exp_sum_ = has_sinks_ ? std::exp2(sink_logit - max_logit_) : 0.0F;
    bool any_rotated = false;
    const std::uint32_t padded = padded_floats(p_.dim);
    std::fill_n(plain_, padded, 0.0F);
    std::fill_n(rotated_, padded, 0.0F);
    for (const KvSplit& split : splits) {
      const float* const partial = partial_of(split);
      if (partial[1] == 0) continue;
      const float weight = std::exp2(partial[0] - max_logit_);
      exp_sum_ += partial[1] * weight;
      any_rotated = any_rotated || split.rotated != 0;
      simd_.add_scaled(split.rotated != 0 ? rotated_ : plain_, partial + kPadFloats, weight, padded);
    }
    if (!any_rotated) return;
    rotation_.rotate_back(rotated_);
    simd_.add_scaled(plain_, rotated_, 1, padded);
  }

  void write_output(std::uint64_t token, std::uint64_t head) noexcept {
    const float inverse = exp_sum_ == 0 ? 0.0F : 1 / exp_sum_;
    simd_.scale(plain_, inverse, padded_floats(p_.dim));
    const auto dtype = static_cast<DType>(call_.constants[kAttendMergeConstantTo]);
    const std::uint64_t at = p_.to.offset + token * p_.to.token + head * p_.to.head;
    codec::row_converter(DType::f32, dtype)({reinterpret_cast<const std::byte*>(plain_), 1},
                                            {call_.bound[kAttendMergeBindingTo] + at * info(dtype).bytes, p_.to.dim},
                                            p_.dim);
  }

  void write_log_sum(std::uint64_t token, std::uint64_t head) const noexcept {
    const float log_sum =
        exp_sum_ == 0 ? -std::numeric_limits<float>::infinity() : (max_logit_ + std::log2(exp_sum_)) * kLogOf2;
    const auto dtype = static_cast<DType>(call_.constants[kAttendMergeConstantLogSum] - 1);
    const std::uint64_t at = p_.log_sum_exp.offset + token * p_.log_sum_exp.token + head * p_.log_sum_exp.head;
    codec::row_converter(DType::f32, dtype)({reinterpret_cast<const std::byte*>(&log_sum), 1},
                                            {call_.bound[kAttendMergeBindingLogSum] + at * info(dtype).bytes, 1}, 1);
  }

  const runtime::CpuCall& call_;
  const AttendMergeParams& p_;
  const PlanReader plan_;
  const float* const sink_logits_;
  const bool has_sinks_;
  const codec::Rotation rotation_;
  const AttendSimd& simd_;
  float max_logit_ = kNoLogit, exp_sum_ = 0;
  alignas(64) float plain_[kMaxAttendDim];
  alignas(64) float rotated_[kMaxAttendDim];
};

// ALiBi's slopes and the sink logits, or zeros.
void write_head_numbers(const runtime::CpuCall& call, const AttendQueryParams& p, float* queries) noexcept {
  const std::uint32_t slopes = call.constants[kAttendQueryConstantSlopes];
  const std::uint32_t sinks = call.constants[kAttendQueryConstantSinks];
  for (std::uint32_t head = 0; head < p.heads; ++head) {
    queries[head] = slopes == 0 ? 0.0F
                                : element_at(call.bound[kAttendQueryBindingSlopes], slopes - 1,
                                             p.slopes.offset + head * p.slopes.head);
    queries[p.heads + head] =
        sinks == 0 ? 0.0F
                   : element_at(call.bound[kAttendQueryBindingSinks], sinks - 1, p.sinks.offset + head * p.sinks.head);
  }
}

}  // namespace

// A work item is one query vector; the last one is the heads' numbers.
void attend_query_cpu(const runtime::CpuCall& call) noexcept {
  const auto& p = call.params_as<AttendQueryParams>();
  auto* const queries = reinterpret_cast<float*>(call.bound[kAttendQueryBindingQueries]);
  const codec::Rotation rotation(p.rotation, words_of(call.bound[kAttendQueryBindingKeyTable]));
  const auto dtype = static_cast<DType>(call.constants[kAttendQueryConstantFrom]);
  const codec::ConvertRow to_f32 = codec::row_converter(dtype, DType::f32);
  const std::uint64_t vectors = std::uint64_t{p.tokens} * p.heads;
  const std::uint64_t stride = padded_floats(p.dim);
  const AttendSimd& simd = attend_simd(core::best_isa());
  core::Cursor head(call.first_item, p.heads);
  for (std::uint64_t item = call.first_item; item < std::min(call.last_item, vectors); ++item, head.advance()) {
    float* const plain = queries + query_header(p.heads) + item * stride;
    const std::uint64_t from = p.from.offset + head.row * p.from.token + head.column * p.from.head;
    to_f32({call.bound[kAttendQueryBindingFrom] + from * info(dtype).bytes, p.from.dim},
           {reinterpret_cast<std::byte*>(plain), 1}, p.dim);
    std::fill(plain + p.dim, plain + stride, 0.0F);
    simd.scale(plain, p.scale, stride);
    if (p.rotation.m == 0) continue;
    float* const rotated = plain + vectors * stride;
    std::copy(plain, plain + stride, rotated);
    rotation.rotate(rotated);
  }
  if (call.last_item > vectors) write_head_numbers(call, p, queries);
}

void attend_merge_cpu(const runtime::CpuCall& call) noexcept { VectorMerge(call).run(call.first_item, call.last_item); }

}  // namespace rota::ops
