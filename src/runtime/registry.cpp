#include "runtime/registry.h"

namespace rota::runtime {

Result<std::shared_ptr<Pipeline>> Registry::pipeline(Backend& backend, const Kernel& kernel,
                                                     const Constants& constants) {
  std::shared_ptr<Entry> entry;
  {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<Entry>& known = entries_[{&kernel, constants}];
    if (!known) known = std::make_shared<Entry>();
    entry = known;
  }
  const std::lock_guard building(entry->building);
  if (!entry->pipeline) {
    auto built = backend.build(kernel, constants);
    if (!built) return built;
    entry->pipeline = std::move(built).value();
  }
  return entry->pipeline;
}

}  // namespace rota::runtime
