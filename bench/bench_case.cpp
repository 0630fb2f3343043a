#include "bench_case.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "rota/ops.h"

namespace rota::bench {
namespace {

std::vector<float> normal_numbers(std::uint64_t count) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(count);
  std::ranges::generate(numbers, [&] { return normal(random); });
  return numbers;
}

std::vector<std::byte> as_bytes_of(std::span<const float> numbers, DType dtype) {
  std::vector<std::byte> bytes(numbers.size() * info(dtype).bytes);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const std::uint32_t bits = dtype == DType::f32   ? std::bit_cast<std::uint32_t>(numbers[i])
                               : dtype == DType::f16 ? f16_from_f32(numbers[i])
                                                     : bf16_from_f32(numbers[i]);
    for (std::uint32_t b = 0; b < info(dtype).bytes; ++b) {
      bytes[i * info(dtype).bytes + b] = static_cast<std::byte>(bits >> (8 * b));
    }
  }
  return bytes;
}

}  // namespace

std::uint64_t copies_for(std::uint64_t rotated_bytes, std::uint64_t copy_bytes) {
  return std::max<std::uint64_t>(1, (rotated_bytes + copy_bytes - 1) / copy_bytes);
}

Buffer filled(Device& device, std::uint64_t bytes, std::span<const std::byte> pattern) {
  Buffer buffer = device.allocate(bytes).value();
  for (std::uint64_t at = 0; at < bytes; at += pattern.size()) {
    buffer.write(pattern.first(std::min<std::uint64_t>(pattern.size(), bytes - at)), at).value();
  }
  return buffer;
}

Buffer cleared(Device& device, std::uint64_t bytes) {
  return filled(device, bytes, std::vector<std::byte>(std::min<std::uint64_t>(bytes, 1U << 20)));
}

Buffer numbers_in(Device& device, DType dtype, std::uint64_t count) {
  const std::uint64_t some = std::min<std::uint64_t>(count, 1U << 20);
  return filled(device, count * info(dtype).bytes, as_bytes_of(normal_numbers(some), dtype));
}

void submit(Device& device, const std::function<void(Encoder&)>& record) {
  Encoder encoder = device.encoder();
  record(encoder);
  std::move(encoder).submit().value().wait().value();
}

std::function<void(std::uint64_t calls)> rotating(Device device, std::uint64_t copies,
                                                  std::function<void(Encoder&, std::uint64_t copy)> record) {
  const auto next = std::make_shared<std::uint64_t>(0);
  return [device, copies, next, record = std::move(record)](std::uint64_t calls) mutable {
    submit(device, [&](Encoder& encoder) {
      for (std::uint64_t call = 0; call < calls; ++call) record(encoder, (*next)++ % copies);
    });
  };
}

}  // namespace rota::bench
