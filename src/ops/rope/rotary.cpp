#include "ops/rope/rotary.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <numeric>

#include "core/check.h"

namespace rota::ops {
namespace {

core::Refusal of(std::string_view field) { return {kRopeName, {field}}; }

template <class Enum>
Status check_known(std::string_view field, Enum found, Enum last) {
  if (found <= last) return {};
  return core::refuse(of(field), static_cast<unsigned>(found), "a number up to {}", static_cast<unsigned>(last));
}

// A finite number above zero.
Status check_scale(const core::Refusal& refusal, double found) {
  if (std::isfinite(found) && found > 0) return {};
  return core::refuse(refusal, found, "a finite number above 0");
}

Status check_yarn(const Yarn& yarn, const Rotary& rotary) {
  Status scales = core::first_error({check_scale(of("rotary.yarn.factor"), yarn.factor),
                                     check_scale(of("rotary.yarn.beta_fast"), yarn.beta_fast),
                                     check_scale(of("rotary.yarn.beta_slow"), yarn.beta_slow),
                                     core::check_positive(of("rotary.yarn.original_context"), yarn.original_context),
                                     check_known("rotary.yarn.ramp", yarn.ramp, YarnRamp::exact)});
  if (!scales) return scales;
  if (yarn.beta_fast < yarn.beta_slow) {
    return core::refuse(of("rotary.yarn.beta_fast"), yarn.beta_fast, "at least beta_slow, {}", yarn.beta_slow);
  }
  if (std::isnan(yarn.extrapolation) || yarn.extrapolation < 0 || yarn.extrapolation > 1) {
    return core::refuse(of("rotary.yarn.extrapolation"), yarn.extrapolation, "a number from 0 to 1");
  }
  if (rotary.theta <= 1) {
    return core::refuse(of("rotary.theta"), double{rotary.theta},
                        "more than 1, since YaRN asks when a pair turns once");
  }
  if (rotary.interpolation != 1) {
    return core::refuse(of("rotary.interpolation"), rotary.interpolation,
                        "1 beside YaRN, which has a factor of its own");
  }
  return {};
}

Status check_factors(std::span<const float> factors, std::uint64_t pairs) {
  if (factors.empty()) return {};
  if (factors.size() != pairs) {
    return core::refuse(of("rotary.factors"), core::text("{} long", factors.size()), "one for each of {} pairs", pairs);
  }
  for (std::size_t p = 0; p < factors.size(); ++p) {
    const Status status = check_scale({kRopeName, {"rotary.factors", p}}, static_cast<double>(factors[p]));
    if (!status) return status;
  }
  return {};
}

// Pairs per axis; none where one axis turns all.
std::span<const std::uint32_t> pairs_per_axis(const Rotary& rotary) {
  return rotary.sections ? std::span<const std::uint32_t>(rotary.sections->pairs) : std::span<const std::uint32_t>();
}

Status check_sections(const RopeSections& sections, const Rotary& rotary, std::uint64_t pairs) {
  Status known = core::first_error(
      {check_known<SectionOrder>("rotary.sections.order", sections.order, SectionOrder::interleaved),
       check_known<SectionFrequencies>("rotary.sections.frequencies", sections.frequencies, SectionFrequencies::own)});
  if (!known) return known;
  const bool take_turns = sections.order == SectionOrder::interleaved;
  const std::size_t fewest = take_turns ? 3 : 1;
  if (sections.pairs.size() < fewest || sections.pairs.size() > kMaxAxes) {
    return core::refuse(of("rotary.sections.pairs"), core::text("{} long", sections.pairs.size()), "{} to {}{}", fewest,
                        kMaxAxes, take_turns ? " where they take turns" : "");
  }
  const std::uint64_t sum = std::accumulate(sections.pairs.begin(), sections.pairs.end(), std::uint64_t{0});
  if (sum != pairs) {
    return core::refuse(of("rotary.sections.pairs"), core::text("{} in all", sum), "{}, half of rope_dim", pairs);
  }
  if (take_turns && rotary.pairing == Pairing::section_halves) {
    return core::refuse(of("rotary.sections.order"), "interleaved", "contiguous, since the pairing is section_halves");
  }
  return {};
}

// The axis that turns each pair. What the first three leave when they take turns is the fourth one's, or else the
// first's.
std::vector<std::uint32_t> axes_of_pairs(const Rotary& rotary, std::uint64_t pairs) {
  if (!rotary.sections) return std::vector<std::uint32_t>(pairs, 0);
  const std::vector<std::uint32_t>& of_axis = rotary.sections->pairs;
  std::vector<std::uint32_t> axes;
  axes.reserve(pairs);
  if (rotary.sections->order == SectionOrder::contiguous) {
    for (std::uint32_t axis = 0; axis < of_axis.size(); ++axis) axes.insert(axes.end(), of_axis[axis], axis);
    return axes;
  }
  const std::uint32_t rest = of_axis.size() > 3 && of_axis[3] > 0 ? 3 : 0;
  for (std::uint32_t p = 0; p < pairs; ++p) {
    const bool its_turn = p < 3 * std::uint64_t{of_axis[p % 3]};
    axes.push_back(its_turn ? p % 3 : rest);
  }
  return axes;
}

// Taking turns may leave an axis with other pairs than its section says; then the sections have no meaning.
Status check_shares(std::span<const std::uint32_t> of_axis, std::span<const std::uint32_t> axes) {
  for (std::uint32_t axis = 0; axis < of_axis.size(); ++axis) {
    const auto got = std::ranges::count(axes, axis);
    if (static_cast<std::uint64_t>(got) == of_axis[axis]) continue;
    return core::refuse({kRopeName, {"rotary.sections.pairs", axis}}, of_axis[axis],
                        "{}, which is what taking turns gives this axis", got);
  }
  return {};
}

// Of a pair: its place among those that share one run of exponents, and their denominator.
struct Exponent {
  std::uint64_t index;
  double denominator;
};

std::vector<Exponent> exponents_of(const Rotary& rotary, std::uint64_t rope_dim, std::span<const std::uint32_t> axes) {
  const std::span<const std::uint32_t> of_axis = pairs_per_axis(rotary);
  const bool own = rotary.sections && rotary.sections->frequencies == SectionFrequencies::own;
  std::array<std::uint64_t, kMaxAxes> next{};
  std::vector<Exponent> exponents;
  exponents.reserve(axes.size());
  for (std::uint64_t p = 0; p < axes.size(); ++p) {
    const std::uint64_t run_dim = own ? 2ULL * of_axis[axes[p]] : rope_dim;
    exponents.push_back({own ? next[axes[p]]++ : p, static_cast<double>(rotary.exponent_dim.value_or(run_dim))});
  }
  return exponents;
}

// The ramp of YaRN: where its ends lie, as a part of the exponents' denominator.
class Ramp {
 public:
  Ramp(const Yarn& yarn, double log_theta)
      : yarn_(yarn),
        begin_(index_that_turns(yarn.beta_fast, log_theta)),
        end_(index_that_turns(yarn.beta_slow, log_theta)) {}

