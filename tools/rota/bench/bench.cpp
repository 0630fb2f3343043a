#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "bench/calls.h"
#include "bench/cases.h"
#include "bench/fields.h"
#include "bench/sampler.h"
#include "bench/trace_file.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/show.h"
#include "cli/table.h"
#include "model/model.h"
#include "rota/view.h"

namespace rota::tool {
namespace {

constexpr std::string_view kCall = "call";
const std::vector<std::uint64_t> kUsualKeys{4096, 16384}, kCallKeys{1, 64, 512, 2048};
constexpr double kNoisy = 0.1;  // spread: half of the samples lie within so much of the median

struct Options {
  std::string op{};
  CodecLists codecs{};
  std::string model{};
  std::optional<std::uint64_t> kv_heads{}, group{}, head_dim{}, value_dim{}, window{};
  std::vector<std::uint64_t> keys{}, rows{1}, sequences{1}, threads{};
  std::uint64_t tail = 128;
  std::optional<std::uint64_t> rotate_mib{};
  std::optional<double> seconds{};
  std::string pages = "contiguous", trace{};
  std::string device = "cpu";
  Output output = Output::text;
};

// What layers of a model have, or what options say instead.
struct Geometry {
  std::uint64_t kv_heads, group, head_dim, value_dim;
  std::optional<std::uint64_t> window = {};

