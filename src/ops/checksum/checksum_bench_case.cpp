#include "ops/checksum/checksum_bench_case.h"

#include <memory>

#include "rota/ops.h"

namespace rota::bench {

Work checksum_work(Place& place, const ChecksumCase& what) {
  const auto copies = std::make_shared<CallCopies>();
  // Numbers of another type would be as good: with these it shares the memory of other cases.
  const CallCopies::Where words = copies->add(numbers(DType::f16), what.call_bytes);
  copies->reserve(place, what.copies * what.call_bytes);
  const Buffer sums = place.device.allocate(copies->count() * 4).value();
  const auto record = [copies, words, sums, bytes = what.call_bytes](Encoder& encoder, std::uint64_t copy) {
    const CallCopies::At at = copies->at(words, copy);
    const WordRange range{.buffer = at.buffer, .offset_bytes = at.offset_bytes, .size_bytes = bytes};
    checksum(encoder, {.of = {&range, 1}, .sums = sums, .sums_offset_bytes = copy * 4});
  };
  return {.bytes = what.call_bytes,
          .prepare = [copies, device = place.device]() mutable { copies->fill(device); },
          .run = rotating(place.device, copies, record)};
}

}  // namespace rota::bench
