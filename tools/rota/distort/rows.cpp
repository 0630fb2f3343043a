#include "distort/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <optional>
#include <utility>
#include <variant>

#include "cli/numbers.h"
#include "cli/show.h"
#include "rota/codec.h"
#include "rota/kv_spec.h"

namespace rota::tool {
namespace {

// The expected square of the largest of `count` normal numbers: of 2 x (1 - P(all are below x)), the integral.
double largest_square(std::uint64_t count) {
  constexpr double kStep = 1e-3, kFar = 12;
  double sum = 0;
  for (double x = kStep / 2; x < kFar; x += kStep) {
    sum += 2 * x * (1 - std::pow(std::erf(x / std::numbers::sqrt2), static_cast<double>(count)));
  }
  return sum * kStep;
}

// Error's power by the power of what is coded, if a rotation makes it normal: that of Max's quantizers ("Quantizing for
// minimum distortion", 1960), and at 8 bits of even steps up to the head's largest number.
std::optional<double> theory_of(const KvCodec& codec, std::uint64_t dim) {
  const auto* const sealed = std::get_if<Turbo>(&codec);
  if (sealed == nullptr) return {};
  switch (sealed->bits) {
    case 2: return 0.11748;
    case 3: return 0.034548;
    case 4: return 0.009501;
    case 5: return 0.0025047;
    case 6: return 0.00064424;
    case 8: return largest_square(dim) / (127.0 * 127.0) / 12;
    default: return {};
  }
}

// A trial of a Measure, and how its intervals are found.
class Attention {
 public:
  Attention(const Measure& measure, const Setting& setting) : measure_(measure), unseen_(setting.unseen_share()) {}

  void add_logit_error(Json& row, std::size_t trial) const {
    const RatioSums& sums = measure_.trials[trial].logits;
    add(row, "logit_error", std::sqrt(sums.value()), sums.half_interval_of_root(unseen_));
  }
  void add_divergence(Json& row, std::size_t trial) const {
    const RatioSums& sums = measure_.trials[trial].divergence;
    add(row, "kl", sums.value(), sums.half_interval(unseen_));
  }
  void add_output_error(Json& row, std::size_t trial, std::size_t partner) const {
    const RatioSums& sums = measure_.trials[trial].outputs[partner];
    add(row, "output_error", std::sqrt(sums.value()), sums.half_interval_of_root(unseen_));
  }

 private:
  void add(Json& row, const std::string& key, double value, double half_interval) const {
    row[key] = value;
    if (unseen_ > 0) row[key + "_interval"] = half_interval;
  }

