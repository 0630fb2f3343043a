#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/calls.h"
#include "bench/cases.h"
#include "bench/fields.h"
#include "bench/measured.h"
#include "bench/plan.h"
#include "bench/sampler.h"
#include "bench/session.h"
#include "bench/trace_file.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/show.h"
#include "cli/table.h"
#include "cli/written.h"
#include "model/model.h"

namespace rota::tool {
namespace {

constexpr std::string_view kCall = "call";
const std::vector<std::uint64_t> kCallKeys{1, 64, 512, 2048};

std::vector<Device> open_devices(const BenchOptions& options, TraceFile& trace) {
  std::vector<Device> devices;
  DeviceOptions device{.device = options.device};
  if (!options.trace.empty()) device.trace = trace.sink();
  if (options.threads.empty()) {
    devices.push_back(Device::open(device).value());
    return devices;
  }
  for (const std::uint64_t threads : options.threads) {
    device.threads = thread_count(threads, "bench");
    devices.push_back(Device::open(device).value());
    if (devices.back().info().kind != DeviceKind::cpu) {
      throw Failure(Exit::usage, fmt::format("-t counts threads of the CPU, and {} is none", options.device),
                    "the same without -t");
    }
  }
  return devices;
}

// A file's name without its folder: in a report, where it lay means nothing.
std::string model_name(const Model& model) { return std::filesystem::path(model.name).filename().string(); }

// What all rows have in common is said above the table, not in it.
void state_once(Report& report) {
  std::string common;
  std::erase_if(report.table.columns, [&](const Column& column) {
    const auto differs = [&](const Json& row) {
      return row.at(column.key) != report.table.rows.front().at(column.key);
    };
    const Json& value = report.table.rows.front().at(column.key);
    const bool may_go =
        (column.format.empty() || value.is_null()) && column.key != "k" && column.key != "v" && column.key != "keys";
    if (!may_go || std::ranges::any_of(report.table.rows, differs)) return false;
    if (value.is_null() || column.key == "scope") return true;
    common += fmt::format("{}{} {}", common.empty() ? "" : ", ", column.title,
                          value.is_string() ? one_line(value.get<std::string>()) : value.dump());
    return true;
  });
  report.before += common + "\n\n";
}

// All cases of an op, beside what their devices read.
class Bench {
 public:
  Bench(const BenchOptions& options, Session& session, TraceFile& trace)
      : options_(options),
        session_(session),
        model_(named_model(options)),
        devices_(open_devices(options, trace)),
        cases_(bench_cases(options, model_, devices_.size())) {}

  Report run(const Invocation& invocation) {
    std::vector<bench::Place> places;
    MemoryLeft left = memory_of(devices_.front(), cases_.front().shape.rotated_bytes);
    for (const Device& device : devices_) {
      places.push_back(place_of(device, left));
      works_.push_back(make_read(places.back()));
    }
    for (const BenchCase& one : cases_) works_.push_back(make_work(places[one.device], options_.op, one.shape));
    session_.prepare(works_);
    for (const bench::Work& work : works_) contenders_.push_back({work.run});
    session_.sample(contenders_);
    return report(invocation);
  }

 private:
  BenchRow row_of(const BenchCase& one) const {
    const BenchShape& shape = one.shape;
    const DeviceInfo& device = devices_[one.device].info();
    BenchRow row{.op = options_.op,
                 .k = std::string(name(shape.k)),
                 .v = std::string(name(shape.v)),
                 .device = device.id,
                 .model = model_ ? model_name(*model_) : "",
                 .keys = shape.keys,
                 .head_dim = shape.head_dim,
                 .value_dim = shape.value_dim,
                 .kv_heads = shape.kv_heads,
                 .group = shape.group,
                 .window = shape.window,
                 .layers = one.layers,
                 .rows = shape.rows,
                 .sequences = shape.sequences};
    if (device.kind == DeviceKind::cpu) row.threads = device.threads;
    return row;
  }

  std::vector<MeasuredRead> reads() const {
    std::vector<MeasuredRead> all;
    for (std::size_t at = 0; at < devices_.size(); ++at) all.push_back({contenders_[at].seconds, works_[at].bytes});
    return all;
  }

  std::vector<Measured> measured() const {
    std::vector<Measured> all;
    for (std::size_t index = 0; index < cases_.size(); ++index) {
      const std::size_t at = devices_.size() + index;
      all.push_back({row_of(cases_[index]), cases_[index].device, contenders_[at].seconds, works_[at].bytes});
      all.back().row.calls_per_sample = contenders_[at].calls;
    }
    if (model_) {
      const std::vector<Measured> sums = sums_of_layers(all);
      all.insert(all.end(), sums.begin(), sums.end());
    }
    return all;
  }

  Report report(const Invocation& invocation) const {
    Report made{.head = report_head("bench", invocation), .table = {.columns = bench_columns()}};
    Json devices = Json::array();
    for (const Device& device : devices_) devices.push_back(device_json(device.info()));
    made.head["devices"] = devices;
    made.before = fmt::format("{}: {}, {} rounds of all cases in turn\n", devices_.front().info().id,
                              devices_.front().info().name, session_.rounds());
    made.after =
        "\nms: median of one call. spread: between the quarters of its samples. of read: its bytes per second, as a "
        "share of"
        "\nwhat the device reads in the same round.";
    made.after += options_.op == "seal" ? "\n" : " vs f16: how many times as fast.\n";
    if (model_) made.after += model_legend();
    session_.describe(made, cases_.size());
    add_rows(made);
    if (options_.output != Output::csv) state_once(made);
    return made;
  }

