#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "codec/dense/rows.h"
#include "codec/turbo/pack.h"
#include "codec/turbo/turbo.h"
#include "ops/attend/attend.h"

namespace rota::ops {
namespace {

struct AttendLanes {
  float (*dot)(const float*, const float*, std::uint64_t) noexcept;
  void (*add_scaled)(float*, const float*, float, std::uint64_t) noexcept;
  float (*exponentiate)(float*, std::uint64_t, float) noexcept;
};

}  // namespace
}  // namespace rota::ops

#define ROTA_LANES_FILE "ops/attend/attend_lanes.h"
#include "core/for_each_isa.h"

namespace rota::ops {
namespace {

constexpr std::array<AttendLanes, core::kIsas.size()> kLanesByIsa{ROTA_BY_ISA(kAttendLanes)};

constexpr std::uint64_t kRowsAtOnce = 16;  // that are wide
constexpr std::uint64_t kNever = ~std::uint64_t{0};
static_assert(kTileTokens % kRowsAtOnce == 0 && kStepKeys % kTileTokens == 0);

const AttendLanes& best_lanes() noexcept { return kLanesByIsa[static_cast<std::size_t>(core::best_isa())]; }

const float* floats_of(const std::byte* at) noexcept { return reinterpret_cast<const float*>(at); }
const std::uint32_t* words_of(const std::byte* at) noexcept { return reinterpret_cast<const std::uint32_t*>(at); }

// The codec's rotation, its own inverse but for the signs, which come first for queries and last for outputs.
void rotate(float* values, RotationShape shape, const std::uint32_t* table) noexcept {
  const std::uint64_t size = std::uint64_t{1} << shape.k;
  const std::uint64_t dim = shape.m * size;
  for (std::uint64_t step = 1; step < size; step *= 2) {
    for (std::uint64_t first = 0; first < dim; first += 2 * step) {
      for (std::uint64_t i = first; i < first + step; ++i) {
        const float a = values[i];
        const float b = values[i + step];
        values[i] = a + b;
        values[i + step] = a - b;
      }
    }
  }
  const float factor = hadamard_factor(shape.k);
  if (shape.m == 1) {
    for (std::uint64_t i = 0; i < dim; ++i) values[i] *= factor;
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
    for (std::uint64_t a = 0; a < shape.m; ++a) values[a * size + column] = mixed[a] * factor;
  }
}

void negate(float* values, std::uint64_t dim, const std::uint32_t* table) noexcept {
  for (std::uint64_t i = 0; i < dim; ++i) {
    if ((table[kSigns + i / 32] >> (i % 32) & 1U) != 0) values[i] = -values[i];
  }
}

// One side of an entry: keys or values of one head, as rows of f32.
class SideRows {
 public:
  struct Shape {
    std::uint32_t format, dim, page, side;
    bool has_mean, sinks;
  };

  SideRows(const std::byte* memory, const SlotStrides& strides, const Shape& shape, const std::uint32_t* plan) noexcept
      : memory_(memory),
        strides_(strides),
        shape_(shape),
        plan_(plan),
        dtype_(static_cast<DType>(dense_type(shape.format))),
        layout_{shape.side, sealed_bits(shape.format), shape.dim, shape.page, shape.has_mean ? 1U : 0U},
        to_f32_(codec::row_converter(dtype_, DType::f32)) {
    std::ranges::transform(codec::levels_of(layout_.bits), levels_,
                           [](std::int8_t level) { return static_cast<float>(level) * kLevelUnit; });
  }

  bool sealed() const noexcept { return layout_.bits != 0; }
  std::uint32_t dim() const noexcept { return shape_.dim; }
  std::uint32_t stride() const noexcept { return padded_row(shape_.dim); }

  void select(const std::uint32_t* text, std::uint64_t head) noexcept {
    text_ = text;
    head_ = head;
    tile_ = kNever;
  }