  friend bool operator==(const Geometry&, const Geometry&) = default;
};

struct Layers {
  Geometry geometry;
  std::optional<std::uint64_t> count = {};  // of a model
};

// One row to be, or a baseline that is measured for others' sake.
struct Case {
  BenchShape shape;
  std::optional<std::uint64_t> layers = {};  // of the model, that have this shape
  std::size_t device = 0;                    // which of the opened ones
  bool listed = true;
};

// The same but for codecs: what a speed is compared within.
auto group_key(const Case& one) {
  const BenchShape& s = one.shape;
  return std::tuple(one.device, s.kv_heads, s.group, s.head_dim, s.value_dim, s.keys, s.rows, s.sequences, s.window);
}

bool is_f16(const BenchShape& shape) { return shape.k == KvCodec(DType::f16) && shape.v == KvCodec(DType::f16); }

CodecLists usual_codecs(const std::string& op) {
  if (op == "attend") return {{"f16", "turbo8", "turbo4"}, {"f16", "turbo8", "turbo4"}};
  if (op == "seal") return {{"turbo8", "turbo4"}, {"turbo8", "turbo4"}};
  return {{"f16"}, {"f16"}};
}

// Numbers so large that products of them do not fit are refused before they are multiplied.
void check_size(const BenchShape& shape) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 45;
  std::uint64_t product = std::min(shape.head_dim, shape.value_dim) == 0 ? 0 : 8;
  for (const std::uint64_t factor : {shape.keys, shape.sequences, shape.kv_heads, shape.group, shape.rows,
                                     std::max(shape.head_dim, shape.value_dim)}) {
    product = detail::saturating_multiply(product, factor);
  }
  if (product == 0) throw Failure(Exit::usage, "a size is 0; wanted 1 or more", "rota bench --help");
  if (product > kMost || shape.rotated_bytes > kMost) {
    throw Failure(Exit::usage, "these sizes together are more than any memory holds", "rota estimate --help");
  }
}

Model named_model(const Options& options) {
  if (options.kv_heads || options.group || options.head_dim || options.value_dim || options.window) {
    throw Failure(Exit::usage,
                  "--model has its own heads and windows; wanted it alone, or --kv-heads, --group, --head-dim, "
                  "--value-dim and --window without it",
                  fmt::format("rota bench {} --model {}", options.op, options.model));
  }
  try {
    return find_model(options.model);
  } catch (const Failure& failure) {  // what it advises to try is for rota estimate
    throw Failure(failure.exit(), failure.what(), "rota estimate --list-models");
  }
}

// A file's name without its folder: in a report, where it lay means nothing.
std::string model_name(const Model& model) { return std::filesystem::path(model.name).filename().string(); }

// Each geometry once. Only attention sees windows: to other ops, layers with and without one are alike.
std::vector<Layers> layers_of(const Model& model, const std::string& op) {
  std::vector<Layers> kinds;
  for (const LayerGroup& group : model.groups) {
    const Geometry geometry{.kv_heads = group.kv_heads,
                            .group = group.query_heads / group.kv_heads,
                            .head_dim = group.head_dim,
                            .value_dim = group.value_dim,
                            .window = op == "attend" ? group.window : std::nullopt};
    auto found = std::ranges::find(kinds, geometry, &Layers::geometry);
    if (found == kinds.end()) found = kinds.insert(found, {geometry});
    found->count = found->count.value_or(0) + group.layers.size();
  }
  return kinds;
}

Layers layers_of(const Options& options) {
  const std::uint64_t head_dim = options.head_dim.value_or(128);
  return {{.kv_heads = options.kv_heads.value_or(8),
           .group = options.group.value_or(4),
           .head_dim = head_dim,
           .value_dim = options.value_dim.value_or(head_dim),
           .window = options.window}};
}

std::vector<CodecPair> pairs_of(const Options& options) {
  CodecLists lists = options.codecs;
  if (lists.k.empty() && lists.v.empty()) lists = usual_codecs(options.op);
  if (lists.k.empty()) lists.k = lists.v;
  if (lists.v.empty()) lists.v = lists.k;
  return lists.pairs();
}

// On the first device.
std::vector<Case> cases_of(const Options& options, const Layers& layers) {
  std::vector<Case> cases;
  for (const std::uint64_t sequences : options.sequences) {
    for (const std::uint64_t rows : options.rows) {
      for (const std::uint64_t keys : options.keys.empty() ? kUsualKeys : options.keys) {
        for (const CodecPair& pair : pairs_of(options)) {
          const BenchShape shape{
              .k = pair.k,
              .v = pair.v,
              .kv_heads = layers.geometry.kv_heads,
              .group = layers.geometry.group,
              .head_dim = layers.geometry.head_dim,
              .value_dim = layers.geometry.value_dim,
              .keys = keys,
              .rows = rows,
              .sequences = sequences,
              .tail = options.tail,
              .window = layers.geometry.window,
              .scattered = options.pages == "scattered",
              .rotated_bytes = detail::saturating_multiply(options.rotate_mib.value_or(512), 1U << 20)};
          check_size(shape);
          cases.push_back({.shape = shape, .layers = layers.count});
        }
      }
    }
  }
  return cases;
}

std::vector<Case> cases_of(const Options& options, const std::optional<Model>& model, std::size_t devices) {
  const std::vector<Layers> kinds = model ? layers_of(*model, options.op) : std::vector{layers_of(options)};
  std::vector<Case> cases;
  for (std::size_t device = 0; device < devices; ++device) {
    for (const Layers& layers : kinds) {
      for (Case& one : cases_of(options, layers)) {
        one.device = device;
        cases.push_back(one);
      }
    }
  }
  if (options.op == "seal") return cases;
  for (std::size_t at = 0, count = cases.size(); at < count; ++at) {
    const auto key = group_key(cases[at]);
    const bool has_baseline =
        std::ranges::any_of(cases, [&](const Case& other) { return group_key(other) == key && is_f16(other.shape); });
    if (has_baseline) continue;
    Case baseline = cases[at];
    baseline.shape.k = baseline.shape.v = DType::f16;
    baseline.listed = false;
    cases.push_back(baseline);
  }
  return cases;
}

std::vector<Device> open_devices(const Options& options, TraceFile& trace) {
  std::vector<Device> devices;
  DeviceOptions device{.device = options.device};
  if (!options.trace.empty()) device.trace = trace.sink();
  if (options.threads.empty()) {
    devices.push_back(Device::open(device).value());
    return devices;
  }
  for (const std::uint64_t threads : options.threads) {
    if (threads == 0 || threads > 1024) {
      throw Failure(Exit::usage, fmt::format("-t is {}; wanted 1 to 1024", threads), "rota bench --help");
    }
    device.threads = static_cast<std::uint32_t>(threads);
    devices.push_back(Device::open(device).value());
    if (devices.back().info().kind != DeviceKind::cpu) {
      throw Failure(Exit::usage, fmt::format("-t counts threads of the CPU, and {} is none", options.device),
                    "the same without -t");
    }
  }
  return devices;
}

// What was measured of one device: its cases and how fast it reads.
class Bench {
 public:
  Bench(const Options& options, const Invocation& invocation) : options_(options), invocation_(invocation) {
    if (!options.model.empty()) model_ = named_model(options);
    devices_ = open_devices(options, trace_);
  }

