#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "cache/growth.h"

namespace rota::cache {

// Counts how many sequences use each page of a pool, and knows which pages have memory. Pages are numbered from 0 on,
// and the lowest that is free is used first, so that a pool that shrinks does so at its end:
//
//   page       0 1 2 3 4 5 | 6 7 8 ...    pages behind the bar have never had a user, nor memory; they cost nothing
//   users      1 0 2 1 0 0 |
//   free         *     * * | * * * ...    `free_` lists those before the bar
//   committed  # # # # #   |              the pages that a device has memory for; a page in use is one of them
//   reserved   # # #       |              pages before this one keep their memory while they are free
//
// A page is free exactly if its count is 0. The pool does not know about commands: whoever releases a page makes sure
// that none can touch it any more (see OpenTransactions), and whoever takes one has it committed (PagePools).
class PagePool {
 public:
  enum class Memory : std::uint8_t { at_once, as_needed };
  PagePool(std::uint64_t pages, Memory memory) noexcept : pages_(pages), memory_(memory) {}

  std::uint64_t pages() const noexcept { return pages_; }
  std::uint64_t used() const noexcept { return known_.size() - free_.size(); }
  std::uint64_t free() const noexcept { return pages_ - used(); }
  std::uint64_t shared() const noexcept { return shared_; }

  // Makes room so that the next take() needs no memory. Precondition: free() > 0.
  void prepare_take() {
    if (free_.empty()) make_room(pages_, known_, free_);
  }

  // Precondition: prepare_take() since the last take(). The page has one user.
  std::uint32_t take() noexcept {
    assert(free() > 0);
    if (free_.empty()) {
      known_.push_back({.users = 1});
      return static_cast<std::uint32_t>(known_.size() - 1);
    }
    std::ranges::pop_heap(free_, kLowestFirst);
    const std::uint32_t page = free_.back();
    free_.pop_back();
    known_[page].users = 1;
    known_[page].was_free = false;
    return page;
  }

  // Adds a user. Precondition: the page has one.
  void share(std::uint32_t page) noexcept {
    assert(known_[page].users > 0);
    if (++known_[page].users == 2) ++shared_;
  }

  bool is_shared(std::uint32_t page) const noexcept { return known_[page].users > 1; }

  // Takes a user away. Needs no memory: `free_` has room for every page that was ever used.
  void release(std::uint32_t page) noexcept {
    assert(known_[page].users > 0);
    const std::uint32_t left = --known_[page].users;
    if (left == 1) --shared_;
    if (left == 0) push_free(page);
  }

  std::uint64_t committed() const noexcept { return memory_ == Memory::at_once ? pages_ : committed_; }
  bool is_committed(std::uint64_t page) const noexcept {
    return memory_ == Memory::at_once || (page < known_.size() && known_[page].committed);
  }

  // Makes the pages before `end` known. Precondition: end <= pages().
  void know(std::uint64_t end) {
    while (known_.size() < end) {
      make_room(pages_, known_, free_);
      known_.push_back({});
      push_free(static_cast<std::uint32_t>(known_.size() - 1));
    }
  }
  // Preconditions: the page is known, and is not as it becomes.
  void set_committed(std::uint64_t page, bool committed) noexcept {
    known_[page].committed = committed;
    known_[page].was_free = false;
    committed_ += committed ? 1 : -std::uint64_t{1};
  }

  void set_reserved(std::uint64_t pages) noexcept { reserved_ = pages; }

  // The free pages with memory that is not reserved, rising, if they were so at the last call, too. The first `spare`
  // of those that are so now are left out.
  std::vector<std::uint32_t> idle(std::uint64_t spare) {
    if (memory_ == Memory::at_once) return {};
    std::vector<std::uint32_t> now, idle;
    for (const std::uint32_t page : free_) {
      if (known_[page].committed && page >= reserved_) now.push_back(page);
    }
    std::ranges::sort(now);
    for (std::size_t i = 0; i < now.size(); ++i) {
      const bool was_free = std::exchange(known_[now[i]].was_free, true);
      if (was_free && i >= spare) idle.push_back(now[i]);
    }
    return idle;
  }

 private:
  struct Page {
    std::uint32_t users = 0;
    bool committed = false;
    bool was_free = false;  // at the last call of idle(), and ever since
  };
  static constexpr std::greater<> kLowestFirst = {};

  void push_free(std::uint32_t page) noexcept {
    free_.push_back(page);
    std::ranges::push_heap(free_, kLowestFirst);
  }

  std::uint64_t pages_;
  Memory memory_;
  std::vector<Page> known_;
  std::vector<std::uint32_t> free_;  // of those known, as a heap
  std::uint64_t shared_ = 0;         // pages with several users
  std::uint64_t committed_ = 0, reserved_ = 0;
};

}  // namespace rota::cache
