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

Target& target() {
  static Target only;
  return only;
}

// What an engine does with a sequence, whatever its pages are.
void use(Sequence sequence, std::uint64_t length) {
  static const View zeros = [] {
    Buffer buffer = target().device.allocate(64 * sizeof(float)).value();
    buffer.write(std::vector<std::byte>(64 * sizeof(float))).value();
    return View{.buffer = buffer, .dtype = DType::f32, .shape = {.tokens = 100, .heads = 1, .dim = 16}};
  }();
  Encoder encoder = target().device.encoder();
  if (auto step = target().cache.extend(encoder, sequence, 100); step) {
    for (const std::uint32_t layer : {0U, 1U, 2U, 3U}) step->append(encoder, layer, zeros, zeros);
  }
  (void)target().cache.truncate(encoder, sequence, length / 2 + 1);
  if (auto child = target().cache.fork(encoder, sequence); child) require(target().cache.close(*child).ok());
  require(std::move(encoder).submit().ok());
  const auto into_nothing = [](std::span<const std::byte>) { return Status(); };
  require(target().cache.save(sequence, into_nothing).ok());
}

// Loads whole, a prefix, or onto what was loaded, and uses it.
void load(const std::vector<std::byte>& bytes, bool is_whole, std::uint64_t choice) {
  KvCache& cache = target().cache;
  KvLoadOptions options;
  if (choice % 3 == 1) options.tokens = choice / 3 % 6 * 64;
  const auto empty = cache.open_sequence();
  if (choice % 3 == 2) options.onto = *empty;
  const auto loaded = choice % 2 == 0 ? cache.load(bytes, options) : cache.load(source_of(bytes), options);
  require(!loaded || is_whole || options.tokens);
  if (loaded) use(loaded->sequence, loaded->length);
  if (loaded && !options.onto) require(cache.close(loaded->sequence).ok());
  require(cache.close(*empty).ok());
  const KvCounters counters = cache.counters();
  require(counters.sequences == 0 && counters.sealed.used + counters.dense.used + counters.sinks.used == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto given = std::as_bytes(std::span(data, size));
  std::vector<std::byte> bytes(given.begin(), given.end());
  if (!bytes.empty() && bytes.back() != std::byte{0xff}) sum_header_again(bytes);
  const auto header = read_saved_header(source_of(bytes));
  require(header.ok() || header.error().code == Errc::io || header.error().code == Errc::unsupported);
  const auto whole = verify_saved(source_of(bytes));
  require(!whole || (header.ok() && whole->bytes <= bytes.size()));
  load(bytes, whole.ok(), size);
  load(bytes, whole.ok(), size / 7);
  return 0;
}