  const Measure& measure_;
  double unseen_;
};

std::size_t own_partner(std::span<const Trial> trials, std::size_t trial) {
  const auto& partners = trials[trial].partners;
  return static_cast<std::size_t>(std::ranges::find(partners, trial) - partners.begin());
}

Json storage_row(const Source& source, const Trial& trial, KvSide side, const StorageSums& sums) {
  const double bits = bits_stored(trial, side, source.dim);
  const double coded = ratio(sums.coded_square, sums.square);
  const auto theory = theory_of(trial.codec, source.dim);
  const double power = sums.square / static_cast<double>(std::max<std::uint64_t>(sums.values, 1));
  return {{"source", source.name},
          {"side", side == KvSide::keys ? "k" : "v"},
          {"codec", trial.name},
          {"head_dim", source.dim},
          {"values", sums.values},
          {"bits_stored", bits},
          {"mse", ratio(sums.error, sums.square)},
          {"theory_mse", theory ? Json(coded * *theory) : Json(nullptr)},
          {"shannon_mse", coded * source.entropy_power * std::exp2(-2 * bits)},
          {"max_error", ratio(sums.largest_error, std::sqrt(power))}};
}

template <class Number>
Json or_null(const std::optional<Number>& number) {
  return number ? Json(*number) : Json(nullptr);
}

void add_part(const Source& source, const DistortMeter& meter, const HeadMeasure& part, std::vector<Json>& rows) {
  const Attention attention(part.measure, meter.setting());
  for (std::size_t index = 0; index < meter.trials().size(); ++index) {
    const Trial& trial = meter.trials()[index];
    if (trial.is_variant) continue;
    const TrialSums& sums = part.measure.trials[index];
    Json row{{"source", source.name},
             {"name", part.head.name},
             {"layer", or_null(part.head.layer)},
             {"head", or_null(part.head.head)},
             {"codec", trial.name},
             {"k_mse", ratio(sums.keys.error, sums.keys.square)},
             {"v_mse", ratio(sums.values.error, sums.values.square)}};
    if (part.measure.queries > 0) {
      attention.add_logit_error(row, index);
      attention.add_divergence(row, index);
      attention.add_output_error(row, index, own_partner(meter.trials(), index));
    }
    rows.push_back(std::move(row));
  }
}

// Layers in the order of their first heads.
std::vector<HeadMeasure> layers_of(const DistortMeter& meter) {
  std::vector<HeadMeasure> layers;
  std::map<std::uint64_t, std::size_t> places;
  for (const HeadMeasure& head : meter.heads()) {
    if (!head.head.layer) continue;
    const auto [place, is_new] = places.try_emplace(*head.head.layer, layers.size());
    if (is_new) {
      layers.push_back({{fmt::format("layer {}", *head.head.layer), head.head.layer, {}}, head.measure});
    } else {
      layers[place->second].measure += head.measure;
    }
  }
  return layers;
}

// Columns of what attention does, with a half of the interval after each where there is one.
void add_attention_columns(std::vector<Column>& columns, const std::vector<Json>& rows) {
  const bool sampled = std::ranges::any_of(rows, [](const Json& row) { return row.contains("kl_interval"); });
  const auto add = [&](const std::string& key, const std::string& title, const std::string& format) {
    columns.push_back({key, title, format});
    if (sampled) columns.push_back({key + "_interval", "+-", format == ".3e" ? ".1e" : format});
  };
  add("logit_error", "logit error", ".5f");
  add("kl", "KL", ".3e");
  add("output_error", "output error", ".5f");
}

const Json* worst_of(const std::vector<Json>& heads, const std::string& key) {
  const std::string options_codec = fmt::format("turbo{}", kOptionsBits);
  const auto has_options = [&](const Json& row) { return row.at("codec") == options_codec; };
  const std::string codec =
      std::ranges::any_of(heads, has_options) ? options_codec : heads.back().at("codec").get<std::string>();
  const Json* worst = nullptr;
  for (const Json& row : heads) {
    if (row.at("codec") != codec || !row.contains(key)) continue;
    if (worst == nullptr || row.at(key) > worst->at(key)) worst = &row;
  }
  return worst;
}

std::string worst_text(const std::vector<Json>& heads) {
  if (heads.empty() || heads.front().at("name") == heads.back().at("name")) return {};
  if (const Json* const worst = worst_of(heads, "output_error")) {
    return fmt::format("Worst head at {}: {}, output error {:.5f}\n", worst->at("codec").get<std::string>(),
                       one_line(worst->at("name").get<std::string>()), worst->at("output_error").get<double>());
  }
  const Json& worst = *worst_of(heads, "k_mse");
  return fmt::format("Worst head at {}: {}, error of keys {:.3e}\n", worst.at("codec").get<std::string>(),
                     one_line(worst.at("name").get<std::string>()), worst.at("k_mse").get<double>());
}

}  // namespace

bool is_sealed(const KvCodec& codec) { return sealed_codec(codec).has_value(); }

std::vector<Json> storage_rows(const Source& source, const DistortMeter& meter) {
  const Measure all = sum_of(meter.heads(), meter.trials());
  std::vector<Json> rows;
  for (const KvSide side : {KvSide::keys, KvSide::values}) {
    for (std::size_t index = 0; index < meter.trials().size(); ++index) {
      const TrialSums& sums = all.trials[index];
      if (meter.trials()[index].is_variant) continue;
      rows.push_back(storage_row(source, meter.trials()[index], side, side == KvSide::keys ? sums.keys : sums.values));
    }
  }
  return rows;
}

std::vector<Json> attention_rows(const Source& source, const DistortMeter& meter) {
  const Measure all = sum_of(meter.heads(), meter.trials());
  const Attention attention(all, meter.setting());
  std::vector<Json> rows;
  for (std::size_t keys = 0; keys < meter.trials().size() && all.queries > 0; ++keys) {
    const Trial& k = meter.trials()[keys];
    if (k.is_variant) continue;
    for (std::size_t partner = 0; partner < k.partners.size(); ++partner) {
      const Trial& v = meter.trials()[k.partners[partner]];
      const double bits = bits_stored(k, KvSide::keys, source.dim) + bits_stored(v, KvSide::values, source.dim);
      Json row{{"source", source.name}, {"k", k.name}, {"v", v.name}, {"bits_stored", bits / 2}};
      attention.add_logit_error(row, keys);
      attention.add_divergence(row, keys);
      attention.add_output_error(row, keys, partner);
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

std::vector<Json> option_rows(const Source& source, const DistortMeter& meter) {
  const Measure all = sum_of(meter.heads(), meter.trials());
  const Attention attention(all, meter.setting());
  std::vector<Json> rows;
  for (std::size_t index = 0; index < meter.trials().size() && all.queries > 0; ++index) {
    const Trial& trial = meter.trials()[index];
    if (!trial.is_variant && trial.codec != KvCodec(turbo(kOptionsBits))) continue;
    const double sealed_share = meter.setting().sealed_share(trial.page);
    if (sealed_share == 0) continue;  // no query sees what the options do: there would be zeros to compare
    Json row{{"source", source.name},
             {"options", trial.is_variant ? trial.name : fmt::format("all on, pages of {}", trial.page)},
             {"page", trial.page},
             {"sealed_share", sealed_share}};
    attention.add_logit_error(row, index);
    attention.add_output_error(row, index, own_partner(meter.trials(), index));
    attention.add_divergence(row, index);
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<Json> part_rows(const Source& source, const DistortMeter& meter, Per per) {
  std::vector<Json> rows;
  if (source.files.empty()) return rows;
  for (const HeadMeasure& part : per == Per::head ? meter.heads() : layers_of(meter)) {
    add_part(source, meter, part, rows);
  }
  return rows;
}

Json source_json(const Source& source, const DistortMeter& meter, const Changed& changed) {
  std::uint64_t queries = 0;
  for (const HeadMeasure& head : meter.heads()) queries += head.measure.queries;
  return {{"source", source.name},
          {"captures", source.heads},
          {"tokens", source.tokens},
          {"head_dim", source.dim},
          {"queries", queries},
          {"softmax_scale", meter.setting().scale},
          {"non_finite", {{"keys", changed.non_finite_keys}, {"values", changed.non_finite_values}}},
          {"without_queries", source.heads_without_queries},
          {"rounded_to_f32", changed.rounded},
          {"sampled", {{"queries", meter.setting().sampled_per_head()}, {"of", meter.setting().queries_per_head()}}}};
}

std::string source_text(const Json& source, const std::vector<Json>& heads) {
  const auto number = [](const Json& value) { return value.get<std::uint64_t>(); };
  const std::uint64_t captures = number(source.at("captures"));
  std::string text = fmt::format("{}: {} captures, {} tokens, dim {}; {} queries, logits times {}\n",
                                 one_line(source.at("source").get<std::string>()), captures,
                                 number(source.at("tokens")), number(source.at("head_dim")),
                                 number(source.at("queries")), source.at("softmax_scale").get<double>());
  const std::uint64_t keys = number(source.at("non_finite").at("keys"));
  const std::uint64_t values = number(source.at("non_finite").at("values"));
  if (keys + values > 0) {
    text += fmt::format(
        "NaN, infinite or beyond f16: {} numbers in keys, {} in values. NaN was read as 0, others as 65504, "
        "with their sign.\n",
        keys, values);
  }
  if (const std::uint64_t rounded = number(source.at("rounded_to_f32")); rounded > 0) {
    text += fmt::format("f64: {} numbers were rounded to f32.\n", with_commas(std::to_string(rounded)));
  }
  const std::uint64_t without = number(source.at("without_queries"));
  if (without == captures) {
    text += "No queries: errors of keys and values are all that can be said. Attention needs NAME_q.\n";
  } else if (without > 0) {
    text += fmt::format("{} of {} captures have no queries: attention is that of the others.\n", without, captures);
  }
  const std::uint64_t sampled = number(source.at("sampled").at("queries")), all = number(source.at("sampled").at("of"));
  if (without < captures && sampled < all) {
    text += fmt::format("{} of {} queries per head, 95 % interval\n", with_commas(std::to_string(sampled)),
                        with_commas(std::to_string(all)));
  }
  return text + worst_text(heads);
}

// What attention does, of one source: a square of codecs, each codec with itself, and the codec's options.
std::string attention_text(const AttentionRows& rows, Output output) {
  if (rows.attention.empty()) return {};
  Table square{.columns = {{"k", "K \\ V"}}};
  Table codecs{.columns = {{"k", "codec"}, {"bits_stored", "bits", ".4g"}}};
  Table variants{.columns = {{"options", "options"}, {"sealed_share", "keys sealed", "percent"}}, .rows = rows.options};
  add_attention_columns(codecs.columns, rows.attention);
  add_attention_columns(variants.columns, rows.options);
  for (const Json& row : rows.attention) {
    const auto k = row.at("k").get<std::string>(), v = row.at("v").get<std::string>();
    if (k == v) codecs.rows.push_back(row);
    if (!is_sealed(codec_named(k).value())) continue;
    if (k == v) square.columns.push_back({k, k, ".5f"});
    if (square.rows.empty() || square.rows.back().at("k") != k) square.rows.push_back({{"k", k}});
    square.rows.back()[v] = row.at("output_error");
  }
  std::string text = fmt::format("\nAttention over {}. logit error: RMS of errors / RMS of logits, both less their ",
                                 one_line(rows.source));
  text += "query's mean; KL of weights in nats; output error: |o' - o| / |o|.\n\n";
  text += table_text(codecs, output);
  if (square.rows.size() > 1) {
    text += "\nOutput error, codecs of keys down, of values across:\n\n" + table_text(square, output);
  }
  if (!variants.rows.empty()) {
    text += fmt::format("\nOptions of turbo{0} for keys and values:\n\n", kOptionsBits) + table_text(variants, output);
  }
  return text;
}

std::string parts_text(const AttentionRows& rows, Output output) {
  if (rows.parts.empty()) return {};
  const std::string_view part = rows.per == Per::head ? "head" : "layer";
  Table table{.columns = {{"name", std::string(part)},
                          {"codec", "codec"},
                          {"k_mse", "K error", ".3e"},
                          {"v_mse", "V error", ".3e"}},
              .rows = rows.parts};
  if (!rows.attention.empty()) add_attention_columns(table.columns, rows.parts);
  for (Json& row : table.rows) row["name"] = one_line(row.at("name").get<std::string>());
  return fmt::format("\nEach {} of {}:\n\n", part, one_line(rows.source)) + table_text(table, output);
}

}  // namespace rota::tool
