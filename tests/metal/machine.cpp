#include "machine.h"

#include <pthread.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <memory>
#include <numeric>

#include "arena.h"
#include "compile.h"
#include "fibers.h"
#include "hooks.h"
#include "traffic.h"
#include "watch.h"

namespace rota::test::metal {

namespace {

constexpr uint32_t kPoison = 0x7fc0dead;  // a NaN
constexpr uint32_t kMostIntervals = 0xf0000000;
constexpr size_t kLaneBytes = 16;

// Values of metal::mem_flags.
constexpr int kDeviceMemory = 1;
constexpr int kThreadgroupMemory = 2;

enum class State : uint8_t { ready, barrier, simdgroup, done };

struct Fiber {
  void* stack = nullptr;
  const void* site = nullptr;  // of the barrier or operation that it waits at
  int flags = 0;
  State state = State::ready;
  uint8_t turn = 0;  // which half of the lanes' values its next operation uses
};

// Between the operations of a simdgroup, values of two are kept: a lane may be one ahead of another.
struct Machine {
  std::vector<Fiber> fibers;
  std::vector<rota_msl::Thread> places;  // of the fibers
  std::vector<unsigned> schedule;        // of fibers
  std::vector<uint16_t> simd_epochs;
  alignas(64) char values[2][kMostThreads][kLaneBytes];
  unsigned simd_width = 0;
  unsigned running = 0;
  bool in_fiber = false;
  pthread_t owner = {};  // the thread that runs fibers now
  void* scheduler = nullptr;
  void (*entry)(const rota_msl::Thread*) = nullptr;
  std::string error;
  uint32_t interval = 0;
  uint64_t random = 0;
  uint64_t dispatches = 0;
  Options options;
};

Machine g_machine;

uint64_t next_random() {
  uint64_t x = g_machine.random += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

template <class T>
void shuffle(std::vector<T>& items) {
  for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[next_random() % i]);
}

// 0 to count - 1 in the order that the options ask for.
std::vector<unsigned> ordered(size_t count) {
  std::vector<unsigned> items(count);
  std::iota(items.begin(), items.end(), 0u);
  if (g_machine.options.order == Order::descending) std::ranges::reverse(items);
  if (g_machine.options.order == Order::shuffled) shuffle(items);
  return items;
}

void leave_fiber() {
  Fiber& fiber = g_machine.fibers[g_machine.running];
  g_machine.in_fiber = false;
  rota_metal_switch(&fiber.stack, g_machine.scheduler);
}

void wait_at(State state, const void* site) {
  Fiber& fiber = g_machine.fibers[g_machine.running];
  fiber.state = state;
  fiber.site = site;
  leave_fiber();
}

void fiber_main() {
  g_machine.entry(&g_machine.places[g_machine.running]);
  g_machine.fibers[g_machine.running].state = State::done;
  leave_fiber();
  __builtin_unreachable();
}

void run_fiber(unsigned index) {
  Fiber& fiber = g_machine.fibers[index];
  g_machine.running = index;
  g_watch.thread = static_cast<uint16_t>(index);
  g_watch.simdgroup = static_cast<uint16_t>(index / g_machine.simd_width);
  g_watch.simd_epoch = g_machine.simd_epochs[g_watch.simdgroup];
  g_machine.in_fiber = true;
  rota_metal_switch(&g_machine.scheduler, fiber.stack);
}

void begin_interval(int flags) {
  g_watch.interval = ++g_machine.interval;
  if ((flags & kDeviceMemory) != 0) g_watch.device_interval = g_machine.interval;
  if ((flags & kThreadgroupMemory) != 0) g_watch.threadgroup_interval = g_machine.interval;
  if (g_watch.traffic) end_traffic_interval();
}

bool all_wait_at(const Fiber* first, const Fiber* last, State state) {
  return std::all_of(first, last, [&](const Fiber& f) { return f.state == state && f.site == first->site; });
}

void release(Fiber* first, Fiber* last) {
  for (Fiber* fiber = first; fiber != last; ++fiber) fiber->state = State::ready;
}

bool release_simdgroups() {
  bool any = false;
  Fiber* const begin = g_machine.fibers.data();
  const size_t count = g_machine.fibers.size();
  for (size_t i = 0; i < count; i += g_machine.simd_width) {
    Fiber* const first = begin + i;
    Fiber* const last = begin + std::min(count, i + g_machine.simd_width);
    if (!all_wait_at(first, last, State::simdgroup)) continue;
    if (first->flags != 0) ++g_machine.simd_epochs[i / g_machine.simd_width];
    release(first, last);
    any = true;
  }
  return any;
}

const char* what_waits(State state) {
  return state == State::barrier     ? "at a threadgroup_barrier"
         : state == State::simdgroup ? "at an operation of its simdgroup"
                                     : "no more: it has ended";
}

// No thread can go on. Names two that disagree: lanes of a simdgroup, or any two threads at barriers.
std::string divergence() {
  const auto& fibers = g_machine.fibers;
  const auto at_simd = std::ranges::find(fibers, State::simdgroup, &Fiber::state);
  const bool simd = at_simd != fibers.end();
  const auto waiting = simd ? at_simd : std::ranges::find(fibers, State::barrier, &Fiber::state);
  const auto number = static_cast<size_t>(waiting - fibers.begin());
  const size_t from = simd ? number / g_machine.simd_width * g_machine.simd_width : 0;
  const size_t to = simd ? std::min(fibers.size(), from + g_machine.simd_width) : fibers.size();
  std::string what = simd ? "simd operation in divergent flow" : "divergent threadgroup_barrier";
  for (size_t i = from; i < to; ++i) {
    const bool same = fibers[i].state == waiting->state;
    if (same && fibers[i].site == waiting->site) continue;
    return what + ": thread " + std::to_string(number) + " waits " + what_waits(waiting->state) + ", thread " +
           std::to_string(i) + " waits " + (same ? "at another one" : what_waits(fibers[i].state));
  }
  return what;
}

// Runs the fibers until all have ended.
void run_fibers() {
  Machine& m = g_machine;
  std::vector<Fiber>& fibers = m.fibers;
  for (;;) {
    if (m.options.order == Order::shuffled) shuffle(m.schedule);
    for (const unsigned index : m.schedule) {
      if (fibers[index].state != State::ready) continue;
      run_fiber(index);
      if (!m.error.empty()) return;
    }
    if (release_simdgroups()) continue;
    Fiber* const first = fibers.data();
    Fiber* const last = first + fibers.size();
    if (std::all_of(first, last, [](const Fiber& f) { return f.state == State::done; })) return;
    if (!all_wait_at(first, last, State::barrier)) {
      m.error = "kernel '" + g_watch.dispatch->kernel + "': " + divergence();
      return;
    }
    begin_interval(first->flags);
    release(first, last);
  }
}

void set(unsigned (&to)[3], const unsigned (&from)[3]) { std::copy(from, from + 3, to); }

// What all threadgroups of a dispatch have in common.
void prepare_fibers(const Dispatch& dispatch, void* const* buffers) {
  const unsigned count = dispatch.threads[0] * dispatch.threads[1] * dispatch.threads[2];
  const unsigned width = g_machine.simd_width;
  g_machine.fibers.assign(count, Fiber{});
  g_machine.places.assign(count, rota_msl::Thread{});
  g_machine.simd_epochs.assign((count + width - 1) / width, 0);
  g_machine.schedule = ordered(count);
  for (unsigned i = 0; i < count; ++i) {
    rota_msl::Thread& place = g_machine.places[i];
    place.buffers = buffers;
    set(place.threads_per_threadgroup, dispatch.threads);
    set(place.threadgroups_per_grid, dispatch.groups);
    for (int d = 0; d < 3; ++d) place.threads_per_grid[d] = dispatch.threads[d] * dispatch.groups[d];
    place.thread_position_in_threadgroup[0] = i % dispatch.threads[0];
    place.thread_position_in_threadgroup[1] = i / dispatch.threads[0] % dispatch.threads[1];
    place.thread_position_in_threadgroup[2] = i / dispatch.threads[0] / dispatch.threads[1];
    place.thread_index_in_threadgroup[0] = i;
    place.thread_index_in_simdgroup[0] = i % width;
    place.simdgroup_index_in_threadgroup[0] = i / width;
    place.threads_per_simdgroup[0] = place.thread_execution_width[0] = width;
    place.simdgroups_per_threadgroup[0] = (count + width - 1) / width;
  }
}

void run_group(const Dispatch& dispatch, unsigned number) {
  const unsigned position[3] = {number % dispatch.groups[0], number / dispatch.groups[0] % dispatch.groups[1],
                                number / dispatch.groups[0] / dispatch.groups[1]};
  auto* words = reinterpret_cast<uint32_t*>(dispatch.binary->program().threadgroup_first);
  std::fill(words, words + g_watch.threadgroup_bytes / sizeof(uint32_t), kPoison);
  begin_interval(kDeviceMemory | kThreadgroupMemory);
  g_watch.group_first = g_machine.interval;
  for (unsigned i = 0; i < g_machine.fibers.size(); ++i) {
    Fiber& fiber = g_machine.fibers[i];
    fiber.state = State::ready;
    fiber.stack = fresh_stack(i, fiber_main);
    rota_msl::Thread& place = g_machine.places[i];
    set(place.threadgroup_position_in_grid, position);
    for (int d = 0; d < 3; ++d) {
      place.thread_position_in_grid[d] = position[d] * dispatch.threads[d] + place.thread_position_in_threadgroup[d];
    }
  }
  run_fibers();
}

const char* name_of_fault(int number) {
  return number == SIGFPE ? " divides an integer by zero" : " touches memory that no one has, or needs too much stack";
}

struct sigaction g_before[NSIG];

// Ends the dispatch if a kernel's thread has faulted; anything else is as it was without us.
void on_fault(int number) {
  if (g_machine.in_fiber && pthread_equal(pthread_self(), g_machine.owner)) {
    report(running_thread() + name_of_fault(number));
    stop_dispatch();
  }
  sigaction(number, &g_before[number], nullptr);
}

void catch_faults() {
  static const bool installed = [] {
    for (const int number : {SIGFPE, SIGSEGV, SIGBUS}) {
      struct sigaction action = {};
      action.sa_handler = on_fault;
      action.sa_flags = SA_NODEFER | SA_ONSTACK;  // the handler may not return, and the fiber's stack may be full
      sigaction(number, &action, &g_before[number]);
    }
    return true;
  }();
  constexpr size_t kBytes = 64 << 10;
  static thread_local const auto stack = std::make_unique<char[]>(installed ? kBytes : 0);
  const stack_t alternate = {.ss_sp = stack.get(), .ss_flags = 0, .ss_size = kBytes};
  sigaltstack(&alternate, nullptr);
  g_machine.owner = pthread_self();
}

void start(const Dispatch& dispatch, const History& history) {
  Machine& m = g_machine;
  m.options = options();
  m.simd_width = m.options.simd_width;
  m.random = m.options.seed + ++m.dispatches * 0x2545f4914f6cdd1du;
  m.error.clear();
  m.entry = dispatch.binary->program().entry;
  const StackMemory stacks = stack_memory();
  g_watch.stacks = reinterpret_cast<uintptr_t>(stacks.first);
  g_watch.stacks_bytes = stacks.bytes;
  g_watch.simd_width = static_cast<uint16_t>(m.simd_width);
  g_watch.dispatch = &dispatch;
  g_watch.history = &history;
  g_watch.floor = history.floor();
  g_watch.dispatch_first = m.interval + 1;
  g_watch.traffic = m.options.traffic;
  start_watch();
}

}  // namespace

std::string run_dispatch(const Dispatch& dispatch, const History& history) {
  catch_faults();
  start(dispatch, history);
  void* buffers[kBufferCount];
  for (unsigned i = 0; i < kBufferCount; ++i) buffers[i] = Arena::get().unbound(i);
  for (const Binding& binding : dispatch.bindings) buffers[binding.index] = binding.first;
  prepare_fibers(dispatch, buffers);
  if (g_watch.traffic) start_traffic(dispatch);
  const size_t groups = size_t{dispatch.groups[0]} * dispatch.groups[1] * dispatch.groups[2];
  for (const unsigned group : ordered(groups)) {
    run_group(dispatch, group);
    if (!g_machine.error.empty()) break;
  }
  if (g_watch.traffic) end_traffic();
  return g_machine.error;
}

uint32_t last_interval() { return g_machine.interval; }

bool restart_intervals() {
  if (g_machine.interval < kMostIntervals) return false;
  Arena::get().forget();
  g_machine.interval = 0;
  return true;
}

uint64_t dispatches_run() { return g_machine.dispatches; }

std::string running_thread() {
  const unsigned(&group)[3] = g_machine.places[g_machine.running].threadgroup_position_in_grid;
  return "kernel '" + g_watch.dispatch->kernel + "': thread " + std::to_string(g_machine.running) +
         " of threadgroup (" + std::to_string(group[0]) + ", " + std::to_string(group[1]) + ", " +
         std::to_string(group[2]) + ")";
}

void report(std::string message) { g_machine.error = std::move(message); }

void stop_dispatch() {
  leave_fiber();
  __builtin_unreachable();
}

void hook_threadgroup_barrier(int flags) {
  g_machine.fibers[g_machine.running].flags = flags;
  wait_at(State::barrier, __builtin_return_address(0));
}

void hook_simdgroup_barrier(int flags) {
  g_machine.fibers[g_machine.running].flags = flags;
  wait_at(State::simdgroup, __builtin_return_address(0));
}

const void* hook_simd_exchange(const void* value, size_t bytes) {
  Fiber& fiber = g_machine.fibers[g_machine.running];
  const unsigned first = g_machine.running / g_machine.simd_width * g_machine.simd_width;
  const uint8_t turn = fiber.turn;
  std::memcpy(g_machine.values[turn][g_machine.running], value, bytes);
  fiber.turn = turn ^ 1;
  fiber.flags = 0;
  wait_at(State::simdgroup, __builtin_return_address(0));
  return g_machine.values[turn][first];
}

unsigned hook_lane() { return g_machine.running % g_machine.simd_width; }

unsigned hook_lanes() {
  const size_t first = size_t{g_machine.running} / g_machine.simd_width * g_machine.simd_width;
  return static_cast<unsigned>(std::min<size_t>(g_machine.fibers.size() - first, g_machine.simd_width));
}

}  // namespace rota::test::metal
