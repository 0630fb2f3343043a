#include "runtime/hazards.h"

#include <algorithm>
#include <ranges>

namespace rota::runtime {

bool Hazards::needs_barrier(std::span<const Binding> bindings) {
  auto touching = bindings | std::views::filter([](const Binding& next) { return next.touched.size() > 0; });
  const auto conflicts = [this](const Binding& next) {
    const auto touched = since_barrier_.find(next.memory.get());
    if (touched == since_barrier_.end()) return false;
    const auto& [reads, writes] = touched->second;
    return writes.overlaps(next.touched) || (next.access == Access::write && reads.overlaps(next.touched));
  };
  const bool barrier = std::ranges::any_of(touching, conflicts);
  if (barrier) since_barrier_.clear();
  for (const Binding& binding : touching) {
    Touched& touched = since_barrier_[binding.memory.get()];
    (binding.access == Access::write ? touched.writes : touched.reads).add(binding.touched);
  }
  return barrier;
}

}  // namespace rota::runtime
