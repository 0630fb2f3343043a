#include "cache/layout.h"

#include <algorithm>
#include <limits>
#include <span>
#include <string_view>

#include "core/check.h"
#include "rota/view.h"
#include "runtime/committed_blocks.h"

namespace rota::cache {
namespace {

constexpr std::uint64_t kMaxTokens = std::uint64_t{1} << 40;  // of a cache; keeps every sum below 2^64
constexpr std::uint64_t kMaxSequences = 65536;
constexpr std::uint64_t kMaxStepTokens = std::uint64_t{1} << 24;
constexpr std::uint64_t kMaxTail = std::uint64_t{1} << 24;
constexpr std::uint64_t kMaxWindow = std::uint64_t{1} << 32;
constexpr std::uint64_t kMaxLayers = 65536;
constexpr std::uint64_t kMaxHeads = 65536;
constexpr std::uint64_t kMaxDim = 4096;

constexpr std::string_view kOp = "KvCacheSpec";

core::Refusal of(std::string_view name) { return {kOp, {name}}; }
core::Refusal of_group(std::size_t index, std::string_view field) { return {kOp, {"groups", index, field}}; }

Status check_range(const core::Refusal& refusal, std::uint64_t found, std::uint64_t least, std::uint64_t most) {
  if (found >= least && found <= most) return {};
  return core::refuse(refusal, found, "{} to {}", least, most);
}

struct SideSpec {
  KvSide side;
  std::string_view codec_name, dim_name;
  const KvCodec& codec;
  std::uint32_t dim;
};

Status check_side(const KvGroup& group, std::size_t index, const SideSpec& side) {
  if (Status status = check_range(of_group(index, side.dim_name), side.dim, 1, kMaxDim); !status) return status;
  const std::optional<Codec> codec = sealed_codec(side.codec);
  if (!codec) {
    const DType dtype = std::get<DType>(side.codec);
    if (is_known(dtype)) return {};
    return core::refuse(of_group(index, side.codec_name), core::text("dtype {}", static_cast<unsigned>(dtype)),
                        "f32, f16, bf16 or turbo");
  }
  const PageFormat format{*codec, side.side, side.dim, group.page};
  if (Status status = check(format); !status) {
    return Error{status.error().code,
                 core::text("{}: {}", of_group(index, side.codec_name).argument.text(), status.error().message)};
  }
  return {};
}

bool seals(const KvGroup& group) { return sealed_codec(group.k) || (!group.v_in_k && sealed_codec(group.v)); }

Status check_values(const KvGroup& group, std::size_t index) {
  const std::uint32_t key_dim = group.head_dim;
  const std::uint32_t dim = group.value_dim.value_or(key_dim);
  if (!group.v_in_k) return check_side(group, index, {KvSide::values, "v", "value_dim", group.v, dim});
  if (sealed_codec(group.k)) {
    return core::refuse(of_group(index, "k"), name(group.k), "f32, f16 or bf16, where values are a part of the keys");
  }
  return check_range(of_group(index, "value_dim"), dim, 1, key_dim);
}

Status check_group(const KvGroup& group, std::size_t index) {
  if (group.layers.empty()) return core::refuse(of_group(index, "layers"), "empty", "at least one");
  Status ranges = core::first_error({check_range(of_group(index, "layers"), group.layers.size(), 1, kMaxLayers),
                                     check_range(of_group(index, "kv_heads"), group.kv_heads, 1, kMaxHeads),
                                     check_range(of_group(index, "tail"), group.tail, 0, kMaxTail),
                                     check_range(of_group(index, "window"), group.window.value_or(1), 1, kMaxWindow)});
  if (!ranges) return ranges;
  if (group.page != 64 && group.page != 128) return core::refuse(of_group(index, "page"), group.page, "64 or 128");
  if (group.sinks > group.page) {
    return core::refuse(of_group(index, "sinks"), group.sinks, "at most the {} tokens of a page", group.page);
  }
  if (!is_known(group.dense)) {
    return core::refuse(of_group(index, "dense"), static_cast<unsigned>(group.dense), "f32, f16 or bf16");
  }
  // Within the smallest page, so that nothing is sealed or leaves while some are still to come.
  constexpr std::uint64_t kMostKept = 64;
  if (group.keep_sinks && (!group.window || group.sinks == 0 || group.sinks > kMostKept || group.v_in_k)) {
    return core::refuse(of_group(index, "keep_sinks"), "true",
                        "false, or a window, 1 to {} sinks, and values that are no part of the keys", kMostKept);
  }
  if (seals(group) && group.window && *group.window < group.tail) {
    return core::refuse(of_group(index, "window"), *group.window,
                        "at least the tail of {}: no sealed page would ever be seen", group.tail);
  }
  return core::first_error(
      {check_side(group, index, {KvSide::keys, "k", "head_dim", group.k, group.head_dim}), check_values(group, index)});
}

Status check_spec(const KvCacheSpec& spec) {
  if (spec.groups.empty()) return core::refuse(of("groups"), "empty", "at least one");
  if (spec.groups.size() > kMaxGroups)
    return core::refuse(of("groups.size()"), spec.groups.size(), "at most {}", kMaxGroups);
  for (std::size_t index = 0; index < spec.groups.size(); ++index) {
    if (Status status = check_group(spec.groups[index], index); !status) return status;
  }
  if (spec.max_tokens && spec.max_bytes) {
    return core::refuse(of("max_tokens"), "given, and max_bytes, too", "at most one of them");
  }
  for (const KvGroup& group : spec.groups) {
    if (!spec.seal_within) break;
    if (Status status = check_range(of("seal_within"), *spec.seal_within, 1, group.page); !status) return status;
  }
  if (spec.layer_order != LayerOrder::in_turn && spec.layer_order != LayerOrder::together) {
    return core::refuse(of("layer_order"), static_cast<unsigned>(spec.layer_order), "in_turn or together");
  }
  return core::first_error({check_range(of("max_tokens"), spec.max_tokens.value_or(1), 1, kMaxTokens),
                            check_range(of("max_sequences"), spec.max_sequences, 1, kMaxSequences),
                            check_range(of("max_step_tokens"), spec.max_step_tokens, 1, kMaxStepTokens)});
}

Result<std::vector<Layer>> number_layers(const KvCacheSpec& spec) {
  std::vector<Layer> layers;
  for (std::size_t group = 0; group < spec.groups.size(); ++group) {
    for (std::size_t index = 0; index < spec.groups[group].layers.size(); ++index) {
      layers.push_back({spec.groups[group].layers[index], group, index});
    }
  }
  if (layers.size() > kMaxLayers)
    return core::refuse(of("layers of all groups"), layers.size(), "at most {}", kMaxLayers);
  std::ranges::sort(layers, {}, &Layer::number);
  const auto twice = std::ranges::adjacent_find(layers, {}, &Layer::number);
  if (twice == layers.end()) return layers;
  return core::refuse(of_group(std::next(twice)->group, "layers"), core::text("naming layer {} again", twice->number),
                      "each layer once");
}

Result<std::vector<SharedLayer>> number_shared(const KvCacheSpec& spec, std::span<const Layer> layers) {
  std::vector<SharedLayer> shared;
  for (std::size_t group = 0; group < spec.groups.size(); ++group) {
    for (const KvSharedLayer& one : spec.groups[group].shared) {
      const auto from = std::ranges::lower_bound(layers, std::uint32_t{one.from}, {}, &Layer::number);
      if (from == layers.end() || from->number != one.from || from->group != group) {
        return core::refuse(of_group(group, "shared"), core::text("naming layer {} to share", std::uint32_t{one.from}),
                            "one of the group's layers");
      }
      const bool again = std::ranges::binary_search(layers, std::uint32_t{one.layer}, {}, &Layer::number) ||
                         std::ranges::find(shared, std::uint32_t{one.layer}, &SharedLayer::number) != shared.end();
      if (again) {
        return core::refuse(of_group(group, "shared"), core::text("naming layer {} again", std::uint32_t{one.layer}),
                            "each layer once");
      }
      shared.push_back({one.layer, static_cast<std::size_t>(from - layers.begin())});
    }
  }
  std::ranges::sort(shared, {}, &SharedLayer::number);
  return shared;
}

// The most whole pages in all sequences, if each has `each` tokens, and `extra` more are spread over them. Spreading is
// worst if first every sequence gets what its next page lacks, and then one of them gets the rest.
std::uint64_t most_pages(const PageRule& rule, std::uint64_t sequences, std::uint64_t each, std::uint64_t extra) {
  const std::uint64_t whole = each / rule.page;
  const std::uint64_t lacking = rule.page - each % rule.page;
  const std::uint64_t filled = std::min(sequences, extra / lacking);
  return sequences * whole + filled + (extra - filled * lacking) / rule.page;
}

struct Budget {
  std::uint64_t tokens, sequences, step;  // `step`: tokens of one
  LayerOrder order;

