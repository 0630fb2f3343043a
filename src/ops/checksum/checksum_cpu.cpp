#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "ops/checksum/checksum.h"
#include "rota/dtype.h"

#define ROTA_SIMD_FILE "ops/checksum/checksum_simd.h"
#include "core/for_each_isa.h"

namespace rota::ops {
namespace {

using SumWords = std::uint32_t (*)(const std::byte* at, std::uint64_t words) noexcept;
constexpr std::array<SumWords, core::kIsas.size()> kSumWordsByIsa{ROTA_BY_ISA(sum_words)};

}  // namespace

// A row is one sum.
void checksum_clear_cpu(const runtime::CpuCall& call) noexcept {
  const auto& p = call.params_as<ClearParams>();
  std::memset(call.bound[kClearBindingSums] + (p.first + call.first_item) * sizeof(uint), 0,
              (call.last_item - call.first_item) * sizeof(uint));
}

// A row is kRowWords of the binding, or what the range has of them.
void checksum_cpu(const runtime::CpuCall& call, core::Isa isa) noexcept {
  const auto& p = call.params_as<ChecksumParams>();
  const std::uint64_t begin = std::max(call.first_item * kRowWords, p.first);
  const std::uint64_t end = std::min(call.last_item * kRowWords, p.first + p.words);
  const std::uint32_t sum =
      kSumWordsByIsa[static_cast<std::size_t>(isa)](call.bound[kChecksumBindingOf] + begin * sizeof(uint), end - begin);
  std::atomic_ref(reinterpret_cast<std::uint32_t*>(call.bound[kChecksumBindingSums])[p.sum])
      .fetch_add(sum, std::memory_order_relaxed);
}

void checksum_cpu(const runtime::CpuCall& call) noexcept { checksum_cpu(call, core::best_isa()); }

}  // namespace rota::ops
