#include "gpu_cost/sections.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "gpu_cost/bounds.h"
#include "gpu_cost/estimate.h"
#include "gpu_cost/layer.h"
#include "ops/attend/attend.params.h"

namespace rota::test {
namespace {

constexpr double kLanes = ops::kAttendGroupSize;
constexpr double kPerKeys = 256.0 / ops::kKeyBlock;  // figures are of 256 keys

LayerCase decode(std::string label, KvCodec codec) { return {.label = std::move(label), .codec = codec}; }

LayerCase prefill() {
  LayerCase made = decode("512 query tokens, 16k keys", turbo(4));
  made.query_tokens = 512;
  made.tail = 640;
  return made;
}

Row split_row(const UsedKernel& used, const SplitModel& model) {
  const LatencyOf buffers = unit_latency(Counted::buffers);
  const Walked block = model.of_key_block(buffers);
  const double everything = model.of_key_block(unit_latency(Counted::everything)).waited;
  return {{std::string(used.kernel->name), used.call},
          {kPerKeys * block.waited, kPerKeys * everything, model.of_split(buffers).waited,
           static_cast<double>(block.loads_in_flight), block.vector_alu * kLanes / model.work().stored_bytes(),
           kPerKeys * block.shared}};
}

Row merge_row(const UsedKernel& used, const MachineCode& code, const MergeWork& work) {
  const Walked walked = merge_walk(code, work, unit_latency(Counted::buffers));
  const double everything = merge_walk(code, work, unit_latency(Counted::everything)).waited;
  const auto bytes = static_cast<double>(work.splits * work.dim * sizeof(float));
  return {{std::string(used.kernel->name), used.call},
          {walked.waited, everything, 0, static_cast<double>(walked.loads_in_flight),
           walked.vector_alu * kLanes / bytes, walked.shared}};
}

MergeWork merge_work(Device& device) {
  for (const LayerLaunch& launch : record_layer(device, decode("", turbo(4)))) {
    if (launch.most_splits != 0) return {launch.most_splits, launch.value_dim};
  }
  throw std::runtime_error("attention merges nothing");
}

std::string_view name_of(LayerOp op) {
  switch (op) {
    case LayerOp::rope: return "rope";
    case LayerOp::store: return "store";
    case LayerOp::attend: break;
  }
  return "attend";
}

}  // namespace

Section waits_section(Card& card, Models& models, const std::vector<UsedKernel>& kernels,
                      std::vector<std::string>& problems) {
  Section section{.name = card.chip() + ": waits",
                  .table = {.labels = {"kernel", "call"},
                            .columns = {{std::string(kWaits)},
                                        {"with constants"},
                                        {"of a split"},
                                        {"loads in flight"},
                                        {"VALU per byte", 1},
                                        {"LDS"}}}};
  const MergeWork work = merge_work(card.device());
  for (const UsedKernel& used : kernels) {
    try {
      if (used.kernel->name == "attend_split") {
        section.table.rows.push_back(split_row(used, models.split_of(*used.kernel, used.constants)));
      } else if (used.kernel->name == "attend_merge") {
        section.table.rows.push_back(merge_row(used, models.code_of(*used.kernel, used.constants), work));
      }
    } catch (const std::exception& error) {
      problems.push_back(fmt::format("{} ({}): {}", used.kernel->name, used.call, error.what()));
    }
  }
  return section;
}

Section launches_section(Card& card) {
  Section section{.name = "launches",
                  .table = {.labels = {"of a layer"}, .columns = {{"launches"}, {"barriers before them"}}}};
  std::map<LayerOp, std::pair<double, double>> counts;
  std::pair<double, double> all;
  for (const LayerLaunch& launch : record_layer(card.device(), decode("", turbo(4)))) {
    for (auto* const count : {&counts[launch.op], &all}) {
      ++count->first;
      count->second += launch.barrier_before ? 1 : 0;
    }
  }
  for (const auto& [op, count] : counts) {
    section.table.rows.push_back({{std::string(name_of(op))}, {count.first, count.second}});
  }
  section.table.rows.push_back({{"all"}, {all.first, all.second}});
  return section;
}

Section workgroups_section(Card& card) {
  Section section{.name = "workgroups",
                  .table = {.labels = {"call", "kernel"}, .columns = {{"launches"}, {"workgroups"}}}};
  std::vector<LayerCase> cases(5, decode("", turbo(4)));
  cases[0].label = "4k keys";
  cases[0].sealed_pages = 31;
  cases[1].label = "16k keys";
  cases[2].label = "128k keys";
  cases[2].sealed_pages = 1023;
  cases[3].label = "16 sequences of 16k keys";
  cases[3].sequences = 16;
  cases[4] = prefill();
  for (const LayerCase& one : cases) {
    std::vector<Row> rows;
    for (const LayerLaunch& launch : record_layer(card.device(), one)) {
      if (launch.op != LayerOp::attend) continue;
      const std::vector<std::string> labels{one.label, launch.name};
      auto row = std::ranges::find(rows, labels, &Row::labels);
      if (row == rows.end()) row = rows.insert(rows.end(), {labels, {0, 0}});
      row->figures[0] += 1;
      row->figures[1] += static_cast<double>(launch.workgroups);
    }
    section.table.rows.insert(section.table.rows.end(), rows.begin(), rows.end());
  }
  return section;
}

Section gpus_section() {
  Section section{.name = "gpus",
                  .table = {.labels = {"GPU"},
                            .columns = {{"cores"},
                                        {"SIMDs"},
                                        {"lanes"},
                                        {"GHz", 1},
                                        {"GB/s"},
                                        {"memory ns"},
                                        {"L2 ns"},
                                        {"near ns"},
                                        {"LDS bytes per clock"},
                                        {"KiB of registers"},
                                        {"KiB of LDS"},
                                        {"waves"},
                                        {"launch us", 1},
                                        {"barrier us", 1}}}};
  for (const Gpu& gpu : kGpus) {
    section.table.rows.push_back({{std::string(gpu.name)},
                                  {gpu.cores, gpu.simds, gpu.lanes, gpu.clock_ghz, gpu.memory_gb_per_s, gpu.memory_ns,
                                   gpu.l2_ns, gpu.near_ns, gpu.shared_bytes_per_clock, gpu.register_bytes / 1024,
                                   gpu.shared_bytes / 1024, gpu.most_waves, gpu.launch_us, gpu.barrier_us}});
  }
  return section;
}

Section estimates_section(Card& card, Models& models) {
  Section section{.name = "estimates", .table = {.labels = {"case", "part"}, .columns = {}}};
  for (const Gpu& gpu : kGpus) section.table.columns.push_back({std::string(gpu.name), 1});
  std::vector<LayerCase> cases{decode("decode", turbo(4)),        decode("decode, 3 bits", turbo(3)),
                               decode("decode, f16", DType::f16), decode("decode, G=8", turbo(4)),
                               decode("decode, MLA", turbo(4)),   prefill()};
  cases[3].group = 8;
  cases[4].key_dim = 576;
  cases[4].value_dim = 512;
  cases[4].kv_heads = 1;
  cases[4].group = 128;
  for (const LayerCase& one : cases) {
    const std::vector<LayerLaunch> layer = record_layer(card.device(), one);
    std::vector<LayerTime> times;
    for (const Gpu& gpu : kGpus) times.push_back(estimate(models, gpu, layer));
    const auto add = [&](const std::string& part, const auto& us_of) {
      Row row{{one.label, part}, {}};
      for (const LayerTime& time : times) row.figures.push_back(us_of(time));
      section.table.rows.push_back(std::move(row));
    };
    for (std::size_t i = 0; i < layer.size() && one.label == "decode"; ++i) {
      if (layer[i].op != LayerOp::attend) continue;
      add(layer[i].name, [&](const LayerTime& time) { return time.launches[i].us(); });
    }
    add("attend", [](const LayerTime& time) { return time.attend_us; });
    add("all", [](const LayerTime& time) { return time.us; });
  }
  return section;
}

}  // namespace rota::test
