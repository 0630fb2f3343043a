#include "ops/attend/attend.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <string_view>

#include "codec/turbo/turbo.h"
#include "core/check.h"
#include "rota_kernels/attend_merge.h"
#include "rota_kernels/attend_part.h"
#include "rota_kernels/attend_query.h"
#include "runtime/recorder.h"
#include "runtime/strides.h"

namespace rota::ops {
namespace {

constexpr std::string_view kOp = "attend";

// q, table of keys, slopes, sink logits, queries
constexpr std::array kQueryBindings{Access::read, Access::read, Access::read, Access::read, Access::write};
// keys, values, plan, queries, table of keys, table of values, partial results
constexpr std::array kPartBindings{Access::read, Access::read, Access::read, Access::read,
                                   Access::read, Access::read, Access::write};
// plan, partial results, queries, table of values, out, log_sum_exp
constexpr std::array kMergeBindings{Access::read, Access::read,  Access::read,
                                    Access::read, Access::write, Access::write};
constexpr runtime::Kernel kQuery{
    .name = "attend_query", .code = kernels::attend_query::kCode, .bindings = kQueryBindings, .cpu = attend_query_cpu};
constexpr runtime::Kernel kPart{
    .name = "attend_part", .code = kernels::attend_part::kCode, .bindings = kPartBindings, .cpu = attend_part_cpu};
constexpr runtime::Kernel kMerge{
    .name = "attend_merge", .code = kernels::attend_merge::kCode, .bindings = kMergeBindings, .cpu = attend_merge_cpu};

constexpr std::uint64_t kMaxLength =
    (std::uint64_t{1} << 31) - 1;  // kernels subtract positions, and step past the last

constexpr std::uint64_t kScratchBytes = std::uint64_t{128} << 20;  // of partial results, unless one chunk needs more

core::Refusal of(std::string_view name, std::string_view field = {}) { return {kOp, {name, {}, field}}; }

// One side of the view, as the checks and the plan see it.
struct Side {
  std::string_view name;       // "kv.k"
  std::string_view sequences;  // "kv.k.sequences"
  const KvSideView& view;

