#pragma once

#include <nanobind/nanobind.h>
#include <rota/rota.h>

#include <cstdint>
#include <memory>
#include <utility>

// Caches and sequences, as other parts of the module take them.

namespace rota::python {

namespace nb = nanobind;

// What a sequence, a step and their cache share.
struct Cache {
  Device device;
  KvCache cache;

  // Runs work(encoder), and submits. What follows on the device comes after it, so nobody waits.
  template <class Work>
  void submit(Work&& work) {
    Encoder encoder = device.encoder();
    work(encoder);
    (void)std::move(encoder).submit().value();
  }
};

class PySequence {
 public:
  PySequence(std::shared_ptr<Cache> cache, Sequence name) : cache_(std::move(cache)), name_(name) {}
  PySequence(const PySequence&) = delete;
  PySequence& operator=(const PySequence&) = delete;
  ~PySequence() {
    if (cache_) (void)cache_->cache.close(name_);
  }

  // These take Python's lock, without which another thread might close the sequence meanwhile, and give it back
  // while they compute.
  void close() {
    const auto owner = std::exchange(cache_, nullptr);
    const nb::gil_scoped_release unlocked;
    if (owner) owner->cache.close(name_).value();
  }
  std::shared_ptr<Cache> cache() const {
    if (!cache_) throw BadResult({.code = Errc::invalid_argument, .message = "the sequence is closed"});
    return cache_;
  }
  Sequence name() const noexcept { return name_; }

  std::shared_ptr<PySequence> fork() const {
    const auto owner = cache();
    const nb::gil_scoped_release unlocked;
    Sequence other;
    owner->submit([&](Encoder& encoder) { other = owner->cache.fork(encoder, name_).value(); });
    return std::make_shared<PySequence>(owner, other);
  }
  void truncate(std::uint64_t length) const {
    const auto owner = cache();
    const nb::gil_scoped_release unlocked;
    owner->submit([&](Encoder& encoder) { owner->cache.truncate(encoder, name_, length).value(); });
  }
  std::uint64_t length() const { return cache()->cache.length(name_).value(); }

 private:
  std::shared_ptr<Cache> cache_;
  Sequence name_;
};

}  // namespace rota::python
