#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <optional>
#include <random>
#include <vector>

#include "harness/elements.h"
#include "ops/attend/attend_reference.h"

// What the tests of `attend` speak of: numbers, calls and answers.

namespace rota::test {

using ops::reference::Definition;
using ops::reference::QueryVector;
using ops::reference::VectorResult;

// A number of the token at a position.
using Draw = std::function<double(std::mt19937_64&, std::uint64_t position)>;

inline Draw gaussian(double deviation = 1) {
  return [normal = std::normal_distribution<double>(0, deviation)](std::mt19937_64& random, std::uint64_t) mutable {
    return normal(random);
  };
}

struct Case {
  KvCodec k = DType::f16, v = DType::f16;
  std::uint32_t head_dim = 64, value_dim = 64, kv_heads = 1, group = 8;
  std::vector<std::uint64_t> lengths = {200}, query_tokens = {1};
  std::optional<std::uint64_t> window = {};
  DType dense = DType::f16;  // of tail and sinks
  std::uint32_t page = 64;
  std::uint64_t tail = 64, sinks = 4;
  bool keep_sinks = false;       // seen whatever the window
  std::uint64_t step_pages = 0;  // of each sequence's dense pages the last so many are a step's
  Draw k_draw = gaussian(), v_draw = gaussian();

  std::uint64_t heads() const { return std::uint64_t{kv_heads} * group; }
  std::uint64_t tokens() const { return std::accumulate(query_tokens.begin(), query_tokens.end(), std::uint64_t{0}); }
};

// A sequence's keys or values before they are stored: [position][head][dim].
struct Numbers {
  std::uint64_t heads = 0, dim = 0;
  std::vector<float> values = {};

  const float* vector(std::uint64_t position, std::uint64_t head) const {
    return values.data() + (position * heads + head) * dim;
  }
  std::uint64_t length() const { return values.size() / heads / dim; }
};

struct Stored {
  std::vector<Numbers> k, v;
  KvView kv;
};

// What is asked beside keys and values.
struct Asked {
  View q;
  std::vector<std::uint64_t> query_tokens = {};
  std::optional<double> scale = {};  // else 1 / sqrt(dim)
  DType out = DType::f32;
  Mask mask = Mask::causal;
  std::optional<double> soft_cap = {};
  std::optional<View> sink_logits = {}, alibi_slopes = {};
  bool log_sum_exp = true;
  Arithmetic arithmetic = Arithmetic::f32;  // whose error has a bound of its own, not the codec's
};

struct Answer {
  Shape shape = {};
  DType dtype = DType::f32;
  std::vector<std::byte> out = {}, log_sum_exp = {};

  double at(const QueryVector& vector, std::uint64_t d) const {
    return value_of(load_bits(out, dtype, (vector.token * shape.heads + vector.head) * shape.dim + d), dtype);
  }
  double log_sum_exp_at(const QueryVector& vector) const {
    return value_of(load_bits(log_sum_exp, DType::f32, vector.token * shape.heads + vector.head), DType::f32);
  }
  // All bits of `count` tokens.
  Answer part(std::uint64_t first, std::uint64_t count) const {
    Answer some{.shape = {count, shape.heads, shape.dim}, .dtype = dtype};
    const auto cut = [&](const std::vector<std::byte>& all, std::uint64_t token_bytes) {
      if (all.empty()) return all;
      const auto begin = all.begin() + static_cast<std::ptrdiff_t>(first * token_bytes);
      return std::vector(begin, begin + static_cast<std::ptrdiff_t>(count * token_bytes));
    };
    some.out = cut(out, shape.heads * shape.dim * info(dtype).bytes);
    some.log_sum_exp = cut(log_sum_exp, shape.heads * sizeof(float));
    return some;
  }
  friend bool operator==(const Answer& a, const Answer& b) { return a.out == b.out && a.log_sum_exp == b.log_sum_exp; }
};

}  // namespace rota::test
