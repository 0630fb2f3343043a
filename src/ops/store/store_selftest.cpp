#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "codec/dense/rows.h"
#include "core/error.h"
#include "rota/ops.h"
#include "runtime/selftest.h"

namespace rota::ops {
namespace {

constexpr SlotShape kPool{.pages = 3, .page_slots = 4, .heads = 3, .dim = 6};
constexpr std::uint64_t kTokens = 7;
constexpr std::byte kUntouched{0x5a};
constexpr std::array<std::uint32_t, 2> kTable{2, 0};

constexpr TokenRun kRun{.tokens = kTokens, .position = 5, .capacity = 6, .page_table = kTable};

// Values of all kinds, as each dtype's bits: plain, denormal, infinite, NaN.
std::vector<std::byte> pattern(DType dtype, std::size_t elements) {
  const std::uint32_t bytes = info(dtype).bytes;
  const std::uint32_t infinity = dtype == DType::f16 ? 0x7c00U : 0x7f800000U >> (32 - 8 * bytes);
  std::vector<std::byte> made(elements * bytes);
  std::uint32_t state = 1;
  for (std::size_t i = 0; i < elements; ++i) {
    state = state * 1664525 + 1013904223;
    const std::array<std::uint32_t, 5> kinds{state >> (32 - 8 * bytes), state >> 28, infinity, infinity + 1 + state % 3,
                                             0};
    const std::uint32_t bits = kinds[i % 7 < kinds.size() ? i % 7 : 0];
    std::memcpy(made.data() + i * bytes, &bits, bytes);
  }
  return made;
}

struct Stored {
  std::vector<std::byte> pool;
  std::uint64_t non_finite;
};

// The definition: position p in slot p mod capacity, newest last.
Stored by_definition(DType from, DType to) {
  const std::uint64_t row = kPool.heads * kPool.dim;
  const auto source = pattern(from, kTokens * row);
  std::vector<std::byte> pool(kPool.pages * kPool.page_slots * row * info(to).bytes, kUntouched);
  for (std::uint64_t i = 0; i < kTokens * row; ++i) {
    const std::uint64_t token = i / row;
    const std::uint64_t head = i % row / kPool.dim;
    const std::uint64_t slot = (kRun.position + token) % kRun.capacity;
    const std::uint64_t page = kTable[slot / kPool.page_slots];
    const std::uint64_t place =
        ((page * kPool.heads + head) * kPool.page_slots + slot % kPool.page_slots) * kPool.dim + i % kPool.dim;
    codec::row_converter(from, to, core::Isa::baseline)({source.data() + i * info(from).bytes},
                                                        {pool.data() + place * info(to).bytes}, 1);
  }
  // Untouched elements are finite.
  const std::uint64_t non_finite =
      codec::non_finite_counter(to, core::Isa::baseline)({pool.data()}, pool.size() / info(to).bytes);
  return {std::move(pool), non_finite};
}

// What a paged ring holds after one store; slots that nobody writes keep their first value.
Result<Stored> stored(Device& device, DType from, DType to) {
  const std::uint64_t row = kPool.heads * kPool.dim;
  const auto source_bytes = pattern(from, kTokens * row);
  std::vector<std::byte> pool_bytes(kPool.pages * kPool.page_slots * row * info(to).bytes, kUntouched);

  auto source = device.allocate(source_bytes.size());
  if (!source) return source.error();
  auto pool = device.allocate(pool_bytes.size());
  if (!pool) return pool.error();
  std::uint64_t non_finite = 0;
  const auto count_bytes = std::as_writable_bytes(std::span(&non_finite, 1));
  auto counter = device.allocate(count_bytes.size());
  if (!counter) return counter.error();
  if (Status status = source->write(source_bytes); !status) return status.error();
  if (Status status = pool->write(pool_bytes); !status) return status.error();
  if (Status status = counter->write(count_bytes); !status) return status.error();

  const StorePair pair{
      .from = View::token_major(*source, from, {.tokens = kTokens, .heads = kPool.heads, .dim = kPool.dim}),
      .to = SlotView::head_major(*pool, to, kPool)};
  const Status done = runtime::run_on(device, [&](Encoder& encoder) {
    store(encoder, {.pairs = {&pair, 1}, .sequences = {&kRun, 1}, .non_finite = Counter{*counter}});
  });
  if (!done) return done.error();
  if (Status status = pool->read(pool_bytes); !status) return status.error();
  if (Status status = counter->read(count_bytes); !status) return status.error();
  return Stored{std::move(pool_bytes), non_finite};
}

}  // namespace

void store_selftest(runtime::SelfTestRun& run) {
  for (const DTypeInfo& from : kDTypes) {
    for (const DTypeInfo& to : kDTypes) {
      run.check(core::text("{} to {}", from.name, to.name), 0, [&]() -> Result<double> {
        auto found = stored(run.subject(), from.dtype, to.dtype);
        if (!found) return found.error();
        const Stored wanted = by_definition(from.dtype, to.dtype);
        return found->non_finite == wanted.non_finite ? runtime::difference(found->pool, wanted.pool) : 1;
      });
    }
  }
}

}  // namespace rota::ops