  std::uint64_t page() const { return view.dense.shape.page_slots; }
  std::uint64_t heads() const { return view.dense.shape.heads; }
  std::uint64_t dim() const { return view.dense.shape.dim; }
  std::uint64_t sinks() const { return view.sinks ? view.sinks->shape.page_slots : 0; }
  core::Refusal refuse(std::string_view field, std::string_view subfield = {}) const {
    return {kOp, {name, {}, field, subfield}};
  }
};

Result<AttendSide> check_side(const Side& side, const runtime::Target& target) {
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
  if (view.sinks) {
    if (Status status = add(KeySource::sinks, "sinks", *view.sinks); !status) return status.error();
    const SlotShape& shape = view.sinks->shape;
    if (shape.heads != side.heads() || shape.dim != side.dim() || view.sinks->dtype != view.dense.dtype) {
      return core::refuse(side.refuse("sinks"), "of other heads, dim or dtype than dense", "the same");
    }
  }
  return bound;
}

struct Text {
  std::uint64_t length, rows, token;
  const KvPages& k;
  const KvPages& v;
};

// Pages that a text needs, those that have left included.
std::uint64_t pages_wanted(const Side& side, const KvPages& pages, std::uint64_t length) {
  const std::uint64_t slots = pages.ring.value_or(length);
  return slots == 0 ? 0 : (slots - 1) / side.page() + 1;
}

Status check_pages(const Side& side, std::size_t index, std::uint64_t length) {
  const core::Refusal refusal{kOp, {side.sequences, index}};
  const auto bad = [&](std::string_view what) {
    return core::refuse(refusal, what, "the pages of a text of {} tokens", length);
  };
  if (!side.view.sequences[index]) return bad("null");
  const KvPages& pages = *side.view.sequences[index];
  if (pages.ring) {
    const core::Refusal of_ring{kOp, {side.sequences, index, "ring"}};
    const Status counted =
        core::first_error({core::check_positive(of_ring, *pages.ring), core::check_index(of_ring, *pages.ring)});
    if (!counted) return counted;
    if (pages.first_page > 0 || pages.sealed_pages > 0 || pages.sinks) {
      return bad("a ring with sealed pages, sinks or pages that have left");
    }
  }
  const std::uint64_t last = pages_wanted(side, pages, length);
  if (pages.first_page > last || pages.places.size() < last - pages.first_page) return bad("a list of fewer pages");
  if (pages.sealed_pages > last || (pages.sealed_pages > pages.first_page && !side.view.sealed)) {
    return bad("sealed pages that are not there");
  }
  if (pages.sinks && (!side.view.sinks || *pages.sinks >= side.view.sinks->shape.pages)) return bad("sinks of no page");
  for (std::uint64_t page = pages.first_page; page < last; ++page) {
    const bool sealed = page < pages.sealed_pages;
    const std::uint64_t most = sealed ? side.view.sealed->shape.pages : side.view.dense.shape.pages;
    if (pages.places[page - pages.first_page] >= most) return bad("a place beyond the pool's pages");
  }
  return {};
}

KeySource source_of(const Side& side, const KvPages& pages, std::uint64_t position) {
  if (pages.sinks && position < side.sinks()) return KeySource::sinks;
  return position < pages.sealed_pages * side.page() ? KeySource::sealed : KeySource::dense;
}

// Entries end at multiples of it. A function of the position alone, so that rows of other texts, later tokens and other
// rows change nothing; it grows, because every entry costs a partial result.
std::uint64_t split_keys(std::uint64_t position) {
  constexpr std::uint64_t kFirst = 512;
  constexpr std::uint64_t kLast = 4096;
  constexpr std::uint64_t kSplitsPerOctave = 16;
  return std::clamp(std::bit_floor(position) / kSplitsPerOctave, kFirst, kLast);
}

// Where a range that begins at `position` must end for the sake of one side.
std::uint64_t next_cut(const Side& side, const KvPages& pages, std::uint64_t position) {
  switch (source_of(side, pages, position)) {
    case KeySource::sinks: return side.sinks();
    case KeySource::sealed: return pages.sealed_pages * side.page();
    case KeySource::dense: return ~std::uint64_t{0};
  }
  return ~std::uint64_t{0};
}

struct Range {
  std::uint64_t begin, end;
};

// The keys that are there.
Range kept(const Text& text, const Side& k, const Side& v) {
  std::uint64_t first = 0;
  for (const auto& [side, pages] : {std::pair(&k, &text.k), std::pair(&v, &text.v)}) {
    first = std::max(first, pages->first_page * side->page());
    if (pages->ring && text.length > *pages->ring) first = std::max(first, text.length - *pages->ring);
  }
  return {first, text.length};
}

// The keys that a row sees.
Range seen(const Attend& call, const Text& text, const Range& all, std::uint64_t row) {
  if (call.mask == Mask::none) return all;
  const std::uint64_t end = text.length - text.rows + row + 1;
  const std::uint64_t window = call.kv.window.value_or(end);
  return {std::max(all.begin, end > window ? end - window : 0), end};
}

class Planner {
 public:
  Planner(const Attend& call, const Side& k, const Side& v, std::uint32_t vectors)
      : call_(call), k_(k), v_(v), most_vectors_(vectors), group_(call.q.shape.heads / k.heads()) {}

  void add(const Text& text) {
    const std::uint64_t vectors = text.rows * group_;
    const auto text_index = static_cast<std::uint32_t>(texts_++);
    const Range all = kept(text, k_, v_);
    for (const std::uint64_t word :
         {text.length, text.rows, text.token, all.begin, add_table(text.k), add_table(text.v), ring_of(text.k),
          ring_of(text.v), std::uint64_t{text.k.sinks.value_or(0)}, std::uint64_t{text.v.sinks.value_or(0)}}) {
      text_words_.push_back(static_cast<std::uint32_t>(word));
    }
    for (std::uint64_t first = 0; first < vectors; first += most_vectors_) {
      const std::uint64_t count = std::min<std::uint64_t>(most_vectors_, vectors - first);
      const std::uint64_t begin = seen(call_, text, all, first / group_).begin;
      const std::uint64_t end = seen(call_, text, all, (first + count - 1) / group_).end;
      Chunk chunk{text_index, static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(count), {}};
      for (std::uint64_t at = begin; at < end;) {
        const std::uint64_t split = split_keys(at);
        const std::uint64_t stop =
            std::min({end, core::round_down(at, split) + split, next_cut(k_, text.k, at), next_cut(v_, text.v, at)});
        chunk.entries.push_back({at, stop - at, source_of(k_, text.k, at), source_of(v_, text.v, at)});
        at = stop;
      }
      chunks_.push_back(std::move(chunk));
    }
  }

