#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "gpu_cost/walk.h"
#include "runtime/command.h"

// How often attention's kernels go through their loops. Machine code does not say it; what a workgroup must load and
// multiply does. Both functions throw where the two do not agree: a figure is never wrong in silence.

namespace rota::test {

// Of one workgroup of attend_split, for a key block, unless it says something else.
struct SplitWork {
  std::uint32_t key_format, value_format, key_dim, value_dim, vectors;
  bool has_mean;

  explicit SplitWork(const runtime::Constants& constants);

  bool keys_sealed() const;
  double lane_key_bytes() const;  // codes or rows that a lane loads
  double lane_value_bytes() const;
  double stored_bytes() const;  // of keys and values, scales and means with them
  double key_products() const;  // of a lane
  double value_products() const;
};

// What a loop's own blocks, without those of loops inside of it, do in one trip.
struct LoopBody {
  double always = 0, sometimes = 0;  // bytes of vector loads of a binding; sometimes: behind a condition
  std::uint32_t narrowest = 0;       // of these loads, bytes
  double products = 0;
  std::size_t loads = 0, scalar_loads = 0, shared_loads = 0;
  bool has_barrier = false;
};

class SplitModel {
 public:
  SplitModel(MachineCode code, const SplitWork& work);

  const SplitWork& work() const noexcept { return work_; }
  Walked of_key_block(const LatencyOf& latency_of) const;                        // one of many
  Walked of_short_block(const LatencyOf& latency_of, std::uint64_t keys) const;  // of which only these are there
  Walked of_split(const LatencyOf& latency_of) const;                            // what each split costs besides

 private:
  Walked blocks(const LatencyOf& latency_of, std::uint64_t count, double share_of_values = 1) const;
  void find_key_blocks();
  void find_trips();
  void find_means_ahead();
  bool is_rare(std::size_t first, std::size_t other) const;
  std::vector<std::size_t> loops_of_side(std::uint32_t binding);
  void find_side(std::uint32_t binding, double bytes, double products);
  double find_loops_inside(const std::vector<std::size_t>& outer, double products);
  double share(const std::vector<std::size_t>& loops, double products);
  double saved_by_loads_ahead(std::uint32_t binding, std::size_t loop, const LoopBody& body) const;
  void set_turns_around(std::size_t loop, std::uint32_t binding);
  void find_loops_without_loads();
  void check() const;

  MachineCode code_;
  SplitWork work_;
  std::size_t key_blocks_ = 0;                     // the loop over them
  std::uint64_t key_turns_ = 1, value_turns_ = 1;  // of a loop around that of a side
  std::vector<Trips> trips_;
  std::vector<bool> known_;                       // loops whose trips follow from what they load or multiply
  std::vector<bool> of_values_;                   // loops that skip keys that are not there
  double key_products_ = 0, value_products_ = 0;  // that loops account for
};

// Whole splits, with latencies that stay the same.
class SplitWalks {
 public:
  SplitWalks(const SplitModel& model, LatencyOf latency_of);

  Walked of_keys(std::uint64_t keys);

 private:
  const SplitModel& model_;
  LatencyOf latency_of_;
  Walked split_, block_;
  std::map<std::uint64_t, Walked> short_blocks_;
};

// Of one workgroup of attend_merge: one query vector.
struct MergeWork {
  std::uint64_t splits;
  std::uint32_t dim;
};

Walked merge_walk(const MachineCode& code, const MergeWork& work, const LatencyOf& latency_of);

}  // namespace rota::test
