#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "core/text.h"
#include "rota/kv_spec.h"
#include "rota/ops.h"
#include "runtime/selftest.h"

// What the self-tests of ops on sealed pages share: one page of two heads, for every width, keys and values, and two
// head sizes.

namespace rota::ops {

inline constexpr std::uint64_t kSelfTestHeads = 2;

inline std::vector<PageFormat> self_test_formats() {
  std::vector<PageFormat> formats;
  for (const NamedCodec& known : kCodecs) {
    const std::optional<Codec> codec = sealed_codec(known.codec);
    if (!codec) continue;
    formats.push_back({.codec = *codec, .side = KvSide::keys, .head_dim = 48, .tokens = 64});
    formats.push_back({.codec = *codec, .side = KvSide::values, .head_dim = 128, .tokens = 64});
  }
  return formats;
}

inline std::string self_test_name(const PageFormat& format) {
  return core::text("{} {} of {} dims", name(kv_codec(format.codec)), format.side == KvSide::keys ? "keys" : "values",
                    std::uint32_t{format.head_dim});
}

// Sums of four random numbers: nearly normal. The mean of keys differs from dim to dim.
inline std::vector<float> self_test_values(const PageFormat& format) {
  std::vector<float> values(kSelfTestHeads * format.tokens * format.head_dim);
  std::uint32_t state = 1;
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = format.has_mean() ? static_cast<float>(i % format.head_dim % 5) : 0.0F;
    for (int n = 0; n < 4; ++n) {
      state = state * 1664525 + 1013904223;
      values[i] += static_cast<float>(state >> 16) / 32768 - 1;
    }
  }
  return values;
}

// A new buffer that holds `bytes`.
inline Result<Buffer> filled(Device& device, std::span<const std::byte> bytes) {
  auto buffer = device.allocate(bytes.size());
  if (!buffer) return buffer;
  if (Status status = buffer->write(bytes); !status) return status.error();
  return buffer;
}

inline SlotShape self_test_shape(const PageFormat& format) {
  return {.pages = 1, .page_slots = format.tokens, .heads = kSelfTestHeads, .dim = format.head_dim};
}

// The page of self_test_values(), sealed on the device.
inline Result<std::vector<std::byte>> self_test_sealed(Device& device, const PageFormat& format) {
  const std::vector<float> values = self_test_values(format);
  auto dense = filled(device, std::as_bytes(std::span(values)));
  if (!dense) return dense.error();
  std::vector<std::byte> bytes(kSelfTestHeads * page_bytes(format));
  auto sealed = filled(device, bytes);
  if (!sealed) return sealed.error();
  auto counter = filled(device, std::array<std::byte, 8>{});
  if (!counter) return counter.error();
  const SealPage page{.from = 0, .to = 0};
  const Status done = runtime::run_on(device, [&](Encoder& encoder) {
    seal(encoder, {.from = SlotView::token_major(*dense, DType::f32, self_test_shape(format)),
                   .to = SealedView::packed(*sealed, format, {.pages = 1, .heads = kSelfTestHeads}),
                   .pages = {&page, 1},
                   .non_finite = {*counter}});
  });
  if (!done) return done.error();
  if (Status status = sealed->read(bytes); !status) return status.error();
  return bytes;
}

// The values of a sealed page, restored on the device.
inline Result<std::vector<float>> self_test_restored(Device& device, const PageFormat& format,
                                                     std::span<const std::byte> pages) {
  auto sealed = filled(device, pages);
  if (!sealed) return sealed.error();
  std::vector<float> values(kSelfTestHeads * format.tokens * format.head_dim);
  auto dense = filled(device, std::as_bytes(std::span(values)));
  if (!dense) return dense.error();
  const UnsealPage page{.from = 0, .to = 0};
  const Status done = runtime::run_on(device, [&](Encoder& encoder) {
    unseal(encoder, {.from = SealedView::packed(*sealed, format, {.pages = 1, .heads = kSelfTestHeads}),
                     .to = SlotView::token_major(*dense, DType::f32, self_test_shape(format)),
                     .pages = {&page, 1}});
  });
  if (!done) return done.error();
  if (Status status = dense->read(std::as_writable_bytes(std::span(values))); !status) return status.error();
  return values;
}

}  // namespace rota::ops
