#pragma once

#include <cstddef>
#include <vector>

namespace rota::eval {

// The value below which `share` of all values lie, 0 to 1. `values` has one at least, in any order.
double quantile(std::vector<double> values, double share);

double mean(const std::vector<double>& values);

// Of the mean, if values are independent.
double standard_error(const std::vector<double>& values);

// The distribution of the next token that logits stand for.
class Prediction {
 public:
  Prediction(const float* logits, std::size_t count);

  double log_probability(std::size_t token) const { return logits_[token] - log_sum_; }
  std::size_t likeliest() const { return likeliest_; }

  // Kullback-Leibler divergence of `other` from this one, in nats.
  double divergence_of(const Prediction& other) const;

 private:
  const float* logits_;
  std::size_t count_;
  std::size_t likeliest_;
  double log_sum_;
};

}  // namespace rota::eval
