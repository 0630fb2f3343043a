#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <random>
#include <span>
#include <vector>

#include "harness/elements.h"
#include "harness/guarded.h"
#include "harness/on_device.h"
#include "rota/rota.h"

// For tests: `rope` as papers and models define it, one pair after the other, in f64 or better. RoFormer
// (arXiv 2104.09864) gives the rotation, YaRN (2309.00071) the ramp, Qwen2-VL and Qwen3-VL the axes.

namespace rota::test {

using Real = long double;

inline std::uint32_t axis_by_definition(const Rotary& rotary, std::uint64_t pair) {
  if (!rotary.sections) return 0;
  const RopeSections& sections = *rotary.sections;
  if (sections.order == SectionOrder::contiguous) {
    std::uint32_t axis = 0;
    for (std::uint64_t end = sections.pairs[0]; pair >= end; end += sections.pairs[axis]) ++axis;
    return axis;
  }
  // Height and width take every third pair, as long as their sections last; the rest is time's, or the fourth axis's.
  if (pair % 3 == 1 && pair < std::uint64_t{3} * sections.pairs[1]) return 1;
  if (pair % 3 == 2 && pair < std::uint64_t{3} * sections.pairs[2]) return 2;
  if (pair % 3 == 0 && pair < std::uint64_t{3} * sections.pairs[0]) return 0;
  return sections.pairs.size() == 4 && sections.pairs[3] > 0 ? 3 : 0;
}

inline Real frequency_by_definition(const Rotary& rotary, std::uint64_t rope_dim, std::uint64_t pair) {
  if (pair >= rotary.turning_pairs.value_or(rope_dim / 2)) return 0;
  std::uint64_t index = pair;
  std::uint64_t dim = rope_dim;
  if (rotary.sections && rotary.sections->frequencies == SectionFrequencies::own) {
    const std::uint32_t axis = axis_by_definition(rotary, pair);
    index = 0;
    for (std::uint64_t before = 0; before < pair; ++before) {
      if (axis_by_definition(rotary, before) == axis) ++index;
    }
    dim = std::uint64_t{2} * rotary.sections->pairs[axis];
  }
  const auto d = static_cast<Real>(rotary.exponent_dim.value_or(dim));
  const auto theta = static_cast<Real>(double{rotary.theta});
  Real frequency = std::pow(theta, -2 * static_cast<Real>(index) / d);
  if (!rotary.factors.empty()) frequency /= static_cast<Real>(rotary.factors[pair]);
  if (!rotary.yarn) return frequency / static_cast<Real>(rotary.interpolation);

  const Yarn& yarn = *rotary.yarn;
  const Real interpolated = frequency / static_cast<Real>(double{yarn.factor});
  const auto dim_that_turns = [&](Real times) {
    const auto context = static_cast<Real>(std::uint64_t{yarn.original_context});
    return d * std::log(context / (times * 2 * std::numbers::pi_v<Real>)) / (2 * std::log(theta));
  };
  Real low = dim_that_turns(static_cast<Real>(yarn.beta_fast));
  Real high = dim_that_turns(static_cast<Real>(yarn.beta_slow));
  if (yarn.ramp == YarnRamp::whole_pairs) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max<Real>(low, 0);
  high = std::min<Real>(high, d - 1);
  const Real ramp = std::clamp<Real>((static_cast<Real>(index) - low) / std::max<Real>(high - low, 0.001L), 0, 1);
  const Real extrapolated = (1 - ramp) * static_cast<Real>(yarn.extrapolation);
  return interpolated * (1 - extrapolated) + frequency * extrapolated;
}

struct Coordinates {
  std::uint64_t first, second;
};

inline Coordinates coordinates_by_definition(const Rotary& rotary, std::uint64_t rope_dim, std::uint64_t pair) {
  if (rotary.pairing == Pairing::interleaved) return {2 * pair, 2 * pair + 1};
  if (rotary.pairing == Pairing::halves) return {pair, pair + rope_dim / 2};
  std::uint64_t begin = 0;
  std::uint32_t axis = 0;
  for (; axis < axis_by_definition(rotary, pair); ++axis) begin += rotary.sections->pairs[axis];
  return {begin + pair, begin + pair + rotary.sections->pairs[axis]};
}

// A head vector, and for each coordinate the length of the pair that it belongs to.
struct RotatedHead {
  std::vector<double> values, lengths;
};

// `positions` has one position per axis.
inline RotatedHead rotate_by_definition(const Rotary& rotary, std::span<const std::int64_t> positions,
                                        const std::vector<double>& head) {
  const std::uint64_t rope_dim = rotary.rope_dim.value_or(head.size());
  Real magnitude = static_cast<Real>(rotary.magnitude.value_or(1));
  if (!rotary.magnitude && rotary.yarn && rotary.yarn->factor > 1) {
    magnitude = 0.1L * std::log(static_cast<Real>(double{rotary.yarn->factor})) + 1;
  }
  RotatedHead rotated{head, {}};
  for (const double value : head) rotated.lengths.push_back(std::fabs(value));
  for (std::uint64_t pair = 0; pair < rope_dim / 2; ++pair) {
    const std::int64_t position = positions[axis_by_definition(rotary, pair)];
    const Real angle = static_cast<Real>(position) * frequency_by_definition(rotary, rope_dim, pair);
    const auto [first, second] = coordinates_by_definition(rotary, rope_dim, pair);
    const auto a = static_cast<Real>(head[first]);
    const auto b = static_cast<Real>(head[second]);
    rotated.values[first] = static_cast<double>(magnitude * (a * std::cos(angle) - b * std::sin(angle)));
    rotated.values[second] = static_cast<double>(magnitude * (a * std::sin(angle) + b * std::cos(angle)));
    const auto length = static_cast<double>(magnitude * std::hypot(a, b));
    rotated.lengths[first] = rotated.lengths[second] = length;
  }
  return rotated;
}

inline std::vector<double> norm_by_definition(std::vector<double> head, double epsilon,
                                              const std::vector<double>& weight_with_offset) {
  double sum = 0;
  for (const double value : head) sum += value * value;
  const double scale = 1 / std::sqrt(sum / static_cast<double>(head.size()) + epsilon);
  for (std::size_t d = 0; d < head.size(); ++d) {
    head[d] *= scale * (weight_with_offset.empty() ? 1 : weight_with_offset[d]);
  }
  return head;
}

// Roundings to f32 in a norm: squares, at most dim / 16 + 10 additions one after the other, mean and epsilon, all
// halved by the root; then the root itself (2), two products and a weight with its offset.
inline double norm_bound(std::uint64_t dim) { return ((static_cast<double>(dim) / 16 + 15) / 2 + 5) * 0x1p-24; }

// What `rope` promises, a little more than four times the rounding of a result.
inline double rope_bound(DType to, double wanted, double length) {
  return 2 * last_place(to, wanted) + 1e-6 * length + kFlushed;
}

// The same for one coordinate of a call's result, normed or not.
inline double rope_bound(const RopeTensor& tensor, double wanted, double length) {
  const double of_norm = tensor.norm ? norm_bound(tensor.to.shape.dim) * length : 0;
  return rope_bound(tensor.to.dtype, wanted, length) + of_norm;
}

inline RopeSections contiguous(std::vector<std::uint32_t> pairs,
                               SectionFrequencies frequencies = SectionFrequencies::shared) {
  return {.pairs = std::move(pairs), .order = SectionOrder::contiguous, .frequencies = frequencies};
}

// For what reads shapes and strides only: there is no buffer.
inline RopeTensor plain_tensor(DType dtype, Shape shape) {
  return {.from = View::token_major({}, dtype, shape), .to = MutView::token_major({}, dtype, shape)};
}

struct TensorSpec {
  DType from = DType::f32, to = DType::f32;
  Shape shape = {};
  // Elements between neighbours of each axis; 0: token-major without gaps.
  std::uint64_t from_token_stride = 0, from_head_stride = 0, from_dim_stride = 1;
  std::uint64_t to_token_stride = 0, to_head_stride = 0, to_dim_stride = 1;
  bool in_place = false;
};

// One tensor of a call, with a host copy of what it held.
class TensorUnderTest {
 public:
  TensorUnderTest(Device& device, std::mt19937_64& random, const TensorSpec& spec) : spec_(spec) {
    tensor.from = View::token_major({}, spec.from, spec.shape);
    if (spec.from_token_stride != 0) {
      tensor.from.token_stride = spec.from_token_stride;
      tensor.from.head_stride = spec.from_head_stride;
      tensor.from.dim_stride = spec.from_dim_stride;
    }
    tensor.to = MutView::token_major({}, spec.to, spec.shape);
    if (spec.to_token_stride != 0) {
      tensor.to.token_stride = spec.to_token_stride;
      tensor.to.head_stride = spec.to_head_stride;
      tensor.to.dim_stride = spec.to_dim_stride;
    }
    memory_.emplace_back(device, reach(tensor.from), spec.from);
    tensor.from.buffer = memory_[0].buffer;
    tensor.from.offset = memory_[0].offset;
    source = memory_[0].read();
    for_each([&](std::uint64_t token, std::uint64_t head, std::uint64_t d) {
      save_bits(source, spec.from, place(tensor.from, token, head, d),
                bits_of(random_value(random, spec.from), spec.from));
    });
    write_source();
    if (spec.in_place) {
      tensor = RopeTensor::in_place({tensor.from.buffer, tensor.from.dtype, tensor.from.shape, tensor.from.offset,
                                     tensor.from.token_stride, tensor.from.head_stride, tensor.from.dim_stride});
    } else {
      memory_.emplace_back(device, reach(tensor.to), spec.to);
      tensor.to.buffer = memory_[1].buffer;
      tensor.to.offset = memory_[1].offset;
    }
    before_ = memory_.back().read();
  }