  void write(AttendPlan& plan) {
    for (const Chunk& chunk : chunks_) plan.vectors = std::max(plan.vectors, chunk.vectors);
    plan.words = {0, 0};
    plan.words.insert(plan.words.end(), text_words_.begin(), text_words_.end());
    const auto tables = static_cast<std::uint32_t>(plan.words.size());
    for (std::size_t at = kPlanTexts; at < tables; at += kTextWords) {
      plan.words[at + kTextTable] += tables;
      plan.words[at + kTextTable + 1] += tables;
    }
    plan.words.insert(plan.words.end(), tables_.begin(), tables_.end());
    plan.words[kPlanChunks] = static_cast<std::uint32_t>(plan.words.size());
    std::uint32_t entries = 0;
    for (const Chunk& chunk : chunks_) {
      const auto count = static_cast<std::uint32_t>(chunk.entries.size());
      for (const std::uint32_t word : {chunk.text, chunk.first, chunk.vectors, entries, count}) {
        plan.words.push_back(word);
      }
      entries += count;
    }
    plan.words[kPlanEntries] = static_cast<std::uint32_t>(plan.words.size());
    write_rounds(plan);
  }

 private:
  struct Entry {
    std::uint64_t key, keys;
    KeySource k, v;
  };
  struct Chunk {
    std::uint32_t text, first, vectors;
    std::vector<Entry> entries;
  };
  // The chunks of a text come to the same keys one after the other, while these are still in a cache.
  struct Turn {
    std::uint32_t text;
    std::uint64_t key;
    std::uint32_t entry;

    friend auto operator<=>(const Turn&, const Turn&) = default;
  };

  // The place of page 0, or where it would be: pages that have left are not in the list.
  std::uint64_t add_table(const KvPages& pages) {
    const std::uint64_t at = tables_.size();
    tables_.insert(tables_.end(), pages.places.begin(), pages.places.end());
    return at - pages.first_page;  // may pass below zero, as a word that wraps
  }
  static std::uint64_t ring_of(const KvPages& pages) { return pages.ring.value_or(0); }

  void write_rounds(AttendPlan& plan) const {
    const std::uint64_t partial_bytes = partial_floats(static_cast<uint>(v_.dim())) * sizeof(float);
    const std::uint64_t heads = k_.heads();
    std::uint32_t entry_index = 0;
    std::vector<std::map<std::pair<KeySource, KeySource>, std::vector<Turn>>> orders;
    std::uint64_t partials = 0;
    for (std::uint32_t index = 0; index < chunks_.size(); ++index) {
      const Chunk& chunk = chunks_[index];
      const std::uint64_t wanted = chunk.entries.size() * heads * chunk.vectors;
      if (plan.rounds.empty() || (partials > 0 && (partials + wanted) * partial_bytes > kScratchBytes)) {
        plan.rounds.push_back({index, 0, {}});
        orders.emplace_back();
        partials = 0;
      }
      ++plan.rounds.back().chunks;
      for (const Entry& entry : chunk.entries) {
        for (const std::uint64_t word : {std::uint64_t{index}, entry.key, entry.keys, partials,
                                         std::uint64_t{entry.v == KeySource::sealed ? 1U : 0U}}) {
          plan.words.push_back(static_cast<std::uint32_t>(word));
        }
        orders.back()[{entry.k, entry.v}].push_back({chunk.text, entry.key, entry_index++});
        partials += heads * chunk.vectors;
      }
      plan.partials = std::max(plan.partials, partials);
    }
    for (std::size_t round = 0; round < plan.rounds.size(); ++round) {
      for (auto& [sources, turns] : orders[round]) {
        plan.rounds[round].parts.push_back({sources.first, sources.second,
                                            static_cast<std::uint32_t>(plan.words.size()),
                                            static_cast<std::uint32_t>(turns.size())});
        std::ranges::sort(turns);
        for (const Turn& turn : turns) plan.words.push_back(turn.entry);
      }
    }
  }

