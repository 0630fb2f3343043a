#pragma once

#include <cassert>
#include <cstdint>
#include <vector>

#include "cache/growth.h"

namespace rota::cache {

// Counts how many sequences use each page of a pool. Pages are numbered from 0 on, and low numbers are used first:
//
//   page   0 1 2 3 4 | 5 6 7 ...    pages before the bar have been used once; the others cost no host memory
//   users  1 0 2 1 0 |
//   free     *     * | * * * ...    `returned_` lists those before the bar, the last one returned is taken first
//
// A page is free exactly if its count is 0. The pool does not know about commands: whoever releases a page makes sure
// that none can touch it any more (see OpenTransactions).
class PagePool {
 public:
  explicit PagePool(std::uint64_t pages) noexcept : pages_(pages) {}

  std::uint64_t pages() const noexcept { return pages_; }
  std::uint64_t free() const noexcept { return pages_ - users_.size() + returned_.size(); }
  std::uint64_t shared() const noexcept { return shared_; }

  // Makes room so that the next take() needs no memory. Precondition: free() > 0.
  void prepare_take() {
    if (returned_.empty()) make_room(pages_, users_, returned_);
  }

  // Precondition: prepare_take() since the last take(). The page has one user.
  std::uint32_t take() noexcept {
    assert(free() > 0);
    if (returned_.empty()) {
      users_.push_back(1);
      return static_cast<std::uint32_t>(users_.size() - 1);
    }
    const std::uint32_t page = returned_.back();
    returned_.pop_back();
    users_[page] = 1;
    return page;
  }

  // Adds a user. Precondition: the page has one.
  void share(std::uint32_t page) noexcept {
    assert(users_[page] > 0);
    if (++users_[page] == 2) ++shared_;
  }

  bool is_shared(std::uint32_t page) const noexcept { return users_[page] > 1; }

  // Takes a user away. Needs no memory: `returned_` has room for every page that was ever used.
  void release(std::uint32_t page) noexcept {
    assert(users_[page] > 0);
    const std::uint32_t left = --users_[page];
    if (left == 1) --shared_;
    if (left == 0) returned_.push_back(page);
  }

 private:
  std::uint64_t pages_;
  std::vector<std::uint32_t> users_;     // of each page that was ever used
  std::vector<std::uint32_t> returned_;  // those of them that nobody uses
  std::uint64_t shared_ = 0;             // pages with several users
};

}  // namespace rota::cache
