#include "measure.h"
#include "ops/seal/seal_bench_case.h"

// A prompt's pages sealed in bulk: 2,048 tokens, 8 heads. Bytes are of the dense values alone. Compare medians of
// one run, interleaved at random (--benchmark_enable_random_interleaving=true --benchmark_repetitions=9).

namespace rota::bench {
namespace {

constexpr std::uint64_t kTokens = 2048, kHeads = 8;

struct Case {
  KvSide side = KvSide::keys;
  std::uint32_t bits = 4;
  std::uint32_t head_dim = 128;
  ScaleRule scale = ScaleRule::search;
  bool key_mean = true;
  DType dtype = DType::f16;
  bool head_major = true;
};

using MakeWork = Work (*)(Place&, const SealCase&);

void run_pages(benchmark::State& state, const Case& what, MakeWork make) {
  const PageFormat format{.codec = Turbo{.bits = what.bits, .scale = what.scale, .key_mean = what.key_mean},
                          .side = what.side,
                          .head_dim = what.head_dim};
  Place place = cpu_of(state);
  Work work = make(place, {.formats = {format},
                           .pages = kTokens / format.tokens,
                           .heads = kHeads,
                           .dtype = what.dtype,
                           .head_major = what.head_major});
  work.bytes = kTokens * kHeads * what.head_dim * info(what.dtype).bytes;
  measure(state, work);
}

void seal_prompt(benchmark::State& state, const Case& what) { run_pages(state, what, seal_work); }
void unseal_prompt(benchmark::State& state, const Case& what) { run_pages(state, what, unseal_work); }

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
}  // namespace rota::bench
