#pragma once

#include <cstdint>
#include <functional>

namespace rota::tool {

// Calls run(worker, item) once for each item, `worker` below `threads` and never twice at a time; the caller's thread
// is worker 0, and alone calls done(items begun so far). An exception ends all, and comes out here.
struct Work {
  std::uint64_t items;
  std::function<void(std::uint32_t worker, std::uint64_t item)> run;
  std::function<void(std::uint64_t begun)> done{};
};

void run_with(std::uint32_t threads, const Work& work);

}  // namespace rota::tool
