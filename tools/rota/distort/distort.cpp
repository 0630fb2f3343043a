#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numbers>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cli/command.h"
#include "cli/options.h"
#include "cli/show.h"
#include "cli/table.h"
#include "distort/captures.h"
#include "distort/meter.h"
#include "rota/codec.h"
#include "rota/device.h"
#include "rota/kv_spec.h"

namespace rota::tool {
namespace {

constexpr std::uint32_t kOptionsBits = 4;  // where the codec's options are tried

struct Options {
  std::string captures{};
  std::vector<std::string> random{};
  std::optional<std::uint64_t> head_dim{};
  std::string device = "cpu";
  std::uint64_t page = 128, tail = 128, sinks = 4;
  std::optional<double> scale{};
  Output output = Output::text;
};

bool is_sealed(const KvCodec& codec) { return sealed_codec(codec).has_value(); }

double bits_stored(const Trial& trial, KvSide side, std::uint64_t dim) {
  const std::optional<PageFormat> format = page_format(trial, side, dim);
  if (!format) return 8.0 * info(std::get<DType>(trial.codec)).bytes;
  return static_cast<double>(page_bytes(*format) * 8) / static_cast<double>(trial.page * dim);
}

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

// All codecs, as kCodecs has them, then what else is tried at one of them.
std::vector<Trial> trials_for(const Options& options) {
  const auto page = static_cast<std::uint32_t>(options.page);
  std::vector<Trial> trials;
  std::vector<std::size_t> sealed;
  for (std::size_t at = 0; at < kCodecs.size(); ++at) {
    if (is_sealed(kCodecs[at].codec)) sealed.push_back(at);
  }
  const auto add = [&](std::string name, const KvCodec& codec, std::uint32_t tokens) {
    trials.push_back({std::move(name), codec, tokens, {trials.size()}});
  };
  for (const NamedCodec& codec : kCodecs) {
    add(std::string(codec.name), codec.codec, page);
    if (is_sealed(codec.codec)) trials.back().partners = sealed;
  }
  const std::uint32_t other_page = page == 128 ? 64 : 128;
  add("without key mean", Turbo{.bits = kOptionsBits, .key_mean = false}, page);
  add("scale by least_squares", Turbo{.bits = kOptionsBits, .scale = ScaleRule::least_squares}, page);
  add("scale by rms", Turbo{.bits = kOptionsBits, .scale = ScaleRule::rms}, page);
  add(fmt::format("pages of {}", other_page), turbo(kOptionsBits), other_page);
  return trials;
}

void add_storage_rows(const Source& source, const DistortMeter& meter, std::vector<Json>& rows) {
  for (const KvSide side : {KvSide::keys, KvSide::values}) {
    for (std::size_t index = 0; index < kCodecs.size(); ++index) {
      const Trial& trial = meter.trials()[index];
      const StorageSums& sums = meter.storage(index, side);
      const double bits = bits_stored(trial, side, source.dim());
      const double coded = ratio(sums.coded_square, sums.square);
      const auto theory = theory_of(trial.codec, source.dim());
      const double power = sums.square / static_cast<double>(std::max<std::uint64_t>(sums.values, 1));
      rows.push_back({{"source", source.name},
                      {"side", side == KvSide::keys ? "k" : "v"},
                      {"codec", trial.name},
                      {"head_dim", source.dim()},
                      {"values", sums.values},
                      {"bits_stored", bits},
                      {"mse", ratio(sums.error, sums.square)},
                      {"theory_mse", theory ? Json(coded * *theory) : Json(nullptr)},
                      {"shannon_mse", coded * source.entropy_power * std::exp2(-2 * bits)},
                      {"max_error", ratio(sums.largest_error, std::sqrt(power))}});
    }
  }
}

void add_attention_rows(const Source& source, const DistortMeter& meter, Json& rows) {
  for (std::size_t keys = 0; keys < kCodecs.size(); ++keys) {
    for (const std::size_t values : meter.trials()[keys].partners) {
      const Trial &k = meter.trials()[keys], &v = meter.trials()[values];
      rows.push_back({{"source", source.name},
                      {"k", k.name},
                      {"v", v.name},
                      {"bits_stored",
                       (bits_stored(k, KvSide::keys, source.dim()) + bits_stored(v, KvSide::values, source.dim())) / 2},
                      {"logit_error", meter.logit_error(keys)},
                      {"kl", meter.divergence(keys)},
                      {"output_error", meter.output_error(keys, values)}});
    }
  }
}

void add_option_rows(const Source& source, const DistortMeter& meter, Json& rows) {
  const auto add = [&](std::size_t index, const std::string& name) {
    rows.push_back({{"source", source.name},
                    {"options", name},
                    {"page", meter.trials()[index].page},
                    {"sealed_share", meter.sealed_share(index)},
                    {"logit_error", meter.logit_error(index)},
                    {"output_error", meter.output_error(index, index)},
                    {"kl", meter.divergence(index)}});
  };
  for (std::size_t index = 0; index < kCodecs.size(); ++index) {
    const Trial& trial = meter.trials()[index];
    if (trial.codec == KvCodec(turbo(kOptionsBits))) add(index, fmt::format("all on, pages of {}", trial.page));
  }
  for (std::size_t index = kCodecs.size(); index < meter.trials().size(); ++index)
    add(index, meter.trials()[index].name);
}

Json source_json(const Source& source, const Setting& setting, const DistortMeter& meter) {
  std::uint64_t keys = 0, values = 0;
  for (const Capture& capture : source.captures) {
    keys += capture.non_finite_keys;
    values += capture.non_finite_values;
  }
  return {{"source", source.name},
          {"captures", source.captures.size()},
          {"tokens", source.tokens()},
          {"head_dim", source.dim()},
          {"queries", meter.queries()},
          {"softmax_scale", setting.scale},
          {"non_finite", {{"keys", keys}, {"values", values}}}};
}

std::string source_text(const Json& source) {
  std::string text =
      fmt::format("{}: {} captures, {} tokens, dim {}; {} queries, logits times {}\n",
                  one_line(source.at("source").get<std::string>()), source.at("captures").get<std::uint64_t>(),
                  source.at("tokens").get<std::uint64_t>(), source.at("head_dim").get<std::uint64_t>(),
                  source.at("queries").get<std::uint64_t>(), source.at("softmax_scale").get<double>());
  const auto keys = source.at("non_finite").at("keys").get<std::uint64_t>();
  const auto values = source.at("non_finite").at("values").get<std::uint64_t>();
  if (keys + values > 0) {
    text += fmt::format("Not finite: {} numbers in keys, {} in values. NaN was read as 0, infinity as 65504.\n", keys,
                        values);
  }
  return text;
}

// What attention does, of one source: a square of codecs, each codec with itself, and the codec's options.
std::string attention_text(const std::string& source, const Json& attention, const Json& options, Output output) {
  Table square{.columns = {{"k", "K \\ V"}}};
  Table codecs{.columns = {{"k", "codec"},
                           {"bits_stored", "bits", ".4g"},
                           {"logit_error", "logit error", ".5f"},
                           {"kl", "KL", ".3e"},
                           {"output_error", "output error", ".5f"}}};
  Table variants{.columns = {{"options", "options"},
                             {"sealed_share", "keys sealed", "percent"},
                             {"logit_error", "logit error", ".5f"},
                             {"kl", "KL", ".3e"},
                             {"output_error", "output error", ".5f"}}};
  for (const NamedCodec& codec : kCodecs) {
    if (is_sealed(codec.codec)) square.columns.push_back({std::string(codec.name), std::string(codec.name), ".5f"});
  }
  for (const Json& row : attention) {
    if (row.at("source") != source) continue;
    if (row.at("k") == row.at("v")) codecs.rows.push_back(row);
    if (!is_sealed(codec_named(row.at("k").get<std::string>()).value())) continue;
    if (square.rows.empty() || square.rows.back().at("k") != row.at("k")) square.rows.push_back({{"k", row.at("k")}});
    square.rows.back()[row.at("v").get<std::string>()] = row.at("output_error");
  }
  for (const Json& row : options) {
    if (row.at("source") == source) variants.rows.push_back(row);
  }
  std::string text = fmt::format("\nAttention over {}. logit error: RMS of errors / RMS of logits, both less their ",
                                 one_line(source));
  text += "query's mean; KL of weights in nats; output error: |o' - o| / |o|.\n\n";
  text += table_text(codecs, output);
  text += "\nOutput error, codecs of keys down, of values across:\n\n" + table_text(square, output);
  text += fmt::format("\nOptions of turbo{0} for keys and values:\n\n", kOptionsBits) + table_text(variants, output);
  return text;
}

// Sources are made where they are measured, one after the other: captures may be large.
class Distortion {
 public:
  Distortion(const Options& options, const Invocation& invocation)
      : options_(options), device_(Device::open({.device = options.device}).value()) {
    report_.head = report_head("distort", invocation);
    report_.head["device"] = device_json(device_.info());
    report_.head["page"] = options.page;
    report_.head["tail"] = options.tail;
    report_.head["sinks"] = options.sinks;
    report_.head["sources"] = report_.head["attention"] = report_.head["options"] = Json::array();
  }