  // How much of its frequency a pair keeps, from 0 to 1.
  double spared(const Exponent& exponent) const {
    double begin = begin_ * exponent.denominator;
    double end = end_ * exponent.denominator;
    if (yarn_.ramp == YarnRamp::whole_pairs) {
      begin = std::floor(begin);
      end = std::ceil(end);
    }
    begin = std::max(begin, 0.0);
    end = std::min(end, exponent.denominator - 1);
    const double along = (static_cast<double>(exponent.index) - begin) / std::max(end - begin, 0.001);
    return (1 - std::clamp(along, 0.0, 1.0)) * yarn_.extrapolation;
  }

 private:
  // Solves context * theta^(-2 index) = 2 pi times.
  double index_that_turns(double times, double log_theta) const {
    const auto context = static_cast<double>(std::uint64_t{yarn_.original_context});
    return std::log(context / (times * 2 * std::numbers::pi)) / (2 * log_theta);
  }

  Yarn yarn_;
  double begin_, end_;
};

// Radians per position, by pair.
std::vector<double> frequencies_of(const Rotary& rotary, std::uint64_t rope_dim, std::span<const std::uint32_t> axes) {
  const double log_theta = std::log(double{rotary.theta});
  const std::vector<Exponent> exponents = exponents_of(rotary, rope_dim, axes);
  std::vector<double> frequencies(exponents.size());
  const std::uint64_t turning = rotary.turning_pairs.value_or(exponents.size());
  for (std::size_t p = 0; p < turning; ++p) {
    const double power = -2 * static_cast<double>(exponents[p].index) / exponents[p].denominator;
    const double factor = rotary.factors.empty() ? 1 : static_cast<double>(rotary.factors[p]);
    frequencies[p] = std::exp(power * log_theta) / factor / rotary.interpolation;
  }
  if (rotary.yarn) {
    const Ramp ramp(*rotary.yarn, log_theta);
    for (std::size_t p = 0; p < turning; ++p) {
      const double spared = ramp.spared(exponents[p]);
      frequencies[p] *= spared + (1 - spared) / rotary.yarn->factor;
    }
  }
  return frequencies;
}

// Precondition: the frequency is less than a turn.
std::uint64_t turns_of(double frequency) {
  return static_cast<std::uint64_t>(std::ldexp(frequency * (0.5 * std::numbers::inv_pi), 64));
}

double magnitude_of(const Rotary& rotary) {
  if (rotary.magnitude) return *rotary.magnitude;
  return rotary.yarn && rotary.yarn->factor > 1 ? 0.1 * std::log(double{rotary.yarn->factor}) + 1 : 1;
}

Status check_rotary(const Rotary& rotary, std::uint64_t pairs) {
  Status plain = core::first_error({check_known<Pairing>("rotary.pairing", rotary.pairing, Pairing::section_halves),
                                    check_scale(of("rotary.theta"), rotary.theta),
                                    check_scale(of("rotary.interpolation"), rotary.interpolation),
                                    check_scale(of("rotary.magnitude"), rotary.magnitude.value_or(1)),
                                    core::check_positive(of("rotary.exponent_dim"), rotary.exponent_dim.value_or(1)),
                                    check_factors(rotary.factors, pairs),
                                    rotary.sections ? check_sections(*rotary.sections, rotary, pairs) : Status(),
                                    rotary.yarn ? check_yarn(*rotary.yarn, rotary) : Status()});
  if (!plain) return plain;
  if (rotary.pairing == Pairing::section_halves && !rotary.sections) {
    return core::refuse(of("rotary.sections"), "missing", "sections, since the pairing is section_halves");
  }
  if (const std::uint64_t turning = rotary.turning_pairs.value_or(0); turning > pairs) {
    return core::refuse(of("rotary.turning_pairs"), turning, "at most {}, half of rope_dim", pairs);
  }
  return {};
}

// The coordinates of each pair, and what one invocation may turn at a time.
void place_pairs(const Rotary& rotary, std::span<const std::uint32_t> axes, PairTable& table) {
  std::uint32_t* const first = table.words.data() + std::size_t{kFirst} * table.pairs;
  std::uint32_t* const second = table.words.data() + std::size_t{kSecond} * table.pairs;
  const std::span<const std::uint32_t> of_axis = pairs_per_axis(rotary);
  bool even = true;
  std::uint32_t begin = 0;
  while (begin < table.pairs) {
    const std::uint32_t size = rotary.pairing == Pairing::section_halves ? of_axis[axes[begin]] : table.pairs;
    for (std::uint32_t p = begin; p < begin + size; ++p) {
      const bool interleaved = rotary.pairing == Pairing::interleaved;
      first[p] = interleaved ? 2 * p : begin + p;
      second[p] = interleaved ? 2 * p + 1 : begin + p + size;
    }
    even = even && size % 2 == 0;
    begin += size;
  }
  table.unit = rotary.pairing == Pairing::interleaved ? kNeighbourPair : even ? kTwoPairs : kOnePair;
}

}  // namespace

Result<PairTable> pair_table(const Rotary& rotary, std::uint64_t rope_dim) {
  const std::uint64_t pairs = rope_dim / 2;
  if (Status status = check_rotary(rotary, pairs); !status) return status.error();
  const std::vector<std::uint32_t> axes = axes_of_pairs(rotary, pairs);
  if (Status status = check_shares(pairs_per_axis(rotary), axes); !status) return status.error();

  PairTable table{.words = std::vector<std::uint32_t>(pairs * kPairColumns),
                  .pairs = static_cast<std::uint32_t>(pairs),
                  .axes = static_cast<std::uint32_t>(std::max<std::size_t>(pairs_per_axis(rotary).size(), 1)),
                  .magnitude = static_cast<float>(magnitude_of(rotary))};
  if (!std::isnormal(table.magnitude)) {
    return core::refuse(of("rotary.magnitude"), magnitude_of(rotary), "a normal number of f32");
  }
  const std::vector<double> frequencies = frequencies_of(rotary, rope_dim, axes);
  for (std::size_t p = 0; p < pairs; ++p) {
    if (!(frequencies[p] <= kMaxFrequency)) {
      return core::refuse(of("rotary"), core::text("a frequency of {} for pair {}", frequencies[p], p),
                          "at most {} radians per position", kMaxFrequency);
    }
    const std::uint64_t turns = turns_of(frequencies[p]);
    table.words[kTurnsLow * pairs + p] = static_cast<std::uint32_t>(turns);
    table.words[kTurnsHigh * pairs + p] = static_cast<std::uint32_t>(turns >> 32);
    table.words[kAxis * pairs + p] = axes[p];
  }
  place_pairs(rotary, axes, table);
  return table;
}

}  // namespace rota::ops
