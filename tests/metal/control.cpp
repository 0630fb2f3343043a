#include "control.h"

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <stdexcept>
#include <string_view>
#include <thread>

#include "compile.h"
#include "machine.h"
#include "traffic.h"

namespace rota::test::metal {

namespace {

std::mutex g_mutex;
std::condition_variable g_changed;
unsigned g_holds = 0;
unsigned g_failing_allocation = 0;
unsigned g_dropped_barrier = 0;
bool g_has_dropped_barrier = false;
unsigned g_devices = 1;
unsigned g_faults[3] = {};
std::atomic<long> g_live[static_cast<size_t>(Kind::count)] = {};
std::atomic<long> g_resident{0};

Options checked(const Options& options) {
  const unsigned width = options.simd_width;
  if (width < 4 || width > 64 || (width & (width - 1)) != 0)
    throw std::invalid_argument("a simdgroup has 4 to 64 lanes");
  return options;
}

Options& current() {
  static Options options = checked(options_of_environment());
  return options;
}

}  // namespace

Options options_of_environment() {
  Options options;
  if (const char* width = std::getenv("ROTA_METAL_SIMD_WIDTH"); width != nullptr && *width != 0) {
    options.simd_width = static_cast<unsigned>(std::atoi(width));
  }
  const char* order = std::getenv("ROTA_METAL_ORDER");
  if (order == nullptr || *order == 0 || std::string_view(order) == "ascending") return options;
  if (std::string_view(order) == "descending") {
    options.order = Order::descending;
  } else {
    options.order = Order::shuffled;
    options.seed = std::strtoull(order, nullptr, 10);
  }
  return options;
}

Options options() {
  const std::lock_guard lock(g_mutex);
  return current();
}

void set_options(const Options& options) {
  const std::lock_guard lock(g_mutex);
  current() = checked(options);
}

size_t live(Kind kind) { return static_cast<size_t>(g_live[static_cast<size_t>(kind)].load()); }

void count(Kind kind, int by) { g_live[static_cast<size_t>(kind)] += by; }

size_t resident_allocations() { return static_cast<size_t>(g_resident.load()); }

void add_resident(long allocations) { g_resident += allocations; }

void fail_next(Fault fault) {
  const std::lock_guard lock(g_mutex);
  ++g_faults[static_cast<size_t>(fault)];
}

bool take_fault(Fault fault) {
  const std::lock_guard lock(g_mutex);
  unsigned& left = g_faults[static_cast<size_t>(fault)];
  if (left == 0) return false;
  --left;
  return true;
}

void fail_allocation(unsigned nth) {
  const std::lock_guard lock(g_mutex);
  g_failing_allocation = nth;
}

bool take_allocation_fault() {
  const std::lock_guard lock(g_mutex);
  if (g_failing_allocation == 0) return false;
  --g_failing_allocation;
  return g_failing_allocation == 0;
}

void drop_barrier(unsigned nth) {
  const std::lock_guard lock(g_mutex);
  g_dropped_barrier = nth;
  g_has_dropped_barrier = false;
}

bool has_dropped_barrier() {
  const std::lock_guard lock(g_mutex);
  return g_has_dropped_barrier;
}

bool take_barrier_fault() {
  const std::lock_guard lock(g_mutex);
  if (g_dropped_barrier == 0) return false;
  --g_dropped_barrier;
  if (g_dropped_barrier != 0) return false;
  g_has_dropped_barrier = true;
  return true;
}

void set_device_count(unsigned count) {
  const std::lock_guard lock(g_mutex);
  g_devices = count;
}

unsigned device_count() {
  const std::lock_guard lock(g_mutex);
  return g_devices;
}

Hold::Hold() {
  const std::lock_guard lock(g_mutex);
  ++g_holds;
}

Hold::~Hold() {
  {
    const std::lock_guard lock(g_mutex);
    --g_holds;
  }
  g_changed.notify_all();
}

void wait_for_start() {
  std::chrono::microseconds delay{};
  {
    std::unique_lock lock(g_mutex);
    g_changed.wait(lock, [] { return g_holds == 0; });
    delay = current().start_delay;
  }
  if (delay.count() > 0) std::this_thread::sleep_for(delay);
}

Counts counts() { return {compiler_runs(), dispatches_run(), accesses_recorded()}; }

}  // namespace rota::test::metal