  // Rows of `count` keys, at most kRowsAtOnce of them in one tile. Sealed ones are levels; their scales are factors().
  const float* rows(std::uint64_t key, std::uint64_t count) noexcept {
    for (std::uint64_t i = 0; i < count; ++i) {
      float* const row = rows_ + i * stride();
      if (sealed()) {
        unpack(key + i);
        const std::uint8_t* const codes = codes_ + (key + i) % kTileTokens * shape_.dim;
        for (std::uint32_t d = 0; d < shape_.dim; ++d) row[d] = levels_[codes[d]];
        const std::uint32_t scale = codec::load_half(page_ + scales_offset(layout_) + 2 * ((key + i) % shape_.page));
        factors_[i] = codec::finite_half(scale & ~kWithoutMean);
        with_mean_[i] = shape_.has_mean && (scale & kWithoutMean) == 0;
      } else {
        const std::uint64_t at = element_of(key + i);
        to_f32_({memory_ + at * info(dtype_).bytes, strides_.dim}, {reinterpret_cast<std::byte*>(row), 1}, shape_.dim);
        factors_[i] = 1;
        with_mean_[i] = false;
      }
      std::fill(row + shape_.dim, row + stride(), 0.0F);
    }
    return rows_;
  }
  float factor(std::uint64_t i) const noexcept { return factors_[i]; }
  bool with_mean(std::uint64_t i) const noexcept { return with_mean_[i]; }

  // The mean of the page that the last rows came from.
  void read_mean(float* mean) const noexcept {
    for (std::uint32_t d = 0; d < shape_.dim; ++d)
      mean[d] = codec::finite_half(codec::load_half(page_ + 2 * std::size_t{d}));
    std::fill(mean + shape_.dim, mean + stride(), 0.0F);
  }

 private:
  static constexpr float kLevelUnit = 1.0F / (1 << kScaleExponent);

  std::uint64_t place_of(std::uint64_t page) const noexcept {
    const std::uint32_t table = text_[kTextTable + shape_.side];
    return plan_[static_cast<std::uint32_t>(table + page)];
  }

  void unpack(std::uint64_t key) noexcept {
    if (key / kTileTokens == tile_) return;
    tile_ = key / kTileTokens;
    page_ = memory_ + 4 * (strides_.offset + place_of(key / shape_.page) * strides_.page + head_ * strides_.head);
    codec::unpack_tile(layout_, static_cast<std::uint32_t>(key % shape_.page / kTileTokens), page_, codes_);
  }

  std::uint64_t element_of(std::uint64_t key) const noexcept {
    std::uint64_t place = text_[kTextSinks + shape_.side];
    std::uint64_t slot = key;
    if (!shape_.sinks) {
      const std::uint32_t ring = text_[kTextRing + shape_.side];
      if (ring != 0) slot = key % ring;
      place = place_of(slot / shape_.page);
      slot %= shape_.page;
    }
    return strides_.offset + place * strides_.page + slot * strides_.slot + head_ * strides_.head;
  }

  const std::byte* memory_;
  const SlotStrides strides_;
  const Shape shape_;
  const std::uint32_t* plan_;
  const DType dtype_;
  const PageLayout layout_;
  const codec::ConvertRow to_f32_;
  const std::uint32_t* text_ = nullptr;
  std::uint64_t head_ = 0;
  std::uint64_t tile_ = 0;
  const std::byte* page_ = nullptr;
  float levels_[256];  // by code
  float factors_[kRowsAtOnce];
  bool with_mean_[kRowsAtOnce];
  alignas(64) float rows_[kRowsAtOnce * kMaxAttendDim];
  std::uint8_t codes_[kTileTokens * kMaxAttendDim];
};

struct KeyRange {
  std::uint64_t begin, end;

  bool holds(std::uint64_t key) const noexcept { return key >= begin && key < end; }
};

class PartKernel {
 public:
  explicit PartKernel(const runtime::CpuCall& call) noexcept
      : p_(call.params_as<AttendPartParams>()),
        plan_(words_of(call.bound[2])),
        queries_(floats_of(call.bound[3])),
        partials_(reinterpret_cast<float*>(call.bound[6])),
        k_(call.bound[0], p_.k,
           {call.constants[0], call.constants[2], p_.k_page, kKeys, call.constants[5] != 0,
            (p_.flags & kKeySinks) != 0},
           plan_),
        v_(call.bound[1], p_.v,
           {call.constants[1], call.constants[3], p_.v_page, kValues, false, (p_.flags & kValueSinks) != 0}, plan_),
        lanes_(best_lanes()) {}

  PartKernel(const PartKernel&) = delete;
  PartKernel& operator=(const PartKernel&) = delete;

