#include "gpu_cost/estimate.h"

#include <algorithm>
#include <cmath>

#include "gpu_cost/attend_model.h"
#include "ops/attend/attend.params.h"

namespace rota::test {
namespace {

constexpr double kWaveLanes = 64;

// What one workgroup, which is one wave, does.
struct Wave {
  double waited_ns = 0, vector_alu = 0, shared_bytes = 0;
};

// All workgroups of a launch.
struct Work {
  Wave longest, mean;
  double workgroups = 0, memory_bytes = 0;
};

// Keys and values come from memory, and what other kernels have just written from the L2 cache. Descriptors, params,
// and the plan in a loop of loads, which each trip reads again or next to the last one, are in the core's own cache.
LatencyOf latency_on(const Gpu& gpu, const LayerLaunch& launch) {
  const bool is_split = !launch.split_keys.empty(), is_merge = launch.most_splits != 0;
  return [gpu, is_split, is_merge](const Instruction& load) {
    if (load.kind == Kind::constant_load) return gpu.near_ns;
    if (is_split && load.binding == ops::kAttendSplitBindingPlan && load.depth > 2) return gpu.near_ns;
    if (is_merge && load.binding == ops::kAttendMergeBindingPlan && load.depth > 1) return gpu.near_ns;
    const bool is_cache =
        is_split && (load.binding == ops::kAttendSplitBindingKeys || load.binding == ops::kAttendSplitBindingValues);
    return is_cache ? gpu.memory_ns : gpu.l2_ns;
  };
}

Wave wave_of(const Walked& walked) {
  return {.waited_ns = walked.waited, .vector_alu = walked.vector_alu, .shared_bytes = walked.shared_bytes};
}

Work split_work(const LayerLaunch& launch, const Gpu& gpu, const SplitModel& model) {
  SplitWalks walks(model, latency_on(gpu, launch));
  Work work{.longest = {}, .mean = {}, .workgroups = static_cast<double>(launch.workgroups), .memory_bytes = 0};
  const auto splits = static_cast<double>(launch.split_keys.size());
  for (const std::uint64_t keys : launch.split_keys) {
    const Wave wave = wave_of(walks.of_keys(keys));
    if (wave.waited_ns > work.longest.waited_ns) work.longest = wave;
    work.mean.waited_ns += wave.waited_ns / splits;
    work.mean.vector_alu += wave.vector_alu / splits;
    work.mean.shared_bytes += wave.shared_bytes / splits;
  }
  const double kv_heads = work.workgroups / splits;
  const double stored = model.work().stored_bytes() * static_cast<double>(launch.distinct_keys) / ops::kKeyBlock;
  const auto partial =
      static_cast<double>(sizeof(float) * model.work().vectors * ops::partial_floats(model.work().value_dim));
  work.memory_bytes = stored * kv_heads + partial * work.workgroups;
  return work;
}

Work work_of(Models& models, const Gpu& gpu, const LayerLaunch& launch) {
  if (!launch.split_keys.empty()) return split_work(launch, gpu, models.split_of(*launch.kernel, launch.constants));
  const MachineCode& code = models.code_of(*launch.kernel, launch.constants);
  const LatencyOf latency = latency_on(gpu, launch);
  Wave wave;
  if (launch.most_splits != 0) {
    wave = wave_of(merge_walk(code, {launch.most_splits, launch.value_dim}, latency));
  } else {
    wave =
        wave_of(walk(code, std::vector<Trips>(code.loops.size()), latency));  // rope, store, attend_query: loops once
  }
  return {.longest = wave,
          .mean = wave,
          .workgroups = static_cast<double>(launch.workgroups),
          .memory_bytes = static_cast<double>(launch.partial_bytes)};
}

double resident_workgroups(const Gpu& gpu, const Compiled& compiled) {
  const double registers = static_cast<double>(compiled.vector_registers()) * kWaveLanes * sizeof(float);
  const double waves = std::clamp(std::floor(gpu.register_bytes / registers), 1.0, gpu.most_waves);
  const auto shared = static_cast<double>(compiled.shared_bytes());
  const double by_shared = shared == 0 ? waves * gpu.simds : std::max(1.0, std::floor(gpu.shared_bytes / shared));
  return gpu.cores * std::min(waves * gpu.simds, by_shared);
}

LaunchTime time_of(Models& models, const Gpu& gpu, const LayerLaunch& launch) {
  const Work work = work_of(models, gpu, launch);
  const double clock = gpu.clock_ghz;  // clocks of a nanosecond
  const auto issue_ns = [&](const Wave& wave) { return wave.vector_alu * kWaveLanes / gpu.lanes / clock; };
  const auto shared_ns = [&](const Wave& wave) {
    return wave.shared_bytes * kWaveLanes / gpu.shared_bytes_per_clock / clock;
  };
  const double resident = resident_workgroups(gpu, models.compiled(*launch.kernel, launch.constants));
  const double together = std::min(work.workgroups, resident) / gpu.cores;  // of a core
  const auto busy_ns = [&](const Wave& wave, double waves) {
    return std::max(waves / gpu.simds * issue_ns(wave), waves * shared_ns(wave));
  };
  // The waves of the first round wait together, and the fullest SIMD ends last; later ones fill each other's waits.
  const double fullest = std::ceil(together / gpu.simds) * gpu.simds;
  const double first = work.longest.waited_ns + busy_ns(work.longest, fullest);
  const auto later = [&](double waves) {
    return std::max(work.mean.waited_ns + issue_ns(work.mean), busy_ns(work.mean, waves));
  };
  const double rounds = std::floor(work.workgroups / resident), rest = work.workgroups - rounds * resident;
  double chain_ns = first;
  if (rounds > 1) chain_ns += (rounds - 1) * later(together);
  if (rounds > 0 && rest > 0) chain_ns += later(rest / gpu.cores);
  const double all_lanes = gpu.cores * gpu.simds * gpu.lanes;
  return {.chain_us = chain_ns / 1e3,
          .memory_us = work.memory_bytes / gpu.memory_gb_per_s / 1e3,
          .vector_us = work.workgroups * work.mean.vector_alu * kWaveLanes / all_lanes / clock / 1e3,
          .shared_us = work.workgroups * shared_ns(work.mean) / gpu.cores / 1e3};
}

}  // namespace

LayerTime estimate(Models& models, const Gpu& gpu, const std::vector<LayerLaunch>& layer) {
  LayerTime time;
  LaunchTime together;  // of launches without a barrier between them
  const auto finish = [&](bool of_attend) {
    time.us += together.us();
    if (of_attend) time.attend_us += together.us();
    together = {};
  };
  bool of_attend = false;
  for (const LayerLaunch& launch : layer) {
    const LaunchTime one = time_of(models, gpu, launch);
    if (launch.barrier_before) finish(of_attend);
    of_attend = launch.op == LayerOp::attend;
    const double fixed = gpu.launch_us + (launch.barrier_before ? gpu.barrier_us : 0);
    time.us += fixed;
    if (of_attend) time.attend_us += fixed;
    together.chain_us = std::max(together.chain_us, one.chain_us);
    together.memory_us += one.memory_us;
    together.vector_us += one.vector_us;
    together.shared_us += one.shared_us;
    time.launches.push_back(one);
  }
  finish(of_attend);
  return time;
}

}  // namespace rota::test
