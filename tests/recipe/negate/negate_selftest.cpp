#include <array>
#include <cstddef>

#include "core/error.h"
#include "rota/ops.h"
#include "runtime/selftest.h"

namespace rota::ops {

Status negate_selftest(Device& subject, Device&) {
  std::array<float, 70> values{};
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) - 7;
  auto buffer = subject.allocate(sizeof(values));
  if (!buffer) return buffer.error();
  if (Status status = buffer->write(std::as_bytes(std::span(values))); !status) return status;
  Encoder encoder = subject.encoder();
  const MutView x = MutView::token_major(*buffer, DType::f32, {.tokens = 7, .heads = 2, .dim = 5});
  for (int i = 0; i < 3; ++i) negate(encoder, {.x = x});
  auto fence = std::move(encoder).submit();
  if (!fence) return fence.error();
  if (Status status = buffer->read(std::as_writable_bytes(std::span(values))); !status) return status;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] != 7 - static_cast<float>(i))
      return Error{Errc::internal, fmt::format("negate: element {} is wrong", i)};
  }
  return {};
}

}  // namespace rota::ops
