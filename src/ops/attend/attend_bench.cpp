#include "measure.h"
#include "ops/attend/attend_bench_case.h"

// One decoded token over 4,096 keys that no cache holds, and a prompt's last 128 tokens over as many. Bytes are those
// of keys and values. `rota bench attend` has every other shape.

namespace rota::bench {
namespace {

constexpr std::uint64_t kRotatedBytes = std::uint64_t{512} << 20;

void attend_tokens(benchmark::State& state, const KvCodec& codec, std::uint64_t rows) {
  Place place = cpu_of(state);
  measure(state,
          attend_work(place, {.k = codec, .v = codec, .keys = 4096, .rows = rows, .rotated_bytes = kRotatedBytes}));
}

BENCHMARK_CAPTURE(attend_tokens, decode_f16, DType::f16, 1)->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK_CAPTURE(attend_tokens, decode_turbo8, turbo(8), 1)->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK_CAPTURE(attend_tokens, decode_turbo4, turbo(4), 1)->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK_CAPTURE(attend_tokens, prompt_f16, DType::f16, 128)->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK_CAPTURE(attend_tokens, prompt_turbo4, turbo(4), 128)->Arg(1)->Arg(2)->UseRealTime();

}  // namespace
}  // namespace rota::bench
