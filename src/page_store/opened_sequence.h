#pragma once

#include <optional>

#include "rota/kv_cache.h"

namespace rota::page_store {

// A sequence that was opened, and is closed again unless somebody gets it: what comes after may want memory.
class OpenedSequence {
 public:
  explicit OpenedSequence(KvCache& cache, std::optional<Sequence> sequence = {}) noexcept
      : cache_(cache), sequence_(sequence) {}
  ~OpenedSequence() { close(); }
  OpenedSequence(const OpenedSequence&) = delete;
  OpenedSequence& operator=(const OpenedSequence&) = delete;

  const std::optional<Sequence>& get() const noexcept { return sequence_; }
  void set(Sequence sequence) noexcept { sequence_ = sequence; }
  void give() noexcept { sequence_.reset(); }  // somebody has it
  void close() noexcept {
    if (sequence_) static_cast<void>(cache_.close(*sequence_));
    sequence_.reset();
  }

 private:
  KvCache& cache_;
  std::optional<Sequence> sequence_;
};

}  // namespace rota::page_store
