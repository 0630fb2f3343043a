#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <vector>

#include "codec/turbo/turbo.h"
#include "harness/elements.h"
#include "ops/seal/seal_reference.h"
#include "rota/rota.h"
#include "rota_tables/turbo.h"

// Attention from its definition, in f64, one key at a time. Reads a view as docs/page-format.md and docs/kv-cache.md
// say.

namespace rota::ops::reference {

// What lies in buffers, read once.
class Contents {
 public:
  const std::vector<std::byte>& of(const Buffer& buffer) {
    auto [found, fresh] = bytes_.try_emplace(buffer.state().get());
    if (fresh) {
      found->second.resize(buffer.size_bytes());
      buffer.read(found->second).value();
    }
    return found->second;
  }

 private:
  std::map<const void*, std::vector<std::byte>> bytes_;
};

// One head of one sealed page: value = mean + sign * R(scale * level), R the Hartley and the Hadamard part.
class PageReader {
 public:
  PageReader(const PageFormat& format, std::span<const std::byte> page)
      : format_(format), page_(page), codes_(format), dim_(format.head_dim) {}

  std::vector<double> vector(std::uint64_t token) const {
    const std::size_t mean_bytes = format_.has_mean() ? (2 * dim_ + 63) / 64 * 64 : 0;
    const std::uint16_t scale = Unsealer::half_at(page_, mean_bytes + 2 * token);
    std::vector<double> values(dim_);
    for (std::size_t i = 0; i < dim_; ++i) {
      const std::uint32_t code = codes_.code_at(page_, mean_bytes + 2 * std::size_t{format_.tokens}, token, i);
      values[i] = codec::levels_of(format_.codec.bits)[code];
    }
    rotate(values);
    const bool with_mean = format_.has_mean() && (scale & 0x8000U) == 0;
    for (std::size_t i = 0; i < dim_; ++i) {
      const bool negated = codec::is_negated(format_.codec.seed, format_.side, static_cast<std::uint32_t>(i));
      values[i] *= half(scale & 0x7fffU) / 16 * (negated ? -1 : 1);
      if (with_mean) values[i] += half(Unsealer::half_at(page_, 2 * i));
    }
    return values;
  }

 private:
  static double half(unsigned bits) { return test::value_of(bits, DType::f16); }

  void rotate(std::vector<double>& values) const {
    const std::size_t size = std::size_t{1} << std::countr_zero(dim_);
    const std::size_t m = dim_ / size;
    std::vector<double> mixed(dim_);
    for (std::size_t i = 0; i < dim_; ++i) {
      for (std::size_t j = 0; j < dim_; ++j) {
        const double hadamard = std::popcount(i % size & j % size) % 2 == 0 ? 1 : -1;
        const double hartley = m == 1 ? 1 : codec::tables::kHartley[m / 2 * 15 + i / size * (j / size) % m] / 8192.0;
        mixed[i] += hadamard * hartley * values[j];
      }
    }
    for (std::size_t i = 0; i < dim_; ++i) values[i] = mixed[i] / std::sqrt(static_cast<double>(size));
  }

