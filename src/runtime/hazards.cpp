#include "runtime/hazards.h"

#include <algorithm>
#include <ranges>

namespace rota::runtime {

bool Hazards::needs_barrier(std::span<const Binding> bindings) {
  auto touching = bindings | std::views::filter([](const Binding& next) { return next.touched.size() > 0; });
  const bool barrier = std::ranges::any_of(touching, [this](const Binding& next) {
    return writes_.overlaps(next.memory, next.touched) ||
           (next.access == Access::write && reads_.overlaps(next.memory, next.touched));
  });
  if (barrier) {
    reads_.clear();
    writes_.clear();
  }
  for (const Binding& binding : touching) {
    (binding.access == Access::write ? writes_ : reads_).add(binding.memory, binding.touched);
  }
  return barrier;
}

}  // namespace rota::runtime
