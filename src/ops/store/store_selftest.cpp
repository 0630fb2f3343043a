#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "core/error.h"
#include "rota/ops.h"
#include "runtime/selftest.h"

namespace rota::ops {
namespace {

constexpr SlotShape kPool{.pages = 3, .page_slots = 4, .heads = 3, .dim = 6};
constexpr std::uint64_t kTokens = 7;
constexpr std::array<std::uint32_t, 2> kTable{2, 0};

// All kinds of bit patterns: as every dtype it holds normal, denormal, infinite and NaN values.
std::vector<std::byte> pattern(std::size_t size_bytes) {
  std::vector<std::byte> bytes(size_bytes);
  std::uint32_t state = 1;
  for (std::byte& byte : bytes) {
    state = state * 1664525 + 1013904223;
    byte = static_cast<std::byte>(state >> 24);
  }
  constexpr std::uint32_t kQuietNan = 0x7fc00000;
  constexpr std::uint32_t kInfinity = 0xff800000;
  std::memcpy(bytes.data(), &kQuietNan, sizeof(kQuietNan));
  std::memcpy(bytes.data() + sizeof(kQuietNan), &kInfinity, sizeof(kInfinity));
  return bytes;
}

// What a paged ring holds after one store; slots that nobody writes keep their first value.
Result<std::vector<std::byte>> stored(Device& device, DType from, DType to) {
  const std::uint64_t row = kPool.heads * kPool.dim;
  const auto source_bytes = pattern(kTokens * row * info(from).bytes);
  std::vector<std::byte> pool_bytes(kPool.pages * kPool.page_slots * row * info(to).bytes, std::byte{0x5a});

  auto source = device.allocate(source_bytes.size());
  if (!source) return source.error();
  auto pool = device.allocate(pool_bytes.size());
  if (!pool) return pool.error();
  if (Status status = source->write(source_bytes); !status) return status.error();
  if (Status status = pool->write(pool_bytes); !status) return status.error();

  const StorePair pair{
      .from = View::token_major(*source, from, {.tokens = kTokens, .heads = kPool.heads, .dim = kPool.dim}),
      .to = SlotView::head_major(*pool, to, kPool)};
  const TokenRun run{.tokens = kTokens, .position = 5, .capacity = 6, .table = kTable};
  Encoder encoder = device.encoder();
  store(encoder, {.pairs = {&pair, 1}, .sequences = {&run, 1}});
  auto fence = std::move(encoder).submit();
  if (!fence) return fence.error();
  if (Status status = fence->wait(); !status) return status.error();
  if (Status status = pool->read(pool_bytes); !status) return status.error();
  return pool_bytes;
}

}  // namespace

Status store_selftest(Device& subject, Device& reference) {
  for (const DTypeInfo& from : kDTypes) {
    for (const DTypeInfo& to : kDTypes) {
      auto found = stored(subject, from.dtype, to.dtype);
      if (!found) return found.error();
      auto wanted = stored(reference, from.dtype, to.dtype);
      if (!wanted) return wanted.error();
      if (*found != *wanted) {
        return Error{Errc::internal, fmt::format("store from {} to {} differs between {} and {}", from.name, to.name,
                                                 subject.info().id, reference.info().id)};
      }
    }
  }
  return {};
}

}  // namespace rota::ops
