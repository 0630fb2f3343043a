#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>

#include "codec/dense/rows.h"
#include "ops/attend/attend.h"
#include "ops/attend/attend_kernels.h"
#include "ops/attend/plan_reader.h"

namespace rota::ops {
namespace {

const float* floats_of(const std::byte* at) noexcept { return reinterpret_cast<const float*>(at); }
const std::uint32_t* words_of(const std::byte* at) noexcept { return reinterpret_cast<const std::uint32_t*>(at); }

// The codec's rotation, its own inverse but for the signs, which come first for queries and last for outputs.
void rotate(float* values, RotationShape shape, const std::uint32_t* table, const AttendSimd& simd) noexcept {
  const std::uint64_t size = std::uint64_t{1} << shape.k;
  const std::uint64_t dim = shape.m * size;
  simd.hadamard(values, dim, size);
  const float hadamard_scale = hadamard_factor(shape.k);
  if (shape.m == 1) {
    simd.scale(values, hadamard_scale, dim);
    return;
  }
  const auto* const row = reinterpret_cast<const std::int32_t*>(table + kHartleyRow);
  for (std::uint64_t column = 0; column < size; ++column) {
    std::array<float, 16> mixed{};
    for (std::uint64_t a = 0; a < shape.m; ++a) {
      for (std::uint64_t b = 0; b < shape.m; ++b) {
        mixed[a] += static_cast<float>(row[a * b % shape.m]) * kHartleyUnit * values[b * size + column];
      }
    }
    for (std::uint64_t a = 0; a < shape.m; ++a) values[a * size + column] = mixed[a] * hadamard_scale;
  }
}

void negate(float* values, std::uint64_t dim, const std::uint32_t* table) noexcept {
  for (std::uint64_t i = 0; i < dim; ++i) {
    if ((table[kSigns + i / 32] >> (i % 32) & 1U) != 0) values[i] = -values[i];
  }
}

float element_at(const std::byte* memory, std::uint32_t dtype, std::uint64_t index) noexcept {
  float value = 0;
  const auto type = static_cast<DType>(dtype);
  codec::row_converter(type, DType::f32)({memory + index * info(type).bytes, 1},
                                         {reinterpret_cast<std::byte*>(&value), 1}, 1);
  return value;
}

}  // namespace

// A work item is one query vector; the last one is the heads' numbers.
void attend_query_cpu(const runtime::CpuCall& call) noexcept {
  const auto& p = call.params_as<AttendQueryParams>();
  auto* const queries = reinterpret_cast<float*>(call.bound[kAttendQueryBindingQueries]);
  const std::uint32_t* const table = words_of(call.bound[kAttendQueryBindingKeyTable]);
  const auto dtype = static_cast<DType>(call.constants[kAttendQueryConstantFrom]);
  const codec::ConvertRow to_f32 = codec::row_converter(dtype, DType::f32);
  const AttendSimd& simd = attend_simd(core::best_isa());
  const std::uint64_t vectors = std::uint64_t{p.tokens} * p.heads;
  const std::uint64_t stride = padded_floats(p.dim);
  for (std::uint64_t item = call.first_item; item < call.last_item; ++item) {
    if (item == vectors) {
      for (std::uint32_t head = 0; head < p.heads; ++head) {
        queries[head] =
            call.constants[kAttendQueryConstantSlopes] == 0
                ? 0.0F
                : element_at(call.bound[kAttendQueryBindingSlopes], call.constants[kAttendQueryConstantSlopes] - 1,
                             p.slopes.offset + head * p.slopes.head);
        queries[p.heads + head] =
            call.constants[kAttendQueryConstantSinks] == 0
                ? 0.0F
                : element_at(call.bound[kAttendQueryBindingSinks], call.constants[kAttendQueryConstantSinks] - 1,
                             p.sinks.offset + head * p.sinks.head);
      }
      break;
    }
    float* const plain = queries + query_header(p.heads) + item * stride;
    const std::uint64_t from = p.from.offset + item / p.heads * p.from.token + item % p.heads * p.from.head;
    to_f32({call.bound[kAttendQueryBindingFrom] + from * info(dtype).bytes, p.from.dim},
           {reinterpret_cast<std::byte*>(plain), 1}, p.dim);
    for (std::uint32_t d = 0; d < p.dim; ++d) plain[d] *= p.scale;
    std::fill(plain + p.dim, plain + stride, 0.0F);
    if (p.rotation.m == 0) continue;
    float* const rotated = plain + vectors * stride;
    std::copy(plain, plain + stride, rotated);
    negate(rotated, p.dim, table);
    rotate(rotated, p.rotation, table, simd);
  }
}

// A work item is one vector of one query tile and one kv head.
void attend_merge_cpu(const runtime::CpuCall& call) noexcept {
  const auto& p = call.params_as<AttendMergeParams>();
  const PlanReader plan(words_of(call.bound[kAttendMergeBindingPlan]));
  const float* const partials = floats_of(call.bound[kAttendMergeBindingPartials]);
  const float* const sink_logits =
      floats_of(call.bound[kAttendMergeBindingQueries]) + std::size_t{p.kv_heads} * p.group;
  const std::uint32_t* const table = words_of(call.bound[kAttendMergeBindingValueTable]);
  const auto dtype = static_cast<DType>(call.constants[kAttendMergeConstantTo]);
  const codec::ConvertRow from_f32 = codec::row_converter(DType::f32, dtype);
  const bool has_sinks = call.constants[kAttendMergeConstantSinkLogits] != 0;
  const AttendSimd& simd = attend_simd(core::best_isa());
  alignas(64) float plain[kMaxAttendDim];
  alignas(64) float rotated[kMaxAttendDim];
  for (std::uint64_t item = call.first_item; item < call.last_item; ++item) {
    const std::uint64_t nth = item % p.vectors;
    const std::uint64_t kv_head = item / p.vectors % p.kv_heads;
    const QueryTile& tile = plan.query_tile(p.first_query_tile + item / p.vectors / p.kv_heads);
    if (nth >= tile.vectors) continue;
    const std::uint64_t vector = tile.first_vector + nth;
    const std::uint64_t head = kv_head * p.group + vector % p.group;
    const std::span<const KvSplit> splits(&plan.kv_split(tile.first_split), tile.splits);
    const auto partial_of = [&](const KvSplit& split) {
      return partials + (split.first_partial + kv_head * tile.vectors + nth) * partial_floats(p.dim);
    };

    float max_logit = has_sinks ? sink_logits[head] * kLog2OfE : kNoLogit;
    for (const KvSplit& split : splits) max_logit = std::max(max_logit, partial_of(split)[0]);
    float exp_sum = has_sinks ? std::exp2(sink_logits[head] * kLog2OfE - max_logit) : 0.0F;
    bool any_rotated = false;
    std::fill(plain, plain + padded_floats(p.dim), 0.0F);
    std::fill(rotated, rotated + padded_floats(p.dim), 0.0F);
    for (const KvSplit& split : splits) {
      const float* const partial = partial_of(split);
      if (partial[1] == 0) continue;
      const float weight = std::exp2(partial[0] - max_logit);
      exp_sum += partial[1] * weight;
      any_rotated = any_rotated || split.rotated != 0;
      float* const to = split.rotated != 0 ? rotated : plain;
      simd.add_scaled(to, partial + kPadFloats, weight, padded_floats(p.dim));
    }
    if (any_rotated) {
      rotate(rotated, p.rotation, table, simd);
      negate(rotated, p.dim, table);
      for (std::uint32_t d = 0; d < p.dim; ++d) plain[d] += rotated[d];
    }
    const float inverse = exp_sum == 0 ? 0.0F : 1 / exp_sum;
    for (std::uint32_t d = 0; d < p.dim; ++d) plain[d] *= inverse;
    const std::uint64_t token = plan.sequence(tile.sequence).first_query_token + vector / p.group;
    const std::uint64_t to = p.to.offset + token * p.to.token + head * p.to.head;
    from_f32({reinterpret_cast<const std::byte*>(plain), 1},
             {call.bound[kAttendMergeBindingTo] + to * info(dtype).bytes, p.to.dim}, p.dim);
    if (call.constants[kAttendMergeConstantLogSum] == 0) continue;
    const float log_sum =
        exp_sum == 0 ? -std::numeric_limits<float>::infinity() : (max_logit + std::log2(exp_sum)) * kLogOf2;
    const auto log_sum_dtype = static_cast<DType>(call.constants[kAttendMergeConstantLogSum] - 1);
    const std::uint64_t at = p.log_sum_exp.offset + token * p.log_sum_exp.token + head * p.log_sum_exp.head;
    codec::row_converter(DType::f32, log_sum_dtype)(
        {reinterpret_cast<const std::byte*>(&log_sum), 1},
        {call.bound[kAttendMergeBindingLogSum] + at * info(log_sum_dtype).bytes, 1}, 1);
  }
}

}  // namespace rota::ops
