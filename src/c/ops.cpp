#include "c/convert.h"
#include "c/record.h"

// Ops but rope.

using namespace rota::c;
using rota::Status;

namespace {

static_assert(static_cast<std::uint32_t>(rota::Mask::causal) == ROTA_MASK_CAUSAL &&
              static_cast<std::uint32_t>(rota::Mask::none) == ROTA_MASK_NONE);
static_assert(static_cast<std::uint32_t>(rota::Arithmetic::stored) == ROTA_ARITHMETIC_STORED &&
              static_cast<std::uint32_t>(rota::Arithmetic::f32) == ROTA_ARITHMETIC_F32);

constexpr rota_seal_page kSealPage = ROTA_SEAL_PAGE_INIT;
constexpr rota_unseal_page kUnsealPage = ROTA_UNSEAL_PAGE_INIT;
constexpr rota::SealPage kSeal{.from = 0, .to = 0};
constexpr rota::UnsealPage kUnseal{.from = 0, .to = 0};
static_assert(kSeal.tokens == if_not_none(kSealPage.tokens) && kSeal.sinks == kSealPage.sinks);
static_assert(kUnseal.tokens == if_not_none(kUnsealPage.tokens));

Status counter_of(const Where& where, const rota_buffer* buffer, uint64_t offset_bytes, rota::Counter& to) {
  to.offset_bytes = offset_bytes;
  return buffer_of(where, buffer, to.buffer);
}

Status attend_over(const Where& where, rota_encoder& encoder, const rota::KvView& kv, const rota_attend_call* from) {
  rota_attend_call call;
  if (Status status = take(where, from, call); !status) return status;
  rota::Attend attend{.q = {}, .kv = kv, .out = {}, .scale = call.scale};
  if (Status status = view_of(where.in("q"), call.q, attend.q); !status) return status;
  if (Status status = view_of(where.in("out"), call.out, attend.out); !status) return status;
  const auto tokens = list_of(where.in("query_tokens"), call.query_tokens, call.query_token_count);
  if (!tokens) return tokens.error();
  attend.query_tokens = tokens.value();
  if (Status status = choose(where.in("mask"), call.mask, 2, attend.mask); !status) return status;
  if (Status status = choose(where.in("arithmetic"), call.arithmetic, 2, attend.arithmetic); !status) return status;
  attend.soft_cap = if_not_zero(call.soft_cap);
  if (Status status = view_of(where.in("sink_logits"), call.sink_logits, attend.sink_logits); !status) return status;
  if (Status status = view_of(where.in("alibi_slopes"), call.alibi_slopes, attend.alibi_slopes); !status) return status;
  if (Status status = view_of(where.in("log_sum_exp"), call.log_sum_exp, attend.log_sum_exp); !status) return status;
  rota::attend(encoder.encoder, attend);
  return {};
}

}  // namespace

rota_status rota_store(rota_encoder* encoder, const rota_store_call* call) {
  return record("rota_store", encoder, [&](const Where& here) -> Status {
    const Where where = here.in("call");
    rota_store_call taken;
    if (Status status = take(where, call, taken); !status) return status;
    auto& pairs = encoder->scratch.pairs;
    auto& runs = encoder->scratch.runs;
    Status read = each(where.in("pairs"), taken.pairs, taken.pair_count,
                       [&](const Where& at, const rota_store_pair& pair) -> Status {
                         auto& [from, to] = pairs.emplace_back();
                         if (Status status = view_of(at.in("from"), pair.from, from); !status) return status;
                         return slots_of(at.in("to"), pair.to, to);
                       });
    if (!read) return read;
    if (Status status = runs_of(where.in("sequences"), taken.sequences, taken.sequence_count, runs); !status) {
      return status;
    }
    rota::Store store{.pairs = pairs, .sequences = runs};
    if (taken.non_finite != nullptr) {
      const Where counter = where.in("non_finite");
      Status counted = counter_of(counter, taken.non_finite, taken.non_finite_offset_bytes, store.non_finite.emplace());
      if (!counted) return counted;
    }
    rota::store(encoder->encoder, store);
    return {};
  });
}

rota_status rota_seal(rota_encoder* encoder, const rota_seal_call* call) {
  return record("rota_seal", encoder, [&](const Where& here) -> Status {
    const Where where = here.in("call");
    rota_seal_call taken;
    if (Status status = take(where, call, taken); !status) return status;
    rota::SlotView from;
    if (Status status = slots_of(where.in("from"), taken.from, from); !status) return status;
    auto to = sealed_of(where.in("to"), taken.to);
    if (!to) return to.error();
    auto& pages = encoder->scratch.seals;
    Status read =
        each(where.in("pages"), taken.pages, taken.page_count, [&](const Where&, const rota_seal_page& page) -> Status {
          pages.push_back({.from = page.from, .to = page.to, .tokens = if_not_none(page.tokens), .sinks = page.sinks});
          return {};
        });
    if (!read) return read;
    rota::Counter counter;
    Status counted = counter_of(where.in("non_finite"), taken.non_finite, taken.non_finite_offset_bytes, counter);
    if (!counted) return counted;
    rota::seal(encoder->encoder, {.from = from, .to = to.value(), .pages = pages, .non_finite = counter});
    return {};
  });
}