  void set_norm(Device& device, std::mt19937_64& random, HeadNorm norm, std::optional<DType> weight_dtype) {
    if (weight_dtype) {
      const std::uint64_t dim = spec_.shape.dim;
      Guarded weight(device, dim, *weight_dtype);
      std::vector<std::byte> bytes(dim * info(*weight_dtype).bytes);
      for (std::uint64_t d = 0; d < dim; ++d) {
        save_bits(bytes, *weight_dtype, d, bits_of(std::normal_distribution<double>(1, 0.5)(random), *weight_dtype));
        weight_.push_back(value_of(load_bits(bytes, *weight_dtype, d), *weight_dtype) + norm.weight_offset);
      }
      weight.write(bytes);
      norm.weight = View::token_major(weight.buffer, *weight_dtype, {.tokens = 1, .heads = 1, .dim = dim});
      norm.weight->offset = weight.offset;
    }
    tensor.norm = norm;
  }

  // Before a second run, whose result must not be the first one's. Not for tensors in place.
  void clear_target() { memory_.back().write(before_); }

  // After `source` was changed by hand.
  void write_source() { memory_[0].write(source); }

  std::vector<double> head_before(std::uint64_t token, std::uint64_t head) const {
    std::vector<double> values;
    for (std::uint64_t d = 0; d < spec_.shape.dim; ++d) {
      values.push_back(value_of(load_bits(source, spec_.from, place(tensor.from, token, head, d)), spec_.from));
    }
    return values;
  }

