#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "cli/numbers.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/show.h"
#include "cli/table.h"
#include "distort/captures.h"
#include "distort/meter.h"
#include "distort/rows.h"
#include "rota/codec.h"
#include "rota/device.h"
#include "rota/kv_spec.h"

namespace rota::tool {
namespace {

constexpr std::uint64_t kAllQueriesTokens = 1024, kSampledQueries = 64;  // all up to so many tokens, else so many

constexpr std::string_view kLessMemory = "a capture of fewer tokens or heads, or fewer codecs: --codecs turbo4";

struct Options {
  std::string captures{};
  std::vector<std::string> random{};
  std::optional<std::uint64_t> head_dim{};
  std::string device = "cpu";
  std::uint64_t page = 128, tail = 128, sinks = 4;
  std::optional<double> scale{};
  std::vector<std::string> codecs{};
  std::string sample{}, per{};
  std::optional<std::uint64_t> queries{};  // what `sample` says; 0 for all
  std::optional<std::uint64_t> threads{};
  Output output = Output::text;
};

// The codecs that were asked for, as kCodecs has them, then what else is tried at one of them.
std::vector<Trial> trials_for(const Options& options) {
  const auto page = static_cast<std::uint32_t>(options.page);
  std::vector<Trial> trials;
  for (const NamedCodec& codec : kCodecs) {
    if (!options.codecs.empty() && std::ranges::find(options.codecs, codec.name) == options.codecs.end()) continue;
    trials.push_back({std::string(codec.name), codec.codec, page, {trials.size()}});
  }
  std::vector<std::size_t> sealed;
  for (std::size_t at = 0; at < trials.size(); ++at) {
    if (is_sealed(trials[at].codec)) sealed.push_back(at);
  }
  for (const std::size_t at : sealed) trials[at].partners = sealed;
  const auto add = [&](std::string name, const KvCodec& codec, std::uint32_t tokens) {
    trials.push_back({std::move(name), codec, tokens, {trials.size()}, /*is_variant=*/true});
  };
  const auto has_options = [](const Trial& trial) { return trial.codec == KvCodec(turbo(kOptionsBits)); };
  if (std::ranges::none_of(trials, has_options)) return trials;
  const std::uint32_t other_page = page == 128 ? 64 : 128;
  add("without key mean", Turbo{.bits = kOptionsBits, .key_mean = false}, page);
  add("scale by least_squares", Turbo{.bits = kOptionsBits, .scale = ScaleRule::least_squares}, page);
  add("scale by rms", Turbo{.bits = kOptionsBits, .scale = ScaleRule::rms}, page);
  add(fmt::format("pages of {}", other_page), turbo(kOptionsBits), other_page);
  return trials;
}

// Queries of a head, 0 for all.
std::uint64_t sample_of(const Options& options, const Source& source) {
  return options.queries.value_or(source.tokens <= kAllQueriesTokens ? 0 : kSampledQueries);
}

std::uint32_t threads_of(const Options& options) {
  return options.threads ? static_cast<std::uint32_t>(*options.threads) : std::thread::hardware_concurrency();
}

// Sources are made where they are measured, one after the other: captures may be large.
class Distortion {
 public:
  Distortion(const Options& options, const Invocation& invocation)
      : options_(options),
        device_(
            Device::open({.device = options.device, .threads = static_cast<std::uint32_t>(options.threads.value_or(0))})
                .value()) {
    report_.head = report_head("distort", invocation);
    report_.head["device"] = device_json(device_.info());
    report_.head["page"] = options.page;
    report_.head["tail"] = options.tail;
    report_.head["sinks"] = options.sinks;
    for (const char* const list : {"sources", "attention", "options", "heads", "layers"}) {
      report_.head[list] = Json::array();
    }
  }

