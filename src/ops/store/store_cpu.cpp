#include "codec/dense/rows.h"
#include "ops/store/store.h"

namespace rota::ops {

// A row is one head vector of one token.
void store_cpu(const runtime::CpuCall& call) noexcept {
  const auto& p = call.params_as<StoreParams>();
  const auto from_type = static_cast<DType>(call.constants[0]);
  const auto to_type = static_cast<DType>(call.constants[1]);
  const std::uint64_t from_bytes = info(from_type).bytes;
  const std::uint64_t to_bytes = info(to_type).bytes;
  const auto* const plan = reinterpret_cast<const std::uint32_t*>(call.bound[2]);

  // Elements that do not lie side by side are rows of one.
  const bool side_by_side = p.dim == 1 || (p.from_dim_stride == 1 && p.to_dim_stride == 1);
  const std::uint64_t pieces = side_by_side ? 1 : p.dim;
  const codec::ConvertRow convert_row =
      codec::row_converter(from_type, to_type, side_by_side ? core::best_isa() : core::Isa::baseline);

  for (std::uint64_t row = call.first_row; row < call.last_row; ++row) {
    const std::uint64_t head = row % p.heads;
    const std::uint32_t* const entry = plan + row / p.heads * kPlanWords;
    const std::uint64_t from = p.from_offset + entry[0] * p.from_token_stride + head * p.from_head_stride;
    const std::uint64_t to =
        p.to_offset + entry[1] * p.to_page_stride + entry[2] * p.to_slot_stride + head * p.to_head_stride;
    for (std::uint64_t piece = 0; piece < pieces; ++piece) {
      convert_row(call.bound[0] + (from + piece * p.from_dim_stride) * from_bytes,
                  call.bound[1] + (to + piece * p.to_dim_stride) * to_bytes, p.dim / pieces);
    }
  }
}

}  // namespace rota::ops