  void add(const Source& source) {
    const Setting setting{source.tokens(), source.dim(), options_.scale.value_or(source.softmax_scale), options_.tail,
                          options_.sinks};
    const Range sealed = setting.sealed(setting.tokens - 1, static_cast<std::uint32_t>(options_.page));
    if (sealed.begin == sealed.end) {
      const std::string where = options_.captures.empty() ? source.name : options_.captures;
      throw BadResult({Errc::io, fmt::format("{}: none of {} tokens is sealed for any query; wanted a longer text, a "
                                             "smaller tail or fewer sinks",
                                             where, setting.tokens)});
    }
    DistortMeter meter(setting, trials_for(options_));
    for (const Capture& capture : source.captures) meter.add(device_, capture);
    report_.head["sources"].push_back(source_json(source, setting, meter));
    add_storage_rows(source, meter, report_.table.rows);
    add_attention_rows(source, meter, report_.head["attention"]);
    add_option_rows(source, meter, report_.head["options"]);
  }

  Report report() && {
    report_.table.columns = {{"source", "source"},
                             {"side", "side"},
                             {"codec", "codec"},
                             {"bits_stored", "bits", ".4g"},
                             {"mse", "error", ".3e"},
                             {"theory_mse", "theory", ".3e"},
                             {"shannon_mse", "Shannon", ".3e"},
                             {"max_error", "largest", ".3f"}};
    report_.before = fmt::format("{}: {}; pages of {} tokens, the newest {} and the first {} stay as they are\n",
                                 device_.info().id, device_.info().name, options_.page, options_.tail, options_.sinks);
    for (const Json& source : report_.head["sources"]) {
      report_.before += source_text(source);
      report_.after += attention_text(source.at("source").get<std::string>(), report_.head["attention"],
                                      report_.head["options"], options_.output);
    }
    report_.before +=
        "\nbits: per number as stored. error: |x' - x|^2 / |x|^2. theory: what it is for normal numbers. Shannon: the "
        "least that so\nmany bits allow. largest: the largest |x' - x|, by the root mean square of x.\n\n";
    return std::move(report_);
  }

