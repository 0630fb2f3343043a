#include "report/series.h"

#include <algorithm>

namespace rota::tool {
namespace {

Style style_of(std::size_t index) { return {1 + index % 7, 1 + index + index / 7, index / 7}; }

}  // namespace

std::string family_of(const std::string& codec) {
  const std::size_t end = codec.find_last_not_of("0123456789") + 1;
  const std::string stem = codec.substr(0, end);
  const bool letters_only =
      std::ranges::all_of(stem, [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); });
  return letters_only && !stem.empty() ? stem : codec;
}

Series* SeriesByName::find(const std::string& name) {
  const auto found = index_.find(name);
  if (found != index_.end()) return &series_[found->second];
  if (series_.size() == kMostSeries) return nullptr;
  index_[name] = series_.size();
  series_.push_back({name, style_of(series_.size())});
  return &series_.back();
}

std::vector<Series> SeriesByName::sorted() && {
  for (Series& one : series_) std::ranges::sort(one.points, {}, place_of);
  return std::move(series_);
}

}  // namespace rota::tool