  PageFormat format_;
  std::span<const std::byte> page_;
  Unsealer codes_;
  std::size_t dim_;
};

// The key or value at a position, as it is stored.
inline std::vector<double> stored_vector(Contents& contents, const KvSideView& side, const KvPages& pages,
                                         std::pair<std::uint64_t, std::uint64_t> position_and_head) {
  const auto [position, head] = position_and_head;
  const auto slot_vector = [&](const SlotView& view, std::uint64_t page, std::uint64_t slot) {
    std::vector<double> values(view.shape.dim);
    for (std::uint64_t d = 0; d < view.shape.dim; ++d) {
      const std::uint64_t at = view.offset + page * view.page_stride + slot * view.slot_stride +
                               head * view.head_stride + d * view.dim_stride;
      values[d] = test::value_of(test::load_bits(contents.of(view.buffer), view.dtype, at), view.dtype);
    }
    return values;
  };
  if (pages.sinks && position < side.sinks->shape.page_slots) return slot_vector(*side.sinks, *pages.sinks, position);
  const std::uint64_t page_slots = side.dense.shape.page_slots;
  const std::uint64_t slot = pages.ring ? position % *pages.ring : position;
  const std::uint64_t page = slot / page_slots;
  const std::uint32_t place = pages.places.at(page - pages.first_page);
  if (page >= pages.sealed_pages) return slot_vector(side.dense, place, slot % page_slots);
  const SealedView& sealed = *side.sealed;
  const std::uint64_t at = sealed.offset_bytes + place * sealed.page_stride_bytes + head * sealed.head_stride_bytes;
  const auto bytes = std::span(contents.of(sealed.buffer)).subspan(at, page_bytes(sealed.format));
  return PageReader(sealed.format, bytes).vector(slot % page_slots);
}

struct RowResult {
  std::vector<double> out;
  double log_sum_exp;
};

// What a row's result is made of, to see how far rounding may take it.
struct RowBound {
  double largest_value = 0;
};

inline double element(Contents& contents, const View& view, std::uint64_t token, std::uint64_t head,
                      std::uint64_t d = 0) {
  const std::uint64_t at = view.offset + token * view.token_stride + head * view.head_stride + d * view.dim_stride;
  return test::value_of(test::load_bits(contents.of(view.buffer), view.dtype, at), view.dtype);
}

// [token][head]
inline std::vector<std::vector<RowResult>> attend_by_definition(const Attend& call) {
  Contents contents;
  const std::uint64_t heads = call.q.shape.heads;
  const std::uint64_t group = heads / call.kv.k.dense.shape.heads;
  std::vector<std::vector<RowResult>> results(call.q.shape.tokens, std::vector<RowResult>(heads));
  std::uint64_t token = 0;
  for (std::size_t text = 0; text < call.kv.lengths.size(); ++text) {
    const std::uint64_t length = call.kv.lengths[text];
    const std::uint64_t rows = call.rows.empty() ? 1 : call.rows[text];
    const KvPages& k = *call.kv.k.sequences[text];
    const KvPages& v = *call.kv.v.sequences[text];
    std::uint64_t kept =
        std::max(k.first_page * call.kv.k.dense.shape.page_slots, v.first_page * call.kv.v.dense.shape.page_slots);
    if (k.ring && length > *k.ring) kept = length - *k.ring;
    for (std::uint64_t kv_head = 0; kv_head < call.kv.k.dense.shape.heads; ++kv_head) {
      std::vector<std::vector<double>> keys(length);
      std::vector<std::vector<double>> values(length);
      for (std::uint64_t position = kept; position < length; ++position) {
        keys[position] = stored_vector(contents, call.kv.k, k, {position, kv_head});
        values[position] = stored_vector(contents, call.kv.v, v, {position, kv_head});
      }
      for (std::uint64_t row = 0; row < rows; ++row) {
        for (std::uint64_t g = 0; g < group; ++g) {
          const std::uint64_t head = kv_head * group + g;
          const auto position = static_cast<std::int64_t>(length - rows + row);
          std::vector<double> logits;
          std::vector<std::uint64_t> seen;
          for (std::uint64_t key = kept; key < length; ++key) {
            const std::int64_t distance = position - static_cast<std::int64_t>(key);
            if (call.mask == Mask::causal && distance < 0) continue;
            if (call.kv.window && distance >= static_cast<std::int64_t>(*call.kv.window)) continue;
            double logit = 0;
            for (std::uint64_t d = 0; d < keys[key].size(); ++d) {
              logit += element(contents, call.q, token + row, head, d) * keys[key][d];
            }
            logit *= call.scale;
            if (call.soft_cap) logit = *call.soft_cap * std::tanh(logit / *call.soft_cap);
            if (call.alibi_slopes)
              logit -= element(contents, *call.alibi_slopes, 0, head) * static_cast<double>(distance);
            logits.push_back(logit);
            seen.push_back(key);
          }
          if (call.sink_logits) logits.push_back(element(contents, *call.sink_logits, 0, head));
          RowResult& result = results[token + row][head];
          result.out.assign(call.out.shape.dim, 0.0);
          result.log_sum_exp = -std::numeric_limits<double>::infinity();
          if (logits.empty()) continue;
          const double top = std::ranges::max(logits);
          double sum = 0;
          for (const double logit : logits) sum += std::exp(logit - top);
          result.log_sum_exp = top + std::log(sum);
          for (std::size_t i = 0; i < seen.size(); ++i) {
            const double weight = std::exp(logits[i] - top) / sum;
            for (std::uint64_t d = 0; d < result.out.size(); ++d) result.out[d] += weight * values[seen[i]][d];
          }
        }
      }
    }
    token += rows;
  }
  return results;
}

}  // namespace rota::ops::reference
