#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "codec/turbo/turbo.h"
#include "harness/elements.h"
#include "ops/seal/seal_reference.h"
#include "rota/rota.h"
#include "rota_tables/turbo.h"

// Attention from its definition, in f64, one key at a time. Reads a view as docs/page-format.md and docs/kv-cache.md
// say.

namespace rota::ops::reference {

inline std::vector<std::byte> contents_of(const Buffer& buffer) {
  std::vector<std::byte> bytes(buffer.size_bytes());
  buffer.read(bytes).value();
  return bytes;
}

// An element as a number. All 16-bit ones are looked up once.
inline double number_at(const std::vector<std::byte>& bytes, DType dtype, std::uint64_t index) {
  const std::uint32_t bits = test::load_bits(bytes, dtype, index);
  if (dtype == DType::f32) return static_cast<double>(std::bit_cast<float>(bits));
  static const auto tables = [] {
    std::array<std::vector<double>, 2> made;
    for (std::uint32_t pattern = 0; pattern < 0x10000; ++pattern) {
      made[0].push_back(test::value_of(pattern, DType::f16));
      made[1].push_back(test::value_of(pattern, DType::bf16));
    }
    return made;
  }();
  return tables[dtype == DType::f16 ? 0 : 1][bits];
}

inline double number_at(const std::vector<std::byte>& bytes, const View& view, std::uint64_t token, std::uint64_t head,
                        std::uint64_t d = 0) {
  return number_at(bytes, view.dtype,
                   view.offset + token * view.token_stride + head * view.head_stride + d * view.dim_stride);
}

// R of docs/page-format.md, an element at a time.
inline double rotation_at(std::size_t dim, std::size_t i, std::size_t j) {
  const std::size_t size = std::size_t{1} << std::countr_zero(dim);
  const std::size_t m = dim / size;
  const double hadamard = std::popcount(i % size & j % size) % 2 == 0 ? 1 : -1;
  const double hartley = m == 1 ? 1 : codec::tables::kHartley[m / 2 * 15 + i / size * (j / size) % m] / 8192.0;
  return hadamard * hartley / std::sqrt(static_cast<double>(size));
}

// The same for a whole vector: sums and differences, then across the blocks.
inline void rotate(std::span<double> values) {
  const std::size_t size = std::size_t{1} << std::countr_zero(values.size());
  const std::size_t m = values.size() / size;
  for (std::size_t step = 1; step < size; step *= 2) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      if ((i & step) != 0) continue;
      const double other = values[i + step];
      values[i + step] = values[i] - other;
      values[i] += other;
    }
  }
  std::array<double, 225> across{};
  for (std::size_t n = 0; n < m * m; ++n) across[n] = rotation_at(values.size(), n / m * size, n % m * size);
  std::array<double, 15> block{};
  for (std::size_t i = 0; i < size; ++i) {
    for (std::size_t b = 0; b < m; ++b) block[b] = values[b * size + i];
    for (std::size_t a = 0; a < m; ++a) {
      double sum = 0;
      for (std::size_t b = 0; b < m; ++b) sum += across[a * m + b] * block[b];
      values[a * size + i] = sum;
    }
  }
}

// One head of one sealed page, [token][dim]: value = mean + sign * R(scale / 16 * level).
inline std::vector<double> page_numbers(const PageFormat& format, std::span<const std::byte> page) {
  const Unsealer codes(format);
  const std::size_t dim = format.head_dim;
  const std::size_t mean_bytes = format.has_mean() ? (2 * dim + 63) / 64 * 64 : 0;
  const auto half = [&](std::size_t at, unsigned mask) {
    const double value = test::value_of(Unsealer::half_at(page, at) & mask, DType::f16);
    return std::isfinite(value) ? value : 0;
  };
  std::vector<double> mean(dim);
  std::vector<double> sign(dim);
  for (std::size_t i = 0; i < dim; ++i) {
    if (format.has_mean()) mean[i] = half(2 * i, 0xffffU);
    sign[i] =
        codec::is_negated(std::get<Turbo>(format.codec).seed, format.side, static_cast<std::uint32_t>(i)) ? -1 : 1;
  }
  std::vector<double> numbers(format.tokens * dim);
  for (std::size_t token = 0; token < format.tokens; ++token) {
    const auto values = std::span(numbers).subspan(token * dim, dim);
    for (std::size_t i = 0; i < dim; ++i) {
      const std::uint32_t code = codes.code_at(page, mean_bytes + 2 * std::size_t{format.tokens}, token, i);
      values[i] = codec::levels_of(format.bits())[code];
    }
    rotate(values);
    const std::size_t at = mean_bytes + 2 * token;
    const bool with_mean = (Unsealer::half_at(page, at) & 0x8000U) == 0;
    const double scale = half(at, 0x7fffU) / 16;
    for (std::size_t i = 0; i < dim; ++i) values[i] = sign[i] * scale * values[i] + (with_mean ? mean[i] : 0);
  }
  return numbers;
}

