#include "cache/transaction.h"

#include <algorithm>
#include <limits>

#include "cache/state.h"

namespace rota::cache {

void Transaction::ended(End end) noexcept { state->ended(*this, end); }

Transaction* OpenTransactions::find(const runtime::Recorder* recorder) const noexcept {
  const auto found = std::ranges::find(open_, recorder, &Transaction::recorder);
  return found == open_.end() ? nullptr : *found;
}

void OpenTransactions::prepare_add() {
  prepare_give_back();  // at its end
  open_.reserve(open_.size() + 1);
}

void OpenTransactions::prepare_give_back() { retired_.reserve(retired_.size() + open_.size() + 1); }

void OpenTransactions::start(Transaction& transaction) noexcept {
  if (transaction.serial == 0) transaction.serial = ++last_serial_;
}

void OpenTransactions::give_back(std::vector<PageUse> uses) noexcept {
  std::uint64_t newest = 0;
  for (const Transaction* const transaction : open_) newest = std::max(newest, transaction->serial);
  if (newest == 0) {
    pools_.release(uses);
  } else {
    retired_.push_back({newest, std::move(uses)});
  }
}

void OpenTransactions::reuse_retired() noexcept {
  std::uint64_t oldest = std::numeric_limits<std::uint64_t>::max();
  for (const Transaction* const transaction : open_) {
    if (transaction->serial != 0) oldest = std::min(oldest, transaction->serial);
  }
  std::erase_if(retired_, [&](const Retired& retired) {
    const bool free = retired.serial < oldest;
    if (free) pools_.release(retired.uses);
    return free;
  });
}

bool OpenTransactions::note_shortage(const Transaction* transaction) noexcept {
  const bool of_encoders = pages_wait(last_serial_, transaction);
  if (of_encoders) short_until_ = last_serial_;
  short_of_saved_ = saves_ > 0;
  return of_encoders || short_of_saved_;
}

bool OpenTransactions::pages_wait(std::uint64_t serial, const Transaction* except) const noexcept {
  return std::ranges::any_of(open_, [&](const Transaction* transaction) {
    if (transaction == except || transaction->serial == 0 || transaction->serial > serial) return false;
    // A layer that it appends or finishes may be the last that its step's pages wait for.
    const bool has_layers = !transaction->appends.empty() || !transaction->done.empty();
    return has_layers || !retired_.empty() || !transaction->given.empty() || !transaction->taken.empty();
  });
}

}  // namespace rota::cache
