#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <vector>

namespace rota::cache {

// Which pages of a pool are in use, and by how many sequences. Its lists grow with the pages that were ever used, so
// that a pool costs nothing before.
class PagePool {
 public:
  static constexpr std::uint64_t kHostBytesPerPage = 2 * sizeof(std::uint32_t);  // once the page was used

  explicit PagePool(std::uint64_t pages) noexcept : pages_(pages) {}

  std::uint64_t pages() const noexcept { return pages_; }
  std::uint64_t free() const noexcept { return pages_ - users_.size() + returned_.size(); }
  std::uint64_t shared() const noexcept { return shared_; }

  // Makes room so that the next take() needs no memory. Precondition: free() > 0.
  void prepare_take() {
    if (!returned_.empty() || users_.size() < users_.capacity()) return;
    constexpr std::uint64_t kFew = 16;
    const std::uint64_t room = std::min(pages_, std::max<std::uint64_t>(kFew, 2 * users_.size()));
    returned_.reserve(room);  // first: release() relies on it
    users_.reserve(room);
  }

  // Precondition: prepare_take() since the last one. The page has one user.
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

  void share(std::uint32_t page) noexcept {
    assert(users_[page] > 0);
    if (++users_[page] == 2) ++shared_;
  }

  bool is_shared(std::uint32_t page) const noexcept { return users_[page] > 1; }

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
  std::uint64_t shared_ = 0;
};

}  // namespace rota::cache
