#include "gpu_cost/attend_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "ops/attend/attend.params.h"
#include "rota/dtype.h"

namespace rota::test {
namespace {

constexpr double kLanes = ops::kAttendGroupSize;
constexpr std::uint32_t kPage = 128;  // slots
constexpr std::uint32_t kUnitBytes = 16;
constexpr std::uint32_t kQuadTokens = 4;  // keys of a lane
constexpr std::uint32_t kTileLanes = ops::kTileTokens / kQuadTokens;

using Body = LoopBody;

Body body_of(const MachineCode& code, std::size_t loop, std::uint32_t binding) {
  Body body;
  for (std::size_t block = code.loops[loop].first; block <= code.loops[loop].last; ++block) {
    if (code.loop_of(block) != loop || code.blocks[block].is_passed_by) continue;
    const bool conditional = code.is_conditional(block);
    for (const Instruction& one : code.blocks[block].instructions) {
      body.products += one.products;
      body.has_barrier = body.has_barrier || one.kind == Kind::barrier;
      body.shared_loads += one.kind == Kind::shared_load ? 1 : 0;
      if (one.binding != binding) continue;
      body.scalar_loads += one.kind == Kind::scalar_load ? 1 : 0;
      if (one.kind != Kind::vector_load) continue;
      ++body.loads;
      (conditional ? body.sometimes : body.always) += one.bytes;
      body.narrowest = body.narrowest == 0 ? one.bytes : std::min(body.narrowest, one.bytes);
    }
  }
  return body;
}

bool is_inside(const MachineCode& code, std::size_t loop, std::size_t outer) {
  for (auto at = code.loops[loop].parent; at; at = code.loops[*at].parent) {
    if (*at == outer) return true;
  }
  return false;
}

// With one trip of each loop inside of it.
double products_in(const MachineCode& code, const Loop& loop) {
  double products = 0;
  for (std::size_t block = loop.first; block <= loop.last; ++block) {
    if (code.blocks[block].is_passed_by) continue;
    for (const Instruction& one : code.blocks[block].instructions) products += one.products;
  }
  return products;
}

// Also of the loops inside of it.
bool loads(const MachineCode& code, const Loop& loop, std::uint32_t binding) {
  for (std::size_t block = loop.first; block <= loop.last; ++block) {
    for (const Instruction& one : code.blocks[block].instructions) {
      if (one.kind == Kind::vector_load && one.binding == binding) return true;
    }
  }
  return false;
}

void refuse_unknown_loads(const MachineCode& code) {
  for (const Block& block : code.blocks) {
    for (const Instruction& one : block.instructions) {
      const bool is_spilled = one.text.starts_with("scratch_");  // refused elsewhere
      if (one.kind != Kind::vector_load || one.binding || is_spilled) continue;
      throw std::runtime_error(fmt::format("{}: \"{}\" loads from no binding that is known", block.name, one.text));
    }
  }
}

std::string name_of(const MachineCode& code, std::size_t loop) {
  return fmt::format("the loop {} to {}", code.blocks[code.loops[loop].first].name,
                     code.blocks[code.loops[loop].last].name);
}

std::uint64_t rounded_up(double trips) { return static_cast<std::uint64_t>(std::ceil(trips - 1e-9)); }

double bits_of(std::uint32_t format) {
  const std::uint32_t sealed = ops::sealed_bits(format);
  return sealed != 0 ? sealed : 8.0 * info(static_cast<DType>(format)).bytes;
}

double side_bytes(std::uint32_t format, std::uint32_t dim, std::uint32_t side, bool has_mean) {
  if (ops::sealed_bits(format) == 0) return ops::kKeyBlock * dim * bits_of(format) / 8;
  const ops::PageLayout page{side, ops::sealed_bits(format), dim, kPage, has_mean ? 1U : 0U};
  return static_cast<double>(ops::layout_bytes(page)) * ops::kKeyBlock / kPage;
}

}  // namespace

SplitWork::SplitWork(const runtime::Constants& constants)
    : key_format(constants.values[ops::kAttendSplitConstantKeyFormat]),
      value_format(constants.values[ops::kAttendSplitConstantValueFormat]),
      key_dim(constants.values[ops::kAttendSplitConstantKeyDim]),
      value_dim(constants.values[ops::kAttendSplitConstantValueDim]),
      vectors(constants.values[ops::kAttendSplitConstantVectors]),
      has_mean(constants.values[ops::kAttendSplitConstantHasMean] != 0) {}

bool SplitWork::keys_sealed() const { return ops::sealed_bits(key_format) != 0; }
double SplitWork::lane_key_bytes() const { return ops::kKeyBlock * key_dim * bits_of(key_format) / 8 / kLanes; }
double SplitWork::lane_value_bytes() const { return ops::kKeyBlock * value_dim * bits_of(value_format) / 8 / kLanes; }
double SplitWork::stored_bytes() const {
  return side_bytes(key_format, key_dim, ops::kKeys, has_mean) +
         side_bytes(value_format, value_dim, ops::kValues, false);
}
double SplitWork::key_products() const { return ops::kKeyBlock * key_dim * vectors / kLanes; }
double SplitWork::value_products() const { return ops::kKeyBlock * value_dim * vectors / kLanes; }

SplitModel::SplitModel(MachineCode code, const SplitWork& work)
    : code_(std::move(code)),
      work_(work),
      trips_(code_.loops.size()),
      known_(code_.loops.size()),
      of_values_(code_.loops.size()) {
  refuse_unknown_loads(code_);
  find_key_blocks();
  find_trips();
  check();
}

// The innermost loop that loads both keys and values.
void SplitModel::find_key_blocks() {
  bool found = false;
  for (std::size_t i = 0; i < code_.loops.size(); ++i) {
    const Loop& loop = code_.loops[i];
    if (!loads(code_, loop, ops::kAttendSplitBindingKeys) || !loads(code_, loop, ops::kAttendSplitBindingValues)) {
      continue;
    }
    if (found && !is_inside(code_, i, key_blocks_)) throw std::runtime_error("two loops load both keys and values");
    key_blocks_ = i;
    found = true;
  }
  if (!found) throw std::runtime_error("no loop loads both keys and values");
}

// Before the key blocks, lanes may share the means of a split's pages: it has few.
void SplitModel::find_means_ahead() {
  constexpr double kPages = 8;
  for (std::size_t i = 0; i < code_.loops.size(); ++i) {
    if (i == key_blocks_ || is_inside(code_, i, key_blocks_) || is_inside(code_, key_blocks_, i)) continue;
    const Body keys = body_of(code_, i, ops::kAttendSplitBindingKeys);
    const Body values = body_of(code_, i, ops::kAttendSplitBindingValues);
    if (keys.loads + values.loads == 0) continue;
    if (!work_.has_mean || values.loads != 0) throw std::runtime_error(name_of(code_, i) + " is not in the model");
    trips_[i].count = rounded_up(kPages * 2 * work_.key_dim / kLanes / (keys.always + keys.sometimes));
  }
}

void SplitModel::find_trips() {
  find_means_ahead();
  find_side(ops::kAttendSplitBindingKeys, work_.lane_key_bytes(), work_.key_products());
  find_side(ops::kAttendSplitBindingValues, work_.lane_value_bytes(), work_.value_products());
  find_loops_without_loads();
}

// Lanes have columns of four values; where there are more columns, a loop may take them in turns. Of dense keys four
// lanes may share the lines of each other's rows, in as many turns.
void SplitModel::set_turns_around(std::size_t loop, std::uint32_t binding) {
  const std::optional<std::size_t> outer = code_.loops[loop].parent;
  if (outer == key_blocks_) return;
  const bool of_values = binding == ops::kAttendSplitBindingValues;
  const std::uint64_t turns = of_values             ? rounded_up(work_.value_dim / (4 * kLanes))
                              : work_.keys_sealed() ? 1
                                                    : kQuadTokens;
  if (!outer || code_.loops[*outer].parent != key_blocks_ || turns < 2) {
    throw std::runtime_error(name_of(code_, loop) + " is inside of a loop that is not known");
  }
  (of_values ? value_turns_ : key_turns_) = turns;
  trips_[*outer].count = turns;
  known_[*outer] = true;
}

// Loops that load one side.
std::vector<std::size_t> SplitModel::loops_of_side(std::uint32_t binding) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < code_.loops.size(); ++i) {
    if (!is_inside(code_, i, key_blocks_)) continue;
    const Body body = body_of(code_, i, binding);
    if (body.loads == 0) continue;
    if (known_[i]) throw std::runtime_error(name_of(code_, i) + " loads both keys and values");
    known_[i] = true;
    found.push_back(i);
  }
  // Loads ahead of a loop inside.
  std::erase_if(found, [this, all = found](std::size_t i) {
    return std::ranges::any_of(all, [&](std::size_t other) { return is_inside(code_, other, i); });
  });
  return found;
}

