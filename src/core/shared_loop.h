#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

namespace rota::core {

// A loop that one thread runs, and that others help with if they come while it is open. Nobody has to come, so that a
// thread which is late, asleep or descheduled delays nobody but for the slice that it has in hand.
//
//   run():    publish, OPEN ---- take slices ---- CLOSE -- wait until nobody is inside --> the next loop
//   help():          enter (+1) -- take slices -- leave (-1)
//
// Which thread takes which slice is not fixed, so slices must not depend on each other. A thread takes a slice while it
// still has another to do, so that what the next one reads can be prefetched, unless that left others with none.
class SharedLoop {
 public:
  // `threads` is how many may come, the one that runs the loop among them.
  explicit SharedLoop(std::uint32_t threads) noexcept : threads_(threads) {}

  SharedLoop(const SharedLoop&) = delete;
  SharedLoop& operator=(const SharedLoop&) = delete;

  // Items of a loop, [begin, end), the number of the thread that calls for them, and where its next slice begins.
  struct Slice {
    std::uint64_t begin, end;
    std::uint32_t thread = 0;
    std::optional<std::uint64_t> next = {};
  };

  // Calls body(slice) for slices that together are [0, items). Returns when all are done. One thread at a time.
  // end_of(begin, slices) is where a slice ends that begins there, where what is left is for so many: behind `begin`,
  // and at `items` at most.
  template <class EndOf, class Body>
  void run(std::uint32_t thread, std::uint64_t items, const EndOf& end_of, const Body& body) noexcept {
    run_erased(thread,
               {items, &end_of,
                [](const void* erased, std::uint64_t begin, std::uint64_t slices) -> std::uint64_t {
                  return (*static_cast<const EndOf*>(erased))(begin, slices);
                },
                &body, [](const void* erased, const Slice& slice) { (*static_cast<const Body*>(erased))(slice); }});
  }

  // Helps with the open loop, if there is one that this thread has not been in: `last` is its own memory of that, 0 at
  // first. Returns whether it did. Two threads at a time must not have one number.
  bool help(std::uint32_t thread, std::uint64_t& last) noexcept;

 private:
  struct Loop {
    std::uint64_t items = 0;
    const void* cut = nullptr;
    std::uint64_t (*end_of)(const void*, std::uint64_t, std::uint64_t) = nullptr;
    const void* body = nullptr;
    void (*call)(const void*, const Slice&) = nullptr;
  };

  void run_erased(std::uint32_t thread, const Loop& loop) noexcept;
  std::optional<Slice> take_slice(std::uint32_t thread, std::uint64_t leave) noexcept;
  void take_slices(std::uint32_t thread) noexcept;
  void wait_until_alone() noexcept;

  const std::uint32_t threads_;
  Loop loop_{};                                      // written while nobody is inside
  alignas(64) std::atomic<std::uint64_t> state_{0};  // number of the loop, whether it is open, threads inside
  alignas(64) std::atomic<std::uint64_t> next_item_{0};
};

// What a thread does between two looks at what it spins for: `turn` counts them. It lets others run when it has waited
// for long, because the one that it waits for may need this core.
void spin_once(std::uint32_t turn) noexcept;

}  // namespace rota::core
