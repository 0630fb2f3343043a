#include "bench/calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "bench/sampler.h"
#include "cli/show.h"

namespace rota::tool {
namespace {

constexpr std::uint64_t kLayers = 32;       // of a model
constexpr std::uint64_t kLoopsPerCall = 5;  // attend has up to five commands: queries, tail, pages, sinks, merge

// As ggml's threads do: all spin from one loop to the next and meet at a barrier.
class SpinningLoops {
 public:
  explicit SpinningLoops(std::uint32_t threads) : threads_(threads) {
    for (std::uint32_t i = 1; i < threads; ++i) helpers_.emplace_back([this] { help(); });
  }
  ~SpinningLoops() {
    stopping_ = true;
    ++loop_;
    for (std::thread& helper : helpers_) helper.join();
  }
  SpinningLoops(const SpinningLoops&) = delete;
  SpinningLoops& operator=(const SpinningLoops&) = delete;

  void run() {
    arrived_ = 1;
    ++loop_;
    while (arrived_ < threads_) relax();
  }

 private:
  void help() {
    for (std::uint64_t seen = 0;;) {
      while (loop_ == seen) relax();
      seen = loop_;
      if (stopping_) return;
      ++arrived_;
    }
  }
  static void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }

  const std::uint32_t threads_;
  std::atomic<std::uint64_t> loop_ = 0;
  std::atomic<std::uint32_t> arrived_ = 0;
  std::atomic<bool> stopping_ = false;
  std::vector<std::thread> helpers_;
};

// As a plain pool does: threads sleep, are woken for each loop, and the last one wakes the caller.
class SleepingLoops {
 public:
  explicit SleepingLoops(std::uint32_t threads) {
    for (std::uint32_t i = 1; i < threads; ++i) helpers_.emplace_back([this] { help(); });
  }
  ~SleepingLoops() {
    begin(true);
    for (std::thread& helper : helpers_) helper.join();
  }
  SleepingLoops(const SleepingLoops&) = delete;
  SleepingLoops& operator=(const SleepingLoops&) = delete;

  void run() {
    begin(false);
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return left_ == 0; });
  }

 private:
  void begin(bool stopping) {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = stopping;
      left_ = helpers_.size();
      ++loop_;
    }
    begun_.notify_all();
  }
  void help() {
    std::unique_lock lock(mutex_);
    for (std::uint64_t seen = 0;;) {
      begun_.wait(lock, [&] { return loop_ != seen; });
      seen = loop_;
      if (stopping_) return;
      if (--left_ == 0) done_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable begun_, done_;
  std::uint64_t loop_ = 0;
  std::size_t left_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> helpers_;
};

// Threads live no longer than a sample: those that spin would disturb the others.
template <class Loops>
Contender empty_loops(std::uint32_t threads) {
  return {[threads](std::uint64_t calls) {
    Loops loops(threads);
    for (std::uint64_t loop = 0; loop < calls * kLoopsPerCall; ++loop) loops.run();
  }};
}

// What a row says besides its times.
struct Subject {
  std::string submitted;
  const DeviceInfo* device;
  const BenchShape* shape;  // null: none
};

Json row_of(const Subject& subject, const Contender& contender) {
  constexpr double kMicroseconds = 1e6;
  const Spread spread = spread_of(contender.seconds);
  const bool cpu = subject.device->kind == DeviceKind::cpu;
  Json row{{"submitted", subject.submitted},
           {"device", subject.device->id},
           {"threads", cpu ? Json(subject.device->threads) : Json(nullptr)},
           {"k", nullptr},
           {"v", nullptr},
           {"keys", nullptr}};
  if (subject.shape != nullptr) {
    row["k"] = name(subject.shape->k);
    row["v"] = name(subject.shape->v);
    row["keys"] = subject.shape->keys;
  }
  row["samples"] = contender.seconds.size();
  row["calls_per_sample"] = contender.calls;
  row["median_us"] = spread.median * kMicroseconds;
  row["min_us"] = spread.least * kMicroseconds;
  row["p25_us"] = spread.lower_quarter * kMicroseconds;
  row["p75_us"] = spread.upper_quarter * kMicroseconds;
  row["spread"] = spread.relative();
  return row;
}

}  // namespace

Report bench_calls(const CallCases& cases, Session& session, const Invocation& invocation) {
  std::vector<Subject> subjects;
  std::vector<Contender> contenders;
  std::vector<bench::Work> works;
  MemoryLeft left = memory_of(cases.devices.front(), 0);
  for (const Device& device : cases.devices) {
    const DeviceInfo& info = device.info();
    bench::Place place = place_of(device, left);
    for (const BenchShape& shape : cases.shapes) {
      const bench::Work& work = works.emplace_back(make_work(place, "attend", shape));
      subjects.push_back({"alone", &info, &shape});
      contenders.push_back({[run = work.run](std::uint64_t calls) {
        for (; calls > 0; --calls) run(1);
      }});
      subjects.push_back({fmt::format("with {}", kLayers), &info, &shape});
      contenders.push_back({[run = work.run](std::uint64_t calls) {
        for (; calls > 0; calls -= std::min(calls, kLayers)) run(std::min(calls, kLayers));
      }});
    }
    if (info.kind != DeviceKind::cpu) continue;
    subjects.push_back({fmt::format("{} empty loops, spinning", kLoopsPerCall), &info, nullptr});
    contenders.push_back(empty_loops<SpinningLoops>(info.threads));
    subjects.push_back({fmt::format("{} empty loops, sleeping", kLoopsPerCall), &info, nullptr});
    contenders.push_back(empty_loops<SleepingLoops>(info.threads));
  }
  session.prepare(works);
  session.sample(contenders);

  Report report{.head = report_head("bench call", invocation),
                .table = {.columns = {{"submitted", "submitted"},
                                      {"device", "device"},
                                      {"threads", "threads"},
                                      {"k", "k"},
                                      {"v", "v"},
                                      {"keys", "keys"},
                                      {"median_us", "us", ".1f"},
                                      {"min_us", "least", ".1f"},
                                      {"spread", "spread", "percent"}}}};
  Json devices = Json::array();
  for (const Device& device : cases.devices) devices.push_back(device_json(device.info()));
  report.head["devices"] = devices;
  for (std::size_t i = 0; i < subjects.size(); ++i) report.table.rows.push_back(row_of(subjects[i], contenders[i]));
  report.before = fmt::format("{}: {}, {} rounds of all cases in turn, caches warm\n\n",
                              cases.devices.front().info().id, cases.devices.front().info().name, session.rounds());
  report.after = fmt::format(
      "\nus: median of one call of attend, from recording it to its end. alone: submitted and waited for by itself. "
      "with {0}:"
      "\nas one of {0} in a submission. empty loops: what {1} loops of so many threads cost that do nothing, if the "
      "threads\nspin in between, as ggml's do, or sleep.\n",
      kLayers, kLoopsPerCall);
  session.describe(report, contenders.size());
  return report;
}

}  // namespace rota::tool
