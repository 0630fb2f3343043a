// A prompt of 3,000 tokens in chunks, 500 steps of one token, then two branches of the same text, in a cache of four
// layers: three that see 1,024 tokens and one that sees all.

#include <rota/rota.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <vector>

namespace {

constexpr std::uint32_t kHeads = 2, kDim = 64;
constexpr std::uint64_t kChunk = 512;

// `x` stands for what a model computes: the keys and values of the step's tokens.
void extend(rota::Device& device, rota::KvCache& cache, const std::vector<rota::KvExtension>& texts, rota::View x) {
  auto encoder = device.encoder();
  auto step = cache.extend(encoder, texts).value();  // seals what is due, and makes room
  x = x.slice(0, step.positions().size());
  for (std::uint32_t layer = 0; layer < 4; ++layer) step.append(encoder, layer, x, x);
  std::move(encoder).submit().value().wait().value();
}

void print(const char* name, const rota::KvPoolCounters& pool) {
  std::cout << name << ": " << pool.used << " of " << pool.pages << " pages, " << pool.shared << " of them shared, "
            << pool.bytes_used / 1024 << " KiB\n";
}

}  // namespace

int main() {
  const rota::KvGroup wide{
      .layers = {3}, .kv_heads = kHeads, .head_dim = kDim, .k = rota::turbo(4), .v = rota::turbo(4)};
  rota::KvGroup local = wide;
  local.layers = {0, 1, 2};
  local.window = 1024;
  auto device = rota::Device::open_best().value();
  auto cache = rota::KvCache::create(device, {.groups = {local, wide}, .max_tokens = 8192, .max_sequences = 2}).value();

  std::vector<float> numbers(kChunk * kHeads * kDim);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = std::sin(static_cast<float>(i * i % 1009));
  auto buffer = device.allocate(numbers.size() * sizeof(float)).value();
  buffer.write(std::as_bytes(std::span(numbers))).value();
  const auto x = rota::View::token_major(buffer, rota::DType::f32, {.tokens = kChunk, .heads = kHeads, .dim = kDim});

  const auto text = cache.open_sequence().value();
  for (std::uint64_t at = 0; at < 3000; at += kChunk) extend(device, cache, {{text, std::min(kChunk, 3000 - at)}}, x);
  for (int i = 0; i < 500; ++i) extend(device, cache, {{text, 1}}, x);

  auto encoder = device.encoder();
  const auto branch = cache.fork(encoder, text).value();  // shares every page that is full
  std::move(encoder).submit().value().wait().value();
  for (int i = 0; i < 100; ++i) extend(device, cache, {{text, 1}, {branch, 1}}, x);

  const auto counters = cache.counters();
  std::cout << "on " << device.info().id << ": " << counters.tokens << " tokens in " << counters.sequences << " texts, "
            << counters.seals << " pages sealed, " << counters.copied_bytes / 1024 << " KiB copied\n";
  print("sealed", counters.sealed);
  print("dense", counters.dense);
  print("sinks", counters.sinks);
}
