#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "harness/attend_on_device.h"

// Mistakes that others have made in attention over a cache, each with a test that would have found it.

namespace rota::test {

class AttendLessons : public AttendOnDevice {
 protected:
  // A cache of one layer whose memory is NaN, so that whatever nobody stored shows.
  KvCache new_cache(const Case& of, std::uint64_t tokens, std::uint32_t sequences) {
    const KvGroup group{.layers = {0},
                        .kv_heads = of.kv_heads,
                        .head_dim = of.head_dim,
                        .value_dim = of.value_dim,
                        .k = of.k,
                        .v = of.v,
                        .dense = of.dense,
                        .page = of.page,
                        .tail = of.tail,
                        .sinks = of.sinks,
                        .window = of.window};
    KvCache cache =
        KvCache::create(
            device, {.groups = {group}, .max_tokens = tokens, .max_sequences = sequences, .max_step_tokens = tokens})
            .value();
    poison(cache.view({}, 0).value());
    return cache;
  }

  static void poison(const KvView& kv) {
    for (const KvSideView* side : {&kv.k, &kv.v}) {
      std::vector<Buffer> buffers{side->dense.buffer};
      if (side->sealed) buffers.push_back(side->sealed->buffer);
      if (side->sinks) buffers.push_back(side->sinks->buffer);
      for (Buffer& buffer : buffers) {
        buffer.write(std::vector<std::byte>(buffer.size_bytes(), Guarded::kPoison)).value();
      }
    }
  }

  void extend(KvCache& cache, Sequence sequence, const Numbers& k, const Numbers& v) {
    ASSERT_OK(run_on(device, [&](Encoder& encoder) {
      cache.extend(encoder, sequence, k.length()).value().append(encoder, 0, view_of(k), view_of(v));
    }));
  }

  // |found - wanted| / |wanted|, of all vectors, where wanted is over the numbers before they were sealed.
  double error_of_originals(const Answer& found, const Asked& asked, const std::vector<Numbers>& k,
                            const std::vector<Numbers>& v) {
    const KvView exact = lay_slots({.dtype = DType::f32}, k, v);
    const auto vectors = all_vectors(asked);
    const auto wanted = Definition(exact).results(call_of(exact, asked), vectors);
    double error = 0;
    double energy = 0;
    for (std::size_t i = 0; i < vectors.size(); ++i) {
      for (std::uint64_t d = 0; d < wanted[i].out.size(); ++d) {
        error += std::pow(found.at(vectors[i], d) - wanted[i].out[d], 2);
        energy += std::pow(wanted[i].out[d], 2);
      }
    }
    return std::sqrt(error / energy);
  }

  // Bytes of a sealed page's token scale.
  static std::uint64_t scale_at(const SealedView& view, std::uint64_t page, std::uint64_t head, std::uint64_t token) {
    const std::uint64_t mean = view.format.has_mean() ? core::round_up(2 * view.format.head_dim, 64) : 0;
    return view.offset_bytes + page * view.page_stride_bytes + head * view.head_stride_bytes + mean + 2 * token;
  }
};

}  // namespace rota::test
