#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <unordered_set>
#include <vector>

#include "page_store/files/files.h"
#include "page_store/files/index.h"

namespace rota::page_store::files {

// Pages that were used, on their way into the index: a thread writes them now and then. Which pages are used is worth
// no wait, nor an error: what cannot be written in time is forgotten.
class Uses {
 public:
  Uses(std::shared_ptr<Index> index, Pace pace) noexcept : index_(std::move(index)), pace_(pace) {}
  ~Uses();
  Uses(const Uses&) = delete;
  Uses& operator=(const Uses&) = delete;

  void add(std::span<const PageKey> keys);

  // Writes what is there now.
  void write();

 private:
  struct Hash {
    std::size_t operator()(const PageKey& key) const noexcept;
  };
  using Keys = std::unordered_set<PageKey, Hash>;

  void run();

  std::shared_ptr<Index> index_;
  Pace pace_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Keys keys_;
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace rota::page_store::files