// Keys or values as they are stored. Memory is read, and a page decoded, when it is first asked for.
class StoredSide {
 public:
  explicit StoredSide(const KvSideView& view) : view_(view) {}

  // The head's vector at a position of the sequence.
  const double* vector(const KvPages& pages, std::uint64_t position, std::uint64_t head) {
    const std::uint64_t dim = view_.dense.shape.dim;
    if (pages.sinks && position < view_.sinks->shape.page_slots) {
      return page(Source::sinks, *pages.sinks, head).data() + position * dim;
    }
    const std::uint64_t page_slots = view_.dense.shape.page_slots;
    const std::uint64_t slot = pages.ring ? position % *pages.ring : position;
    const std::uint64_t index = slot / page_slots;
    const bool of_step = pages.step_page && index >= *pages.step_page;
    const Source source = index < pages.sealed_pages ? Source::sealed : of_step ? Source::step : Source::dense;
    return page(source, pages.page_table.at(index - pages.first_page), head).data() + slot % page_slots * dim;
  }

 private:
  enum class Source : std::uint8_t { dense, sealed, sinks, step };
  using Key = std::tuple<Source, std::uint32_t, std::uint64_t>;

  const std::vector<double>& page(Source source, std::uint32_t physical_page, std::uint64_t head) {
    const Key key{source, physical_page, head};
    if (last_ != nullptr && last_key_ == key) return *last_;
    auto [found, fresh] = pages_.try_emplace(key);
    if (fresh) {
      found->second = source == Source::sealed  ? sealed_page(physical_page, head)
                      : source == Source::sinks ? dense_page(*view_.sinks, sinks_, physical_page, head)
                      : source == Source::step  ? dense_page(*view_.step, step_, physical_page, head)
                                                : dense_page(view_.dense, dense_, physical_page, head);
    }
    last_key_ = key;
    last_ = &found->second;
    return *last_;
  }

  static std::vector<double> dense_page(const SlotView& view, std::vector<std::byte>& bytes,
                                        std::uint64_t physical_page, std::uint64_t head) {
    if (bytes.empty()) bytes = contents_of(view.buffer);
    std::vector<double> numbers(view.shape.page_slots * view.shape.dim);
    for (std::uint64_t i = 0; i < numbers.size(); ++i) {
      numbers[i] = number_at(bytes, view.dtype,
                             view.offset + physical_page * view.page_stride + i / view.shape.dim * view.slot_stride +
                                 head * view.head_stride + i % view.shape.dim * view.dim_stride);
    }
    return numbers;
  }

  std::vector<double> sealed_page(std::uint64_t physical_page, std::uint64_t head) {
    const SealedView& view = *view_.sealed;
    if (sealed_.empty()) sealed_ = contents_of(view.buffer);
    const std::uint64_t at = view.offset_bytes + physical_page * view.page_stride_bytes + head * view.head_stride_bytes;
    return page_numbers(view.format, std::span(sealed_).subspan(at, page_bytes(view.format)));
  }

  KvSideView view_;
  std::vector<std::byte> dense_, sealed_, sinks_, step_;
  std::map<Key, std::vector<double>> pages_;
  const std::vector<double>* last_ = nullptr;
  Key last_key_;
};

inline double dot(std::span<const double> a, const double* b) {
  std::array<double, 4> sums{};
  std::size_t i = 0;
  for (; i + sums.size() <= a.size(); i += sums.size()) {
    for (std::size_t n = 0; n < sums.size(); ++n) sums[n] += a[i + n] * b[i + n];
  }
  for (; i < a.size(); ++i) sums[0] += a[i] * b[i];
  return sums[0] + sums[1] + sums[2] + sums[3];
}

struct QueryVector {
  std::uint64_t token, head;
};

struct VectorResult {
  std::vector<double> out;
  double log_sum_exp = -std::numeric_limits<double>::infinity();
  std::vector<std::uint64_t> keys = {};  // that are seen
  std::vector<double> weights = {};      // of these
  // What rounding is relative to: the largest |logit|, and the sum of weight * |v|.
  double largest_logit = 0, weighed_values = 0;
};