  std::vector<double> head_after(std::uint64_t token, std::uint64_t head) const {
    const auto bytes = result();
    std::vector<double> values;
    for (std::uint64_t d = 0; d < spec_.shape.dim; ++d) {
      values.push_back(value_of(load_bits(bytes, spec_.to, place(tensor.to, token, head, d)), spec_.to));
    }
    return values;
  }

  std::vector<std::byte> result() const { return memory_.back().read(); }

  // The largest error as a part of its bound, or infinity where memory was touched that is not the view's.
  // Pairs with an infinity or a NaN before must be spoilt, and no others.
  double worst_error(const Rotary& rotary, std::span<const std::int64_t> positions) const {
    if (!outside_intact()) return std::numeric_limits<double>::infinity();
    double worst = 0;
    const std::uint64_t tokens = spec_.shape.tokens;
    const auto bytes = result();
    for (std::uint64_t token = 0; token < tokens; ++token) {
      std::vector<std::int64_t> of_token;
      for (std::uint64_t at = token; at < positions.size(); at += tokens) of_token.push_back(positions[at]);
      for (std::uint64_t head = 0; head < spec_.shape.heads; ++head) {
        std::vector<double> before = head_before(token, head);
        if (tensor.norm) before = norm_by_definition(before, tensor.norm->epsilon, weight_);
        const RotatedHead wanted = rotate_by_definition(rotary, of_token, before);
        for (std::uint64_t d = 0; d < spec_.shape.dim; ++d) {
          const double found = value_of(load_bits(bytes, spec_.to, place(tensor.to, token, head, d)), spec_.to);
          const double bound = rope_bound(tensor, wanted.values[d], wanted.lengths[d]);
          const bool spoilt = !std::isfinite(wanted.values[d]);
          const double error = spoilt ? (std::isfinite(found) ? std::numeric_limits<double>::infinity() : 0)
                                      : std::fabs(found - wanted.values[d]) / bound;
          worst = std::isnan(error) ? std::numeric_limits<double>::infinity() : std::max(worst, error);
        }
      }
    }
    return worst;
  }