  const Attend& call_;
  const Side &k_, v_;
  std::uint64_t most_vectors_, group_;
  std::uint64_t texts_ = 0;
  std::vector<std::uint32_t> text_words_, tables_;
  std::vector<Chunk> chunks_;
};

Status check_numbers(const Attend& call) {
  // As f32, and with quotients that are numbers of f32.
  constexpr double kLargest = 1e30;
  const double scale = call.scale;
  if (!(std::abs(scale) <= kLargest)) {
    return core::refuse(of("scale"), scale, "a number from {} to {}", -kLargest, kLargest);
  }
  if (call.soft_cap && !(*call.soft_cap >= 1 / kLargest && *call.soft_cap <= kLargest)) {
    return core::refuse(of("soft_cap"), *call.soft_cap, "a number from {} to {}", 1 / kLargest, kLargest);
  }
  if (call.mask != Mask::causal && call.mask != Mask::none) {
    return core::refuse(of("mask"), static_cast<unsigned>(call.mask), "causal or none");
  }
  if (call.kv.window && *call.kv.window == 0) return core::refuse(of("kv", "window"), 0, "at least 1");
  if (call.kv.window && call.mask == Mask::none) {
    return core::refuse(of("mask"), "none", "causal where there is a window");
  }
  return {};
}

Status check_shapes(const Attend& call, const Side& k, const Side& v) {
  const auto equal = [](const core::Refusal& refusal, std::uint64_t found, std::uint64_t wanted,
                        const core::Refusal& like) {
    return core::check_equal(refusal, found, {wanted, like.argument});
  };
  const Shape& q = call.q.shape;
  const Status same = core::first_error(
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
  const std::uint64_t texts = call.kv.lengths.size();
  if (call.kv.k.sequences.size() != texts || call.kv.v.sequences.size() != texts) {
    return core::refuse(of("kv", "lengths"), fmt::format("of {} texts", texts), "as many as k and v have");
  }
  if (!call.rows.empty() && call.rows.size() != texts) {
    return core::refuse(of("rows"), fmt::format("of {} texts", call.rows.size()), "the {} of kv", texts);
  }
  return {};
}

Status check_per_head(const core::Refusal& refusal, const Shape& found, const Shape& wanted) {
  if (found.tokens == wanted.tokens && found.heads == wanted.heads && found.dim == wanted.dim) return {};
  return core::refuse(refusal, fmt::format("[{}, {}, {}]", found.tokens, found.heads, found.dim), "[{}, {}, {}]",
                      wanted.tokens, wanted.heads, wanted.dim);
}

Status check_views(const Attend& call, const runtime::Target& target, AttendPlan& plan) {
  auto q = runtime::check_view(target, of("q"), call.q);
  if (!q) return q.error();
  plan.q = *q;
  auto out = runtime::check_view(target, of("out"), call.out);
  if (!out) return out.error();
  plan.out = *out;
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
    auto sums = runtime::check_view(target, of("log_sum_exp"), *call.log_sum_exp);
    if (!sums) return sums.error();
    plan.log_sum_exp = *sums;
    const Status shape =
        check_per_head(of("log_sum_exp", "shape"), call.log_sum_exp->shape, {call.q.shape.tokens, heads, 1});
    if (!shape) return shape;
  }
  return core::first_error({per_head("sink_logits", call.sink_logits, plan.sink_logits),
                            per_head("alibi_slopes", call.alibi_slopes, plan.alibi_slopes)});
}

// What is written shares no bytes with what is read, and the two results share none with each other.
Status check_results_apart(const Attend& call, const AttendPlan& plan) {
  std::vector<runtime::Bound> others{{{"q"}, call.q.buffer, plan.q}};
  const auto add = [&](const core::Argument& argument, const auto& view,
                       const std::optional<runtime::Bindable>& bound) {
    if (view && bound) others.push_back({argument, view->buffer, *bound});
  };
  const auto add_side = [&](std::string_view name, const KvSideView& view, const AttendSide& side) {
    add({name, {}, "dense"}, &view.dense, side.bound[static_cast<std::size_t>(KeySource::dense)]);
    add({name, {}, "sealed"}, view.sealed, side.bound[static_cast<std::size_t>(KeySource::sealed)]);
    add({name, {}, "sinks"}, view.sinks, side.bound[static_cast<std::size_t>(KeySource::sinks)]);
  };
  add_side("kv.k", call.kv.k, plan.k);
  add_side("kv.v", call.kv.v, plan.v);
  add({"sink_logits"}, call.sink_logits, plan.sink_logits);
  add({"alibi_slopes"}, call.alibi_slopes, plan.alibi_slopes);
  const auto check = [&](const runtime::Bound& result) -> Status {
    for (const runtime::Bound& other : others) {
      if (Status status = runtime::check_apart(kOp, other, result); !status) return status;
    }
    return {};
  };
  const runtime::Bound out{{"out"}, call.out.buffer, plan.out};
  if (Status status = check(out); !status) return status;
  if (!call.log_sum_exp || !plan.log_sum_exp) return {};
  const runtime::Bound sums{{"log_sum_exp"}, call.log_sum_exp->buffer, *plan.log_sum_exp};
  if (Status status = check(sums); !status) return status;
  return runtime::check_apart(kOp, sums, out);
}

}  // namespace

std::uint32_t most_vectors(const runtime::Target& target, std::uint64_t k_dim, std::uint64_t v_dim) noexcept {
  if (target.limits.shared_memory_bytes == 0) return kCpuVectors;
  // More shared memory than this leaves a GPU too few workgroups at a time to hide its memory's latency, and a lane
  // with more columns of values has registers for fewer vectors.
  const std::uint64_t room = std::min<std::uint64_t>(target.limits.shared_memory_bytes, 32U << 10);
  std::uint32_t vectors = kGpuVectors;
  const auto fits = [&] {
    return attend_shared_bytes(vectors, static_cast<uint>(k_dim)) <= room &&
           vectors * v_dim <= std::uint64_t{kGpuVectors} * 4 * kAttendGroupSize;
  };
  while (vectors > 1 && !fits()) vectors /= 2;
  return vectors;
}

Result<AttendPlan> check_attend(const Attend& call, const runtime::Target& target) {
  const Side k{"kv.k", "kv.k.sequences", call.kv.k};
  const Side v{"kv.v", "kv.v.sequences", call.kv.v};
  if (Status status = check_numbers(call); !status) return status.error();
  AttendPlan plan;
  for (const auto& [side, bound] : {std::pair(&k, &plan.k), std::pair(&v, &plan.v)}) {
    auto checked = check_side(*side, target);
    if (!checked) return checked.error();
    *bound = *checked;
  }
  if (Status status = check_shapes(call, k, v); !status) return status.error();
  if (Status status = check_views(call, target, plan); !status) return status.error();
  if (Status status = check_results_apart(call, plan); !status) return status.error();

  Planner planner(call, k, v, most_vectors(target, k.dim(), v.dim()));
  std::uint64_t token = 0;
  for (std::size_t i = 0; i < call.kv.lengths.size(); ++i) {
    const std::uint64_t length = call.kv.lengths[i];
    const std::uint64_t rows = call.rows.empty() ? 1 : call.rows[i];
    const core::Refusal of_rows{kOp, {"rows", i}};
    if (length > kMaxLength) return core::refuse({kOp, {"kv.lengths", i}}, length, "at most {}", kMaxLength);
    if (rows > call.q.shape.tokens - token) {
      return core::refuse(of_rows, rows, "at most the {} tokens that q has left", call.q.shape.tokens - token);
    }
    if (call.mask == Mask::causal && rows > length) {
      return core::refuse(of_rows, rows, "at most the {} tokens of the text", length);
    }
    if (Status status = check_pages(k, i, length); !status) return status.error();
    if (Status status = check_pages(v, i, length); !status) return status.error();
    planner.add({length, rows, token, *call.kv.k.sequences[i], *call.kv.v.sequences[i]});
    token += rows;
  }
  if (token != call.q.shape.tokens) {
    return core::refuse(of("rows"), fmt::format("{} tokens together", token), "the {} of q", call.q.shape.tokens);
  }
  planner.write(plan);
  return plan;
}

SlotStrides sealed_strides(const SealedView& view, const runtime::Bindable& bound) {
  constexpr std::uint64_t kWord = sizeof(std::uint32_t);
  return {.offset = bound.first_element / kWord,
          .page = runtime::effective(view.page_stride_bytes, view.shape.pages) / kWord,
          .slot = 0,
          .head = runtime::effective(view.head_stride_bytes, view.shape.heads) / kWord,
          .dim = 0};
}

}  // namespace rota::ops