  Report run() {
    cases_ = cases_of(options_, model_, devices_.size());
    std::uint64_t left = devices_.front().info().memory_bytes / 5 * 4;
    for (const Device& device : devices_) {
      bench::Place place = place_of(device, left);
      add_contender(make_read(place));
    }
    for (const Case& one : cases_) {
      bench::Place place = place_of(devices_[one.device], left);
      add_contender(make_work(place, options_.op, one.shape));
    }
    sample(contenders_, {.seconds = options_.seconds.value_or(30), .show_progress = isatty(STDERR_FILENO) == 1});
    if (!options_.trace.empty()) trace_.write(options_.trace);
    return report();
  }

 private:
  void add_contender(bench::Work work) {
    bytes_.push_back(work.bytes);
    contenders_.push_back({std::move(work.run)});
  }

  const Contender& read_of(std::size_t device) const { return contenders_[device]; }
  const Contender& contender_of(std::size_t index) const { return contenders_[devices_.size() + index]; }

  static double gbps(std::uint64_t bytes, double seconds) { return static_cast<double>(bytes) / seconds * 1e-9; }

  std::optional<double> speedup_of(std::size_t index) const {
    for (std::size_t other = 0; other < cases_.size(); ++other) {
      if (!is_f16(cases_[other].shape) || group_key(cases_[other]) != group_key(cases_[index])) continue;
      return median_ratio(contender_of(other).seconds, contender_of(index).seconds);
    }
    return {};
  }

  BenchRow row_of(std::size_t index) const {
    const Case& one = cases_[index];
    const BenchShape& shape = one.shape;
    const DeviceInfo& device = devices_[one.device].info();
    BenchRow row{.op = options_.op,
                 .k = std::string(name(shape.k)),
                 .v = std::string(name(shape.v)),
                 .device = device.id,
                 .model = model_ ? model_name(*model_) : "",
                 .head_dim = shape.head_dim,
                 .keys = shape.keys,
                 .layers = one.layers,
                 .value_dim = shape.value_dim,
                 .kv_heads = shape.kv_heads,
                 .group = shape.group,
                 .window = shape.window,
                 .rows = shape.rows,
                 .sequences = shape.sequences};
    if (device.kind == DeviceKind::cpu) row.threads = device.threads;
    add_times(row, index);
    return row;
  }

  void add_times(BenchRow& row, std::size_t index) const {
    const std::size_t device = cases_[index].device;
    const Contender& contender = contender_of(index);
    const Contender& read = read_of(device);
    const Spread spread = spread_of(contender.seconds);
    const std::uint64_t bytes = bytes_[devices_.size() + index];
    row.samples = contender.seconds.size();
    row.calls_per_sample = contender.calls;
    row.median_ms = spread.median * 1e3;
    row.min_ms = spread.least * 1e3;
    row.p25_ms = spread.lower_quarter * 1e3;
    row.p75_ms = spread.upper_quarter * 1e3;
    row.spread = spread.relative();
    row.bytes = bytes;
    row.gbps = gbps(bytes, spread.median);
    row.read_gbps = gbps(bytes_[device], spread_of(read.seconds).median);
    // Of each round, since its two samples met the same machine.
    const double seconds_per_read = median_ratio(read.seconds, contender.seconds);
    row.fraction_of_read = seconds_per_read * static_cast<double>(bytes) / static_cast<double>(bytes_[device]);
    row.speedup_vs_f16 = speedup_of(index);
    row.noisy = spread.relative() > kNoisy;
  }