  bool in_turn() const { return order == LayerOrder::in_turn; }
};

// Where there are other sequences, the step before may still be held while they go on: what its queries see stays.
std::uint64_t held_steps(const Budget& budget) { return budget.sequences > 1 ? 1 : 0; }

// Every sequence may have a page that is not full.
std::uint64_t all_pages(const PageRule& rule, const Budget& budget) {
  return most_pages(rule, std::min(budget.sequences, budget.tokens), rule.page - 1, budget.tokens);
}

// In turn, a sequence never has more dense pages than before and after its steps: what a step needs more is the step's.
// Full pages that it shares with forks are written by none of them, and stay until the last has sealed them.
//
// Together, a page that a step gives back is in use until the step is submitted. So a step needs pages for what the one
// before it left dense (at most tail + page - 1 tokens of each sequence, and that step's tokens) and for its own
// tokens.
std::uint64_t dense_pages(const PageRule& rule, const Budget& budget) {
  const std::uint64_t all = all_pages(rule, budget);
  if (!rule.is_bounded()) return all;
  if (budget.in_turn()) {
    const std::uint64_t own = rule.most_dense_pages();
    return std::min(all, budget.sequences * own + budget.sequences / 2 * (own - 1));
  }
  // A page that is sealed at a pace waits for its sequence, which may be idle.
  const std::uint64_t kept = rule.dense_tokens() + (rule.within > 0 ? rule.page : 0);
  const std::uint64_t steps = rule.seals ? 2 : 2 + held_steps(budget);
  return std::min(all, most_pages(rule, budget.sequences, kept + 2 * (rule.page - 1), steps * budget.step));
}

// The first token of a step needs a page of its own where a page is due as soon as the next begins: one token after it.
// Else it has room in dense pages, and the second may need one.
std::uint64_t step_pages(const PageRule& rule, const Budget& budget) {
  if (!rule.is_bounded() || !budget.in_turn()) return 0;
  const std::uint64_t tokens = rule.dense_tokens() % rule.page == 1 ? 1 : 2;
  return std::min(all_pages(rule, budget), most_pages(rule, budget.sequences, rule.page - tokens, budget.step));
}

std::uint64_t sealed_pages(const PageRule& rule, const Budget& budget) {
  if (!rule.seals) return 0;
  const std::uint64_t all = budget.tokens / rule.page;
  if (!rule.window) return all;
  // Pages that a step seals stand beside all that the step before it left. If the sequence goes on, pages that have
  // left its window are not sealed at all; if its step is held, they are. In turn, a step has taken the pages that it
  // will seal, and pages that it sees no more are given back when the next begins.
  const std::uint64_t left = budget.sequences * rule.pages(*rule.window);
  const std::uint64_t fresh = most_pages(rule, budget.sequences, rule.page - 1, budget.step);
  return std::min(all, left + (held_steps(budget) > 0 || budget.in_turn() ? 2 * fresh : std::min(left, fresh)));
}

// Kept sinks are a sequence's from its first token on: one that is emptied and begins anew has two for a moment.
std::uint64_t sink_pages(const PageRule& rule, const Budget& budget) {
  if (rule.sinks == 0) return 0;
  return rule.keeps_sinks ? 2 * budget.sequences : budget.sequences;
}

std::uint64_t product(std::uint64_t a, std::uint64_t b) { return detail::saturating_multiply(a, b); }

Result<KvSideMemory> measure(const GroupSide& group_side, const Budget& budget) {
  if (group_side.in_keys) return KvSideMemory{};
  const std::uint64_t all_heads = product(group_side.layers, group_side.heads);
  const KvSideMemory memory{
      .sealed = {sealed_pages(group_side.rule, budget), product(all_heads, group_side.sealed_bytes())},
      .dense = {dense_pages(group_side.rule, budget), group_side.rule.page * group_side.slot_bytes()},
      .sinks = {sink_pages(group_side.rule, budget), group_side.rule.sinks * group_side.slot_bytes()},
      .step = {step_pages(group_side.rule, budget), group_side.rule.page * group_side.layer_slot_bytes()}};
  std::uint64_t bytes = 0;
  for (const KvPoolSize& pool : {memory.sealed, memory.dense, memory.sinks, memory.step}) {
    const std::uint64_t pool_bytes = product(pool.pages, pool.page_bytes);
    if (pool_bytes > kMaxBytes || pool.pages > std::numeric_limits<std::uint32_t>::max()) {
      return core::refuse(of("max_tokens"), budget.tokens, "a cache of at most 2^60 bytes and 2^32 pages");
    }
    bytes += pool_bytes;
  }
  if (bytes > kMaxBytes) return core::refuse(of("max_tokens"), budget.tokens, "a cache of at most 2^60 bytes");
  return memory;
}

std::vector<GroupSide> group_sides_of(const KvCacheSpec& spec) {
  std::vector<GroupSide> group_sides;
  for (std::size_t index = 0; index < spec.groups.size(); ++index) {
    const KvGroup& group = spec.groups[index];
    for (const KvSide side : {KvSide::keys, KvSide::values}) {
      const bool in_keys = side == KvSide::values && group.v_in_k;
      const KvCodec& codec = side == KvSide::keys || in_keys ? group.k : group.v;
      const std::optional<Codec> sealed = sealed_codec(codec);
      const std::uint32_t key_dim = group.head_dim;
      const std::uint32_t dim = side == KvSide::keys ? key_dim : group.value_dim.value_or(key_dim);
      GroupSide group_side{.group = index,
                           .side = side,
                           .layers = group.layers.size(),
                           .heads = group.kv_heads,
                           .dim = dim,
                           .dense = sealed ? group.dense : std::get<DType>(codec),
                           .rule = {.page = group.page,
                                    .tail = group.tail,
                                    .sinks = sealed || group.keep_sinks ? group.sinks : 0,
                                    .window = group.window,
                                    .seals = sealed.has_value(),
                                    .within = sealed && !group.window ? spec.seal_within.value_or(0) : 0,
                                    .keeps_sinks = group.keep_sinks}};
      if (sealed) group_side.format = PageFormat{*sealed, side, dim, group.page};
      if (in_keys) {
        group_side.in_keys = true;
        group_side.rule.window.reset();  // no page of it can leave
      }
      group_sides.push_back(group_side);
    }
  }
  return group_sides;
}

// Fills in the memory for `tokens`.
Status measure_all(Layout& layout, const KvCacheSpec& spec, std::uint64_t tokens) {
  const std::uint64_t sequence_bytes = kSequenceHostBytes + layout.group_sides.size() * kSequenceGroupSideHostBytes +
                                       layout.layers.size() * kSequenceLayerHostBytes;
  layout.memory = {.max_tokens = tokens,
                   .groups = std::vector<KvGroupMemory>(spec.groups.size()),
                   .counter_bytes = layout.group_sides.size() * kGroupSideCounters * sizeof(std::uint64_t),
                   .host_bytes = spec.max_sequences * sequence_bytes + spec.max_step_tokens * kStepTokenHostBytes};
  for (GroupSide& group_side : layout.group_sides) {
    auto memory = measure(group_side, {tokens, spec.max_sequences, spec.max_step_tokens, layout.order});
    if (!memory) return memory.error();
    group_side.memory = *memory;
    KvGroupMemory& group = layout.memory.groups[group_side.group];
    (group_side.side == KvSide::keys ? group.k : group.v) = *memory;
    for (const KvPoolSize& pool : {memory->sealed, memory->dense, memory->sinks, memory->step}) {
      const std::uint64_t blocks = pool.page_bytes / runtime::kSparseBlockBytes + 2;  // each end is in one of its own
      layout.memory.host_bytes += pool.pages * (kPageHostBytes + blocks * kBlockHostBytes);
    }
    layout.memory.host_bytes += memory->step.pages * (kStepPageHostBytes - kPageHostBytes);
    if (layout.memory.bytes() > kMaxBytes) {
      return core::refuse(of("max_tokens"), tokens, "a cache of at most 2^60 bytes");
    }
  }
  return {};
}

// Finds the most tokens that fit, by bisection: more tokens never take less memory.
Status fill(Layout& layout, const KvCacheSpec& spec, const Room& room) {
  const auto fits = [&](std::uint64_t tokens) {
    const auto is_addressed = [&](const GroupSide& group_side) {
      return std::max(group_side.most_layer_bytes(), group_side.memory.step.bytes()) <= room.layer_bytes;
    };
    return measure_all(layout, spec, tokens).ok() && layout.memory.bytes() <= room.bytes &&
           std::ranges::all_of(layout.group_sides, is_addressed);
  };
  if (!fits(1)) {
    return Error{Errc::out_of_memory,
                 core::text("{}: {} {}; one token takes {}", kOp, spec.max_bytes ? "max_bytes is" : "the device has",
                            room.bytes, layout.memory.bytes())};
  }
  std::uint64_t most = 1;
  for (std::uint64_t step = kMaxTokens; step > 0; step /= 2) {
    if (most + step <= kMaxTokens && fits(most + step)) most += step;
  }
  return measure_all(layout, spec, most);
}

Status measure(Layout& layout, const KvCacheSpec& spec, const std::optional<Room>& room) {
  if (spec.max_tokens) return measure_all(layout, spec, *spec.max_tokens);
  if (spec.max_bytes) return fill(layout, spec, {.bytes = *spec.max_bytes});
  if (room) return fill(layout, spec, *room);
  return core::refuse(of("max_tokens"), "missing, and max_bytes, too",
                      "one of them, where memory is estimated or taken at once");
}

}  // namespace

std::string GroupSide::name() const {
  return core::text("the {} of groups[{}]", side == KvSide::keys ? "keys" : "values", group);
}

Result<Layout> lay_out(const KvCacheSpec& spec, const std::optional<Room>& room) {
  if (Status status = check_spec(spec); !status) return status.error();
  auto layers = number_layers(spec);
  if (!layers) return layers.error();
  auto shared = number_shared(spec, *layers);
  if (!shared) return shared.error();
  Layout layout{.group_sides = group_sides_of(spec),
                .layers = std::move(layers).value(),
                .shared = std::move(shared).value(),
                .order = spec.layer_order};
  if (Status status = measure(layout, spec, room); !status) return status.error();
  return layout;
}

Result<Layout> lay_out(const Layout& layout, const KvCacheSpec& spec, std::uint64_t tokens) {
  Layout smaller = layout;
  if (Status status = measure_all(smaller, spec, tokens); !status) return status.error();
  return smaller;
}

}  // namespace rota::cache

namespace rota::inline ROTA_ABI {

Result<KvMemory> estimate(const KvCacheSpec& spec) {
  return core::guarded([&]() -> Result<KvMemory> {
    auto layout = cache::lay_out(spec);
    if (!layout) return layout.error();
    return std::move(layout->memory);
  });
}

}  // namespace rota::inline ROTA_ABI