// The results of calls whose keys and values lie in the memory of one view; nobody may write there meanwhile.
class Definition {
 public:
  explicit Definition(const KvView& kv) : k_(kv.k), v_(kv.v) {}

  std::vector<VectorResult> results(const Attend& call, std::span<const QueryVector> wanted) {
    const auto q = contents_of(call.q.buffer);
    const auto of_head = [](const std::optional<View>& view) {
      return view ? std::optional(contents_of(view->buffer)) : std::nullopt;
    };
    const auto sinks = of_head(call.sink_logits);
    const auto slopes = of_head(call.alibi_slopes);
    std::vector<VectorResult> found;
    for (const QueryVector& vector : wanted) {
      Query what{.head = vector.head, .kv_head = vector.head * call.kv.k.dense.shape.heads / call.q.shape.heads};
      for (std::uint64_t d = 0; d < call.q.shape.dim; ++d) {
        what.numbers.push_back(number_at(q, call.q, vector.token, vector.head, d) * call.scale);
      }
      if (sinks) what.sink = number_at(*sinks, *call.sink_logits, 0, vector.head);
      if (slopes) what.slope = number_at(*slopes, *call.alibi_slopes, 0, vector.head);
      std::uint64_t first = 0;
      for (; vector.token - first >= query_tokens_of(call, what.sequence); ++what.sequence)
        first += query_tokens_of(call, what.sequence);
      what.query_token = vector.token - first;
      found.push_back(result(call, what));
    }
    return found;
  }

 private:
  struct Query {
    std::uint64_t head, kv_head;
    std::size_t sequence = 0;
    std::uint64_t query_token = 0;
    std::vector<double> numbers = {};
    std::optional<double> sink = {};
    double slope = 0;
  };

  static std::uint64_t query_tokens_of(const Attend& call, std::size_t sequence) {
    return call.query_tokens.empty() ? 1 : call.query_tokens[sequence];
  }

  VectorResult result(const Attend& call, const Query& query) {
    const KvPages& k = *call.kv.k.sequences[query.sequence];
    const KvPages& v = *call.kv.v.sequences[query.sequence];
    const auto length = static_cast<std::int64_t>(call.kv.lengths[query.sequence]);
    const std::int64_t position =
        length - static_cast<std::int64_t>(query_tokens_of(call, query.sequence) - query.query_token);
    std::int64_t first = static_cast<std::int64_t>(
        std::max(k.first_page * call.kv.k.dense.shape.page_slots, v.first_page * call.kv.v.dense.shape.page_slots));
    if (k.ring) first = std::max(first, length - static_cast<std::int64_t>(*k.ring));
    if (v.ring) first = std::max(first, length - static_cast<std::int64_t>(*v.ring));
    if (call.kv.window) first = std::max(first, position + 1 - static_cast<std::int64_t>(*call.kv.window));
    const std::int64_t end = call.mask == Mask::causal ? position + 1 : length;

    VectorResult result{.out = std::vector<double>(call.out.shape.dim)};
    for (std::int64_t key = 0; key < end; ++key) {
      if (key < first && key >= static_cast<std::int64_t>(call.kv.sinks)) continue;
      result.keys.push_back(static_cast<std::uint64_t>(key));
      const double* const at = k_.vector(k, static_cast<std::uint64_t>(key), query.kv_head);
      double logit = dot(query.numbers, at);
      if (call.soft_cap) logit = *call.soft_cap * std::tanh(logit / *call.soft_cap);
      logit -= query.slope * static_cast<double>(position - key);
      result.weights.push_back(logit);
      result.largest_logit = std::max(result.largest_logit, std::abs(logit));
    }
    if (result.weights.empty() && !query.sink) return result;
    double max_logit = query.sink.value_or(-std::numeric_limits<double>::infinity());
    for (const double logit : result.weights) max_logit = std::max(max_logit, logit);
    double exp_sum = query.sink ? std::exp(*query.sink - max_logit) : 0;
    for (double& weight : result.weights) exp_sum += weight = std::exp(weight - max_logit);
    result.log_sum_exp = max_logit + std::log(exp_sum);
    for (std::size_t i = 0; i < result.weights.size(); ++i) {
      const double weight = result.weights[i] /= exp_sum;
      const double* const at = v_.vector(v, result.keys[i], query.kv_head);
      for (std::size_t d = 0; d < result.out.size(); ++d) result.out[d] += weight * at[d];
      result.weighed_values += weight * std::sqrt(dot({at, result.out.size()}, at));
    }
    return result;
  }

  StoredSide k_, v_;
};

}  // namespace rota::ops::reference