// A condition behind the first of some loops, and in front of the other one, passes that one by: it does what the first
// has left out, which is rare.
bool SplitModel::is_rare(std::size_t first, std::size_t other) const {
  for (std::size_t block = code_.loops[first].last + 1; block < code_.loops[other].first; ++block) {
    for (const std::size_t to : code_.blocks[block].successors) {
      if (to > code_.loops[other].last) return true;
    }
  }
  return false;
}

// The loops of one side share in its bytes. Rare ones do not: all bytes and products belong to the others.
void SplitModel::find_side(std::uint32_t binding, double bytes, double products) {
  std::vector<std::size_t> loops = loops_of_side(binding);
  if (loops.empty()) return;
  const std::size_t first = loops.front();
  std::erase_if(loops, [&](std::size_t i) {
    if (!is_rare(first, i)) return false;
    trips_[i].count = 0;
    return true;
  });
  Body all;
  all.narrowest = kUnitBytes;
  for (const std::size_t i : loops) {
    const Body body = body_of(code_, i, binding);
    set_turns_around(i, binding);
    all.always += body.always;
    all.sometimes += body.sometimes;
    all.products += body.products;
    all.narrowest = std::min(all.narrowest, body.narrowest);
  }
  const bool of_values = binding == ops::kAttendSplitBindingValues;
  const auto turns = static_cast<double>(of_values ? value_turns_ : key_turns_);
  Trips trips;
  if (all.always > 0 && all.sometimes > 0) {
    // A plane that is not loaded in each trip: products tell how many trips there are.
    trips.count = rounded_up(products / turns / std::max(all.products, 1.0));
    const auto count = static_cast<double>(trips.count);
    trips.thinned_binding = binding;
    trips.thinned_share = (bytes / turns - all.always * count) / (all.sometimes * count);
    if (trips.thinned_share <= 0 || trips.thinned_share > 1) {
      throw std::runtime_error(name_of(code_, loops[0]) + " loads more or less than is stored");
    }
  } else {
    trips.count =
        rounded_up((bytes / turns - saved_by_loads_ahead(binding, loops.back(), all)) / (all.always + all.sometimes));
  }
  for (const std::size_t i : loops) {
    trips_[i] = trips;
    of_values_[i] = of_values;
  }
  const double wanted = products / turns / static_cast<double>(trips.count);
  const double accounted = all.products + find_loops_inside(loops, wanted - all.products);
  (of_values ? value_products_ : key_products_) = accounted * static_cast<double>(trips.count) * turns;
}

