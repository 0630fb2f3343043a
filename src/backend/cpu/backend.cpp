#include "runtime/backend.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <thread>
#include <vector>

#include "backend/cpu/queue.h"
#include "backend/cpu/sparse_memory.h"
#include "core/cpu_features.h"
#include "core/error.h"
#include "core/host_limits.h"
#include "core/isa.h"

namespace rota::cpu {
namespace {

constexpr std::uint64_t kHugePageBytes = 2U << 20;
constexpr std::uint32_t kMaxThreads = 1024;
constexpr std::uint64_t kSparseBytes = std::uint64_t{1} << 46;  // half of what a process can address on x86-64

DeviceInfo describe(std::uint32_t threads) {
  constexpr auto kUnlimited = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  return {
      .id = "cpu",
      .name = core::cpu_name(),
      .driver = core::text("rota, {} kernels", core::name_of(core::best_isa())),
      .kind = DeviceKind::cpu,
      .memory_bytes = core::usable_memory_bytes(),
      .threads = threads,
      .features = core::cpu_features(),
      .limits = {.max_buffer_bytes = kUnlimited, .max_binding_bytes = kUnlimited, .max_sparse_bytes = kSparseBytes}};
}

std::uint32_t default_threads() { return std::min(core::usable_cpus(), kMaxThreads); }

class HostMemory final : public runtime::Memory {
 public:
  HostMemory(std::uint64_t bytes, std::byte* host) noexcept : Memory(bytes, host) {}
  ~HostMemory() override { std::free(host()); }
};

// Memory of the caller's own.
class WrappedMemory final : public runtime::Memory {
 public:
  WrappedMemory(std::span<std::byte> bytes, std::shared_ptr<const void> keep) noexcept
      : Memory(bytes.size(), bytes.data()), keep_(std::move(keep)) {}

 private:
  std::shared_ptr<const void> keep_;
};

class CpuPipeline final : public runtime::Pipeline {};

class CpuBatch final : public runtime::PreparedBatch {
 public:
  explicit CpuBatch(runtime::Batch prepared) noexcept : batch(std::move(prepared)) {}
  runtime::Batch batch;
};

class CpuBackend final : public runtime::Backend {
 public:
  CpuBackend(std::unique_ptr<Queue> queue, std::uint32_t threads, ParallelFor parallel_for)
      : info_(describe(threads)), parallel_for_(std::move(parallel_for)), queue_(std::move(queue)) {}

  const DeviceInfo& info() const noexcept override { return info_; }

  Result<std::shared_ptr<runtime::Memory>> allocate(std::uint64_t bytes, runtime::MemoryKind) override {
    const bool large = bytes >= kHugePageBytes;
    const std::uint64_t alignment = large ? kHugePageBytes : runtime::kBindingAlignment;
    const std::uint64_t rounded = core::round_up(bytes, alignment);
    auto* const host = static_cast<std::byte*>(std::aligned_alloc(alignment, rounded));
    if (host == nullptr) {
      return Error{Errc::out_of_memory, core::text("allocate: the system refuses {} bytes to cpu", bytes)};
    }
#if defined(MADV_HUGEPAGE)
    if (large) madvise(host, rounded, MADV_HUGEPAGE);  // a wish: without it memory is slower, nothing else
#endif
    return std::shared_ptr<runtime::Memory>(std::unique_ptr<runtime::Memory>(own(host, bytes)));
  }

  Result<std::shared_ptr<runtime::Memory>> wrap(std::span<std::byte> bytes, std::shared_ptr<const void> keep) override {
    return std::shared_ptr<runtime::Memory>(std::make_shared<WrappedMemory>(bytes, std::move(keep)));
  }

  Result<std::shared_ptr<runtime::Memory>> reserve(std::uint64_t bytes) override {
    auto memory = SparseMemory::reserve(bytes);
    if (!memory) return memory.error();
    return std::shared_ptr<runtime::Memory>(std::move(memory).value());
  }

