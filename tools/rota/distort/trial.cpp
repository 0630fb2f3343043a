#include "distort/trial.h"

#include <algorithm>
#include <variant>

#include "distort/captures.h"
#include "rota/dtype.h"

namespace rota::tool {

std::uint64_t Setting::queries_per_head() const { return tokens - kFirstQuery; }

std::uint64_t Setting::sampled_per_head() const {
  return sample == 0 ? queries_per_head() : std::min(sample, queries_per_head());
}

double Setting::unseen_share() const {
  return 1 - static_cast<double>(sampled_per_head()) / static_cast<double>(queries_per_head());
}

Range Setting::sealed(std::uint64_t position, std::uint32_t page) const {
  const std::uint64_t older = position + 1 - std::min(position + 1, tail);
  const std::uint64_t end = older / page * page;
  return {std::min(sinks, end), end};
}

double Setting::sealed_share(std::uint32_t page) const {
  double sum = 0;
  for (std::uint64_t position = kFirstQuery; position < tokens; ++position) {
    const Range range = sealed(position, page);
    sum += static_cast<double>(range.end - range.begin) / static_cast<double>(position + 1);
  }
  return sum / static_cast<double>(queries_per_head());
}

std::optional<PageFormat> page_format(const Trial& trial, KvSide side, std::uint64_t dim) {
  const std::optional<Codec> codec = sealed_codec(trial.codec);
  if (!codec) return std::nullopt;
  return PageFormat{.codec = *codec, .side = side, .head_dim = static_cast<std::uint32_t>(dim), .tokens = trial.page};
}

double bits_stored(const Trial& trial, KvSide side, std::uint64_t dim) {
  const std::optional<PageFormat> format = page_format(trial, side, dim);
  if (!format) return 8.0 * info(std::get<DType>(trial.codec)).bytes;
  return static_cast<double>(page_bytes(*format) * 8) / static_cast<double>(trial.page * dim);
}

}  // namespace rota::tool