  // A row is one entry and one kv head.
  void run(std::uint64_t row) noexcept {
    const std::uint32_t* const entry =
        plan_ + plan_[kPlanEntries] + plan_[p_.order + row / p_.kv_heads] * std::size_t{kEntryWords};
    const std::uint64_t head = row % p_.kv_heads;
    const std::uint32_t* const chunk = plan_ + plan_[kPlanChunks] + entry[kEntryChunk] * std::size_t{kChunkWords};
    text_ = plan_ + kPlanTexts + chunk[kChunkText] * std::size_t{kTextWords};
    k_.select(text_, head);
    v_.select(text_, head);
    vectors_ = chunk[kChunkVectors];
    mean_page_ = kNever;
    const std::uint64_t first_partial = entry[kEntryPartial] + head * vectors_;
    for (std::uint32_t i = 0; i < vectors_; ++i) {
      prepare(i, chunk[kChunkVector] + i, head);
      partial_[i] = partials_ + (first_partial + i) * partial_floats(v_.dim());
      std::fill(partial_[i], partial_[i] + partial_floats(v_.dim()), 0.0F);
      partial_[i][0] = kNoLogit;
    }
    const std::uint64_t end = std::uint64_t{entry[kEntryKey]} + entry[kEntryKeys];
    for (std::uint64_t at = entry[kEntryKey]; at < end; at = step_ + kStepKeys) {
      step_ = core::round_down(at, kStepKeys);
      const KeyRange keys{at, std::min(end, step_ + kStepKeys)};
      find_logits(keys);
      for (std::uint32_t i = 0; i < vectors_; ++i) weigh(i, keys);
      add_values(keys);
    }
  }

 private:
  // Which keys a vector sees, and where its query is.
  void prepare(std::uint32_t i, std::uint32_t vector, std::uint64_t head) noexcept {
    const std::uint64_t row = vector / p_.group;
    const std::uint64_t query_head = head * p_.group + vector % p_.group;
    const std::uint64_t heads = std::uint64_t{p_.kv_heads} * p_.group;
    const std::uint64_t index = (text_[kTextToken] + row) * heads + query_head;
    query_[i] = queries_ + query_header(static_cast<std::uint32_t>(heads)) + index * k_.stride();
    rotated_[i] = query_[i] + p_.tokens * heads * k_.stride();
    slope_[i] = queries_[query_head];
    std::uint64_t begin = text_[kTextFirst];
    std::uint64_t end = text_[kTextLength];
    if ((p_.flags & kCausal) != 0) {
      end = end - text_[kTextRows] + row + 1;
      if (p_.window != 0 && end > p_.window) begin = std::max<std::uint64_t>(begin, end - p_.window);
    }
    position_[i] = std::int64_t{text_[kTextLength]} - text_[kTextRows] + static_cast<std::int64_t>(row);
    seen_[i] = {begin, end};
  }

  float finish(float logit, std::uint32_t i, std::uint64_t key) const noexcept {
    if (p_.soft_cap > 0) logit = p_.soft_cap * std::tanh(logit / p_.soft_cap);
    if (slope_[i] != 0) logit -= slope_[i] * static_cast<float>(position_[i] - static_cast<std::int64_t>(key));
    return logit * kLog2OfE;
  }

  void find_logits(const KeyRange& keys) noexcept {
    for (std::uint32_t i = 0; i < vectors_; ++i) std::fill(logits_[i], logits_[i] + kStepKeys, kNoLogit);
    for (std::uint64_t key = keys.begin, count = 0; key < keys.end; key += count) {
      count = std::min(kRowsAtOnce - key % kRowsAtOnce, keys.end - key);
      const float* const rows = k_.rows(key, count);
      if (k_.sealed() && key / p_.k_page != mean_page_) find_mean(key);
      for (std::uint64_t j = 0; j < count; ++j) {
        for (std::uint32_t i = 0; i < vectors_; ++i) {
          if (!seen_[i].holds(key + j)) continue;
          const float* const query = k_.sealed() ? rotated_[i] : query_[i];
          const float product = lanes_.dot(query, rows + j * k_.stride(), k_.stride()) * k_.factor(j);
          logits_[i][key + j - step_] = finish(product + (k_.with_mean(j) ? mean_dot_[i] : 0.0F), i, key + j);
        }
      }
    }
  }

  void find_mean(std::uint64_t key) noexcept {
    mean_page_ = key / p_.k_page;
    k_.read_mean(mean_);
    for (std::uint32_t i = 0; i < vectors_; ++i) mean_dot_[i] = lanes_.dot(query_[i], mean_, k_.stride());
  }

