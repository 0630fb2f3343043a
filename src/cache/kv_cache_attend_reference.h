#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "cache/kv_cache_reference.h"
#include "rota/rota.h"

// Attention over a cache against f64 arithmetic over the lists.

namespace rota::cache::reference {

// Values are below 4 in magnitude (sealed ones below 8), logits below 2 * 4 * 16 / 4: f32 errs by at most
// 2^-24 * (dims + keys) of that in logits and in sums, far below; a key that is missing changes more.
inline constexpr double kAttendScale = 0.25;
inline constexpr double kAttendError = 2e-4;

// One query over vectors by position.
inline std::vector<double> attend_in_f64(std::span<const float> query, std::span<const float* const> keys,
                                         std::span<const float* const> values, std::uint64_t v_dim) {
  std::vector<double> logits;
  for (const float* const key : keys) {
    double logit = 0;
    for (std::size_t d = 0; d < query.size(); ++d) logit += static_cast<double>(query[d]) * static_cast<double>(key[d]);
    logits.push_back(logit * kAttendScale);
  }
  const double max_logit = *std::ranges::max_element(logits);
  double exp_sum = 0;
  std::vector<double> out(v_dim);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double weight = std::exp(logits[i] - max_logit);
    exp_sum += weight;
    for (std::uint64_t d = 0; d < v_dim; ++d) out[d] += weight * static_cast<double>(values[i][d]);
  }
  for (double& value : out) value /= exp_sum;
  return out;
}

// The newest tokens of a sequence, attended with in one layer.
struct Attention {
  const KvGroup& group;
  std::size_t layer;  // of the group
  std::uint64_t length, query_tokens;
  const SequenceSide &k, &v;

  std::uint64_t first_query() const { return length - query_tokens; }
  std::uint64_t first_seen(std::uint64_t position) const {
    const std::uint64_t window = group.window.value_or(length);
    return position >= window ? position + 1 - window : 0;
  }
  // Keys and values before this position have left.
  std::uint64_t kept_from() const { return std::max(k.first_page(), v.first_page()) * group.page; }
  bool sees_only_what_is_kept() const { return first_seen(first_query()) >= kept_from(); }

  std::uint64_t heads() const { return group.kv_heads; }
  std::uint64_t k_dim() const { return group.head_dim; }
  std::uint64_t v_dim() const { return group.value_dim.value_or(group.head_dim); }
};

// The largest error of `out`, [query token][head][dim].
inline double worst_error(const Attention& of, std::span<const float> q, std::span<const float> out) {
  double worst = 0;
  for (std::uint64_t head = 0; head < of.heads(); ++head) {
    std::vector<const float*> keys, values;  // by position; null where no query sees them
    for (std::uint64_t position = 0; position < of.length; ++position) {
      const bool seen = position >= of.first_seen(of.first_query());
      keys.push_back(seen ? of.k.vector(position, of.layer * of.heads() + head) : nullptr);
      values.push_back(seen ? of.v.vector(position, of.layer * of.heads() + head) : nullptr);
    }
    for (std::uint64_t query = 0; query < of.query_tokens; ++query) {
      const std::uint64_t position = of.first_query() + query;
      const std::uint64_t begin = of.first_seen(position);
      const std::uint64_t count = position + 1 - begin;
      const std::uint64_t at = query * of.heads() + head;
      const std::vector<double> wanted =
          attend_in_f64(q.subspan(at * of.k_dim(), of.k_dim()), std::span(keys).subspan(begin, count),
                        std::span(values).subspan(begin, count), of.v_dim());
      for (std::uint64_t d = 0; d < of.v_dim(); ++d) {
        worst = std::max(worst, std::abs(static_cast<double>(out[at * of.v_dim() + d]) - wanted[d]));
      }
    }
  }
  return worst;
}

// The same as in f64 over what the lists say, or refused where they say that a key has left.
inline void check_attention(Device& device, const KvView& view, const Attention& of, std::mt19937_64& random) {
  std::vector<float> q(of.query_tokens * of.heads() * of.k_dim());
  for (float& value : q) value = static_cast<float>(static_cast<int>(random() % 255) - 127) * 0.015625F;
  Buffer queries = device.allocate(q.size() * sizeof(float)).value();
  queries.write(std::as_bytes(std::span(q))).value();
  std::vector<float> out(of.query_tokens * of.heads() * of.v_dim());
  Buffer found = device.allocate(out.size() * sizeof(float)).value();
  Encoder encoder = device.encoder();
  attend(encoder, {.q = View::token_major(queries, DType::f32, {of.query_tokens, of.heads(), of.k_dim()}),
                   .kv = view,
                   .out = MutView::token_major(found, DType::f32, {of.query_tokens, of.heads(), of.v_dim()}),
                   .scale = kAttendScale,
                   .query_tokens = {&of.query_tokens, 1},
                   .arithmetic = Arithmetic::f32});
  auto fence = std::move(encoder).submit();
  ASSERT_EQ(fence.ok(), of.sees_only_what_is_kept()) << (fence ? "numbers without some keys" : fence.error().message);
  if (!fence) {
    EXPECT_EQ(fence.error().code, Errc::invalid_argument);
    EXPECT_NE(fence.error().message.find(fmt::format("before position {}", of.kept_from())), std::string::npos)
        << fence.error().message;
    return;
  }
  ASSERT_TRUE(found.read(std::as_writable_bytes(std::span(out))).ok());
  ASSERT_LT(worst_error(of, q, out), kAttendError);
}

}  // namespace rota::cache::reference
