#include "statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace rota::eval {

double quantile(std::vector<double> values, double share) {
  const auto below = static_cast<std::size_t>(share * static_cast<double>(values.size()));
  const std::size_t at = std::min(below, values.size() - 1);
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double standard_error(const std::vector<double>& values) {
  if (values.size() < 2) return 0;
  const double middle = mean(values);
  double sum = 0;
  for (const double value : values) sum += (value - middle) * (value - middle);
  const auto count = static_cast<double>(values.size());
  return std::sqrt(sum / (count - 1) / count);
}

// f64 throughout: a good cache moves predictions by less than what f32 loses in a sum over the vocabulary.
Prediction::Prediction(const float* logits, std::size_t count)
    : logits_(logits), count_(count), likeliest_(std::max_element(logits, logits + count) - logits) {
  const double largest = logits[likeliest_];
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum += std::exp(logits[i] - largest);
  log_sum_ = largest + std::log(sum);
}

double Prediction::divergence_of(const Prediction& other) const {
  double sum = 0;
  for (std::size_t i = 0; i < count_; ++i) {
    const double own = log_probability(i);
    sum += std::exp(own) * (own - other.log_probability(i));
  }
  return std::max(sum, 0.0);  // rounding alone goes below
}

}  // namespace rota::eval