  Report report() const {
    Report made{.head = report_head("bench", invocation_), .table = {.columns = bench_columns()}};
    Json devices = Json::array();
    for (const Device& device : devices_) devices.push_back(device_json(device.info()));
    double read_spread = 0;
    for (std::size_t at = 0; at < devices_.size(); ++at) {
      read_spread = std::max(read_spread, spread_of(read_of(at).seconds).relative());
    }
    std::size_t noisy_rows = 0;
    for (std::size_t index = 0; index < cases_.size(); ++index) {
      if (!cases_[index].listed) continue;
      const BenchRow row = row_of(index);
      made.table.rows.push_back(bench_json(row));
      noisy_rows += row.noisy ? 1U : 0U;
    }
    const bool noisy = read_spread > kNoisy || noisy_rows > 0;
    made.head["devices"] = devices;
    made.head["noise"] = {{"read_spread", read_spread}, {"noisy_rows", noisy_rows}, {"noisy", noisy}};
    made.before = fmt::format("{}: {}, {} rounds of all cases in turn\n", devices_.front().info().id,
                              devices_.front().info().name, contenders_.front().seconds.size());
    made.after =
        "\nms: median of one call. spread: between the quarters of its samples. of read: its bytes per second, as a "
        "share of"
        "\nwhat the device reads in the same round. vs f16: how many times as fast.\n";
    if (noisy) {
      made.after += fmt::format(
          "TOO NOISY TO CONCLUDE: reading alone varied by {:.0f} %, and {} of {} rows by more than {:.0f} %.\n"
          "Stop other programs, or take longer: --seconds 120\n",
          100 * read_spread, noisy_rows, made.table.rows.size(), 100 * kNoisy);
    }
    if (options_.output != Output::csv) state_once(made);
    return made;
  }

  // What all rows have in common is said above the table, not in it.
  static void state_once(Report& report) {
    std::string common;
    std::erase_if(report.table.columns, [&](const Column& column) {
      const auto differs = [&](const Json& row) {
        return row.at(column.key) != report.table.rows.front().at(column.key);
      };
      const bool may_go = column.format.empty() && column.key != "k" && column.key != "v" && column.key != "keys";
      if (!may_go || std::ranges::any_of(report.table.rows, differs)) return false;
      const Json& value = report.table.rows.front().at(column.key);
      if (value.is_null()) return true;
      common += fmt::format("{}{} {}", common.empty() ? "" : ", ", column.title,
                            value.is_string() ? one_line(value.get<std::string>()) : value.dump());
      return true;
    });
    report.before += common + "\n\n";
  }