  std::string model_legend() const {
    return std::string("scope layer: one call, for one of so many layers. scope model: one call for each layer") +
           (options_.op == "attend"
                ? ". tok/s: tokens per second\nof attention alone, without the model's other work.\n"
                : ".\n");
  }

  void add_rows(Report& made) const {
    const std::vector<MeasuredRead> reads = this->reads();
    double read_spread = 0;
    for (const MeasuredRead& read : reads) read_spread = std::max(read_spread, spread_of(read.seconds).relative());
    std::size_t noisy_rows = 0;
    for (const BenchRow& row : rows_of(measured(), reads)) {
      made.table.rows.push_back(bench_json(row));
      noisy_rows += row.noisy ? 1U : 0U;
    }
    const bool noisy = read_spread > kNoisy || noisy_rows > 0;
    made.head["noise"] = {{"read_spread", read_spread}, {"noisy_rows", noisy_rows}, {"noisy", noisy}};
    if (!noisy) return;
    made.after += fmt::format(
        "TOO NOISY TO CONCLUDE: reading alone varied by {:.0f} %, and {} of {} rows by more than {:.0f} %.\n"
        "Stop other programs, or take longer: --seconds 120\n",
        100 * read_spread, noisy_rows, made.table.rows.size(), 100 * kNoisy);
  }

  const BenchOptions& options_;
  Session& session_;
  std::optional<Model> model_;
  std::vector<Device> devices_;
  std::vector<BenchCase> cases_;
  std::vector<bench::Work> works_{};     // reads, one per device; then cases
  std::vector<Contender> contenders_{};  // as works
};

Report run_calls(BenchOptions options, Session& session, TraceFile& trace, const Invocation& invocation) {
  if (!options.model.empty() || options.rotate_mib) {
    throw Failure(Exit::usage, "rota bench call knows neither --model nor --rotate: it is about one call, and warm",
                  "rota bench call");
  }
  if (options.keys.empty()) options.keys = kCallKeys;
  if (options.codecs.k.empty() && options.codecs.v.empty()) options.codecs = {{"turbo4"}, {"turbo4"}};
  if (options.threads.empty() && options.device == "cpu") options.threads = {1, 2};
  options.rotate_mib = 0;
  return bench_calls({.devices = open_devices(options, trace), .shapes = call_shapes(options)}, session, invocation);
}

void run_bench(const BenchOptions& options, Invocation& invocation) {
  Session session(options.seconds_in_all());
  TraceFile trace;
  if (!options.trace.empty()) check_writable(options.trace);
  const Report report = options.op == kCall ? run_calls(options, session, trace, invocation)
                                            : Bench(options, session, trace).run(invocation);
  // What was measured is shown whether or not there is room for the trace.
  print(report, options.output);
  flush_out();
  if (!options.trace.empty()) trace.write(options.trace);
  invocation.exit = session.exit();
}

void add_shape(CLI::App& command, BenchOptions& options) {
  add_model(command, options.model);
  add_number(command, "--kv-heads", options.kv_heads, "Heads of keys and values (8)");
  add_number(command, "--group", options.group, "Query heads for each of them (4)");
  add_number(command, "--head-dim", options.head_dim, "Numbers in a head of keys (128)");
  add_number(command, "--value-dim", options.value_dim, "Numbers in a head of values, if not as many");
  add_tokens(command, "-c,--ctx-size", options.keys,
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
  const auto options = std::make_shared<BenchOptions>();
  CLI::App& command = add_command(
      app,
      {.name = "bench",
       .description = "Time an op, beside what the device's memory can do",
       .footer =
           "Codecs go in pairs: the first of -ctk with the first of -ctv, and so on. f16 is measured in any case:\n"
           "speeds are relative to it. A call's bytes are the keys and values that it must read; of other ops, what\n"
           "it reads and writes. Of a model, each shape that layers of it have is measured once, and all layers are\n"
           "summed up. Ctrl-C ends it early with the table of what was measured, and exit code 130.\n\n"
           "Examples:\n"
           "  rota bench attend\n"
           "  rota bench attend -ctk f16,turbo4 -ctv f16,turbo4 -c 4096,16384 -t 1,2\n"
           "  rota bench attend --model gemma-3-12b -c 8192\n"
           "  rota bench attend --head-dim 256 --group 8 -ctk turbo4 -ctv turbo3 -o md\n"
           "  rota bench seal -ctk turbo4 -c 4096 --device vulkan:0\n"
           "  rota bench call -t 1,2\n"
           "  rota bench attend -o json > bench.json && rota report bench.json",
       .run = [&invocation, options] { run_bench(*options, invocation); }});
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
           {.least = 0.1, .most = 86400, .said = {"How long it takes in all, about (30)", "S"}});
  add_text(command, "--trace", options->trace, {"Write what ran, and when, for Perfetto or chrome://tracing", "FILE"});
  add_output(command, options->output);
}

}  // namespace rota::tool
