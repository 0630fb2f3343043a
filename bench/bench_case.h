#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rota/codec.h"
#include "rota/device.h"
#include "rota/dtype.h"

// What times an op: calls of it on memory that is filled as a cache's would be. Each op's case lies beside the op;
// `rota bench` and Google Benchmark run the same ones. Cases know the public headers only, as any user does.

namespace rota::bench {

// Calls of one op. Its memory lives as long as `run` does.
struct Work {
  std::uint64_t bytes = 0;        // that one call must read and write
  std::function<void()> prepare;  // once, before it runs; best after all cases of its place were made
  std::function<void(std::uint64_t calls)> run;
};

struct Ring;

// Where cases run. `take` is asked before memory is allocated, and throws if there shall be less.
struct Place {
  Device device;
  std::function<void(std::uint64_t bytes)> take = [](std::uint64_t) {};
  std::map<std::string, std::shared_ptr<Ring>> rings = {};  // by what they hold
};

// What memory holds, again and again.
struct Content {
  std::string name;         // no other content has it
  std::uint64_t unit = 64;  // bytes, a multiple of 64: memory may begin at any multiple of them
  std::function<std::vector<std::byte>(Device&)> pattern;  // whole units
};

// Normal numbers, the same in every run.
Content numbers(DType dtype);

// Pages of normal numbers, sealed by the op itself.
Content sealed_pages(const PageFormat& format);

// Pages that calls write.
Content blank_pages(const PageFormat& format);

// Copies of the memory of one call, which calls go round through so that caches are cold. Cases of a place whose
// memory holds the same share it, and where they are in it: what a call touches is what was touched longest ago,
// whichever case did. New memory costs more than all else of a benchmark's preparation.
class CallCopies {
 public:
  struct Where {
    std::size_t part;
    std::uint64_t inside;  // bytes from the part's beginning
  };
  struct At {
    Buffer buffer;
    std::uint64_t offset_bytes;
  };

  CallCopies() = default;
  // One copy of what a buffer of the place's device does not hold lies in several.
  explicit CallCopies(const Place& place) : most_bytes_(place.device.info().limits.max_buffer_bytes) {}

  // A piece of one copy. All of them come before reserve().
  Where add(const Content& content, std::uint64_t bytes);

  // As many copies as take so many bytes, or one. Asks the place for memory, and allocates none.
  void reserve(Place& place, std::uint64_t rotated_bytes);

  // Allocates and fills what no other case has. Reserved for all before, it is large enough for all.
  void fill(Device& device) const;

  std::uint64_t count() const { return count_; }
  std::uint64_t bytes() const;                          // of one copy
  At at(const Where& where, std::uint64_t copy) const;  // after fill()

  // The copy whose turn it is.
  std::uint64_t next() const;

 private:
  struct Part {
    Content content;
    std::uint64_t bytes = 0;
  };

  std::uint64_t most_bytes_ = std::numeric_limits<std::uint64_t>::max();  // of a part
  std::vector<Part> parts_{};
  std::uint64_t count_ = 1;
  std::shared_ptr<Ring> ring_{};
};

// Zeros.
Buffer cleared(Device& device, std::uint64_t bytes);

// Normal numbers, the same in every run.
Buffer numbers_in(Device& device, DType dtype, std::uint64_t count);

// Records, submits and waits.
void submit(Device& device, const std::function<void(Encoder&)>& record);

// Calls go round through the copies, whoever asks for them.
std::function<void(std::uint64_t calls)> rotating(Device device, std::shared_ptr<const CallCopies> copies,
                                                  std::function<void(Encoder&, std::uint64_t copy)> record);

}  // namespace rota::bench
