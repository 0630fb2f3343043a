#include "backend/cpu/queue.h"

#include <algorithm>
#include <limits>
#include <new>
#include <system_error>

#include "core/callers_thread.h"
#include "core/error.h"

namespace rota::cpu {
namespace {

// Threads that are awake share what takes longer than fetching each other's lines; one that sleeps is woken for what
// takes longer than waking it.
constexpr std::uint64_t kShareBytes = 32U << 10;
constexpr std::uint64_t kWakeBytes = 64U << 10;
constexpr auto kSpin = std::chrono::microseconds(100);  // for more to help with, before a thread falls asleep
constexpr std::uint32_t kTurnsPerLook = 32;             // at the clock
constexpr std::uint32_t kLeader = 0;                    // its number, whichever thread it is
constexpr std::uint64_t kLastTicket = std::numeric_limits<std::uint64_t>::max();

bool is_wide(std::span<const runtime::Command> commands) {
  while (!commands.empty()) {
    const Stage stage = Stage::first_of(commands);
    if (stage.bytes() >= kWakeBytes) return true;
    commands = commands.subspan(stage.size());
  }
  return false;
}

}  // namespace

Queue::Queue(std::uint32_t threads, ParallelFor parallel_for)
    : threads_(threads), parallel_for_(std::move(parallel_for)), loop_(threads) {}

Result<std::unique_ptr<Queue>> Queue::create(std::uint32_t threads, ParallelFor parallel_for) {
  std::unique_ptr<Queue> queue(new Queue(threads, std::move(parallel_for)));
  const std::uint32_t own = queue->parallel_for_ ? 0 : std::max(threads - 1, 1U);
  const std::uint32_t guests = queue->parallel_for_ ? threads - 1 : std::min(threads - 1, 1U);
  const std::uint32_t numbers = 1 + own + guests;
  // Not cleared: pages that no kernel touches take no memory.
  queue->scratch_.reset(new (std::nothrow) runtime::WorkerScratch[numbers]);
  if (queue->scratch_ == nullptr) {
    return Error{Errc::out_of_memory, core::text("cpu: the system refuses {} bytes of scratch to {} threads",
                                                 numbers * sizeof(runtime::WorkerScratch), threads)};
  }
  for (std::uint32_t number = 1 + own; number < numbers; ++number) queue->free_numbers_.push_back(number);
  queue->workers_.reserve(own);
  const core::BlockedSignals blocked;
  try {
    while (queue->workers_.size() < own) {
      const auto number = static_cast<std::uint32_t>(1 + queue->workers_.size());
      queue->workers_.emplace_back([raw = queue.get(), number] { raw->work(number); });
    }
  } catch (const std::system_error& error) {
    return Error{Errc::out_of_memory, core::text("cpu: cannot start {} threads: {}", threads, error.what())};
  }
  return queue;
}

Queue::~Queue() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  pushed_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void Queue::push(runtime::Batch batch, std::uint64_t ticket) {
  const bool wide = is_wide(batch.commands.all());
  bool wake_all = false;
  bool wake_one = false;
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back({std::move(batch), ticket, wide});
    newest_ticket_ = std::max(newest_ticket_, ticket);
    unled_ = has_unled();
    wake_all = wide && threads_ > 1 && asleep_ > 0;
    wake_one = unled_ && asleep_ == workers_.size();  // else someone is awake, and looks before it sleeps
    if (wake_all) {
      ++wakes_;
      told_ = true;
    }
  }
  if (wake_all) {
    pushed_.notify_all();
  } else if (wake_one) {
    pushed_.notify_one();
  }
}

void Queue::wake_helpers() noexcept {
  if (threads_ == 1 || asleep_.load(std::memory_order_relaxed) == 0 || told_.load(std::memory_order_relaxed)) return;
  {
    const std::lock_guard lock(mutex_);
    ++wakes_;
    told_ = true;
  }
  pushed_.notify_all();
}

std::optional<std::uint32_t> Queue::take_number() noexcept {
  if (free_numbers_.empty()) return std::nullopt;
  const std::uint32_t number = free_numbers_.back();
  free_numbers_.pop_back();
  return number;
}

// Helps with one loop after the other until done(), or until there was none for kSpin.
template <class Done>
void Queue::help(std::uint32_t thread, const Done& done) noexcept {
  std::uint64_t last = 0;
  auto idle_since = std::chrono::steady_clock::now();
  for (std::uint32_t turn = 0; !done(); ++turn) {
    if (loop_.help(thread, last)) {
      idle_since = std::chrono::steady_clock::now();
      turn = 0;
    } else if (turn % kTurnsPerLook == kTurnsPerLook - 1 && std::chrono::steady_clock::now() - idle_since > kSpin) {
      return;
    }
    core::spin_once(turn);
  }
}

