#pragma once

#include <cassert>
#include <cstdint>
#include <vector>

namespace rota::cache {

// Which pages of a pool are in use, and by how many texts. Only the constructor needs memory.
class PagePool {
 public:
  explicit PagePool(std::uint64_t pages) : users_(pages) {
    free_.reserve(pages);
    for (std::uint64_t page = pages; page > 0; --page) free_.push_back(static_cast<std::uint32_t>(page - 1));
  }

  std::uint64_t pages() const noexcept { return users_.size(); }
  std::uint64_t free() const noexcept { return free_.size(); }
  std::uint64_t shared() const noexcept { return shared_; }

  // Precondition: free() > 0. The page has one user.
  std::uint32_t take() noexcept {
    assert(!free_.empty());
    const std::uint32_t page = free_.back();
    free_.pop_back();
    users_[page] = 1;
    return page;
  }

  void share(std::uint32_t page) noexcept {
    assert(users_[page] > 0);
    if (++users_[page] == 2) ++shared_;
  }

  bool is_shared(std::uint32_t page) const noexcept { return users_[page] > 1; }

  void release(std::uint32_t page) noexcept {
    assert(users_[page] > 0);
    const std::uint32_t left = --users_[page];
    if (left == 1) --shared_;
    if (left == 0) free_.push_back(page);
  }

 private:
  std::vector<std::uint32_t> users_;
  std::vector<std::uint32_t> free_;
  std::uint64_t shared_ = 0;
};

}  // namespace rota::cache
