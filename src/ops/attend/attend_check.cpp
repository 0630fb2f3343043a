#include <algorithm>
#include <utility>
#include <vector>

#include "core/check.h"
#include "ops/attend/attend_plan.h"

namespace rota::ops {
namespace {

// Kernels subtract positions, and step past the last.
constexpr std::uint64_t kMaxLength = (std::uint64_t{1} << 31) - 1;

StoredSide keys_of(const Attend& call) { return {"kv.k", "kv.k.sequences", call.kv.k}; }
StoredSide values_of(const Attend& call) { return {"kv.v", "kv.v.sequences", call.kv.v}; }

core::Refusal of(std::string_view name, std::string_view field = {}) { return {kAttend, {name, {}, field}}; }

Result<AttendSide> check_side(const StoredSide& side, const runtime::Target& target) {
  AttendSide bound;
  const KvSideView& view = side.view;
  const auto add = [&](KeySource source, std::string_view name, const auto& memory) -> Status {
    auto checked = runtime::check_view(target, side.refuse(name), memory);
    if (!checked) return checked.error();
    bound.bound[static_cast<std::size_t>(source)] = *checked;
    return {};
  };
  if (side.dim() > kMaxAttendDim) {
    return core::refuse(side.refuse("dense", "shape.dim"), side.dim(), "at most {}", kMaxAttendDim);
  }
  const Status dense =
      core::first_error({core::check_positive(side.refuse("dense", "shape.page_slots"), side.page()),
                         core::check_index(side.refuse("dense", "shape.page_slots"), side.page()),
                         core::check_index(side.refuse("dense", "shape.pages"), view.dense.shape.pages),
                         core::check_positive(side.refuse("dense", "shape.heads"), side.heads()),
                         core::check_positive(side.refuse("dense", "shape.dim"), side.dim()),
                         add(KeySource::dense, "dense", view.dense)});
  if (!dense) return dense.error();
  if (view.sealed) {
    const SealedView& sealed = *view.sealed;
    if (Status status = add(KeySource::sealed, "sealed", sealed); !status) return status.error();
    const auto like = [&](std::string_view field, std::uint64_t found, std::uint64_t wanted) {
      return core::check_equal(side.refuse("sealed", field), found, {wanted, side.refuse("dense").argument});
    };
    const KvSide wanted = side.name == "kv.k" ? KvSide::keys : KvSide::values;
    if (sealed.format.side != wanted) {
      return core::refuse(side.refuse("sealed", "format.side"), wanted == KvSide::keys ? "values" : "keys",
                          "the other");
    }
    const Status same = core::first_error({like("format.tokens", sealed.format.tokens, side.page()),
                                           like("format.head_dim", sealed.format.head_dim, side.dim()),
                                           like("shape.heads", sealed.shape.heads, side.heads())});
    if (!same) return same.error();
  }
  const auto add_slots = [&](KeySource source, std::string_view name, const std::optional<SlotView>& slots) -> Status {
    if (!slots) return {};
    if (Status status = add(source, name, *slots); !status) return status;
    if (slots->shape.heads == side.heads() && slots->shape.dim == side.dim() && slots->dtype == view.dense.dtype) {
      return {};
    }
    return core::refuse(side.refuse(name), "of other heads, dim or dtype than dense", "the same");
  };
  const Status slots = core::first_error(
      {add_slots(KeySource::sinks, "sinks", view.sinks), add_slots(KeySource::step, "step", view.step),
       view.step ? core::check_equal(side.refuse("step", "shape.page_slots"), view.step->shape.page_slots,
                                     {side.page(), side.refuse("dense").argument})
                 : Status{}});
  if (!slots) return slots.error();
  return bound;
}

Status check_pages(const StoredSide& side, std::size_t index, std::uint64_t length) {
  const core::Refusal refusal{kAttend, {side.sequences, index}};
  const auto bad = [&](std::string_view what) {
    return core::refuse(refusal, what, "the pages of a sequence of {} tokens", length);
  };
  if (!side.view.sequences[index]) return bad("null");
  const KvPages& pages = *side.view.sequences[index];
  if (pages.ring) {
    const core::Refusal of_ring{kAttend, {side.sequences, index, "ring"}};
    Status counted =
        core::first_error({core::check_positive(of_ring, *pages.ring), core::check_index(of_ring, *pages.ring)});
    if (!counted) return counted;
    if (pages.first_page > 0 || pages.sealed_pages > 0 || pages.sinks || pages.step_page) {
      return bad("a ring with sealed pages, sinks, a step's pages or pages that have left");
    }
  }
  const std::uint64_t last = pages_wanted(side, pages, length);
  if (pages.first_page > last || pages.page_table.size() < last - pages.first_page) return bad("a list of fewer pages");
  const std::uint64_t end = pages.first_page + pages.page_table.size();  // a view may end before its sequence does
  if (pages.sealed_pages > end || (pages.sealed_pages > pages.first_page && !side.view.sealed)) {
    return bad("sealed pages that are not there");
  }
  if (pages.step_page && (!side.view.step || *pages.step_page < pages.sealed_pages || *pages.step_page > end)) {
    return bad("a step's pages that are not there");
  }
  if (pages.sinks && (!side.view.sinks || *pages.sinks >= side.view.sinks->shape.pages)) return bad("sinks of no page");
  const std::uint64_t step_page = pages.step_page.value_or(last);
  const auto pool = [&](std::uint64_t page) {
    if (page < pages.sealed_pages && side.view.sealed) return side.view.sealed->shape.pages;
    return page >= step_page && side.view.step ? side.view.step->shape.pages : side.view.dense.shape.pages;
  };
  for (std::uint64_t page = pages.first_page; page < last; ++page) {
    if (pages.page_table[page - pages.first_page] >= pool(page)) return bad("a physical page beyond the pool's pages");
  }
  return {};
}

// What the first query token sees is there: later ones begin later. A ring without a window is one itself.
Status check_seen(const Attend& call, const StoredSide& side, const AttendSequence& sequence, std::size_t index) {
  const KvPages& pages = *side.view.sequences[index];
  std::uint64_t there = pages.first_page * side.page();
  if (pages.ring && call.kv.window && sequence.length > *pages.ring) there = sequence.length - *pages.ring;
  if (sequence.query_tokens == 0 || there == 0) return {};
  if (call.kv.sinks > 0 && (!pages.sinks || side.sinks() < call.kv.sinks)) {
    return core::refuse({kAttend, {"kv", {}, "sinks"}}, call.kv.sinks,
                        "0: {}[{}] has nothing before position {}, nor so many sinks", side.sequences, index, there);
  }
  const std::uint64_t seen = first_seen(call, sequence, 0);
  if (seen >= there) return {};
  return core::refuse(
      {kAttend, {"query_tokens", index}}, sequence.query_tokens,
      "query tokens that see what is there: the first sees position {} and on, and {}[{}] has nothing before "
      "position {}",
      seen, side.sequences, index, there);
}

Status check_numbers(const Attend& call) {
  // As f32, and with quotients that are numbers of f32.
  constexpr double kLargest = 1e30;
  const auto within = [](double value, double least, double most) { return value >= least && value <= most; };
  const double scale = call.scale;
  if (!within(scale, -kLargest, kLargest)) {
    return core::refuse(of("scale"), scale, "a number from {} to {}", -kLargest, kLargest);
  }
  if (call.soft_cap && !within(*call.soft_cap, 1 / kLargest, kLargest)) {
    return core::refuse(of("soft_cap"), *call.soft_cap, "a number from {} to {}", 1 / kLargest, kLargest);
  }
  if (call.mask != Mask::causal && call.mask != Mask::none) {
    return core::refuse(of("mask"), static_cast<unsigned>(call.mask), "causal or none");
  }
  if (call.arithmetic != Arithmetic::stored && call.arithmetic != Arithmetic::f32) {
    return core::refuse(of("arithmetic"), static_cast<unsigned>(call.arithmetic), "stored or f32");
  }
  if (call.kv.window && *call.kv.window == 0) return core::refuse(of("kv", "window"), 0, "at least 1");
  if (call.kv.sinks > 0 && !call.kv.window) {
    return core::refuse(of("kv", "sinks"), call.kv.sinks, "0 where there is no window: all keys are seen");
  }
  if (call.kv.window && call.mask == Mask::none) {
    return core::refuse(of("mask"), "none", "causal where there is a window");
  }
  return {};
}

Status check_shapes(const Attend& call, const StoredSide& k, const StoredSide& v) {
  const auto equal = [](const core::Refusal& refusal, std::uint64_t found, std::uint64_t wanted,
                        const core::Refusal& like) {
    return core::check_equal(refusal, found, {wanted, like.argument});
  };
  const Shape& q = call.q.shape;
  Status same = core::first_error(
      {core::check_index(of("q", "shape.tokens"), q.tokens), core::check_index(of("q", "shape.heads"), q.heads),
       equal(of("q", "shape.dim"), q.dim, k.dim(), k.refuse("dense", "shape.dim")),
       equal(v.refuse("dense", "shape.heads"), v.heads(), k.heads(), k.refuse("dense", "shape.heads")),
       equal(of("out", "shape.tokens"), call.out.shape.tokens, q.tokens, of("q", "shape.tokens")),
       equal(of("out", "shape.heads"), call.out.shape.heads, q.heads, of("q", "shape.heads")),
       equal(of("out", "shape.dim"), call.out.shape.dim, v.dim(), v.refuse("dense", "shape.dim"))});
  if (!same) return same;
  if (q.heads == 0 || q.heads % k.heads() != 0) {
    return core::refuse(of("q", "shape.heads"), q.heads, "a multiple of the {} heads of kv", k.heads());
  }
  const std::uint64_t sequences = call.kv.lengths.size();
  if (call.kv.k.sequences.size() != sequences || call.kv.v.sequences.size() != sequences) {
    return core::refuse(of("kv", "lengths"), core::text("of {} sequences", sequences), "as many as k and v have");
  }
  if (!call.query_tokens.empty() && call.query_tokens.size() != sequences) {
    return core::refuse(of("query_tokens"), core::text("of {} sequences", call.query_tokens.size()), "the {} of kv",
                        sequences);
  }
  return {};
}

Status check_per_head(const core::Refusal& refusal, const Shape& found, const Shape& wanted) {
  if (found.tokens == wanted.tokens && found.heads == wanted.heads && found.dim == wanted.dim) return {};
  return core::refuse(refusal, core::text("[{}, {}, {}]", found.tokens, found.heads, found.dim), "[{}, {}, {}]",
                      wanted.tokens, wanted.heads, wanted.dim);
}

Status check_views(const Attend& call, const runtime::Target& target, AttendViews& views) {
  auto q = runtime::check_view(target, of("q"), call.q);
  if (!q) return q.error();
  views.q = *q;
  auto out = runtime::check_view(target, of("out"), call.out);
  if (!out) return out.error();
  views.out = *out;
  const std::uint64_t heads = call.q.shape.heads;
  const auto per_head = [&](std::string_view name, const std::optional<View>& view,
                            std::optional<runtime::Bindable>& bound) -> Status {
    if (!view) return {};
    auto checked = runtime::check_view(target, of(name), *view);
    if (!checked) return checked.error();
    bound = *checked;
    return check_per_head(of(name, "shape"), view->shape, {1, heads, 1});
  };
  if (call.log_sum_exp) {
    auto log_sum = runtime::check_view(target, of("log_sum_exp"), *call.log_sum_exp);
    if (!log_sum) return log_sum.error();
    views.log_sum_exp = *log_sum;
    const Status shape =
        check_per_head(of("log_sum_exp", "shape"), call.log_sum_exp->shape, {call.q.shape.tokens, heads, 1});
    if (!shape) return shape;
  }
  return core::first_error({per_head("sink_logits", call.sink_logits, views.sink_logits),
                            per_head("alibi_slopes", call.alibi_slopes, views.alibi_slopes)});
}

// Kernels count the words of plan and scratch in 32 bits, also where a binding may span more.
runtime::Target counted_in_words(runtime::Target target) {
  constexpr std::uint64_t kMost = core::round_down(core::kMaxIndex * sizeof(std::uint32_t), runtime::kBindingAlignment);
  target.limits.max_binding_bytes = std::min(target.limits.max_binding_bytes, kMost);
  return target;
}

// The views have been checked: `out` has room for each vector, so that these products are far from 2^64.
Status count_query_bytes(const Attend& call, const runtime::Target& target, AttendViews& views) {
  const Shape& q = call.q.shape;
  const std::uint64_t vectors = q.tokens * q.heads;
  const std::uint64_t copies = call.kv.k.sealed ? 2 : 1;  // as they are, and rotated
  views.query_bytes =
      (core::round_up(2 * q.heads, kPadFloats) + vectors * padded_floats(static_cast<uint>(q.dim)) * copies) *
      sizeof(float);
  return runtime::check_upload(target, views.query_bytes, [&] {
    return core::text("{}: scratch for {} query vectors takes {} bytes", kAttend, vectors, views.query_bytes);
  });
}

// Calls visit(Bound) -> Status for all that is read, until one fails.
template <class Visit>
Status for_each_read(const Attend& call, const AttendViews& views, const Visit& visit) {
  const auto visit_if = [&](const core::Argument& argument, const auto& view,
                            const std::optional<runtime::Bindable>& bound) -> Status {
    return view && bound ? visit(runtime::Bound{argument, view->buffer, *bound}) : Status{};
  };
  const auto visit_side = [&](std::string_view name, const KvSideView& view, const AttendSide& side) {
    const auto bound = [&](KeySource source) { return side.bound[static_cast<std::size_t>(source)]; };
    return core::first_error({visit_if({name, {}, "dense"}, &view.dense, bound(KeySource::dense)),
                              visit_if({name, {}, "sealed"}, view.sealed, bound(KeySource::sealed)),
                              visit_if({name, {}, "sinks"}, view.sinks, bound(KeySource::sinks)),
                              visit_if({name, {}, "step"}, view.step, bound(KeySource::step))});
  };
  return core::first_error({visit(runtime::Bound{{"q"}, call.q.buffer, views.q}),
                            visit_side("kv.k", call.kv.k, views.k), visit_side("kv.v", call.kv.v, views.v),
                            visit_if({"sink_logits"}, call.sink_logits, views.sink_logits),
                            visit_if({"alibi_slopes"}, call.alibi_slopes, views.alibi_slopes)});
}

// What is written shares no bytes with what is read, and the two results share none with each other.
Status check_results_apart(const Attend& call, const AttendViews& views) {
  const auto check = [&](const runtime::Bound& result) {
    return for_each_read(call, views,
                         [&](const runtime::Bound& read) { return runtime::check_apart(kAttend, read, result); });
  };
  const runtime::Bound out{{"out"}, call.out.buffer, views.out};
  if (Status status = check(out); !status) return status;
  if (!call.log_sum_exp || !views.log_sum_exp) return {};
  const runtime::Bound log_sum{{"log_sum_exp"}, call.log_sum_exp->buffer, *views.log_sum_exp};
  if (Status status = check(log_sum); !status) return status;
  return runtime::check_apart(kAttend, log_sum, out);
}

}  // namespace

Result<AttendViews> check_attend_views(const Attend& call, const runtime::Target& target) {
  const StoredSide k = keys_of(call);
  const StoredSide v = values_of(call);
  if (Status status = check_numbers(call); !status) return status.error();
  AttendViews views;
  for (const auto& [side, bound] : {std::pair(&k, &views.k), std::pair(&v, &views.v)}) {
    auto checked = check_side(*side, target);
    if (!checked) return checked.error();
    *bound = *checked;
  }
  if (Status status = check_shapes(call, k, v); !status) return status.error();
  if (Status status = check_views(call, target, views); !status) return status.error();
  if (Status status = check_results_apart(call, views); !status) return status.error();
  if (Status status = count_query_bytes(call, counted_in_words(target), views); !status) return status.error();
  return views;
}

Result<AttendPlan> plan_attend(const Attend& call, const runtime::Target& target) {
  const StoredSide k = keys_of(call);
  const StoredSide v = values_of(call);
  const runtime::Target counted = counted_in_words(target);
  AttendPlanner planner(call, k, v, counted);
  std::uint64_t token = 0;
  for (std::size_t i = 0; i < call.kv.lengths.size(); ++i) {
    const std::uint64_t length = call.kv.lengths[i];
    const std::uint64_t query_tokens = call.query_tokens.empty() ? 1 : call.query_tokens[i];
    const core::Refusal of_query_tokens{kAttend, {"query_tokens", i}};
    if (length > kMaxLength) return core::refuse({kAttend, {"kv.lengths", i}}, length, "at most {}", kMaxLength);
    if (query_tokens > call.q.shape.tokens - token) {
      return core::refuse(of_query_tokens, query_tokens, "at most the {} tokens that q has left",
                          call.q.shape.tokens - token);
    }
    if (call.mask == Mask::causal && query_tokens > length) {
      return core::refuse(of_query_tokens, query_tokens, "at most the {} tokens of the sequence", length);
    }
    if (Status status = check_pages(k, i, length); !status) return status.error();
    if (Status status = check_pages(v, i, length); !status) return status.error();
    const AttendSequence sequence{length, query_tokens, token, *call.kv.k.sequences[i], *call.kv.v.sequences[i]};
    if (Status status = check_seen(call, k, sequence, i); !status) return status.error();
    if (Status status = check_seen(call, v, sequence, i); !status) return status.error();
    if (Status status = planner.add(sequence); !status) return status.error();
    token += query_tokens;
  }
  if (token != call.q.shape.tokens) {
    return core::refuse(of("query_tokens"), core::text("{} tokens together", token), "the {} of q",
                        call.q.shape.tokens);
  }
  AttendPlan plan;
  planner.write(plan);
  return plan;
}

}  // namespace rota::ops
