#include "submit.h"

#include <algorithm>
#include <atomic>
#include <set>

#include "control.h"

namespace rota::test::metal {

namespace {

std::mutex g_machine_mutex;  // one GPU, which runs one command buffer at a time
History g_history;

std::mutex g_mutex;                // of what follows
std::set<uint32_t> g_running;      // first intervals of command buffers that run
std::multiset<uint32_t> g_floors;  // Submission::completed_ of those that are not over
std::set<const void*> g_buffers;

std::vector<Binding> bindings_of(const RecordedDispatch& dispatch) {
  std::vector<Binding> bindings;
  for (const RecordedBuffer& buffer : dispatch.buffers) {
    if (buffer.memory == nullptr) {
      bindings.push_back({buffer.index, buffer.bytes->data(), buffer.bytes->size(), true, false});
    } else {
      bindings.push_back(
          {buffer.index, buffer.memory + buffer.offset, buffer.length - buffer.offset, false, buffer.tracked});
    }
  }
  return bindings;
}

std::string ended_buffer(const RecordedDispatch& dispatch) {
  const std::lock_guard lock(g_mutex);
  for (const RecordedBuffer& buffer : dispatch.buffers) {
    if (buffer.memory == nullptr || g_buffers.count(buffer.memory) > 0) continue;
    return "kernel '" + dispatch.kernel + "': buffer " + std::to_string(buffer.index) + " was released before it ran";
  }
  return "";
}

void forget_old_encoders(Clock& clock) { clock.erase(clock.begin(), clock.lower_bound(g_history.oldest_encoder())); }

}  // namespace

uint64_t next_encoder() {
  static std::atomic<uint64_t> number{0};
  return ++number;
}

void add_buffer(const void* memory) {
  const std::lock_guard lock(g_mutex);
  g_buffers.insert(memory);
}

void remove_buffer(const void* memory) {
  const std::lock_guard lock(g_mutex);
  g_buffers.erase(memory);
}

uint64_t Timeline::value() const {
  const std::lock_guard lock(mutex_);
  return value_;
}

void Timeline::signal(uint64_t value, const Clock& clock) {
  const std::lock_guard lock(mutex_);
  if (value <= value_) return;  // whoever waits for it has gone on
  value_ = value;
  merge(clock_, clock);
  changed_.notify_all();
}

Clock Timeline::wait(uint64_t value) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return value_ >= value; });
  return clock_;
}

Submission::Submission(const RecordedCommands& commands) : commands_(commands) {
  const std::lock_guard lock(g_mutex);
  completed_ = g_running.empty() ? last_interval() : *g_running.begin() - 1;
  g_floors.insert(completed_);
}

std::string Submission::run() {
  for (const RecordedSignal& wait : commands_.waits) merge(waited_, wait.timeline->wait(wait.value));
  const std::lock_guard machine(g_machine_mutex);
  uint32_t first = 0;
  {
    const std::lock_guard lock(g_mutex);
    if (restart_intervals()) g_history = {};
    first = last_interval() + 1;
    g_running.insert(first);
    g_history.forget(*g_floors.begin());
  }
  std::string error = run_locked();
  const std::lock_guard lock(g_mutex);
  g_running.erase(first);
  g_floors.erase(g_floors.find(completed_));
  return error;
}

std::string Submission::run_locked() {
  std::string error = take_fault(Fault::command_buffer) ? "the test asked for this error" : "";
  forget_old_encoders(waited_);
  over_ = waited_;
  for (const auto& encoder : commands_.encoders) run_encoder(*encoder, error);
  return error;
}

// After an error no more dispatches run, but fences are updated, or what waits for them would look unordered.
void Submission::run_encoder(const RecordedEncoder& encoder, std::string& error) {
  Clock clock = waited_;
  uint32_t dispatches = 0;
  for (const Command& command : encoder.commands) {
    if (std::holds_alternative<RecordedBarrier>(command)) clock[encoder.number] = dispatches;
    if (const auto* wait = std::get_if<RecordedWait>(&command)) {
      forget_old_encoders(wait->fence->clock);
      merge(clock, wait->fence->clock);
    }
    if (const auto* update = std::get_if<RecordedUpdate>(&command)) {
      update->fence->clock = clock;
      update->fence->clock[encoder.number] = dispatches;
    }
    if (const auto* signal = std::get_if<RecordedSignal>(&command)) signal->timeline->signal(signal->value, over_);
    const auto* recorded = std::get_if<RecordedDispatch>(&command);
    if (recorded == nullptr || !error.empty()) continue;
    error = recorded->error.empty() ? ended_buffer(*recorded) : recorded->error;
    if (!error.empty()) continue;
    if (encoder.serial) clock[encoder.number] = dispatches;
    g_history.begin({last_interval() + 1, encoder.number, dispatches++}, clock, completed_);
    Dispatch dispatch{recorded->binary.get(), recorded->kernel, {}, {}, bindings_of(*recorded)};
    std::copy(recorded->groups, recorded->groups + 3, dispatch.groups);
    std::copy(recorded->threads, recorded->threads + 3, dispatch.threads);
    error = run_dispatch(dispatch, g_history);
  }
  merge(over_, clock);
  over_[encoder.number] = dispatches;
}

Worker::Worker(size_t most) : most_(most) {}

std::shared_ptr<Worker> Worker::start(size_t most) {
  auto worker = std::make_shared<Worker>(most);
  worker->thread_ = std::thread([worker] { worker->run(); });
  return worker;
}

void Worker::stop(std::shared_ptr<Worker> worker) {
  {
    const std::lock_guard lock(worker->mutex_);
    worker->stopping_ = true;
  }
  worker->changed_.notify_all();
  // The last reference to a queue may end in a handler, which runs on this thread.
  if (worker->thread_.get_id() == std::this_thread::get_id()) {
    worker->thread_.detach();
  } else {
    worker->thread_.join();
  }
}

void Worker::acquire() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return acquired_ < most_; });
  ++acquired_;
}

void Worker::release() {
  {
    const std::lock_guard lock(mutex_);
    --acquired_;
  }
  changed_.notify_all();
}

void Worker::add(std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  changed_.notify_all();
}

void Worker::run() {
  for (;;) {
    std::function<void()> job;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    wait_for_start();
    job();
  }
}

}  // namespace rota::test::metal
