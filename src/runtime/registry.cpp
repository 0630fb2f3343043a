#include "runtime/registry.h"

namespace rota::runtime {

Result<std::shared_ptr<const Pipeline>> Registry::pipeline(Backend& backend, const Kernel& kernel,
                                                           const Constants& constants) {
  Entry* entry = nullptr;
  {
    const std::lock_guard lock(mutex_);
    entry = &entries_[{&kernel, constants}];
  }
  if (entry->built.load(std::memory_order_acquire)) return entry->pipeline;
  const std::lock_guard building(entry->building);
  if (!entry->pipeline) {
    auto built = backend.build(kernel, constants);
    if (!built) return built.error();
    entry->pipeline = std::move(built).value();
    entry->built.store(true, std::memory_order_release);
  }
  return entry->pipeline;
}

}  // namespace rota::runtime