namespace rota {
namespace {

using ops::KeySource;

// What a launch is told about one side.
struct SourceOf {
  runtime::Binding binding;
  ops::SlotStrides strides;
  std::uint32_t format;
  bool has_mean, in_units;
};

SourceOf source_of(const KvSideView& view, const ops::AttendSide& side, KeySource source) {
  const runtime::Bindable& bound = *side.bound[static_cast<std::size_t>(source)];
  if (source == KeySource::sealed) {
    const SealedView& sealed = *view.sealed;
    return {runtime::bind_in_units(sealed.buffer, bound), ops::sealed_strides(sealed, bound),
            ops::kSealedFormat + sealed.format.codec.bits, sealed.format.has_mean(), true};
  }
  const SlotView& slots = source == KeySource::sinks ? *view.sinks : view.dense;
  const ops::SlotStrides strides = runtime::strides_of(slots, bound);
  return {runtime::bind_in_units(slots.buffer, bound), strides, static_cast<std::uint32_t>(slots.dtype), false,
          runtime::in_whole_units(slots.dtype, strides, slots.shape.dim)};
}

ops::RotationShape rotation_of(const KvSideView& view) {
  if (!view.sealed) return {0, 0};
  return codec::rotation_of(view.sealed->format.head_dim).value_or(ops::RotationShape{0, 0});
}

Result<runtime::Binding> upload_table(runtime::Recorder& recorder, const KvSideView& view,
                                      const runtime::Binding& otherwise) {
  if (!view.sealed) return otherwise;
  const auto words = codec::kernel_table(view.sealed->format);
  return recorder.upload(std::as_bytes(std::span(words)));
}

// Kernels go over more rows than that in turns.
std::uint32_t groups_of(std::uint64_t rows) {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(rows, runtime::kMaxGroups));
}

template <class AnyView>
std::uint32_t dtype_or_none(const std::optional<AnyView>& view) {
  return view ? static_cast<std::uint32_t>(view->dtype) + 1 : 0;
}

ops::HeadNumbers head_numbers(const std::optional<View>& view, const std::optional<runtime::Bindable>& bound) {
  if (!view || !bound) return {0, 0};
  return {bound->first_element, runtime::effective(view->head_stride, view->shape.heads)};
}

}  // namespace