  void add(const Source& source) {
    const Setting setting{.tokens = source.tokens,
                          .dim = source.dim,
                          .scale = options_.scale.value_or(source.softmax_scale),
                          .tail = options_.tail,
                          .sinks = options_.sinks,
                          .sample = sample_of(options_, source)};
    const Range sealed = setting.sealed(setting.tokens - 1, static_cast<std::uint32_t>(options_.page));
    if (sealed.begin == sealed.end) {
      const std::string where = options_.captures.empty() ? source.name : options_.captures;
      throw BadResult({Errc::io, fmt::format("{}: none of {} tokens is sealed for any query; wanted a longer text, a "
                                             "smaller tail or fewer sinks",
                                             where, setting.tokens)});
    }
    DistortMeter meter(setting, trials_for(options_), threads_of(options_));
    check_memory(source, meter);
    CaptureReader reader(source);
    measure(source, reader, meter);
    add_rows(source, meter, reader.changed());
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
                                 device_.info().id, device_.info().name, options_.page, options_.tail, options_.sinks) +
                     std::move(before_);
    report_.before +=
        "\nbits: per number as stored. error: |x' - x|^2 / |x|^2. theory: what it is for normal numbers. Shannon: the "
        "least that so\nmany bits allow. largest: the largest |x' - x|, by the root mean square of x.\n\n";
    if (!options_.per.empty() && !shows_parts_) {
      report_.after += fmt::format(
          "\n--per {} has nothing to show: {}.\n", options_.per,
          options_.captures.empty() ? "random numbers are of no model" : "no name of a capture says its layer");
    }
    return std::move(report_);
  }

 private:
  // A small file may say that it inflates to more than any memory. What a head takes is known before one is read.
  void check_memory(const Source& source, const DistortMeter& meter) const {
    const LargestFile largest = largest_file(source);
    const std::uint64_t needed = saturating_add(largest.bytes, meter.head_bytes());
    const std::uint64_t most = most_memory(device_.info());
    if (needed <= most || largest.name.empty()) return;
    throw Failure(Exit::failed_check,
                  fmt::format("{}: {} are needed for one of its heads, and rota takes {} of the memory of {}",
                              largest.name, bytes_text(needed), bytes_text(most), device_.info().id),
                  std::string(kLessMemory));
  }

  void measure(const Source& source, CaptureReader& reader, DistortMeter& meter) {
    Progress progress(source.name);
    std::vector<Capture> heads;
    while (std::optional<Capture> capture = reader.next()) {
      heads.push_back(*std::move(capture));
      const std::uint64_t taken = meter.heads().size() + heads.size();
      if (heads.size() < meter.heads_at_once() && taken < source.heads) continue;
      const auto before = static_cast<double>(meter.heads().size()), now = static_cast<double>(heads.size());
      meter.add(device_, heads, [&](double share) {
        progress.show((before + share * now) / static_cast<double>(source.heads),
                      fmt::format("{} of {} heads", meter.heads().size(), source.heads));
      });
      heads.clear();
    }
  }

  void add_rows(const Source& source, const DistortMeter& meter, const Changed& changed) {
    const auto append = [&](const char* list, const std::vector<Json>& rows) {
      for (const Json& row : rows) report_.head[list].push_back(row);
    };
    const std::vector<Json> heads = part_rows(source, meter, Per::head);
    const std::vector<Json> layers = part_rows(source, meter, Per::layer);
    AttentionRows rows{source.name, attention_rows(source, meter), option_rows(source, meter)};
    const Json said = source_json(source, meter, changed);
    report_.head["sources"].push_back(said);
    std::ranges::move(storage_rows(source, meter), std::back_inserter(report_.table.rows));
    append("attention", rows.attention);
    append("options", rows.options);
    append("heads", heads);
    append("layers", layers);
    before_ += source_text(said, heads);
    if (!options_.per.empty()) {
      rows.per = options_.per == "head" ? Per::head : Per::layer;
      rows.parts = rows.per == Per::head ? heads : layers;
      shows_parts_ = shows_parts_ || !rows.parts.empty();
    }
    report_.after += attention_text(rows, options_.output) + parts_text(rows, options_.output);
  }

