#include "ops/checksum/checksum_bench_case.h"

#include <vector>

#include "rota/ops.h"

namespace rota::bench {

Work checksum_work(Place& place, const ChecksumCase& what) {
  place.take(what.copies * what.call_bytes);
  std::vector<Buffer> buffers;
  for (std::uint64_t copy = 0; copy < what.copies; ++copy) {
    buffers.push_back(numbers_in(place.device, DType::f32, what.call_bytes / 4));
  }
  const Buffer sums = place.device.allocate(what.copies * 4).value();
  const auto record = [buffers, sums, bytes = what.call_bytes](Encoder& encoder, std::uint64_t copy) {
    const WordRange range{.buffer = buffers[copy], .size_bytes = bytes};
    checksum(encoder, {.of = {&range, 1}, .sums = sums, .sums_offset_bytes = copy * 4});
  };
  return {.bytes = what.call_bytes, .run = rotating(place.device, what.copies, record)};
}

}  // namespace rota::bench