void attend(Encoder& encoder, const Attend& call) {
  runtime::record(encoder, [&](runtime::Recorder& recorder) -> Status {
    auto checked = ops::check_attend(call, recorder.target());
    if (!checked) return checked.error();
    const ops::AttendPlan& plan = *checked;
    if (plan.empty()) return {};
    const Shape& q = call.q.shape;
    const std::uint64_t k_dim = q.dim;
    const std::uint64_t v_dim = call.out.shape.dim;
    const std::uint64_t kv_heads = call.kv.k.dense.shape.heads;
    const ops::RotationShape k_rotation = rotation_of(call.kv.k);

    auto words = recorder.upload(std::as_bytes(std::span(plan.words)));
    if (!words) return words.error();
    auto k_table = upload_table(recorder, call.kv.k, *words);
    if (!k_table) return k_table.error();
    auto v_table = upload_table(recorder, call.kv.v, *words);
    if (!v_table) return v_table.error();
    const std::uint64_t vectors = q.tokens * q.heads;
    const std::uint64_t query_floats =
        ops::query_header(static_cast<std::uint32_t>(q.heads)) +
        vectors * ops::padded_row(static_cast<std::uint32_t>(k_dim)) * (k_rotation.m == 0 ? 1 : 2);
    auto queries = recorder.scratch(query_floats * sizeof(float));
    if (!queries) return queries.error();
    const std::uint64_t partial_bytes = std::max<std::uint64_t>(plan.partials, 1) *
                                        ops::partial_floats(static_cast<std::uint32_t>(v_dim)) * sizeof(float);
    auto partials = recorder.scratch(partial_bytes);
    if (!partials) return partials.error();

    const auto bind_numbers = [&](const std::optional<View>& view, const std::optional<runtime::Bindable>& bound) {
      return view && bound ? runtime::bind(view->buffer, *bound) : *words;
    };
    const ops::QueryParams query{.from = runtime::strides_of(call.q, plan.q),
                                 .slopes = head_numbers(call.alibi_slopes, plan.alibi_slopes),
                                 .sinks = head_numbers(call.sink_logits, plan.sink_logits),
                                 .rotation = k_rotation,
                                 .tokens = static_cast<std::uint32_t>(q.tokens),
                                 .heads = static_cast<std::uint32_t>(q.heads),
                                 .dim = static_cast<std::uint32_t>(k_dim),
                                 .scale = static_cast<float>(static_cast<double>(call.scale))};
    recorder.dispatch(
        {ops::kQuery,
         {static_cast<std::uint32_t>(call.q.dtype), dtype_or_none(call.alibi_slopes), dtype_or_none(call.sink_logits)},
         {.groups = groups_of(vectors + 1), .rows = vectors + 1, .row_bytes = 8 * k_dim}},
        query,
        {runtime::bind(call.q.buffer, plan.q), *k_table, bind_numbers(call.alibi_slopes, plan.alibi_slopes),
         bind_numbers(call.sink_logits, plan.sink_logits), *queries});

    for (const ops::AttendRound& round : plan.rounds) {
      for (const ops::AttendPart& part : round.parts) {
        const SourceOf k = source_of(call.kv.k, plan.k, part.k);
        const SourceOf v = source_of(call.kv.v, plan.v, part.v);
        const ops::PartParams params{
            .k = k.strides,
            .v = v.strides,
            .order = part.order,
            .entries = part.entries,
            .kv_heads = static_cast<std::uint32_t>(kv_heads),
            .group = static_cast<std::uint32_t>(q.heads / kv_heads),
            .k_page = static_cast<std::uint32_t>(call.kv.k.dense.shape.page_slots),
            .v_page = static_cast<std::uint32_t>(call.kv.v.dense.shape.page_slots),
            .tokens = static_cast<std::uint32_t>(q.tokens),
            .window = static_cast<std::uint32_t>(std::min<std::uint64_t>(call.kv.window.value_or(0), core::kMaxIndex)),
            .flags = (call.mask == Mask::causal ? ops::kCausal : 0) |
                     (part.k == KeySource::sinks ? ops::kKeySinks : 0) |
                     (part.v == KeySource::sinks ? ops::kValueSinks : 0),
            .soft_cap = static_cast<float>(call.soft_cap.value_or(0))};
        const std::uint64_t rows = part.entries * kv_heads;
        recorder.dispatch(
            {ops::kPart,
             {k.format, v.format, static_cast<std::uint32_t>(k_dim), static_cast<std::uint32_t>(v_dim),
              std::bit_ceil(plan.vectors), k.has_mean ? 1U : 0U, k.in_units ? 1U : 0U, v.in_units ? 1U : 0U},
             {.groups = groups_of(rows), .rows = rows, .row_bytes = ops::kStepKeys * (k_dim + v_dim)}},
            params, {k.binding, v.binding, *words, *queries, *k_table, *v_table, *partials});
      }
      const ops::MergeParams merge{
          .to = runtime::strides_of(call.out, plan.out),
          .sums = plan.log_sum_exp ? runtime::strides_of(*call.log_sum_exp, *plan.log_sum_exp) : ops::Strides{},
          .rotation = rotation_of(call.kv.v),
          .first_chunk = round.first_chunk,
          .chunks = round.chunks,
          .kv_heads = static_cast<std::uint32_t>(kv_heads),
          .group = static_cast<std::uint32_t>(q.heads / kv_heads),
          .vectors = plan.vectors,
          .dim = static_cast<std::uint32_t>(v_dim)};
      const std::uint64_t rows = round.chunks * kv_heads * plan.vectors;
      recorder.dispatch({ops::kMerge,
                         {static_cast<std::uint32_t>(call.out.dtype), dtype_or_none(call.log_sum_exp),
                          call.sink_logits ? 1U : 0U, runtime::in_whole_words(call.out.dtype, merge.to) ? 1U : 0U},
                         {.groups = groups_of(rows), .rows = rows, .row_bytes = 64 * v_dim}},
                        merge,
                        {*words, *partials, *queries, *v_table, runtime::bind(call.out.buffer, plan.out),
                         plan.log_sum_exp ? runtime::bind(call.log_sum_exp->buffer, *plan.log_sum_exp)
                                          : runtime::bind_untouched(call.out.buffer, plan.out)});
    }
    return {};
  });
}

}  // namespace rota
