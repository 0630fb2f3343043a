#include <array>
#include <cstring>

#include "core/error.h"
#include "ops/negate/negate.params.h"
#include "rota/ops.h"
#include "rota_kernels/negate.h"
#include "runtime/recorder.h"

namespace rota::ops {
namespace {

void negate_cpu(const runtime::CpuCall& call) noexcept {
  const auto& p = call.params_as<NegateParams>();
  for (std::uint64_t i = call.first_item; i < call.last_item; ++i) {
    std::byte& top = call.bound[kNegateBindingX][(p.offset + i) * 4 + 3];
    top ^= std::byte{0x80};
  }
}

constexpr auto kBindings = runtime::accesses({{kNegateBindingX, Access::write}});
constexpr runtime::Kernel kNegate{
    .name = "negate", .code = kernels::negate::kCode, .bindings = kBindings, .cpu = negate_cpu};

}  // namespace
}  // namespace rota::ops

namespace rota::inline ROTA_ABI {

void negate(Encoder& encoder, const Negate& call) {
  runtime::record(encoder, [&](runtime::Recorder& recorder) -> Status {
    const std::uint64_t elements = call.x.shape.tokens * call.x.shape.heads * call.x.shape.dim;
    auto x = runtime::check_view(recorder.target(), {"negate", {"x"}}, call.x);
    if (!x) return x.error();
    const ops::NegateParams params{.offset = x->first_element, .elements = elements};
    recorder.dispatch(
        {ops::kNegate, {}, {static_cast<std::uint32_t>(elements / ops::kNegateGroupSize + 1), elements, 8}}, params,
        {{ops::kNegateBindingX, runtime::bind(call.x.buffer, *x)}});
    return {};
  });
}

}  // namespace rota::inline ROTA_ABI