  // Logits of this step become weights; what was added before is weighed anew.
  void weigh(std::uint32_t i, const KeyRange& keys) noexcept {
    if (seen_[i].begin >= keys.end || seen_[i].end <= keys.begin) return;
    float* const partial = partial_[i];
    float top = partial[0];
    for (const float logit : logits_[i]) top = logit > top ? logit : top;  // NaN is no top, but stays in the sum
    const float keep = std::exp2(partial[0] - top);
    partial[0] = top;
    partial[1] = partial[1] * keep + lanes_.exponentiate(logits_[i], kStepKeys, top);
    if (keep == 1.0F) return;
    for (std::uint32_t d = 0; d < v_.stride(); ++d) partial[kRowStep + d] *= keep;
  }

  void add_values(const KeyRange& keys) noexcept {
    for (std::uint64_t key = keys.begin, count = 0; key < keys.end; key += count) {
      count = std::min(kRowsAtOnce - key % kRowsAtOnce, keys.end - key);
      const float* const rows = v_.rows(key, count);
      for (std::uint32_t i = 0; i < vectors_; ++i) {
        for (std::uint64_t j = 0; j < count; ++j) {
          if (!seen_[i].holds(key + j)) continue;
          lanes_.add_scaled(partial_[i] + kRowStep, rows + j * v_.stride(), logits_[i][key + j - step_] * v_.factor(j),
                            v_.stride());
        }
      }
    }
  }

