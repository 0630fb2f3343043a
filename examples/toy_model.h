#pragma once

#include <rota/rota.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

// Stands for a model: queries, keys and values of each position, and attention over them in f64.
namespace toy {

constexpr std::uint64_t kHeads = 4, kKvHeads = 2, kDim = 64, kAllHeads = kHeads + 2 * kKvHeads;
constexpr double kTheta = 1e4, kScale = 0.125;

// Heads 0 to 3 are queries, 4 and 5 keys, 6 and 7 values.
inline double number(std::int64_t position, std::uint64_t head, std::uint64_t d) {
  const std::uint64_t mixed = (static_cast<std::uint64_t>(position) * 523 + head * 97 + d * d * 31) % 1009;
  return static_cast<double>(std::sin(static_cast<float>(mixed)));  // representable in f32
}

struct Qkv {
  rota::MutView q, k, v;
};

// [token, head, dim], as a fused projection writes it.
inline std::vector<float> numbers(std::span<const std::int64_t> positions) {
  std::vector<float> all;
  for (const std::int64_t position : positions) {
    for (std::uint64_t i = 0; i < kAllHeads * kDim; ++i)
      all.push_back(static_cast<float>(number(position, i / kDim, i % kDim)));
  }
  return all;
}

inline Qkv split(const rota::Buffer& buffer, std::uint64_t tokens) {
  const auto heads = [&](std::uint64_t first, std::uint64_t count) {
    auto view = rota::MutView::token_major(buffer, rota::DType::f32, {tokens, kAllHeads, kDim});
    view.offset = first * kDim;
    view.shape.heads = count;
    return view;
  };
  return {heads(0, kHeads), heads(kHeads, kKvHeads), heads(kHeads + kKvHeads, kKvHeads)};
}

inline Qkv compute(rota::Device& device, std::span<const std::int64_t> positions) {
  const std::vector<float> all = numbers(positions);
  rota::Buffer buffer = device.allocate(all.size() * sizeof(float)).value();
  buffer.write(std::as_bytes(std::span(all))).value();
  return split(buffer, positions.size());
}

// Attention in f64 of the token at `position` over its last `window` tokens.
inline std::vector<double> attention(std::int64_t position, std::int64_t window) {
  std::vector<double> result;
  for (std::uint64_t head = 0; head < kHeads; ++head) {
    const std::uint64_t key_head = kHeads + head / (kHeads / kKvHeads);
    std::vector<double> sum(kDim);
    double weights = 0;
    for (std::int64_t at = std::max<std::int64_t>(0, position - window + 1); at <= position; ++at) {
      double logit = 0;  // query and key are rotated by their positions: only the difference matters
      for (std::uint64_t p = 0; p < kDim / 2; ++p) {
        const double q1 = number(position, head, p), q2 = number(position, head, p + kDim / 2);
        const double k1 = number(at, key_head, p), k2 = number(at, key_head, p + kDim / 2);
        const double angle = static_cast<double>(at - position) * std::pow(kTheta, -2 * static_cast<double>(p) / kDim);
        logit += (q1 * k1 + q2 * k2) * std::cos(angle) + (q2 * k1 - q1 * k2) * std::sin(angle);
      }
      const double weight = std::exp(kScale * logit);
      weights += weight;
      for (std::uint64_t d = 0; d < kDim; ++d) sum[d] += weight * number(at, key_head + kKvHeads, d);
    }
    for (const double value : sum) result.push_back(value / weights);
  }
  return result;
}

inline double relative_error(std::span<const float> found, std::span<const double> wanted) {
  double error = 0, squares = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    error += std::pow(static_cast<double>(found[i]) - wanted[i], 2);
    squares += wanted[i] * wanted[i];
  }
  return std::sqrt(error / squares);
}

}  // namespace toy