rota_status rota_unseal(rota_encoder* encoder, const rota_unseal_call* call) {
  return record("rota_unseal", encoder, [&](const Where& here) -> Status {
    const Where where = here.in("call");
    rota_unseal_call taken;
    if (Status status = take(where, call, taken); !status) return status;
    const auto from = sealed_of(where.in("from"), taken.from);
    if (!from) return from.error();
    rota::SlotView to;
    if (Status status = slots_of(where.in("to"), taken.to, to); !status) return status;
    auto& pages = encoder->scratch.unseals;
    Status read = each(where.in("pages"), taken.pages, taken.page_count,
                       [&](const Where&, const rota_unseal_page& page) -> Status {
                         pages.push_back({.from = page.from, .to = page.to, .tokens = if_not_none(page.tokens)});
                         return {};
                       });
    if (!read) return read;
    rota::unseal(encoder->encoder, {.from = from.value(), .to = to, .pages = pages});
    return {};
  });
}

rota_status rota_attend(rota_encoder* encoder, const rota_kv_step* step, uint32_t layer, const rota_attend_call* call) {
  return record("rota_attend", encoder, [&](const Where& here) -> Status {
    if (Status status = check_handle(here.in("step"), step); !status) return status;
    const auto kv = step->step->view(layer);
    if (!kv) return kv.error();
    return attend_over(here.in("call"), *encoder, kv.value(), call);
  });
}

rota_status rota_attend_sequences(rota_encoder* encoder, const rota_kv_cache* cache, const rota_sequence* sequences,
                                  size_t count, uint32_t layer, const rota_attend_call* call) {
  return record("rota_attend_sequences", encoder, [&](const Where& here) -> Status {
    if (Status status = check_handle(here.in("cache"), cache); !status) return status;
    const auto list = list_of(here.in("sequences"), sequences, count);
    if (!list) return list.error();
    auto& names = encoder->scratch.sequences;
    for (const rota_sequence& one : list.value()) names.push_back(sequence_of(one));
    const auto kv = cache->cache.view(names, layer);
    if (!kv) return kv.error();
    return attend_over(here.in("call"), *encoder, kv.value(), call);
  });
}

rota_status rota_attend_slots(rota_encoder* encoder, const rota_slot_view* k, const rota_slot_view* v,
                              const rota_token_run* sequences, size_t count, const rota_attend_call* call) {
  return record("rota_attend_slots", encoder, [&](const Where& here) -> Status {
    rota::SlotView keys, values;
    if (Status status = slots_of(here.in("k"), k, keys); !status) return status;
    if (Status status = slots_of(here.in("v"), v, values); !status) return status;
    auto& runs = encoder->scratch.runs;
    if (Status status = runs_of(here.in("sequences"), sequences, count, runs); !status) return status;
    return attend_over(here.in("call"), *encoder, rota::KvView::of_slots(keys, values, runs), call);
  });
}

rota_status rota_merge(rota_encoder* encoder, const rota_merge_call* call) {
  return record("rota_merge", encoder, [&](const Where& here) -> Status {
    const Where where = here.in("call");
    rota_merge_call taken;
    if (Status status = take(where, call, taken); !status) return status;
    rota::Merge merge;
    if (Status status = view_of(where.in("first_out"), taken.first_out, merge.first.out); !status) return status;
    if (Status status = view_of(where.in("first_log_sum_exp"), taken.first_log_sum_exp, merge.first.log_sum_exp);
        !status) {
      return status;
    }
    if (Status status = view_of(where.in("second_out"), taken.second_out, merge.second.out); !status) return status;
    if (Status status = view_of(where.in("second_log_sum_exp"), taken.second_log_sum_exp, merge.second.log_sum_exp);
        !status) {
      return status;
    }
    if (Status status = view_of(where.in("out"), taken.out, merge.out); !status) return status;
    if (Status status = view_of(where.in("log_sum_exp"), taken.log_sum_exp, merge.log_sum_exp); !status) return status;
    rota::merge(encoder->encoder, merge);
    return {};
  });
}

rota_status rota_checksum(rota_encoder* encoder, const rota_checksum_call* call) {
  return record("rota_checksum", encoder, [&](const Where& here) -> Status {
    const Where where = here.in("call");
    rota_checksum_call taken;
    if (Status status = take(where, call, taken); !status) return status;
    auto& ranges = encoder->scratch.ranges;
    Status read =
        each(where.in("of"), taken.of, taken.count, [&](const Where& at, const rota_word_range& one) -> Status {
          ranges.push_back({.buffer = {}, .offset_bytes = one.offset_bytes, .size_bytes = one.size_bytes});
          return buffer_of(at.in("buffer"), one.buffer, ranges.back().buffer);
        });
    if (!read) return read;
    rota::Checksum checksum{.of = ranges, .sums = {}, .sums_offset_bytes = taken.sums_offset_bytes};
    if (Status status = buffer_of(where.in("sums"), taken.sums, checksum.sums); !status) return status;
    rota::checksum(encoder->encoder, checksum);
    return {};
  });
}