  std::uint64_t sparse_bytes_left() override { return info_.limits.max_sparse_bytes; }
  Status commit(std::span<const runtime::SparseRanges> parts) override { return SparseMemory::commit(parts); }
  void decommit(std::span<const runtime::SparseRanges> parts) override { SparseMemory::decommit(parts); }

  Result<std::shared_ptr<runtime::Pipeline>> build(const runtime::Kernel&, const runtime::Constants&) override {
    return std::shared_ptr<runtime::Pipeline>(std::make_shared<CpuPipeline>());
  }

  Result<std::unique_ptr<runtime::PreparedBatch>> prepare(runtime::Batch batch) override {
    return std::unique_ptr<runtime::PreparedBatch>(std::make_unique<CpuBatch>(std::move(batch)));
  }

  Status enqueue(std::unique_ptr<runtime::PreparedBatch> batch, std::uint64_t ticket) override {
    queue_->push(std::move(static_cast<CpuBatch&>(*batch).batch), ticket);
    return {};
  }

  void submitted() noexcept override { queue_->run_here(); }

  Result<bool> wait_for(std::uint64_t ticket, std::chrono::nanoseconds timeout) override {
    if (timeout != runtime::kForever) return queue_->wait_until(ticket, runtime::deadline_after(timeout));
    queue_->wait(ticket);
    return true;
  }

  Status read(const runtime::Memory& from, std::uint64_t offset, std::span<std::byte> to) override {
    if (!to.empty()) std::memcpy(to.data(), from.host() + offset, to.size());
    return {};
  }

  Status write(runtime::Memory& to, std::uint64_t offset, std::span<const std::byte> from) override {
    if (!from.empty()) std::memcpy(to.host() + offset, from.data(), from.size());
    return {};
  }

  // Threads of the pool lead and help with commands, so these are others, which live as long as the call.
  void run_beside_commands(std::uint64_t most, const std::function<void()>& run) override {
    const auto others = static_cast<std::uint32_t>(std::min<std::uint64_t>(most, info_.threads)) - 1;
    std::vector<std::thread> threads;
    const Status started = core::guarded([&]() -> Status {
      if (parallel_for_ && others > 0) parallel_for_(others, [&](std::uint32_t) { run(); });
      const core::BlockedSignals blocked;
      while (!parallel_for_ && threads.size() < others) threads.emplace_back(run);
      return {};
    });
    static_cast<void>(started);  // threads that there are suffice
    run();
    for (std::thread& thread : threads) thread.join();
  }

  Status save_pipelines() override { return {}; }

 private:
  static runtime::Memory* own(std::byte* host, std::uint64_t bytes) {
    auto* const memory = new (std::nothrow) HostMemory(bytes, host);
    if (memory == nullptr) {
      std::free(host);
      throw std::bad_alloc();
    }
    return memory;
  }

  DeviceInfo info_;
  const ParallelFor parallel_for_;
  std::unique_ptr<Queue> queue_;
};

Result<std::vector<DeviceInfo>> list() { return std::vector{describe(default_threads())}; }

Result<std::unique_ptr<runtime::Backend>> open(const DeviceOptions& options) {
  if (options.device != "cpu") {
    return Error{Errc::no_device, core::text("open: there is one CPU, \"cpu\", and no \"{}\"", options.device)};
  }
  if (options.threads > kMaxThreads) {
    return core::refuse({"open", {"threads"}}, options.threads, "at most {}", kMaxThreads);
  }
  const std::uint32_t threads = options.threads != 0 ? options.threads : default_threads();
  auto queue = Queue::create(threads, options.parallel_for);
  if (!queue) return queue.error();
  return std::unique_ptr<runtime::Backend>(
      std::make_unique<CpuBackend>(std::move(queue).value(), threads, options.parallel_for));
}

}  // namespace

extern const runtime::BackendEntry kBackend{.name = "cpu", .advice = "", .list = list, .open = open};

}  // namespace rota::cpu