  RopeTensor tensor;
  std::vector<std::byte> source;

 private:
  template <Access A>
  static std::uint64_t reach(const BasicView<A>& view) {
    if (view.shape.tokens == 0 || view.shape.heads == 0 || view.shape.dim == 0) return 0;
    return (view.shape.tokens - 1) * view.token_stride + (view.shape.heads - 1) * view.head_stride +
           (view.shape.dim - 1) * view.dim_stride + 1;
  }

  // Counted from the middle of the guarded buffer.
  template <Access A>
  static std::uint64_t place(const BasicView<A>& view, std::uint64_t token, std::uint64_t head, std::uint64_t d) {
    return token * view.token_stride + head * view.head_stride + d * view.dim_stride;
  }

  template <class Body>
  void for_each(const Body& body) const {
    for (std::uint64_t token = 0; token < spec_.shape.tokens; ++token) {
      for (std::uint64_t head = 0; head < spec_.shape.heads; ++head) {
        for (std::uint64_t d = 0; d < spec_.shape.dim; ++d) body(token, head, d);
      }
    }
  }

  bool outside_intact() const {
    if (memory_.size() > 1 && memory_[0].read() != source) return false;
    for (const Guarded& memory : memory_) {
      if (!memory.guards_intact()) return false;
    }
    std::vector<std::byte> expected = before_;
    const std::vector<std::byte> found = result();
    for_each([&](std::uint64_t token, std::uint64_t head, std::uint64_t d) {
      const std::uint64_t index = place(tensor.to, token, head, d);
      save_bits(expected, spec_.to, index, load_bits(found, spec_.to, index));
    });
    return expected == found;
  }

  TensorSpec spec_;
  std::vector<Guarded> memory_;  // of the source, and of the target where it is elsewhere
  std::vector<std::byte> before_;
  std::vector<double> weight_;  // with its offset
};

inline Status run_rope(Device& device, const Rope& call) {
  return run_on(device, [&](Encoder& encoder) { rope(encoder, call); });
}

}  // namespace rota::test
