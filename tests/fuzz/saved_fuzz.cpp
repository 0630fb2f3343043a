#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "harness/saved_sample.h"
#include "rota/rota.h"

// A saved sequence from anywhere: to its header, to its end, and into a cache.

namespace {

using namespace rota;

void require(bool holds) {
  if (!holds) std::abort();
}

std::uint32_t crc32c(std::span<const std::byte> bytes) {
  std::uint32_t sum = ~0U;
  for (const std::byte byte : bytes) {
    sum ^= std::to_integer<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) sum = sum >> 1 ^ ((sum & 1) != 0 ? 0x82f63b78U : 0U);
  }
  return ~sum;
}

// What the fuzzer changed in the header would else end at its checksum.
void sum_header_again(std::vector<std::byte>& bytes) {
  std::uint64_t size = 0;
  if (bytes.size() < 24) return;
  std::memcpy(&size, &bytes[16], sizeof(size));
  if (size < 72 || size > bytes.size()) return;
  const std::uint32_t sum = crc32c(std::span(bytes).first(static_cast<std::size_t>(size) - 8));
  std::memcpy(&bytes[static_cast<std::size_t>(size) - 8], &sum, sizeof(sum));
}

struct Target {
  Device device = Device::open({.device = "cpu", .threads = 1}).value();
  KvCache cache = KvCache::create(device, test::saved_sample_spec()).value();
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Target target;
  const auto given = std::as_bytes(std::span(data, size));
  std::vector<std::byte> bytes(given.begin(), given.end());
  if (!bytes.empty() && bytes.back() != std::byte{0xff}) sum_header_again(bytes);
  const auto header = read_saved_header(source_of(bytes));
  require(header.ok() || header.error().code == Errc::io || header.error().code == Errc::unsupported);
  const auto whole = verify_saved(source_of(bytes));
  require(!whole || (header.ok() && whole->bytes <= bytes.size()));
  for (const bool from_memory : {true, false}) {
    const auto loaded = from_memory ? target.cache.load(bytes) : target.cache.load(source_of(bytes));
    require(!loaded || whole.ok());
    if (loaded) require(target.cache.close(loaded->sequence).ok());
    const KvCounters counters = target.cache.counters();
    require(counters.sequences == 0 && counters.sealed.used + counters.dense.used + counters.sinks.used == 0);
  }
  return 0;
}