// Loops that multiply what a trip of a loop around them has loaded. Returns the products of all their trips.
double SplitModel::find_loops_inside(const std::vector<std::size_t>& outer, double products) {
  std::vector<std::size_t> inside;
  for (std::size_t i = 0; i < code_.loops.size(); ++i) {
    const std::size_t parent = code_.loops[i].parent.value_or(i);
    const bool is_one = !known_[i] && parent != i && std::ranges::count(outer, parent) != 0;
    if (is_one && body_of(code_, i, 0).products > 0) inside.push_back(i);
  }
  return share(inside, products);
}

// Gives loops as many trips, the same for all, as it takes to make these products.
double SplitModel::share(const std::vector<std::size_t>& loops, double products) {
  double made = 0;
  for (const std::size_t i : loops) made += body_of(code_, i, 0).products;
  if (made == 0) return 0;
  const std::uint64_t count = std::max<std::uint64_t>(1, rounded_up(products / made));
  for (const std::size_t i : loops) {
    known_[i] = true;
    trips_[i].count = count;
  }
  return made * static_cast<double>(count);
}

// Bytes that are loaded before the loop, for its first trip, and which no trip loads: if the last trip's work stands
// behind the loop. Else the last trip loads something once more.
double SplitModel::saved_by_loads_ahead(std::uint32_t binding, std::size_t loop, const Body& body) const {
  double ahead = 0, products_behind = 0;
  const Loop& around = code_.loops[key_blocks_];
  bool is_behind = false, has_ended = false;
  for (std::size_t block = around.first; block <= around.last; ++block) {
    if (code_.loop_of(block) != key_blocks_) {
      has_ended = has_ended || is_behind;
      is_behind = is_behind || code_.loops[loop].last == block;
      continue;
    }
    for (const Instruction& one : code_.blocks[block].instructions) {
      has_ended = has_ended || (is_behind && one.kind == Kind::barrier);
      if (is_behind && !has_ended) products_behind += one.products;
      const bool is_unit = one.kind == Kind::vector_load && one.binding == binding && one.bytes >= body.narrowest;
      if (is_unit) ahead += one.bytes;
    }
  }
  const bool last_is_behind =
      ahead >= body.always + body.sometimes && products_behind >= 0.9 * products_in(code_, code_.loops[loop]);
  return last_is_behind ? ahead : 0;
}

