#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "harness/elements.h"
#include "harness/guarded.h"
#include "harness/on_device.h"
#include "ops/merge/merge.params.h"
#include "rota/rota.h"

// For tests: `merge` from its definition, in f64.

namespace rota::test {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// What one row takes from each part. Neither logarithm is NaN or +infinity.
struct MergedRow {
  double first, second;  // shares
  double log;
  double distance;

  MergedRow(double first_log, double second_log) {
    const double larger = std::max(first_log, second_log);
    const auto weight = [&](double log_sum_exp) {
      return std::isinf(log_sum_exp) ? 0 : std::exp(log_sum_exp - larger);
    };
    const double whole = weight(first_log) + weight(second_log);
    first = whole == 0 ? 0 : weight(first_log) / whole;
    second = whole == 0 ? 0 : weight(second_log) / whole;
    log = whole == 0 ? -kInfinity : larger + std::log(whole);
    distance = std::isinf(first_log) || std::isinf(second_log) ? 0 : std::fabs(first_log - second_log);
  }
};

// A rounded number, that is off by `error` before. It may round in the next binade.
inline double rounded_bound(DType dtype, double wanted, double error) {
  return error + last_place(dtype, std::fabs(wanted) + error) / 2;
}

// In roundings to f32, with exp(x) off by 3 + 2|x| last places and quotients by 2.5, as GPUs may be: 6 + 5|x| for the
// smaller weight, 6 for its share, 2 to add up; in the larger share the weight's error is 3.3 at most.
inline double merge_bound(DType dtype, const MergedRow& row, double first, double second) {
  const bool in_order = row.first >= row.second;
  const double smaller = std::fabs(in_order ? row.second * second : row.first * first);
  const double larger = std::fabs(in_order ? row.first * first : row.second * second);
  const double flushed = kFlushed * (1 + std::fabs(in_order ? second : first));  // a share, too, may be denormal
  const double error = 0x1p-24 * ((14 + 5 * row.distance) * smaller + 12 * larger) + flushed;
  return rounded_bound(dtype, row.first * first + row.second * second, error);
}

// The logarithm of a number between 1 and 2 may be off by 2^-21; 4.3 roundings are in that number, and one follows.
inline double log_bound(DType dtype, double wanted) {
  return rounded_bound(dtype, wanted, 0x1p-24 * (8 + 4.3 + std::fabs(wanted)));
}

struct MergeLayout {
  std::uint64_t token, head, dim;  // strides
};

// One view, with a host copy of what it held before.
class MergeView {
 public:
  MergeView(Device& device, const MutView& of_no_buffer, std::uint64_t guard_elements)
      : view(of_no_buffer), memory_(device, reach(of_no_buffer), of_no_buffer.dtype, guard_elements) {
    view.buffer = memory_.buffer;
    view.offset = memory_.offset;
    before = memory_.read();
  }

  std::uint64_t place(std::uint64_t row, std::uint64_t d) const {
    return row / view.shape.heads * view.token_stride + row % view.shape.heads * view.head_stride + d * view.dim_stride;
  }

  void set(std::uint64_t row, std::uint64_t d, double value) {
    save_bits(before, view.dtype, place(row, d), bits_of(value, view.dtype));
  }
  std::uint32_t bits(const std::vector<std::byte>& bytes, std::uint64_t row, std::uint64_t d = 0) const {
    return load_bits(bytes, view.dtype, place(row, d));
  }
  double value(const std::vector<std::byte>& bytes, std::uint64_t row, std::uint64_t d = 0) const {
    return value_of(bits(bytes, row, d), view.dtype);
  }

  void write() { memory_.write(before); }
  std::vector<std::byte> read() const { return memory_.read(); }

  // Nothing was changed but the elements, if they may be.
  bool rest_intact(Access access) const {
    std::vector<std::byte> expected = before;
    const std::vector<std::byte> found = read();
    if (access == Access::write) {
      for (std::uint64_t row = 0; row < view.shape.tokens * view.shape.heads; ++row) {
        for (std::uint64_t d = 0; d < view.shape.dim; ++d) {
          save_bits(expected, view.dtype, place(row, d), bits(found, row, d));
        }
      }
    }
    return memory_.guards_intact() && expected == found;
  }

  MutView view;
  std::vector<std::byte> before;

 private:
  static std::uint64_t reach(const MutView& view) {
    return (view.shape.tokens - 1) * view.token_stride + (view.shape.heads - 1) * view.head_stride +
           (view.shape.dim - 1) * view.dim_stride + 1;
  }

  Guarded memory_;
};

// By the numbers of merge.params.h: kFirstOut and so on.
struct MergeSpec {
  Shape shape;
  std::array<DType, ops::kMergeViews> types{};
  std::array<std::optional<MergeLayout>, ops::kMergeViews> layouts{};
  std::optional<std::uint32_t> out_in = {};  // which view the result lies in, if not in its own
  std::optional<std::uint32_t> log_in = {};
  std::uint64_t guard_elements = 96;  // an odd number: no first element starts a word of two
};

// One call, with every kind of distance between two logarithms. What must not be looked at is NaN.
class MergeUnderTest {
 public:
  MergeUnderTest(Device& device, std::mt19937_64& random, const MergeSpec& spec) : shape(spec.shape) {
    for (std::uint32_t index = 0; index < ops::kMergeViews; ++index) {
      const auto& elsewhere = index < ops::kFirstLog ? spec.out_in : spec.log_in;
      const bool own = !elsewhere || (index != ops::kMergedOut && index != ops::kMergedLog);
      views.push_back(own ? make_view(device, spec, index) : views[*elsewhere]);
    }
    for (std::uint64_t row = 0; row < rows(); ++row) {
      const auto [first, second] = telling_logs(row, random);
      set_part(row, {ops::kFirstOut, ops::kFirstLog}, first, random);
      set_part(row, {ops::kSecondOut, ops::kSecondLog}, second, random);
    }
    write();
  }

