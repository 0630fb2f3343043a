#include "traffic.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "watch.h"

namespace rota::test::metal {

namespace {

constexpr size_t kLineBytes = 64;

// The accesses that the lanes of a simdgroup make together.
struct Together {
  const void* site;
  uint32_t occurrence;
  uint16_t simdgroup;
  bool operator==(const Together&) const = default;
};

struct HashTogether {
  size_t operator()(const Together& t) const {
    const auto site = reinterpret_cast<uintptr_t>(t.site);
    return (site * 0x9e3779b97f4a7c15u) ^ (uint64_t{t.occurrence} << 16) ^ t.simdgroup;
  }
};

struct Lines {
  unsigned index;
  bool writes;
  std::vector<size_t> lines;
};

struct Collected {
  std::array<BufferTraffic, kBufferCount> buffers;
  std::array<std::vector<bool>, kBufferCount> read;  // of each byte
  std::unordered_map<Together, Lines, HashTogether> accesses;
  std::unordered_map<uint64_t, uint32_t> occurrences;  // by site and thread
};

Collected g_now;
uint64_t g_accesses = 0;
std::mutex g_mutex;
std::vector<Traffic> g_done;
std::string g_kernel;

}  // namespace

void start_traffic(const Dispatch& dispatch) {
  g_now = Collected{};
  g_kernel = dispatch.kernel;
  for (unsigned i = 0; i < kBufferCount; ++i) g_now.buffers[i] = {i, 0, 0, 0, 0, 0};
  for (const Binding& binding : dispatch.bindings) g_now.read[binding.index].resize(binding.bytes);
}

void record_access(const Touch& touch) {
  ++g_accesses;
  BufferTraffic& buffer = g_now.buffers[touch.index];
  (touch.writes ? buffer.bytes_written : buffer.bytes_read) += touch.bytes;
  if (!touch.writes) {
    std::vector<bool>& read = g_now.read[touch.index];
    for (size_t i = touch.offset; i < touch.offset + touch.bytes; ++i) {
      if (!read[i]) ++buffer.distinct_bytes_read;
      read[i] = true;
    }
  }
  const auto site = reinterpret_cast<uintptr_t>(touch.site);
  const uint32_t occurrence = g_now.occurrences[site << 16 | uint64_t{g_watch.thread} << 1 | (touch.writes ? 1 : 0)]++;
  Lines& lines = g_now.accesses[{touch.site, occurrence << 1 | (touch.writes ? 1u : 0u), g_watch.simdgroup}];
  lines.index = touch.index;
  lines.writes = touch.writes;
  const size_t last = (touch.address + touch.bytes - 1) / kLineBytes;
  for (size_t line = touch.address / kLineBytes; line <= last; ++line) {
    if (std::ranges::find(lines.lines, line) == lines.lines.end()) lines.lines.push_back(line);
  }
}

void end_traffic_interval() {
  for (const auto& [together, lines] : g_now.accesses) {
    BufferTraffic& buffer = g_now.buffers[lines.index];
    (lines.writes ? buffer.lines_written : buffer.lines_read) += lines.lines.size();
  }
  g_now.accesses.clear();
  g_now.occurrences.clear();
}

void end_traffic() {
  end_traffic_interval();
  Traffic traffic;
  traffic.kernel = g_kernel;
  for (const BufferTraffic& buffer : g_now.buffers) {
    if (buffer.bytes_read + buffer.bytes_written > 0) traffic.buffers.push_back(buffer);
  }
  const std::lock_guard lock(g_mutex);
  g_done.push_back(std::move(traffic));
}

std::vector<Traffic> take_traffic() {
  const std::lock_guard lock(g_mutex);
  return std::exchange(g_done, {});
}

uint64_t accesses_recorded() { return g_accesses; }

}  // namespace rota::test::metal