// What was loaded by other code is multiplied in loops of its own, keys before values. A loop inside of a loop that
// only adds up has the numbers of a tile's lanes. All others run once: their counter begins at the lane's number.
void SplitModel::find_loops_without_loads() {
  std::vector<std::size_t> multiplying;
  for (std::size_t i = 0; i < code_.loops.size(); ++i) {
    if (!is_inside(code_, i, key_blocks_) || known_[i]) continue;
    const Body body = body_of(code_, i, ops::kAttendSplitBindingKeys);
    if (body.products >= kQuadTokens * work_.vectors) {
      multiplying.push_back(i);
    } else if (code_.loops[i].parent != key_blocks_ && body.shared_loads > 0) {
      trips_[i].count = rounded_up(static_cast<double>(kTileLanes) / static_cast<double>(body.shared_loads));
    }
  }
  if (multiplying.empty()) return;
  const bool no_keys = key_products_ == 0, no_values = value_products_ == 0;
  if (!no_keys && !no_values) {
    throw std::runtime_error(name_of(code_, multiplying[0]) + " multiplies, and it is not known what");
  }
  if (no_keys && no_values && multiplying.size() % 2 != 0) {
    throw std::runtime_error(name_of(code_, multiplying[0]) + " and others multiply either keys or values");
  }
  const auto half =
      multiplying.begin() + static_cast<std::ptrdiff_t>(multiplying.size() / (no_keys && no_values ? 2 : 1));
  if (!no_keys) {
    value_products_ = share(multiplying, work_.value_products());
    return;
  }
  key_products_ = share({multiplying.begin(), half}, work_.key_products());
  if (no_values) value_products_ = share({half, multiplying.end()}, work_.value_products());
}

Walked SplitModel::blocks(const LatencyOf& latency_of, std::uint64_t count, double share_of_values) const {
  std::vector<Trips> trips = trips_;
  trips[key_blocks_].count = count;
  for (std::size_t i = 0; i < trips.size(); ++i) {
    if (of_values_[i]) trips[i].count = rounded_up(static_cast<double>(trips[i].count) * share_of_values);
  }
  return walk(code_, trips, latency_of);
}

Walked SplitModel::of_key_block(const LatencyOf& latency_of) const {
  return blocks(latency_of, 3) - blocks(latency_of, 2);
}

Walked SplitModel::of_split(const LatencyOf& latency_of) const {
  return blocks(latency_of, 2) - of_key_block(latency_of).scaled(2);
}

Walked SplitModel::of_short_block(const LatencyOf& latency_of, std::uint64_t keys) const {
  const double share = static_cast<double>(keys) / ops::kKeyBlock;
  return blocks(latency_of, 3, share) - blocks(latency_of, 2, share);
}

