#pragma once

#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "harness/on_device.h"
#include "page_store/medium.h"
#include "rota/rota.h"
#include "rota/store.h"

// What tests of prefixes have in common: an engine whose keys and values follow from its tokens, and a medium in memory
// that fails when it is told to.

namespace rota::page_store::reference {

using Bytes = std::vector<std::byte>;
using Tokens = std::vector<std::int32_t>;

inline Tokens random_tokens(std::uint64_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  Tokens tokens(count);
  for (std::int32_t& token : tokens) token = static_cast<std::int32_t>(random() % 50'000);
  return tokens;
}

// As a model does, with a hash for a network: numbers of a position follow from its layer, its token and all before it.
class Engine {
 public:
  explicit Engine(KvCacheSpec spec, std::uint32_t threads = 2)
      : device(Device::open({.device = "cpu", .threads = threads}).value()),
        cache(KvCache::create(device, spec).value()) {}

  // Adds tokens[length of the sequence, end).
  void extend(Sequence sequence, std::span<const std::int32_t> tokens) {
    for (std::uint64_t length = cache.length(sequence).value(); length < tokens.size();) {
      const std::uint64_t count = std::min(tokens.size() - length, cache.spec().max_step_tokens);
      step(sequence, tokens, count);
      length += count;
    }
  }

  void step(Sequence sequence, std::span<const std::int32_t> tokens, std::uint64_t count) {
    const std::uint64_t begin = cache.length(sequence).value();
    Encoder encoder = device.encoder();
    KvStep step = cache.extend(encoder, sequence, count).value();
    for (const KvGroup& group : cache.spec().groups) {
      for (const std::uint32_t layer : group.layers) {
        const View k = heads(group, {tokens, begin, count, 2 * layer});
        const View v = heads(group, {tokens, begin, count, 2 * layer + 1});
        step.append(encoder, layer, k, v);
      }
    }
    std::move(encoder).submit().value().wait().value();
  }

  Sequence sequence_of(std::span<const std::int32_t> tokens) {
    const Sequence sequence = cache.open_sequence().value();
    extend(sequence, tokens);
    return sequence;
  }

  Bytes saved(Sequence sequence, std::optional<std::uint64_t> end = {}) {
    Bytes bytes;
    const auto sink = [&](std::span<const std::byte> more) -> Status {
      bytes.insert(bytes.end(), more.begin(), more.end());
      return {};
    };
    cache.save(sequence, sink, {.end = end}).value();
    return bytes;
  }

  Device device;
  KvCache cache;

 private:
  struct Numbers {
    std::span<const std::int32_t> tokens;
    std::uint64_t begin, count;
    std::uint32_t stream;
  };
  View heads(const KvGroup& group, const Numbers& numbers) {
    const std::uint64_t dims = std::uint64_t{group.kv_heads} * group.head_dim;
    std::vector<float> values;
    std::uint32_t state = 1;
    for (std::uint64_t i = 0; i < numbers.begin; ++i) state = mixed(state, numbers.tokens[i]);
    for (std::uint64_t i = 0; i < numbers.count; ++i) {
      state = mixed(state, numbers.tokens[numbers.begin + i]);
      std::minstd_rand random(state + 7919 * numbers.stream);
      for (std::uint64_t dim = 0; dim < dims; ++dim) {
        values.push_back(static_cast<float>(random() % 2001) / 1000 - 1);
      }
    }
    Buffer buffer = device.allocate(values.size() * sizeof(float)).value();
    buffer.write(std::as_bytes(std::span(values))).value();
    return View::token_major(buffer, DType::f32, {numbers.count, group.kv_heads, group.head_dim});
  }
  static std::uint32_t mixed(std::uint32_t state, std::int32_t token) {
    return (state ^ static_cast<std::uint32_t>(token)) * 2654435761U + 12345U;
  }
};

class MemoryMedium final : public Medium {
 public:
  // What goes wrong from now on.
  struct Faults {
    bool is_gone = false;                     // every call fails at once
    bool is_full = false;                     // so does put()
    std::optional<ObjectName> refused = {};   // put() of this one fails
    unsigned dead_of_256 = 0;                 // servers that have as many of 256 pages
    std::chrono::milliseconds takes_ms = {};  // each call; beyond its deadline it fails
  };
  void set(const Faults& faults) {
    const std::lock_guard lock(mutex_);
    faults_ = faults;
  }
  std::map<ObjectName, std::pair<ObjectHeader, Bytes>> objects() const {
    const std::lock_guard lock(mutex_);
    return objects_;
  }
  void lose(const ObjectName& name) {
    const std::lock_guard lock(mutex_);
    objects_.erase(name);
  }
  void flip(const ObjectName& name, std::size_t bit) {
    const std::lock_guard lock(mutex_);
    Bytes& bytes = objects_.at(name).second;
    bytes[bit / 8 % bytes.size()] ^= static_cast<std::byte>(1U << bit % 8);
  }
  std::uint64_t finds = 0, gets = 0, puts = 0;
  bool last_put_takes_signals = false;  // the thread that called it

  Result<std::vector<StoredPage>> find(std::span<const PageKey> keys, Deadline deadline) override {
    if (Status status = begin(deadline); !status) return status.error();
    const std::lock_guard lock(mutex_);
    ++finds;
    std::vector<StoredPage> pages;
    for (const PageKey& key : keys) {
      pages.push_back({.key = key});
      for (const StoredPart part : kStoredParts) {
        const auto object = objects_.find({key, part});
        if (object == objects_.end()) continue;
        pages.back().part_bytes[static_cast<std::size_t>(part)] = kObjectHeaderBytes + object->second.second.size();
      }
    }
    return pages;
  }

  Result<FoundPages> find_reachable(std::span<const PageKey> keys, Deadline deadline) override {
    auto pages = find(keys, deadline);
    if (!pages) return pages.error();
    FoundPages found{std::move(pages).value(), {}};
    for (StoredPage& page : found.pages) {
      if (!is_dead(page.key)) continue;
      page = {.key = page.key};
      found.unasked = Error{Errc::io, "a server is dead"};
    }
    return found;
  }

  bool is_dead(const PageKey& key) const {
    const std::lock_guard lock(mutex_);
    return std::to_integer<unsigned>(key.bytes[0]) < faults_.dead_of_256;
  }

  Result<std::unique_ptr<Fetch>> fetch(std::vector<Wanted> objects, std::chrono::milliseconds patience) override {
    class Reads final : public Fetch {
     public:
      Reads(MemoryMedium& owner, std::vector<Wanted> wanted, std::chrono::milliseconds patience)
          : owner_(owner), wanted_(std::move(wanted)), patience_(patience) {}
      Status read(std::size_t index, std::uint64_t offset, std::span<std::byte> to) override {
        if (Status status = owner_.begin(Clock::now() + patience_); !status) return status;
        const std::lock_guard lock(owner_.mutex_);
        const auto object = owner_.objects_.find(wanted_.at(index).name);
        if (object == owner_.objects_.end()) return Error{Errc::io, "not there"};
        const Bytes& bytes = object->second.second;
        if (bytes.size() != wanted_.at(index).payload_bytes || offset + to.size() > bytes.size()) {
          return Error{Errc::io, "another size"};
        }
        std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(offset), to.size(), to.begin());
        return {};
      }

     private:
      MemoryMedium& owner_;
      std::vector<Wanted> wanted_;
      std::chrono::milliseconds patience_;
    };
    return std::unique_ptr<Fetch>(std::make_unique<Reads>(*this, std::move(objects), patience));
  }

  Result<Bytes> get(const ObjectName& name, Deadline deadline) override {
    if (Status status = begin(deadline); !status) return status.error();
    const std::lock_guard lock(mutex_);
    ++gets;
    const auto object = objects_.find(name);
    if (object == objects_.end()) return Error{Errc::io, "not there"};
    Bytes bytes = object->second.second;
    if (Status status = check_payload(object->second.first, bytes); !status) {
      objects_.erase(object);
      return status.error();
    }
    return bytes;
  }

  Status put(const ObjectHeader& header, std::span<const std::byte> payload, Deadline deadline) override {
    if (Status status = begin(deadline); !status) return status;
    if (is_dead(header.name.key)) return Error{Errc::io, "a server is dead"};
    const std::lock_guard lock(mutex_);
    if (faults_.is_full || faults_.refused == header.name) return Error{Errc::io, "full"};
    ++puts;
    sigset_t blocked;
    sigemptyset(&blocked);
    pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
    last_put_takes_signals = sigismember(&blocked, SIGTERM) != 1;
    EXPECT_OK(check_payload(header, payload));
    objects_[header.name] = {header, Bytes(payload.begin(), payload.end())};
    return {};
  }

  void use(std::span<const PageKey> keys) override { used_ += keys.size(); }
  Status remove(const PageKey& key, Deadline) override {
    for (const StoredPart part : kStoredParts) lose({key, part});
    return {};
  }
  Status list(const std::function<Status(const StoredPage&)>&, Deadline) override { return {}; }
  Result<StoreStat> stat(Deadline) override { return StoreStat{}; }
  Result<StoreCollected> collect(Deadline) override { return StoreCollected{}; }

 private:
  Status begin(Deadline deadline) {
    std::chrono::milliseconds takes{};
    {
      const std::lock_guard lock(mutex_);
      if (faults_.is_gone) return Error{Errc::io, "gone"};
      takes = faults_.takes_ms;
    }
    const Deadline done = Clock::now() + takes;
    std::this_thread::sleep_until(std::min(done, deadline));
    if (done > deadline) return Error{Errc::io, "the deadline passed"};
    return {};
  }

  mutable std::mutex mutex_;
  std::map<ObjectName, std::pair<ObjectHeader, Bytes>> objects_;
  Faults faults_;
  std::uint64_t used_ = 0;
};

}  // namespace rota::page_store::reference
