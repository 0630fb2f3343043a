#include <benchmark/benchmark.h>

#include <random>
#include <vector>

#include "rota/rota.h"

// A prompt's pages sealed in bulk: 2,048 tokens, 8 heads. Bytes are of the f16 values that go in. Compare medians of
// one run, interleaved at random (--benchmark_enable_random_interleaving=true --benchmark_repetitions=9).

namespace rota {
namespace {

constexpr std::uint64_t kTokens = 2048;
constexpr std::uint64_t kHeads = 8;

struct Case {
  KvSide side = KvSide::keys;
  std::uint32_t bits = 4;
  std::uint32_t head_dim = 128;
  ScaleRule scale = ScaleRule::search;
  bool key_mean = true;
  DType dtype = DType::f16;
  bool head_major = true;  // as caches store pages; else as a prompt's activations lie
};

struct Pages {
  explicit Pages(const Case& what, std::uint32_t threads)
      : device(Device::open({.device = "cpu", .threads = threads}).value()),
        format{.codec = Turbo{.bits = what.bits, .scale = what.scale, .key_mean = what.key_mean},
               .side = what.side,
               .head_dim = what.head_dim},
        count(kTokens / format.tokens),
        values(device.allocate(kTokens * kHeads * what.head_dim * info(what.dtype).bytes).value()),
        pages(device.allocate(count * kHeads * page_bytes(format)).value()),
        counter(device.allocate(8).value()),
        dense(what.head_major ? SlotView::head_major(values, what.dtype, shape_of(what))
                              : SlotView::token_major(values, what.dtype, shape_of(what))),
        sealed(SealedView::packed(pages, format, {.pages = count, .heads = kHeads})) {
    std::mt19937_64 random(1);
    std::normal_distribution<float> normal;
    const std::uint64_t elements = kTokens * kHeads * what.head_dim;
    std::vector<float> wide(elements);
    for (float& value : wide) value = normal(random);
    if (what.dtype == DType::f32) {
      values.write(std::as_bytes(std::span(wide))).value();
    } else {
      std::vector<std::uint16_t> halves;
      halves.reserve(elements);
      for (const float value : wide) {
        halves.push_back(what.dtype == DType::f16 ? f16_from_f32(value) : bf16_from_f32(value));
      }
      values.write(std::as_bytes(std::span(halves))).value();
    }
    pages.write(std::vector<std::byte>(pages.size_bytes())).value();
    counter.write(std::vector<std::byte>(8)).value();
    for (std::uint64_t page = 0; page < count; ++page) {
      seals.push_back({.from = page, .to = page});
      unseals.push_back({.from = page, .to = page});
    }
  }

  SlotShape shape_of(const Case& what) const {
    return {.pages = count, .page_slots = format.tokens, .heads = kHeads, .dim = what.head_dim};
  }

  Device device;
  PageFormat format;
  std::uint64_t count;
  Buffer values, pages, counter;
  SlotView dense;
  SealedView sealed;
  std::vector<SealPage> seals;
  std::vector<UnsealPage> unseals;
};

template <class Record>
void measure(benchmark::State& state, Pages& pages, const Record& record) {
  for (auto _ : state) {
    Encoder encoder = pages.device.encoder();
    record(encoder);
    std::move(encoder).submit().value().wait().value();
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(pages.values.size_bytes()) *
                          static_cast<std::int64_t>(state.iterations()));
}

void seal_prompt(benchmark::State& state, const Case& what) {
  Pages pages(what, static_cast<std::uint32_t>(state.range(0)));
  measure(state, pages, [&](Encoder& encoder) {
    seal(encoder, {.from = pages.dense, .to = pages.sealed, .pages = pages.seals, .non_finite = {pages.counter}});
  });
}

void unseal_prompt(benchmark::State& state, const Case& what) {
  Pages pages(what, static_cast<std::uint32_t>(state.range(0)));
  Encoder encoder = pages.device.encoder();
  seal(encoder, {.from = pages.dense, .to = pages.sealed, .pages = pages.seals, .non_finite = {pages.counter}});
  std::move(encoder).submit().value().wait().value();
  measure(state, pages, [&](Encoder& unsealing) {
    unseal(unsealing, {.from = pages.sealed, .to = pages.dense, .pages = pages.unseals});
  });
}

#define ROTA_SEAL_CASE(name, ...) BENCHMARK_CAPTURE(seal_prompt, name, Case{__VA_ARGS__})->Arg(1)->Arg(2)->UseRealTime()

ROTA_SEAL_CASE(keys_4_bits, .side = KvSide::keys);
ROTA_SEAL_CASE(values_4_bits, .side = KvSide::values);
ROTA_SEAL_CASE(keys_4_bits_token_major, .head_major = false);
ROTA_SEAL_CASE(values_4_bits_token_major, .side = KvSide::values, .head_major = false);
ROTA_SEAL_CASE(keys_4_bits_without_mean, .key_mean = false);
ROTA_SEAL_CASE(keys_4_bits_least_squares, .scale = ScaleRule::least_squares);
ROTA_SEAL_CASE(keys_4_bits_rms, .scale = ScaleRule::rms);
ROTA_SEAL_CASE(keys_4_bits_f32, .dtype = DType::f32);
ROTA_SEAL_CASE(values_2_bits, .side = KvSide::values, .bits = 2);
ROTA_SEAL_CASE(values_3_bits, .side = KvSide::values, .bits = 3);
ROTA_SEAL_CASE(values_5_bits, .side = KvSide::values, .bits = 5);
ROTA_SEAL_CASE(values_6_bits, .side = KvSide::values, .bits = 6);
ROTA_SEAL_CASE(values_8_bits, .side = KvSide::values, .bits = 8);
ROTA_SEAL_CASE(keys_4_bits_64_dims, .head_dim = 64);
ROTA_SEAL_CASE(keys_4_bits_96_dims, .head_dim = 96);
ROTA_SEAL_CASE(keys_4_bits_256_dims, .head_dim = 256);
ROTA_SEAL_CASE(keys_4_bits_576_dims, .head_dim = 576);
BENCHMARK_CAPTURE(unseal_prompt, keys_4_bits, Case{})->Arg(1)->Arg(2)->UseRealTime();

}  // namespace
}  // namespace rota
