#include "runtime/hazards.h"

#include <algorithm>

namespace rota::runtime {

bool Hazards::needs_barrier(std::span<const Binding> bindings) {
  const auto conflicts = [this](const Binding& next) {
    const auto touched = since_barrier_.find(next.memory.get());
    if (touched == since_barrier_.end()) return false;
    return std::ranges::any_of(touched->second, [&](const Touch& before) {
      return (before.access == Access::write || next.access == Access::write) && before.bytes.overlaps(next.touched);
    });
  };
  const bool barrier = std::ranges::any_of(bindings, conflicts);
  if (barrier) since_barrier_.clear();
  for (const Binding& binding : bindings) {
    since_barrier_[binding.memory.get()].push_back({binding.touched, binding.access});
  }
  return barrier;
}

}  // namespace rota::runtime
