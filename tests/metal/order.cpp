#include "order.h"

#include <algorithm>

namespace rota::test::metal {

namespace {

// The first event that begins after the interval.
auto event_after(const std::vector<Event>& events, uint32_t interval) {
  return std::upper_bound(events.begin(), events.end(), interval,
                          [](uint32_t value, const Event& event) { return value < event.first; });
}

}  // namespace

void merge(Clock& into, const Clock& from) {
  for (const auto& [encoder, count] : from) {
    uint32_t& known = into[encoder];
    known = std::max(known, count);
  }
}

void History::forget(uint32_t completed) {
  const auto after = event_after(events_, completed);
  // The event before it may reach beyond `completed`.
  const auto last = after == events_.begin() ? after : after - 1;
  events_.erase(events_.begin(), last);
}

void History::begin(const Event& event, const Clock& clock, uint32_t completed) {
  before_.clear();
  floor_ = completed;
  bool all = true;
  for (size_t i = 0; i < events_.size(); ++i) {
    const uint32_t last = (i + 1 < events_.size() ? events_[i + 1].first : event.first) - 1;
    const auto known = clock.find(events_[i].encoder);
    const bool before = last <= completed || (known != clock.end() && events_[i].ordinal < known->second);
    before_.push_back(before);
    all = all && before;
    if (all) floor_ = std::max(floor_, last);
  }
  events_.push_back(event);
  before_.push_back(false);
}

bool History::is_before(uint32_t interval) const {
  if (interval <= floor_) return true;
  const auto after = event_after(events_, interval);
  if (after == events_.begin()) return true;
  return before_[static_cast<size_t>(after - events_.begin()) - 1];
}

bool History::is_of_another_encoder(uint32_t interval) const {
  const auto after = event_after(events_, interval);
  return after == events_.begin() || (after - 1)->encoder != events_.back().encoder;
}

uint64_t History::oldest_encoder() const {
  uint64_t oldest = UINT64_MAX;
  for (const Event& event : events_) oldest = std::min(oldest, event.encoder);
  return oldest;
}

}  // namespace rota::test::metal
