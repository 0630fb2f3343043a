#include "bench/measured.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "bench/sampler.h"

namespace rota::tool {
namespace {

double gbps(std::uint64_t bytes, double seconds) { return static_cast<double>(bytes) / seconds * 1e-9; }

// The same but for codecs: what a speed is compared within.
auto group_key(const Measured& one) {
  const BenchRow& row = one.row;
  return std::tuple(one.device, row.scope, row.kv_heads, row.group, row.head_dim, row.value_dim, row.window, row.keys,
                    row.rows, row.sequences);
}

void keep_common(std::optional<std::uint64_t>& ours, const std::optional<std::uint64_t>& theirs) {
  if (ours != theirs) ours.reset();
}

void add_layers(Measured& sum, const Measured& layers) {
  for (const auto member :
       {&BenchRow::head_dim, &BenchRow::value_dim, &BenchRow::kv_heads, &BenchRow::group, &BenchRow::window}) {
    keep_common(sum.row.*member, layers.row.*member);
  }
  const std::uint64_t count = layers.row.layers.value_or(1);
  sum.row.layers = sum.row.layers.value_or(0) + count;
  sum.bytes += count * layers.bytes;
  for (std::size_t round = 0; round < sum.seconds.size(); ++round) {
    sum.seconds[round] += static_cast<double>(count) * layers.seconds[round];
  }
}

Measured nothing_of(const Measured& layers) {
  Measured sum{.row = layers.row, .device = layers.device, .seconds = std::vector<double>(layers.seconds.size())};
  sum.row.scope = kModelScope;
  sum.row.layers.reset();
  sum.row.calls_per_sample.reset();
  return sum;
}

void add_times(BenchRow& row, const Measured& one, const MeasuredRead& read) {
  const Spread spread = spread_of(one.seconds);
  row.samples = one.seconds.size();
  row.median_ms = spread.median * 1e3;
  row.min_ms = spread.least * 1e3;
  row.p25_ms = spread.lower_quarter * 1e3;
  row.p75_ms = spread.upper_quarter * 1e3;
  row.spread = spread.relative();
  row.bytes = one.bytes;
  row.gbps = gbps(one.bytes, spread.median);
  row.read_gbps = gbps(read.bytes, spread_of(read.seconds).median);
  // Of each round, since its two samples met the same machine.
  row.fraction_of_read =
      median_ratio(read.seconds, one.seconds) * static_cast<double>(one.bytes) / static_cast<double>(read.bytes);
  row.noisy = spread.relative() > kNoisy;
  if (row.scope == kModelScope && row.op == "attend") {
    row.tokens_per_second = static_cast<double>(row.rows.value_or(1) * row.sequences.value_or(1)) / spread.median;
  }
}

}  // namespace

std::vector<Measured> sums_of_layers(std::span<const Measured> layers) {
  const auto named = [](const Measured& one) { return std::tuple(group_key(one), one.row.k, one.row.v); };
  const auto asked = [](const Measured& one, std::size_t turn) {
    const BenchRow& row = one.row;
    return std::tuple(one.device, row.k, row.v, row.keys, row.rows, row.sequences, turn);
  };
  std::vector<Measured> sums;
  std::map<decltype(named(Measured{})), std::size_t> turns;  // what is asked for twice is measured twice
  std::map<decltype(asked(Measured{}, 0)), std::size_t> places;
  for (const Measured& one : layers) {
    const auto [place, is_new] = places.emplace(asked(one, turns[named(one)]++), sums.size());
    if (is_new) sums.push_back(nothing_of(one));
    add_layers(sums[place->second], one);
  }
  return sums;
}

std::vector<BenchRow> rows_of(std::span<const Measured> all, std::span<const MeasuredRead> reads) {
  std::vector<BenchRow> rows;
  for (const Measured& one : all) {
    rows.push_back(one.row);
    add_times(rows.back(), one, reads[one.device]);
    const auto baseline = std::ranges::find_if(all, [&](const Measured& other) {
      return other.row.k == "f16" && other.row.v == "f16" && group_key(other) == group_key(one);
    });
    if (baseline != all.end()) rows.back().speedup_vs_f16 = median_ratio(baseline->seconds, one.seconds);
  }
  return rows;
}

}  // namespace rota::tool
