// Software Metal: runs the API of include/Metal/Metal.h on the CPU, checks each access of each kernel, and lets tests
// choose how threads run and which calls fail.

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace rota::test::metal {

enum class Order { ascending, descending, shuffled };

struct Options {
  unsigned simd_width = 32;  // 4 to 64, a power of two
  Order order = Order::ascending;
  uint64_t seed = 0;     // of shuffled
  bool traffic = false;  // collect Traffic: slow
  bool poison = false;   // fill new buffers with 0xcd, where Metal fills with zeros
  // How long a committed command buffer waits before it runs, so that later ones are committed before it ends.
  std::chrono::microseconds start_delay{0};
};

// From ROTA_METAL_SIMD_WIDTH and ROTA_METAL_ORDER (ascending, descending, or a seed), or the defaults.
Options options_of_environment();

// Of dispatches that start from now on. The first are options_of_environment().
Options options();
void set_options(const Options& options);

struct BufferTraffic {
  unsigned index;
  uint64_t bytes_read;  // each byte as often as it is read
  uint64_t bytes_written;
  uint64_t distinct_bytes_read;
  // Lines of 64 bytes, each as often as the lanes of a simdgroup touch it in one access.
  uint64_t lines_read;
  uint64_t lines_written;
};

struct Traffic {
  std::string kernel;
  std::vector<BufferTraffic> buffers;  // those that were touched, by index
};

// Dispatches since the last call, oldest first.
std::vector<Traffic> take_traffic();

enum class Kind {
  device,
  queue,
  buffer,
  fence,
  library,
  function,
  pipeline,
  command_buffer,
  encoder,
  archive,
  residency_set,
  event,
  count
};
size_t live(Kind kind);
size_t resident_allocations();  // in committed residency sets

// Each takes effect once.
enum class Fault { library, pipeline, command_buffer };
void fail_next(Fault fault);
void fail_allocation(unsigned nth);     // 1 is the next
void drop_barrier(unsigned nth);        // of those that encoders get from now on; 0: none
bool has_dropped_barrier();             // whether that one came
void set_device_count(unsigned count);  // 0 to 2, until set again

// Committed command buffers do not start while it lives.
class Hold {
 public:
  Hold();
  ~Hold();
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
};

struct Counts {
  uint64_t compiled;  // by clang, since the program started
  uint64_t dispatches;
  uint64_t accesses;  // of threads to memory; counted while options().traffic
};
Counts counts();

}  // namespace rota::test::metal
