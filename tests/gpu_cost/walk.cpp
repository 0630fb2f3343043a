#include "gpu_cost/walk.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <stdexcept>

namespace rota::test {
namespace {

class Walker {
 public:
  Walker(const MachineCode& code, const std::vector<Trips>& trips, const LatencyOf& latency_of)
      : code_(code), trips_(trips), latency_of_(latency_of), innermost_(code.blocks.size()) {
    for (std::size_t i = 0; i < code.blocks.size(); ++i) innermost_[i] = code.loop_of(i).value_or(kNoLoop);
    if (trips.size() != code.loops.size()) throw std::runtime_error("each loop needs its trips");
  }

  Walked walk() {
    run(0, code_.blocks.size(), kNoLoop);
    walked_.waited = now_;
    return walked_;
  }

 private:
  static constexpr std::size_t kNoLoop = ~std::size_t{0};

  std::size_t parent_of(std::size_t loop) const { return code_.loops[loop].parent.value_or(kNoLoop); }

  // Blocks [first, end) of `loop`, with the loops inside of it. `trip`: of the loop.
  void run(std::size_t first, std::size_t end, std::size_t loop, std::uint64_t trip = 0) {
    for (std::size_t block = first; block < end;) {
      if (innermost_[block] == loop) {
        if (!code_.blocks[block].is_passed_by && !is_thinned(block, loop, trip)) run(code_.blocks[block]);
        ++block;
        continue;
      }
      std::size_t inner = innermost_[block];
      while (parent_of(inner) != loop) inner = parent_of(inner);
      const Loop& body = code_.loops[inner];
      for (std::uint64_t i = 0; i < trips_[inner].count; ++i) run(body.first, body.last + 1, inner, i);
      block = body.last + 1;
    }
  }

  bool is_thinned(std::size_t block, std::size_t loop, std::uint64_t trip) const {
    if (loop == kNoLoop || trips_[loop].thinned_share == 1 || !code_.is_conditional(block)) return false;
    const Trips& trips = trips_[loop];
    const auto loads = [&](const Instruction& one) {
      return one.kind == Kind::vector_load && one.binding == trips.thinned_binding;
    };
    if (std::ranges::none_of(code_.blocks[block].instructions, loads)) return false;
    const double before = std::ceil(static_cast<double>(trip) * trips.thinned_share - 1e-9);
    const double after = std::ceil(static_cast<double>(trip + 1) * trips.thinned_share - 1e-9);
    return before == after;
  }

  void run(const Block& block) {
    for (const Instruction& instruction : block.instructions) run(instruction);
  }

  void run(const Instruction& one) {
    walked_.products += one.products;
    switch (one.kind) {
      case Kind::vector_load:
        vector_loads_.push_back(now_ + latency_of_(one));
        walked_.loads_in_flight = std::max(walked_.loads_in_flight, vector_loads_.size());
        if (one.binding && *one.binding < kMostBindings) walked_.bytes.at(*one.binding) += one.bytes;
        break;
      case Kind::scalar_load:
      case Kind::constant_load: others_.push_back(now_ + latency_of_(one)); break;
      case Kind::shared_load:
      case Kind::shared_store:
        others_.push_back(0);
        walked_.shared += 1;
        walked_.shared_bytes += one.bytes;
        break;
      case Kind::wait:
        if (one.vector_loads_left) wait_for(vector_loads_, *one.vector_loads_left);
        if (one.others_left) wait_for(others_, *one.others_left);
        break;
      case Kind::vector_alu: walked_.vector_alu += 1; break;
      case Kind::scalar_alu: walked_.scalar_alu += 1; break;
      default: break;
    }
  }

  // Loads of one kind arrive in the order in which they were issued.
  void wait_for(std::deque<double>& arrivals, std::size_t left) {
    for (; arrivals.size() > left; arrivals.pop_front()) now_ = std::max(now_, arrivals.front());
  }

  const MachineCode& code_;
  const std::vector<Trips>& trips_;
  const LatencyOf& latency_of_;
  std::vector<std::size_t> innermost_;  // loops, by block
  double now_ = 0;
  std::deque<double> vector_loads_, others_;
  Walked walked_;
};

Walked combined(Walked to, const Walked& what, double by) {
  to.waited += by * what.waited;
  to.vector_alu += by * what.vector_alu;
  to.scalar_alu += by * what.scalar_alu;
  to.shared += by * what.shared;
  to.shared_bytes += by * what.shared_bytes;
  to.products += by * what.products;
  for (std::size_t i = 0; i < kMostBindings; ++i) to.bytes.at(i) += by * what.bytes.at(i);
  return to;
}

}  // namespace

Walked operator-(Walked from, const Walked& what) { return combined(from, what, -1); }
Walked operator+(Walked to, const Walked& what) {
  Walked sum = combined(to, what, 1);
  sum.loads_in_flight = std::max(to.loads_in_flight, what.loads_in_flight);
  return sum;
}
Walked Walked::scaled(double by) const {
  Walked result = combined({}, *this, by);
  result.loads_in_flight = loads_in_flight;
  return result;
}

Walked walk(const MachineCode& code, const std::vector<Trips>& trips, const LatencyOf& latency_of) {
  return Walker(code, trips, latency_of).walk();
}

LatencyOf unit_latency(Counted counted) {
  return [counted](const Instruction& load) {
    return load.kind == Kind::constant_load && counted == Counted::buffers ? 0.0 : 1.0;
  };
}

}  // namespace rota::test
