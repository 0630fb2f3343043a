#include "codec/dense/rows.h"
#include "ops/store/store.h"
#include "runtime/counter.h"

namespace rota::ops {

// A row is one head vector of one token.
void store_cpu(const runtime::CpuCall& call) noexcept {
  const auto& p = call.params_as<StoreParams>();
  const auto from_type = static_cast<DType>(call.constants[kStoreConstantFrom]);
  const auto to_type = static_cast<DType>(call.constants[kStoreConstantTo]);
  const bool counts = call.constants[kStoreConstantCounts] != 0;
  const std::uint64_t from_bytes = info(from_type).bytes;
  const std::uint64_t to_bytes = info(to_type).bytes;
  const auto* const plan = reinterpret_cast<const std::uint32_t*>(call.bound[kStoreBindingPlan]);

  const codec::ConvertRow convert_row = codec::row_converter(from_type, to_type);
  const codec::CountRow count_row = codec::non_finite_counter(to_type);

  std::uint64_t non_finite = 0;
  for (std::uint64_t row = call.first_item; row < call.last_item; ++row) {
    const std::uint64_t head = row % p.heads;
    const std::uint32_t* const entry = plan + row / p.heads * kPlanWords;
    const std::uint64_t from = p.from.offset + entry[0] * p.from.token + head * p.from.head;
    const std::uint64_t to = p.to.offset + entry[1] * p.to.page + entry[2] * p.to.slot + head * p.to.head;
    std::byte* const stored = call.bound[kStoreBindingTo] + to * to_bytes;
    convert_row({call.bound[kStoreBindingFrom] + from * from_bytes, p.from.dim}, {stored, p.to.dim}, p.dim);
    if (counts) non_finite += count_row({stored, p.to.dim}, p.dim);
  }
  if (counts) runtime::add_to_counter(call.bound[kStoreBindingCounter] + sizeof(uint) * p.counter, non_finite);
}

}  // namespace rota::ops