  const AttendPartParams& p_;
  const std::uint32_t* const plan_;
  const float* const queries_;
  float* const partials_;
  SideRows k_, v_;
  const AttendLanes& lanes_;
  const std::uint32_t* text_ = nullptr;
  std::uint32_t vectors_ = 0;
  std::uint64_t step_ = 0;  // its first key, seen or not
  std::uint64_t mean_page_ = kNever;
  const float* query_[kCpuVectors];
  const float* rotated_[kCpuVectors];
  float* partial_[kCpuVectors];
  float slope_[kCpuVectors];
  float mean_dot_[kCpuVectors];
  std::int64_t position_[kCpuVectors];
  KeyRange seen_[kCpuVectors];
  alignas(64) float mean_[kMaxAttendDim];
  alignas(64) float logits_[kCpuVectors][kStepKeys];
};

float element_at(const std::byte* memory, std::uint32_t dtype, std::uint64_t index) noexcept {
  float value = 0;
  const auto type = static_cast<DType>(dtype);
  codec::row_converter(type, DType::f32)({memory + index * info(type).bytes, 1},
                                         {reinterpret_cast<std::byte*>(&value), 1}, 1);
  return value;
}

}  // namespace

// A row is one query vector; the last row is the heads' numbers.
void attend_query_cpu(const runtime::CpuCall& call) noexcept {
  const auto& p = call.params_as<AttendQueryParams>();
  auto* const queries = reinterpret_cast<float*>(call.bound[4]);
  const std::uint32_t* const table = words_of(call.bound[1]);
  const auto dtype = static_cast<DType>(call.constants[0]);
  const codec::ConvertRow to_f32 = codec::row_converter(dtype, DType::f32);
  const std::uint64_t vectors = std::uint64_t{p.tokens} * p.heads;
  const std::uint64_t stride = padded_row(p.dim);
  for (std::uint64_t row = call.first_row; row < call.last_row; ++row) {
    if (row == vectors) {
      for (std::uint32_t head = 0; head < p.heads; ++head) {
        queries[head] = call.constants[1] == 0
                            ? 0.0F
                            : element_at(call.bound[2], call.constants[1] - 1, p.slopes.offset + head * p.slopes.head);
        queries[p.heads + head] = call.constants[2] == 0 ? 0.0F
                                                         : element_at(call.bound[3], call.constants[2] - 1,
                                                                      p.sinks.offset + head * p.sinks.head);
      }
      break;
    }
    float* const plain = queries + query_header(p.heads) + row * stride;
    const std::uint64_t from = p.from.offset + row / p.heads * p.from.token + row % p.heads * p.from.head;
    to_f32({call.bound[0] + from * info(dtype).bytes, p.from.dim}, {reinterpret_cast<std::byte*>(plain), 1}, p.dim);
    for (std::uint32_t d = 0; d < p.dim; ++d) plain[d] *= p.scale;
    std::fill(plain + p.dim, plain + stride, 0.0F);
    if (p.rotation.m == 0) continue;
    float* const rotated = plain + vectors * stride;
    std::copy(plain, plain + stride, rotated);
    negate(rotated, p.dim, table);
    rotate(rotated, p.rotation, table);
  }
}

void attend_part_cpu(const runtime::CpuCall& call) noexcept {
  PartKernel kernel(call);
  for (std::uint64_t row = call.first_row; row < call.last_row; ++row) kernel.run(row);
}

// A row is one vector of one chunk and one kv head.
void attend_merge_cpu(const runtime::CpuCall& call) noexcept {
  const auto& p = call.params_as<AttendMergeParams>();
  const std::uint32_t* const plan = words_of(call.bound[0]);
  const float* const partials = floats_of(call.bound[1]);
  const float* const sink_logits = floats_of(call.bound[2]) + std::size_t{p.kv_heads} * p.group;
  const std::uint32_t* const table = words_of(call.bound[3]);
  const auto dtype = static_cast<DType>(call.constants[0]);
  const codec::ConvertRow from_f32 = codec::row_converter(DType::f32, dtype);
  const bool has_sinks = call.constants[2] != 0;
  alignas(64) float plain[kMaxAttendDim];
  alignas(64) float rotated[kMaxAttendDim];
  for (std::uint64_t row = call.first_row; row < call.last_row; ++row) {
    const std::uint64_t nth = row % p.vectors;
    const std::uint64_t kv_head = row / p.vectors % p.kv_heads;
    const std::uint64_t chunk_index = p.first_chunk + row / p.vectors / p.kv_heads;
    const std::uint32_t* const chunk = plan + plan[kPlanChunks] + chunk_index * kChunkWords;
    if (nth >= chunk[kChunkVectors]) continue;
    const std::uint32_t* const text = plan + kPlanTexts + chunk[kChunkText] * std::size_t{kTextWords};
    const std::uint64_t vector = chunk[kChunkVector] + nth;
    const std::uint64_t head = kv_head * p.group + vector % p.group;
    const std::uint32_t* const entries = plan + plan[kPlanEntries] + chunk[kChunkEntry] * std::size_t{kEntryWords};
    const std::uint32_t* const last = entries + chunk[kChunkEntries] * std::size_t{kEntryWords};
    const auto partial_of = [&](const std::uint32_t* entry) {
      return partials + (entry[kEntryPartial] + kv_head * chunk[kChunkVectors] + nth) * partial_floats(p.dim);
    };

    float top = has_sinks ? sink_logits[head] * kLog2OfE : kNoLogit;
    for (const auto* entry = entries; entry < last; entry += kEntryWords) top = std::max(top, partial_of(entry)[0]);
    float sum = has_sinks ? std::exp2(sink_logits[head] * kLog2OfE - top) : 0.0F;
    bool any_rotated = false;
    std::fill(plain, plain + p.dim, 0.0F);
    std::fill(rotated, rotated + p.dim, 0.0F);
    for (const auto* entry = entries; entry < last; entry += kEntryWords) {
      const float* const partial = partial_of(entry);
      if (partial[1] == 0) continue;
      const float weight = std::exp2(partial[0] - top);
      sum += partial[1] * weight;
      any_rotated = any_rotated || entry[kEntryRotated] != 0;
      float* const to = entry[kEntryRotated] != 0 ? rotated : plain;
      for (std::uint32_t d = 0; d < p.dim; ++d) to[d] += partial[kRowStep + d] * weight;
    }
    if (any_rotated) {
      rotate(rotated, p.rotation, table);
      negate(rotated, p.dim, table);
      for (std::uint32_t d = 0; d < p.dim; ++d) plain[d] += rotated[d];
    }
    const float inverse = sum == 0 ? 0.0F : 1 / sum;
    for (std::uint32_t d = 0; d < p.dim; ++d) plain[d] *= inverse;
    const std::uint64_t token = text[kTextToken] + vector / p.group;
    const std::uint64_t to = p.to.offset + token * p.to.token + head * p.to.head;
    from_f32({reinterpret_cast<const std::byte*>(plain), 1}, {call.bound[4] + to * info(dtype).bytes, p.to.dim}, p.dim);
    if (call.constants[1] == 0) continue;
    const float log_sum = sum == 0 ? -std::numeric_limits<float>::infinity() : (top + std::log2(sum)) * kLogOf2;
    const auto sums_dtype = static_cast<DType>(call.constants[1] - 1);
    const std::uint64_t at = p.sums.offset + token * p.sums.token + head * p.sums.head;
    codec::row_converter(DType::f32, sums_dtype)({reinterpret_cast<const std::byte*>(&log_sum), 1},
                                                 {call.bound[5] + at * info(sums_dtype).bytes, 1}, 1);
  }
}

}  // namespace rota::ops