template <class Done>
void Queue::help_as_guest(Lock& lock, const Done& done) noexcept {
  const auto thread = take_number();
  if (!thread) return;
  lock.unlock();
  help(*thread, done);
  lock.lock();
  free_numbers_.push_back(*thread);  // it has room: the number came from there
}

void Queue::run(const Stage& stage) noexcept {
  const std::uint64_t bytes = stage.bytes();
  if (bytes >= kWakeBytes) wake_helpers();
  loop_.run(
      kLeader, stage.items(),
      [&](std::uint64_t begin, std::uint64_t slices) {
        return bytes < 2 * kShareBytes ? stage.items() : stage.slice_end(begin, slices, kShareBytes);
      },
      [&](const core::SharedLoop::Slice& slice) { stage.run(slice, &scratch_[slice.thread]); });
}

// With a trace, each command by itself.
void Queue::run(const runtime::Batch& batch) noexcept {
  std::size_t index = 0;
  for (std::span<const runtime::Command> left = batch.commands.all(); !left.empty();) {
    const Stage stage = Stage::first_of(batch.trace ? left.first(1) : left);
    left = left.subspan(stage.size());
    const std::chrono::nanoseconds begin = batch.trace ? runtime::steady_now() : std::chrono::nanoseconds(0);
    run(stage);
    if (batch.trace) batch.trace->ran(index++, begin, runtime::steady_now() - begin);
  }
}

// Precondition: has_unled(). Up to the batch with `last_ticket`, or until there is no more.
void Queue::lead(Lock& lock, std::uint64_t last_ticket) noexcept {
  led_ = true;
  unled_ = false;
  while (!jobs_.empty() && finished_ticket_ < last_ticket) {
    {
      const Job job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      run(job.batch);
      lock.lock();
      finished_ticket_ = job.ticket;
      lock.unlock();
      finished_.notify_all();
    }  // memory that only this batch held is released without the lock
    lock.lock();
  }
  led_ = false;
  unled_ = has_unled();
  if (!unled_) return;
  pushed_.notify_one();
  finished_.notify_all();
}

void Queue::work(std::uint32_t thread) noexcept {
  const core::DefaultFloats floats;  // whatever rounding the opening thread had
  std::uint64_t wakes_seen = 0;
  Lock lock(mutex_);
  for (;;) {
    ++asleep_;
    told_ = false;
    pushed_.wait(lock, [&] { return stopping_ || has_unled() || wakes_ != wakes_seen; });
    --asleep_;
    told_ = false;
    wakes_seen = wakes_;
    if (has_unled()) lead(lock, kLastTicket);
    if (stopping_) return;
    if (threads_ == 1) continue;
    lock.unlock();
    help(thread, [this] { return unled_.load(std::memory_order_relaxed); });
    lock.lock();
  }
}

void Queue::take_part() noexcept {
  const core::DefaultFloats floats;
  Lock lock(mutex_);
  if (has_unled()) {
    lead(lock, kLastTicket);
  } else if (led_) {
    help_as_guest(lock, [this] { return !led_.load(std::memory_order_relaxed); });
  }
}

void Queue::run_here() noexcept {
  if (!parallel_for_) return;
  bool wide = false;
  std::uint64_t newest = 0;
  {
    const std::lock_guard lock(mutex_);
    newest = newest_ticket_;
    wide = has_unled() && threads_ > 1 && std::ranges::any_of(jobs_, &Job::wide);
  }
  if (wide) {
    // If it throws, what it did not do is done below.
    static_cast<void>(core::guarded([this]() -> Status {
      parallel_for_(threads_, [this](std::uint32_t) { take_part(); });
      return {};
    }));
  }
  wait(newest);  // leads, if nobody does
}

void Queue::wait(std::uint64_t ticket) noexcept {
  if (has_finished(ticket)) return;
  const core::DefaultFloats floats;
  Lock lock(mutex_);
  while (!has_finished(ticket)) {
    if (!has_unled())
      help_as_guest(lock, [&] { return has_finished(ticket) || unled_.load(std::memory_order_relaxed); });
    finished_.wait(lock, [&] { return has_finished(ticket) || has_unled(); });
    if (has_unled()) lead(lock, ticket);
  }
}

bool Queue::wait_until(std::uint64_t ticket, std::chrono::steady_clock::time_point deadline) noexcept {
  if (has_finished(ticket)) return true;
  Lock lock(mutex_);
  return finished_.wait_until(lock, deadline, [&] { return has_finished(ticket); });
}

}  // namespace rota::cpu