 private:
  const Options& options_;
  Device device_;
  Report report_{};
};

void run(Options options, const Invocation& invocation) {
  if (options.page != 64 && options.page != 128) {
    throw Failure(Exit::usage, fmt::format("--page is {}; wanted 64 or 128", options.page), "rota distort --help");
  }
  if (options.captures.empty() && options.random.empty()) options.random = kDistributions;
  if (options.head_dim && options.random.empty()) {
    throw Failure(Exit::usage, "--head-dim is for random numbers; captures have their own", "the same with --random");
  }
  const std::uint64_t dim = options.head_dim.value_or(128);
  if (const Status status = check_head_dim(dim); !status) {
    throw Failure(Exit::usage, "--head-dim: " + status.error().message, "rota distort --help");
  }
  Distortion distortion(options, invocation);
  if (!options.captures.empty()) distortion.add(read_source(options.captures));
  for (const std::string& name : options.random) distortion.add(random_source(name, dim));
  print(std::move(distortion).report(), options.output);
}

}  // namespace

void add_distort(CLI::App& app, Invocation& invocation) {
  const auto options = std::make_shared<Options>();
  CLI::App& command = add_command(
      app,
      {.name = "distort",
       .description = "Say what each codec does to keys and values, and to attention over them",
       .footer = "A capture has queries [token, query head, dim], keys and values [token, dim]: .npy files of f16 or\n"
                 "f32, or .raw files of bare numbers, each with a .json of its name:\n"
                 "{\"dtype\": \"bf16\", \"shape\": [512, 64]}. csv and jsonl have the first table, json has all.\n\n"
                 "Examples:\n"
                 "  rota distort\n"
                 "  rota distort --random laplace --head-dim 256 -o md\n"
                 "  rota distort captures/ --tail 64\n"
                 "  rota distort captures/ --random gaussian -o json > distort.json && rota report distort.json",
       .run = [options, &invocation] { run(*options, invocation); }});
  add_text(command, "CAPTURES", options->captures, {"Folder of NAME_q, NAME_k and NAME_v, .npy or .raw", "FOLDER"});
  add_choices(command, "--random", options->random,
              {kDistributions, "Random numbers, beside captures; all without them"});
  add_number(command, "--head-dim", options->head_dim, "Numbers in a head of random ones (128)");
  add_device(command, options->device, "Where pages are sealed, e.g. vulkan:0");
  add_number(command, "--page", options->page, "Tokens of a page: 64 or 128");
  add_number(command, "--tail", options->tail, "Newest tokens, which stay as they are (128)");
  add_number(command, "--sinks", options->sinks, "First tokens, which stay as they are (4)");
  add_real(
      command, "--scale", options->scale,
      {.least = 1e-30, .most = 1e30, .said = {"Factor of logits; else of index.json, else 1 / sqrt(dim)", "FACTOR"}});
  add_output(command, options->output);
}

}  // namespace rota::tool
