#include "page_store/files/uses.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "core/start_thread.h"

namespace rota::page_store::files {
namespace {

constexpr std::size_t kMostKeys = 1U << 18, kKeysAtOnce = 512;
constexpr std::chrono::seconds kPatience(1);

}  // namespace

std::size_t Uses::Hash::operator()(const PageKey& key) const noexcept {
  std::size_t hash = 0;  // a key is a hash
  std::memcpy(&hash, key.bytes.data(), sizeof hash);
  return hash;
}

Uses::~Uses() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  static_cast<void>(core::guarded([&]() -> Status {
    write();
    return {};
  }));
}

void Uses::add(std::span<const PageKey> keys) {
  const std::lock_guard lock(mutex_);
  if (keys_.size() + keys.size() > kMostKeys) return;
  keys_.insert(keys.begin(), keys.end());
  if (thread_.joinable() || is_ending_) return;
  thread_ = core::start_thread([this] { run(); });  // without one, who adds next tries again
}

void Uses::run() {
  std::unique_lock lock(mutex_);
  while (!is_ending_) {
    changed_.wait_for(lock, pace_.uses_written_every, [&] { return is_ending_; });
    if (is_ending_ || keys_.empty()) continue;
    lock.unlock();
    static_cast<void>(core::guarded([&]() -> Status {
      write();
      return {};
    }));
    lock.lock();
  }
}

void Uses::write() {
  Keys keys;
  {
    const std::lock_guard lock(mutex_);
    keys.swap(keys_);
  }
  std::vector<PageKey> sorted(keys.begin(), keys.end());
  std::ranges::sort(sorted);
  const std::uint64_t now = now_ms();
  const std::uint64_t old = now - std::min(now, static_cast<std::uint64_t>(pace_.used_again_after.count()));
  const auto deadline = Clock::now() + kPatience;
  for (std::span<const PageKey> rest(sorted); !rest.empty();) {
    const auto some = rest.first(std::min(rest.size(), kKeysAtOnce));
    rest = rest.subspan(some.size());
    Status status = index_->write(deadline, [&](Rows& rows) -> Status {
      for (const PageKey& key : some) {
        if (Status used = rows.use(key, now, old); !used) return used;
      }
      return {};
    });
    if (!status) return;
  }
}

}  // namespace rota::page_store::files