  const Options& options_;
  const Invocation& invocation_;
  std::optional<Model> model_{};
  TraceFile trace_{};
  std::vector<Device> devices_{};
  std::vector<Case> cases_{};
  std::vector<Contender> contenders_{};  // reads, one per device; then cases
  std::vector<std::uint64_t> bytes_{};   // as contenders
};

Report run_calls(Options options, const Invocation& invocation) {
  if (!options.model.empty() || options.rotate_mib) {
    throw Failure(Exit::usage, "rota bench call knows neither --model nor --rotate: it is about one call, and warm",
                  "rota bench call");
  }
  if (options.keys.empty()) options.keys = kCallKeys;
  if (options.codecs.k.empty() && options.codecs.v.empty()) options.codecs = {{"turbo4"}, {"turbo4"}};
  if (options.threads.empty() && options.device == "cpu") options.threads = {1, 2};
  options.rotate_mib = 0;
  std::vector<BenchShape> shapes;
  for (const Case& one : cases_of(options, layers_of(options))) shapes.push_back(one.shape);
  TraceFile trace;
  Report report = bench_calls({.devices = open_devices(options, trace),
                               .shapes = shapes,
                               .seconds = options.seconds.value_or(30),
                               .show_progress = isatty(STDERR_FILENO) == 1},
                              invocation);
  if (!options.trace.empty()) trace.write(options.trace);
  return report;
}

void add_shape(CLI::App& command, Options& options) {
  add_model(command, options.model);
  add_number(command, "--kv-heads", options.kv_heads, "Heads of keys and values (8)");
  add_number(command, "--group", options.group, "Query heads for each of them (4)");
  add_number(command, "--head-dim", options.head_dim, "Numbers in a head of keys (128)");
  add_number(command, "--value-dim", options.value_dim, "Numbers in a head of values, if not as many");
  add_numbers(command, "-c,--ctx-size", options.keys,
              "Keys of each sequence; of other ops, tokens (4096,16384; of call 1,64,512,2048)");
  add_codecs(command, options.codecs);
  add_numbers(command, "--rows", options.rows, "Query tokens of each sequence (1)");
  add_numbers(command, "--sequences,--parallel", options.sequences, "Sequences in one call (1)");
  add_number(command, "--window", options.window, "Newest keys that are seen, if not all");
  add_number(command, "--tail", options.tail, "Newest tokens that are dense where others are sealed (128)");
  add_choice(command, "--pages", options.pages, {{"contiguous", "scattered"}, "How pages lie in memory"});
}

}  // namespace

void add_bench(CLI::App& app, Invocation& invocation) {
  const auto options = std::make_shared<Options>();
  CLI::App& command = add_command(
      app,
      {.name = "bench",
       .description = "Time an op, beside what the device's memory can do",
       .footer =
           "Codecs go in pairs: the first of -ctk with the first of -ctv, and so on. f16 is measured in any case:\n"
           "speeds are relative to it. A call's bytes are the keys and values that it must read; of other ops, what\n"
           "it reads and writes. Of a model, each shape that layers of it have is measured once.\n\n"
           "Examples:\n"
           "  rota bench attend\n"
           "  rota bench attend -ctk f16,turbo4 -ctv f16,turbo4 -c 4096,16384 -t 1,2\n"
           "  rota bench attend --model gemma-3-12b -c 8192\n"
           "  rota bench attend --head-dim 256 --group 8 -ctk turbo4 -ctv turbo3 -o md\n"
           "  rota bench seal -ctk turbo4 -c 4096 --device vulkan:0\n"
           "  rota bench call -t 1,2\n"
           "  rota bench attend -o json > bench.json && rota report bench.json",
       .run = [&invocation, options] {
         const bool calls = options->op == kCall;
         print(calls ? run_calls(*options, invocation) : Bench(*options, invocation).run(), options->output);
       }});
  std::vector<std::string> ops(kBenchOps.begin(), kBenchOps.end());
  ops.emplace_back(kCall);
  require(add_choice(command, "OP", options->op,
                     {ops, "What to time: attend, rope, seal or store; or call, what a call costs besides"}));
  add_shape(command, *options);
  add_numbers(command, "-t,--threads", options->threads, "Threads of the CPU (all)");
  add_device(command, options->device, "Where to run, e.g. vulkan:0 (cpu)");
  add_number(command, "--rotate", options->rotate_mib,
             "MiB that calls go round through, so that caches are cold; 0 keeps them warm (512)");
  add_real(command, "--seconds", options->seconds,
           {.least = 0.1, .most = 86400, .said = {"How long to measure, about (30)", "S"}});
  add_text(command, "--trace", options->trace, {"Write what ran, and when, for Perfetto or chrome://tracing", "FILE"});
  add_output(command, options->output);
}

}  // namespace rota::tool
