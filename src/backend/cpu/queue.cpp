#include "backend/cpu/queue.h"

#include <algorithm>
#include <new>
#include <system_error>

#include "core/callers_thread.h"
#include "core/error.h"

namespace rota::cpu {
namespace {

// Waking a thread costs about as much as copying this.
constexpr std::uint64_t kMinSliceBytes = 64U << 10;

}  // namespace

Result<std::unique_ptr<Queue>> Queue::create(std::uint32_t threads) {
  // Not cleared: pages that no kernel touches take no memory.
  std::unique_ptr<runtime::WorkerScratch[]> scratch(new (std::nothrow) runtime::WorkerScratch[threads]);
  if (scratch == nullptr) {
    return Error{Errc::out_of_memory, core::text("cpu: the system refuses {} bytes of scratch to {} threads",
                                                 threads * sizeof(runtime::WorkerScratch), threads)};
  }
  auto pool = core::ThreadPool::create(threads);
  if (!pool) return pool.error();
  std::unique_ptr<Queue> queue(new Queue(std::move(pool).value(), std::move(scratch)));
  const core::BlockedSignals blocked;
  try {
    queue->thread_ = std::thread([raw = queue.get()] { raw->work(); });
  } catch (const std::system_error& error) {
    return Error{Errc::out_of_memory, core::text("cpu: cannot start the queue's thread: {}", error.what())};
  }
  return queue;
}

Queue::~Queue() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  pushed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Queue::push(runtime::Batch batch, std::uint64_t ticket) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back({std::move(batch), ticket});
  }
  pushed_.notify_one();
}

void Queue::wait(std::uint64_t ticket) {
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [&] { return finished_ticket_ >= ticket; });
}

void Queue::run(const runtime::Command& command) noexcept {
  const runtime::CpuCall call = command.cpu_call();
  const std::uint64_t items_per_slice = kMinSliceBytes / std::max<std::uint64_t>(command.dispatch.item_bytes, 1);
  pool_->for_each_slice(command.dispatch.items, items_per_slice, [&](const core::ThreadPool::Slice& slice) {
    runtime::CpuCall share = call;
    share.first_item = slice.begin;
    share.last_item = slice.end;
    share.scratch = &scratch_[slice.thread];
    command.kernel->cpu(share);
  });
}

void Queue::work() noexcept {
  const core::DefaultFloats floats;  // whatever rounding the opening thread had
  std::unique_lock lock(mutex_);
  for (;;) {
    pushed_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    {
      const Job job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      for (const runtime::Command& command : job.batch.commands.all()) run(command);
      lock.lock();
      finished_ticket_ = job.ticket;
      lock.unlock();
      finished_.notify_all();
    }  // memory that only this job held is released without the lock
    lock.lock();
  }
}

}  // namespace rota::cpu
