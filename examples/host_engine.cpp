// An engine with memory and threads of its own: activations are in std::vector<float>, its pool does Rota's work, and
// nothing is copied on the way in or out. It decodes 600 tokens with a cache of 4 bits; the last result is compared
// with attention in f64.

#include <rota/rota.h>

#include <condition_variable>
#include <functional>
#include <iostream>
#include <memory>
#include <mutex>
#include <thread>

#include "toy_model.h"

// Stands for the engine's pool: runs a task on each of its threads, and returns when all have.
class Pool {
 public:
  explicit Pool(std::uint32_t threads) {
    for (std::uint32_t i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
  }
  ~Pool() {
    begin(nullptr);
    for (std::thread& worker : workers_) worker.join();
  }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  std::uint32_t threads() const { return static_cast<std::uint32_t>(workers_.size()) + 1; }

  void run(std::uint32_t tasks, const std::function<void(std::uint32_t)>& task) {
    const std::function<void(std::uint32_t)> some = [&](std::uint32_t i) {
      if (i < tasks) task(i);
    };
    begin(&some);
    some(0);
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [this] { return left_ == 0; });
  }

 private:
  void begin(const std::function<void(std::uint32_t)>* task) {
    const std::lock_guard lock(mutex_);
    task_ = task;
    left_ = workers_.size();
    ++round_;
    begun_.notify_all();
  }
  void work(std::uint32_t index) {
    std::unique_lock lock(mutex_);
    for (std::uint64_t seen = 0;;) {
      begun_.wait(lock, [&] { return round_ != seen; });
      seen = round_;
      const auto* const task = task_;
      if (task == nullptr) return;
      lock.unlock();
      (*task)(index);
      lock.lock();
      if (--left_ == 0) ended_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable begun_, ended_;
  const std::function<void(std::uint32_t)>* task_ = nullptr;
  std::size_t left_ = 0;
  std::uint64_t round_ = 0;
  std::vector<std::thread> workers_;
};

int main() {
  constexpr std::int64_t kTokens = 600;
  Pool pool(2);
  auto device =
      rota::Device::open({.threads = pool.threads(),
                          .parallel_for = [&pool](std::uint32_t tasks, const auto& run) { pool.run(tasks, run); }})
          .value();
  const rota::KvGroup group{.layers = {0}, .kv_heads = 2, .head_dim = 64, .k = rota::turbo(4), .v = rota::turbo(4)};
  auto cache = rota::KvCache::create(device, {.groups = {group}, .max_tokens = 1024, .max_sequences = 1}).value();
  const auto sequence = cache.open_sequence().value();

  // The engine's memory, for as long as commands use it. A buffer is a handle to it; views say what is where.
  const auto qkv = std::make_shared<std::vector<float>>(toy::kAllHeads * toy::kDim);
  const auto out = std::make_shared<std::vector<float>>(toy::kHeads * toy::kDim);
  const auto in_buffer = device.wrap(std::as_writable_bytes(std::span(*qkv)), qkv).value();
  const auto out_buffer = device.wrap(std::as_writable_bytes(std::span(*out)), out).value();
  const auto [q, k, v] = toy::split(in_buffer, 1);
  const auto attended = rota::MutView::token_major(out_buffer, rota::DType::f32, q.shape);
  const rota::RopeTensor both[] = {rota::RopeTensor::in_place(q), rota::RopeTensor::in_place(k)};

  for (std::int64_t position = 0; position < kTokens; ++position) {
    std::ranges::copy(toy::numbers({&position, 1}), qkv->begin());  // the engine's own work
    auto encoder = device.encoder();
    auto step = cache.extend(encoder, sequence, 1).value();
    rota::rope(encoder, {.tensors = both,
                         .positions = step.positions(),
                         .rotary = {.pairing = rota::Pairing::halves, .theta = toy::kTheta}});
    step.append(encoder, 0, k, v);
    const auto kv = step.view(0).value();
    rota::attend(encoder, {.q = q, .kv = kv, .out = attended, .scale = toy::kScale});
    const auto fence = std::move(encoder).submit().value();  // the pool has done it by now
    if (!fence.done().value()) return 1;
  }
  const double error = toy::relative_error(*out, toy::attention(kTokens - 1, kTokens));
  std::cout << kTokens << " tokens on " << pool.threads() << " threads of the engine's own; attention is off by "
            << error << "\n";
  return error < 0.03 ? 0 : 1;  // the error of 4 bits on these numbers
}