  std::uint64_t rows() const { return shape.tokens * shape.heads; }
  Merge call() const {
    return {.first = {views[ops::kFirstOut]->view, views[ops::kFirstLog]->view},
            .second = {views[ops::kSecondOut]->view, views[ops::kSecondLog]->view},
            .out = views[ops::kMergedOut]->view,
            .log_sum_exp = views[ops::kMergedLog]->view};
  }

  void write() {
    for (const auto& view : views) view->write();
  }
  Status run(Device& device) const {
    return run_on(device, [&](Encoder& encoder) { merge(encoder, call()); });
  }
  std::vector<std::byte> out() const { return views[ops::kMergedOut]->read(); }
  std::vector<std::byte> log() const { return views[ops::kMergedLog]->read(); }

  // Of a view before the call.
  double before(std::uint32_t index, std::uint64_t row, std::uint64_t d = 0) const {
    return views[index]->value(views[index]->before, row, d);
  }

  // The largest error as a part of its bound; infinity where a row is wrong that must be exact, or memory was touched
  // that is no result's.
  double worst_error() const {
    for (std::uint32_t index = 0; index < ops::kMergeViews; ++index) {
      const bool written = views[index] == views[ops::kMergedOut] || views[index] == views[ops::kMergedLog];
      if (!views[index]->rest_intact(written ? Access::write : Access::read)) return kInfinity;
    }
    double worst = 0;
    const std::vector<std::byte> outs = out();
    const std::vector<std::byte> logs = log();
    for (std::uint64_t row = 0; row < rows(); ++row) worst = std::max(worst, error_of_row(row, outs, logs));
    return worst;
  }

  Shape shape;
  std::vector<std::shared_ptr<MergeView>> views;

 private:
  struct Part {
    std::uint32_t out, log;
  };

  static std::shared_ptr<MergeView> make_view(Device& device, const MergeSpec& spec, std::uint32_t index) {
    Shape shape = spec.shape;
    if (index >= ops::kFirstLog) shape.dim = 1;
    MutView view = MutView::token_major({}, spec.types[index], shape);
    if (const auto& layout = spec.layouts[index]; layout) {
      view.token_stride = layout->token;
      view.head_stride = layout->head;
      view.dim_stride = layout->dim;
    }
    return std::make_shared<MergeView>(device, view, spec.guard_elements);
  }

  static std::pair<double, double> telling_logs(std::uint64_t row, std::mt19937_64& random) {
    constexpr std::array kDistances{0.0, 1.0, -1.0, 30.0, -30.0, 200.0, -200.0, 1e4, -1e4};
    const double base = std::normal_distribution<double>(0, 20)(random);
    const std::uint64_t kind = row % (kDistances.size() + 4);
    if (kind < kDistances.size()) return {base, base + kDistances[kind]};
    switch (kind - kDistances.size()) {
      case 0: return {-kInfinity, base};
      case 1: return {base, -kInfinity};
      case 2: return {-kInfinity, -kInfinity};
      default: return {base, std::normal_distribution<double>(base, 5)(random)};
    }
  }

  void set_part(std::uint64_t row, Part part, double log, std::mt19937_64& random) {
    views[part.log]->set(row, 0, log);
    for (std::uint64_t d = 0; d < shape.dim; ++d) {
      const double value = random_value(random, views[part.out]->view.dtype);
      views[part.out]->set(row, d, std::isinf(log) ? kNaN : value);
    }
  }

  static double error_of(bool exact, double found, double wanted, double bound) {
    if (exact) return found == wanted ? 0 : kInfinity;
    const double error = std::fabs(found - wanted) / bound;
    return std::isnan(error) ? kInfinity : error;
  }

  double error_of_row(std::uint64_t row, const std::vector<std::byte>& outs, const std::vector<std::byte>& logs) const {
    const double first_log = before(ops::kFirstLog, row);
    const double second_log = before(ops::kSecondLog, row);
    const bool exact = std::isinf(first_log) || std::isinf(second_log);
    const MergedRow wanted(first_log, second_log);
    const auto as_stored = [&](double value, DType dtype) {
      return exact ? value_of(bits_of(value, dtype), dtype) : value;
    };
    const MergeView& merged = *views[ops::kMergedOut];
    const MergeView& log = *views[ops::kMergedLog];
    double worst = error_of(exact, log.value(logs, row), as_stored(wanted.log, log.view.dtype),
                            log_bound(log.view.dtype, wanted.log));
    for (std::uint64_t d = 0; d < shape.dim; ++d) {
      const double first = wanted.first == 0 ? 0 : before(ops::kFirstOut, row, d);
      const double second = wanted.second == 0 ? 0 : before(ops::kSecondOut, row, d);
      const double sum = as_stored(wanted.first * first + wanted.second * second, merged.view.dtype);
      worst = std::max(worst, error_of(exact, merged.value(outs, row, d), sum,
                                       merge_bound(merged.view.dtype, wanted, first, second)));
    }
    return worst;
  }
};

}  // namespace rota::test
