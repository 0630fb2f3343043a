#include <array>
#include <cstddef>

#include "rota/ops.h"
#include "runtime/selftest.h"

namespace rota::ops {

void negate_selftest(runtime::SelfTestRun& run) {
  run.check("f32", 0, [&]() -> Result<double> {
    std::array<float, 70> values{};
    std::array<double, 70> wanted{};
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(i) - 7;
      wanted[i] = 7 - static_cast<double>(i);
    }
    auto buffer = run.subject().allocate(sizeof(values));
    if (!buffer) return buffer.error();
    if (Status status = buffer->write(std::as_bytes(std::span(values))); !status) return status.error();
    const MutView x = MutView::token_major(*buffer, DType::f32, {.tokens = 7, .heads = 2, .dim = 5});
    const Status done = runtime::run_on(run.subject(), [&](Encoder& encoder) {
      for (int i = 0; i < 3; ++i) negate(encoder, {.x = x});
    });
    if (!done) return done.error();
    if (Status status = buffer->read(std::as_writable_bytes(std::span(values))); !status) return status.error();
    return runtime::largest_error(values, wanted);
  });
}

}  // namespace rota::ops
