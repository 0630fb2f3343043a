#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "harness/attend_layouts.h"

// Calls of `attend`, and what a result may differ by.

namespace rota::test {

class AttendOnDevice : public AttendLayouts {
 protected:
  // ---- calls

  Attend call_of(const KvView& kv, Asked&& asked) const = delete;  // the call refers to its query tokens
  Attend call_of(const KvView& kv, const Asked& asked) const {
    return {
        .q = asked.q,
        .kv = kv,
        .out = MutView::token_major({}, asked.out, {asked.q.shape.tokens, asked.q.shape.heads, kv.v.dense.shape.dim}),
        .scale = asked.scale.value_or(1 / std::sqrt(static_cast<double>(asked.q.shape.dim))),
        .query_tokens = asked.query_tokens,
        .mask = asked.mask,
        .soft_cap = asked.soft_cap,
        .sink_logits = asked.sink_logits,
        .alibi_slopes = asked.alibi_slopes,
        .arithmetic = asked.arithmetic};
  }

  Answer run(const KvView& kv, const Asked& asked) { return run(device, kv, asked); }

  Answer run(Device& on, const KvView& kv, const Asked& asked) {
    Attend call = call_of(kv, asked);
    const Shape shape = call.out.shape;
    const Guarded out(on, shape.tokens * shape.heads * shape.dim, asked.out);
    const Guarded sums(on, shape.tokens * shape.heads, DType::f32);
    call.out.buffer = out.buffer;
    call.out.offset = out.offset;
    if (asked.log_sum_exp) {
      call.log_sum_exp = MutView::token_major(sums.buffer, DType::f32, {shape.tokens, shape.heads, 1});
      call.log_sum_exp->offset = sums.offset;
    }
    EXPECT_OK(run_on(on, [&](Encoder& encoder) { attend(encoder, call); }));
    EXPECT_TRUE(out.guards_intact() && sums.guards_intact());
    return {shape, asked.out, out.read(), asked.log_sum_exp ? sums.read() : std::vector<std::byte>{}};
  }

  // By the op.
  Answer merge_answers(const Answer& a, const Answer& b) {
    const auto part = [&](const Answer& answer) {
      const Shape per_head{answer.shape.tokens, answer.shape.heads, 1};
      return AttentionState{View::token_major(upload(answer.out), answer.dtype, answer.shape),
                            View::token_major(upload(answer.log_sum_exp), DType::f32, per_head)};
    };
    const AttentionState first = part(a);
    MutView out = MutView::token_major(upload(a.out), a.dtype, a.shape);
    MutView sums = MutView::token_major(upload(a.log_sum_exp), DType::f32, first.log_sum_exp.shape);
    EXPECT_OK(run_on(device, [&](Encoder& encoder) {
      merge(encoder, {.first = first, .second = part(b), .out = out, .log_sum_exp = sums});
    }));
    Answer merged = a;
    out.buffer.read(merged.out).value();
    sums.buffer.read(merged.log_sum_exp).value();
    return merged;
  }

  // ---- what comes of it

  static std::vector<QueryVector> all_vectors(const Asked& asked) {
    std::vector<QueryVector> vectors;
    for (std::uint64_t token = 0; token < asked.q.shape.tokens; ++token) {
      for (std::uint64_t head = 0; head < asked.q.shape.heads; ++head) vectors.push_back({token, head});
    }
    return vectors;
  }

  static constexpr double kTolerance = 1e-5;  // of |out|, and of log_sum_exp beyond 1

