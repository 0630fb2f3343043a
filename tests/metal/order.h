// Which dispatches are over before another begins: by barriers inside an encoder, fences and events between encoders,
// and the host's waiting. Nothing else orders uses of an untracked buffer.

#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace rota::test::metal {

// Of each encoder, how many of its dispatches, from the first, are over.
using Clock = std::map<uint64_t, uint32_t>;

void merge(Clock& into, const Clock& from);

// One dispatch, as the order sees it. Its intervals (machine.h) are consecutive numbers from `first`.
struct Event {
  uint32_t first;
  uint64_t encoder;
  uint32_t ordinal;
};

class History {
 public:
  // Forgets what every dispatch from now on comes after: intervals up to `completed`.
  void forget(uint32_t completed);

  // The next dispatch comes after intervals up to `completed` and what the clock says.
  void begin(const Event& event, const Clock& clock, uint32_t completed);

  // All intervals up to this one come before the current dispatch.
  uint32_t floor() const { return floor_; }

  // Of an interval above the floor that belongs to an earlier dispatch.
  bool is_before(uint32_t interval) const;

  // Of such an interval: whether its dispatch was of another encoder than the current one.
  bool is_of_another_encoder(uint32_t interval) const;

  // Encoders below this number are in no clock's interest any more.
  uint64_t oldest_encoder() const;

 private:
  std::vector<Event> events_;  // by `first`; the last is the current dispatch
  std::vector<bool> before_;   // of each event
  uint32_t floor_ = 0;
};

}  // namespace rota::test::metal