  const Options& options_;
  Device device_;
  Report report_{};
  std::string before_{};      // of all sources, in text
  bool shows_parts_ = false;  // any that --per asks for
};

// Queries of each head, 0 for all; none for what is neither.
std::optional<std::uint64_t> read_sample(const std::string& text) {
  constexpr std::size_t kMostDigits = 9;
  if (text == "all") return 0;
  const std::optional<std::uint64_t> number = text.size() > kMostDigits ? std::nullopt : parsed_whole(text);
  return number && *number >= 2 ? number : std::nullopt;
}

void check(Options& options) {
  const auto refuse = [](const std::string& what) { throw Failure(Exit::usage, what, "rota distort --help"); };
  if (options.page != 64 && options.page != 128) refuse(fmt::format("--page is {}; wanted 64 or 128", options.page));
  if (options.threads) thread_count(*options.threads, "distort");
  if (options.sample.empty()) return;
  options.queries = read_sample(options.sample);
  if (!options.queries) {
    refuse(fmt::format("--sample is {}; wanted 2 or more queries of each head, or all", options.sample));
  }
}

void add_captures(Distortion& distortion, const std::string& path) {
  const auto too_little = [&] {
    return Failure(Exit::failed_check, path + ": there is too little memory for its heads", std::string(kLessMemory));
  };
  try {
    distortion.add(open_source(path));
  } catch (const std::bad_alloc&) {
    throw too_little();
  } catch (const BadResult& bad) {
    if (bad.error().code == Errc::out_of_memory) throw too_little();
    throw;
  }
}

void run(Options options, const Invocation& invocation) {
  check(options);
  if (options.captures.empty() && options.random.empty()) options.random = kDistributions;
  if (options.head_dim && options.random.empty()) {
    throw Failure(Exit::usage, "--head-dim is for random numbers; captures have their own", "the same with --random");
  }
  const std::uint64_t dim = options.head_dim.value_or(128);
  if (const Status status = check_head_dim(dim); !status) {
    throw Failure(Exit::usage, "--head-dim: " + status.error().message, "rota distort --help");
  }
  Distortion distortion(options, invocation);
  if (!options.captures.empty()) add_captures(distortion, options.captures);
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
       .footer =
           "A capture has keys and values (tokens, dim), (heads, tokens, dim) or (1, heads, tokens, dim), and\n"
           "queries of the same tokens, of as many heads or a multiple: .npy or .npz files of f16, bf16, f32 or\n"
           "f64, or .raw files of bare numbers, each with a .json of its name:\n"
           "{\"dtype\": \"bf16\", \"shape\": [512, 64]}. Without queries there is nothing to say of attention. Of\n"
           "more than 1,024 tokens 64 queries of each head are looked at, with 95 % intervals.\n"
           "csv and jsonl have the first table, json has all.\n\n"
           "Examples:\n"
           "  rota distort\n"
           "  rota distort --random laplace --head-dim 256 -o md\n"
           "  rota distort captures/ --tail 64\n"
           "  rota distort capture.npz --codecs turbo3,turbo4 --sample 256 --per layer\n"
           "  rota distort captures/ --random gaussian -o json > distort.json && rota report distort.json",
       .run = [options, &invocation] { run(*options, invocation); }});
  add_text(command, "CAPTURES", options->captures,
           {"Folder of NAME_q, NAME_k and NAME_v, or a .npz file of them", "FILE"});
  add_choices(command, "--random", options->random,
              {kDistributions, "Random numbers, beside captures; all without them"});
  add_number(command, "--head-dim", options->head_dim, "Numbers in a head of random ones (128)");
  add_device(command, options->device, "Where pages are sealed, e.g. vulkan:0");
  std::vector<std::string> codecs;
  for (const NamedCodec& codec : kCodecs) codecs.emplace_back(codec.name);
  add_choices(command, "--codecs", options->codecs, {codecs, "Codecs to try, separated by commas (all)"});
  add_text(command, "--sample", options->sample,
           {"Queries of each head to look at: a number or all (all up to 1,024 tokens, else 64)", "N|all"});
  add_choice(command, "--per", options->per, {{"head", "layer"}, "Show each head or layer, too"});
  add_number(command, "-t,--threads", options->threads, "Threads of the CPU (all)");
  add_number(command, "--page", options->page, "Tokens of a page: 64 or 128");
  add_number(command, "--tail", options->tail, "Newest tokens, which stay as they are (128)");
  add_number(command, "--sinks", options->sinks, "First tokens, which stay as they are (4)");
  add_real(
      command, "--scale", options->scale,
      {.least = 1e-30, .most = 1e30, .said = {"Factor of logits; else of index.json, else 1 / sqrt(dim)", "FACTOR"}});
  add_output(command, options->output);
}

}  // namespace rota::tool
