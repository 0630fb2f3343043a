#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "rota/ops.h"
#include "runtime/selftest.h"

namespace rota::ops {
namespace {

constexpr std::uint64_t kWords = 40'000;

struct Words {
  std::uint64_t first, count;
};
constexpr std::array kRanges{Words{0, kWords}, Words{3, 1}, Words{77, 0}, Words{65, 30'001}};
using SumsFound = std::array<std::uint32_t, kRanges.size()>;

std::vector<std::uint32_t> input() {
  std::vector<std::uint32_t> words(kWords);
  std::uint32_t state = 1;
  for (std::uint32_t& word : words) word = state = state * 1664525 + 1013904223;
  return words;
}

Result<SumsFound> sums_on(Device& device) {
  const std::vector<std::uint32_t> words = input();
  auto memory = device.allocate(kWords * sizeof(std::uint32_t));
  if (!memory) return memory.error();
  SumsFound found;
  found.fill(0x5a5a5a5a);
  auto sums = device.allocate(sizeof(found));
  if (!sums) return sums.error();
  if (Status status = memory->write(std::as_bytes(std::span(words))); !status) return status.error();
  if (Status status = sums->write(std::as_bytes(std::span(found))); !status) return status.error();

  std::vector<WordRange> ranges;
  for (const auto& [first, count] : kRanges) {
    ranges.push_back({*memory, first * sizeof(std::uint32_t), count * sizeof(std::uint32_t)});
  }
  const Status done =
      runtime::run_on(device, [&](Encoder& encoder) { checksum(encoder, {.of = ranges, .sums = *sums}); });
  if (!done) return done.error();
  if (Status status = sums->read(std::as_writable_bytes(std::span(found))); !status) return status.error();
  return found;
}

}  // namespace

void checksum_selftest(runtime::SelfTestRun& run) {
  run.check("words", 0, [&]() -> Result<double> {
    auto found = sums_on(run.subject());
    if (!found) return found.error();
    const std::vector<std::uint32_t> words = input();
    SumsFound wanted{};
    for (std::size_t i = 0; i < kRanges.size(); ++i) {
      const auto range = std::span(words).subspan(kRanges[i].first, kRanges[i].count);
      wanted[i] = std::accumulate(range.begin(), range.end(), std::uint32_t{0});
    }
    return runtime::difference(std::as_bytes(std::span(*found)), std::as_bytes(std::span(wanted)));
  });
}

}  // namespace rota::ops
