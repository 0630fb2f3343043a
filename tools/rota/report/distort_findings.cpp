#include "report/distort_findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "report/chart.h"
#include "report/series.h"

namespace rota::tool {
namespace {

// "0.25 bits per value more", or fewer; "from 0.1 bits fewer to 0.2 bits per value more".
std::string waste_text(const Interval& bits) {
  const auto size = [](double waste) { return bits_text(std::abs(waste)); };
  const auto side = [](double waste) { return waste < 0 ? "fewer" : "more"; };
  const std::string low = size(bits.low), high = size(bits.high);
  if (bits.low < 0 && bits.high > 0) return fmt::format("from {} fewer to {} per value more", low, high);
  if (low == high) return fmt::format("{} per value {}", low, side(bits.low));
  const auto [least, most] = std::minmax({std::abs(bits.low), std::abs(bits.high)});
  return fmt::format("{} to {} per value {}", number_text(least), bits_text(most), side(bits.low));
}

// Bits that an ideal codec would need less, per source: all codecs that have a bound.
void say_waste(const Distort& file, const std::string& prefix, std::vector<std::string>& findings) {
  struct Waste {
    Interval bits;
    std::set<std::string> codecs{};
  };
  constexpr std::size_t kMostSources = 4;
  std::vector<std::string> order;
  std::map<std::string, Waste> wastes;
  for (const StorageRow& row : file.rows) {
    const double shannon_mse = row.shannon_mse.value_or(0);
    if (row.mse <= 0 || shannon_mse <= 0 || row.bits_stored >= kFewBits) continue;
    const double bits = 0.5 * std::log2(row.mse / shannon_mse);
    if (!wastes.contains(row.source)) order.push_back(row.source);
    Waste& waste = wastes.emplace(row.source, Waste{{bits, bits}}).first->second;
    waste.bits = {std::min(waste.bits.low, bits), std::max(waste.bits.high, bits)};
    waste.codecs.insert(row.codec);
  }
  for (std::size_t at = 0; at < std::min(order.size(), kMostSources); ++at) {
    const Waste& waste = wastes.at(order[at]);
    const bool one = waste.codecs.size() == 1;
    findings.push_back(fmt::format("{}On {}, {} {} than Shannon's bound for {} error.", prefix, source_name(order[at]),
                                   one ? *waste.codecs.begin() + " stores" : "codecs store", waste_text(waste.bits),
                                   one ? "its" : "their"));
  }
}

void say_theory(const Distort& file, const std::string& prefix, std::vector<std::string>& findings) {
  const StorageRow* furthest = nullptr;
  double worst = 1;
  for (const StorageRow& row : file.rows) {
    const double theory_mse = row.theory_mse.value_or(0);
    if (row.mse <= 0 || theory_mse <= 0) continue;
    const double ratio = row.mse / theory_mse;
    if (furthest != nullptr && std::abs(std::log(ratio)) <= std::abs(std::log(worst))) continue;
    furthest = &row;
    worst = ratio;
  }
  if (furthest == nullptr) return;
  constexpr double kSame = 0.001;
  const double off = std::abs(worst - 1);
  if (off < kSame) {
    findings.push_back(fmt::format("{}Errors are those that theory gives, to {}.", prefix, percent(kSame)));
    return;
  }
  findings.push_back(fmt::format("{}The error of {} on {} is furthest from theory's: {} {} it.", prefix,
                                 furthest->codec, source_name(furthest->source), percent(off),
                                 worst > 1 ? "above" : "below"));
}

// A pair of codecs over all sources that have it.
struct PairErrors {
  const AttentionRow* worst = nullptr;
  std::set<std::string> sources{};
};

// The fewest bits that keep the output within some errors, on all sources.
void say_attention(const Distort& file, const std::string& prefix, std::vector<std::string>& findings) {
  std::set<std::string> sources;
  std::map<std::pair<std::string, std::string>, PairErrors> pairs;
  for (const AttentionRow& row : file.attention) {
    if (!row.output_error) continue;
    sources.insert(row.source);
    PairErrors& pair = pairs[{row.k, row.v}];
    pair.sources.insert(row.source);
    if (pair.worst == nullptr || *row.output_error > pair.worst->output_error.value_or(0)) pair.worst = &row;
  }
  const AttentionRow* said = nullptr;
  for (const double most : {0.01, 0.05}) {
    const AttentionRow* best = nullptr;
    for (const auto& [name, pair] : pairs) {
      const auto rank = [](const AttentionRow& row) {
        return std::pair(row.bits_stored, row.output_error.value_or(0));
      };
      if (pair.sources != sources || rank(*pair.worst).second > most) continue;
      if (best == nullptr || rank(*pair.worst) < rank(*best)) best = pair.worst;
    }
    if (best == nullptr || best == said) continue;
    said = best;
    const std::string where =
        sources.size() == 1 ? "on " + source_name(best->source) : fmt::format("on all {} sources", sources.size());
    std::string text = fmt::format(
        "{}{} has the fewest bits that keep attention's output within {} {}: {} per value, "
        "error {}{}",
        prefix, codec_pair(best->k, best->v), percent(most), where, bits_text(best->bits_stored),
        sources.size() == 1 ? "" : "up to ", percent(best->output_error.value_or(0)));
    if (best->kl && sources.size() == 1) text += fmt::format(", KL divergence {} nats", number_text(*best->kl));
    findings.push_back(text + ".");
  }
}

}  // namespace

std::vector<std::string> distort_findings(const Distort& file, const std::string& prefix) {
  std::vector<std::string> findings;
  say_attention(file, prefix, findings);
  say_waste(file, prefix, findings);
  say_theory(file, prefix, findings);
  return findings;
}

}  // namespace rota::tool