  // Relative to the length of what the definition gives; of smaller types half a last place in each dim beside. Where
  // `logits_are_large`: a dot product of n terms is off by about sqrt(n) 2^-24 of itself, and so is then a weight.
  void expect_defined(const KvView& kv, const Asked& asked, const Answer& found, Definition& definition,
                      std::span<const QueryVector> vectors) {
    const auto wanted = definition.results(call_of(kv, asked), vectors);
    for (std::size_t i = 0; i < vectors.size(); ++i) {
      double error = 0;
      double energy = 0;
      double rounding = 0;
      for (std::uint64_t d = 0; d < wanted[i].out.size(); ++d) {
        error += std::pow(found.at(vectors[i], d) - wanted[i].out[d], 2);
        energy += std::pow(wanted[i].out[d], 2);
        if (found.dtype != DType::f32) rounding += std::pow(last_place(found.dtype, wanted[i].out[d]) / 2, 2);
      }
      const double tolerance = kTolerance * (logits_are_large ? std::max(1.0, wanted[i].largest_logit) : 1);
      const double limit =
          tolerance * (logits_are_large ? wanted[i].weighed_values : std::sqrt(energy)) + std::sqrt(rounding);
      if (limit > 0) worst_error = std::max(worst_error, std::sqrt(error) / limit);
      if (!(std::sqrt(error) <= limit)) {
        ADD_FAILURE() << fmt::format("token {}, head {}: off by {} of {}", vectors[i].token, vectors[i].head,
                                     std::sqrt(error), std::sqrt(energy));
        return;
      }
      if (!asked.log_sum_exp) continue;
      const double sum = found.log_sum_exp_at(vectors[i]);
      if (sum == wanted[i].log_sum_exp) continue;  // also where both are -infinity
      const double sum_limit = kTolerance * (1 + std::abs(wanted[i].log_sum_exp));
      if (!(std::abs(sum - wanted[i].log_sum_exp) <= sum_limit)) {
        ADD_FAILURE() << fmt::format("token {}, head {}: log_sum_exp {}, wanted {}", vectors[i].token, vectors[i].head,
                                     sum, wanted[i].log_sum_exp);
        return;
      }
    }
  }

  // Every vector of a call.
  Answer expect_defined(const KvView& kv, const Asked& asked) {
    const Answer found = run(kv, asked);
    Definition definition(kv);
    expect_defined(kv, asked, found, definition, all_vectors(asked));
    return found;
  }

  Answer expect_defined(const Case& what) {
    SCOPED_TRACE(describe(what));
    const Stored stored = store_sequences(what);
    return expect_defined(stored.kv, {.q = queries(what), .query_tokens = what.query_tokens});
  }

  // A view of some of the sequences, as long as they are or as said.
  static KvView some_of(const KvView& all, std::span<const std::size_t> sequences) {
    KvView kv = all;
    kv.lengths.edit().clear();
    kv.k.sequences.edit().clear();
    kv.v.sequences.edit().clear();
    for (const std::size_t sequence : sequences) {
      kv.lengths.edit().push_back(all.lengths[sequence]);
      kv.k.sequences.edit().push_back(all.k.sequences[sequence]);
      kv.v.sequences.edit().push_back(all.v.sequences[sequence]);
    }
    return kv;
  }
  static KvView one_of(const KvView& all, std::size_t sequence) { return some_of(all, {&sequence, 1}); }

  // Sequences of one query token or more, their queries cut out of a larger q.
  static Asked part_of(Asked asked, std::uint64_t first, std::vector<std::uint64_t> tokens) {
    asked.q = asked.q.slice(first, std::accumulate(tokens.begin(), tokens.end(), std::uint64_t{0}));
    asked.query_tokens = std::move(tokens);
    return asked;
  }

  static std::string describe(const KvCodec& codec) {
    const auto* const dtype = std::get_if<DType>(&codec);
    return dtype != nullptr ? std::string(info(*dtype).name)
                            : fmt::format("turbo{}", std::uint32_t{std::get<Turbo>(codec).bits});
  }
  static std::string describe(const Case& what) {
    return fmt::format("{} of {} and {} of {}, group {}, {} sequences, the first of {} with {} query tokens",
                       describe(what.k), what.head_dim, describe(what.v), what.value_dim, what.group,
                       what.lengths.size(), what.lengths[0], what.query_tokens[0]);
  }

  bool on_cpu() const { return device.info().kind == DeviceKind::cpu; }

  bool logits_are_large = false;
  double worst_error = 0;  // of what is allowed
};

}  // namespace rota::test
