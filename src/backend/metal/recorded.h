#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>

#include "backend/metal/completion.h"
#include "backend/metal/context.h"
#include "rota/metal.h"
#include "runtime/backend.h"

namespace rota::mtl {

// A batch in a command buffer of the engine's, and what tells that it has run. It holds what the GPU uses.
struct Recorded {
  runtime::Batch batch;
  std::shared_ptr<Completion> completion = std::make_shared<Completion>();
  std::uint64_t ticket = 0;
};

// Batches that the engine commits, or has committed. They may end in any order, and nothing says that they ever do.
class RecordedBatches {
 public:
  explicit RecordedBatches(std::shared_ptr<Context> context)
      : context_(std::move(context)), batches_(std::make_unique<std::list<Recorded>>()) {}

  // At the end of the device: waits until then, and leaves what has not run. The last call.
  void outlast(std::chrono::steady_clock::time_point deadline) noexcept;

  RecordedBatches(const RecordedBatches&) = delete;
  RecordedBatches& operator=(const RecordedBatches&) = delete;

  // Writes a batch into the engine's encoder. After an error nothing was written.
  Result<std::list<Recorded>> write(runtime::Batch batch, const metal::Recording& recording);

  // From now on the batch is known by its ticket.
  void add(std::list<Recorded> one, std::uint64_t ticket) noexcept;

  // Lets go of what has run, and remembers the errors that it ended in.
  void reclaim();

  // Of a batch that has not been let go of; else null.
  std::shared_ptr<Completion> end_of(std::uint64_t ticket) const;

  // An error while a batch that conflicts has not run: only the engine knows whether it will.
  Status check_apart(const runtime::Memory& memory, Access access);

 private:
  std::shared_ptr<Context> context_;
  mutable std::mutex mutex_;
  std::unique_ptr<std::list<Recorded>> batches_;
};

}  // namespace rota::mtl