// What was loaded and multiplied must be what there is.
void SplitModel::check() const {
  const Walked block = of_key_block(unit_latency(Counted::buffers));
  const auto within = [](std::string_view what, double found, double least, double most) {
    if (found >= 0.95 * least && found <= most) return;
    throw std::runtime_error(
        fmt::format("a lane has {} {} of a key block; wanted {} to {}: the model of this kernel's "
                    "loops, tests/gpu_cost/attend_model.cpp, does not fit it any more",
                    found, what, least, most));
  };
  const double keys = work_.lane_key_bytes(), values = work_.lane_value_bytes();
  constexpr double kScalesAndMeans = 64;
  within("bytes of keys", block.bytes[ops::kAttendSplitBindingKeys], keys, 1.5 * keys + kScalesAndMeans);
  within("bytes of values", block.bytes[ops::kAttendSplitBindingValues], values, 1.5 * values + kScalesAndMeans);
  const double products = work_.key_products() + work_.value_products();
  within("products", block.products, products, 1.5 * products + 64 * work_.vectors);
}

SplitWalks::SplitWalks(const SplitModel& model, LatencyOf latency_of)
    : model_(model),
      latency_of_(std::move(latency_of)),
      split_(model.of_split(latency_of_)),
      block_(model.of_key_block(latency_of_)) {}

Walked SplitWalks::of_keys(std::uint64_t keys) {
  constexpr std::uint64_t kTogether = 8;  // keys of a trip, or nearly
  const std::uint64_t rest = (keys % ops::kKeyBlock + kTogether - 1) / kTogether * kTogether;
  const std::uint64_t whole_blocks = keys / ops::kKeyBlock;
  const Walked whole = split_ + block_.scaled(static_cast<double>(whole_blocks));
  if (rest == 0) return whole;
  auto found = short_blocks_.find(rest);
  if (found == short_blocks_.end()) {
    found = short_blocks_.emplace(rest, model_.of_short_block(latency_of_, rest)).first;
  }
  return whole + found->second;
}

Walked merge_walk(const MachineCode& code, const MergeWork& work, const LatencyOf& latency_of) {
  refuse_unknown_loads(code);
  std::vector<Trips> trips(code.loops.size());
  const auto row = static_cast<double>(work.dim * sizeof(float));  // of a partial result
  double lanes = kLanes;                                           // that have some of it
  for (std::size_t i = 0; i < code.loops.size(); ++i) {
    const Body body = body_of(code, i, ops::kAttendMergeBindingPartials);
    const Loop& loop = code.loops[i];
    if (body.loads + body.scalar_loads == 0) {
      // Rounds of the rotation, each behind a barrier.
      if (loop.parent && body.has_barrier) trips[i].count = std::bit_width(work.dim) - 1U;
      continue;
    }
    if (loop.by_lanes) {
      trips[i].count = rounded_up(static_cast<double>(work.splits) / kLanes);
      continue;
    }
    // One partial result after the other, as many at a time as there are loads of a lane.
    const double at_a_time = std::max<double>(1, static_cast<double>(body.loads));
    trips[i].count = rounded_up(static_cast<double>(work.splits) / at_a_time);
    if (body.loads == 0) continue;
    lanes = std::min(lanes, row / body.narrowest);
    for (auto outer = loop.parent; outer && code.loops[*outer].parent; outer = code.loops[*outer].parent) {
      if (code.loops[*outer].by_lanes) trips[*outer].count = rounded_up(row / (kLanes * body.narrowest));
    }
  }
  const Walked walked = walk(code, trips, latency_of);
  const double bytes = walked.bytes[ops::kAttendMergeBindingPartials];
  const double wanted = static_cast<double>(work.splits) * row / lanes;
  if (bytes < 0.95 * wanted || bytes > 1.5 * wanted + 256) {
    throw std::runtime_error(
        fmt::format("a lane loads {} bytes of partial results; wanted {}: the model of this "
                    "kernel's loops does not fit it any more",
                    bytes, wanted));
  }
  return walked;
}

}  // namespace rota::test
