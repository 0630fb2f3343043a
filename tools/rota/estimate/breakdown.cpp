#include "estimate/breakdown.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "rota/codec.h"
#include "rota/dtype.h"

namespace rota::tool {
namespace {

struct Side {
  KvSide side;
  const KvCodec& codec;
  std::uint32_t dim;
};

std::uint64_t seen_tokens(const KvGroup& group, std::uint64_t tokens) {
  return std::min(tokens, group.window.value_or(tokens));
}

// Bytes of one token of one head, as the codec alone has it.
double codec_bytes(const KvGroup& group, const Side& side) {
  if (const auto sealed = sealed_codec(side.codec)) {
    const std::uint64_t page =
        page_bytes({.codec = *sealed, .side = side.side, .head_dim = side.dim, .tokens = group.page});
    return static_cast<double>(page) / group.page;
  }
  return static_cast<double>(info(std::get<DType>(side.codec)).bytes) * side.dim;
}

struct Sums {
  double own = 0;  // as if every value were in a full page
  std::uint64_t in_pages = 0, dense = 0;
};

void add_side(Sums& sums, const Side& side, const KvSideMemory& memory, const KvGroup& group, double head_tokens) {
  const double own = codec_bytes(group, side) * head_tokens;
  const bool sealed = sealed_codec(side.codec).has_value();
  const std::uint64_t pages = sealed ? memory.sealed.bytes() : memory.dense.bytes();
  sums.own += own;
  sums.in_pages += std::min(pages, static_cast<std::uint64_t>(own));
  if (sealed) sums.dense += memory.dense.bytes() + memory.sinks.bytes();
}

}  // namespace

std::uint64_t values_of(const KvGroup& group, std::uint64_t tokens) {
  const std::uint64_t value_dim = group.v_in_k ? 0 : group.value_dim.value_or(group.head_dim);
  return seen_tokens(group, tokens) * group.layers.size() * group.kv_heads * (group.head_dim + value_dim);
}

Breakdown breakdown_of(const KvCacheSpec& spec, std::uint64_t tokens) {
  KvCacheSpec one_by_one = spec;
  one_by_one.max_step_tokens = 1;
  const KvMemory all = estimate(spec).value(), least = estimate(one_by_one).value();
  Sums sums;
  double values = 0;
  for (std::size_t index = 0; index < spec.groups.size(); ++index) {
    const KvGroup& group = spec.groups[index];
    const KvGroupMemory& memory = least.groups[index];
    const double head_tokens = static_cast<double>(seen_tokens(group, tokens)) * spec.max_sequences *
                               static_cast<double>(group.layers.size()) * group.kv_heads;
    add_side(sums, {KvSide::keys, group.k, group.head_dim}, memory.k, group, head_tokens);
    values += head_tokens * group.head_dim;
    if (group.v_in_k) continue;
    const std::uint32_t value_dim = group.value_dim.value_or(group.head_dim);
    add_side(sums, {KvSide::values, group.v, value_dim}, memory.v, group, head_tokens);
    values += head_tokens * value_dim;
  }
  Breakdown found{.own = sums.in_pages, .dense = sums.dense};
  found.steps = all.bytes() - std::min(all.bytes(), least.bytes());
  found.unfilled = all.bytes() - found.own - found.dense - found.steps;
  found.codec_bits = values > 0 ? 8 * sums.own / values : 0;
  return found;
}

std::string breakdown_text(const Breakdown& breakdown, const KvCacheSpec& spec, std::uint64_t tokens) {
  constexpr double kNoticed = 1.1, kShown = 0.005;
  double values = 0;
  for (const KvGroup& group : spec.groups) {
    values += static_cast<double>(values_of(group, tokens)) * spec.max_sequences;
  }
  if (values == 0) return {};
  const auto bits = [&](std::uint64_t bytes) { return 8 * static_cast<double>(bytes) / values; };
  if (bits(breakdown.bytes()) <= kNoticed * breakdown.codec_bits) return {};
  const KvGroup& first = spec.groups.front();
  std::vector<std::string> parts;
  const auto add = [&](std::uint64_t bytes, const std::string& what) {
    if (bits(bytes) >= kShown) parts.push_back(fmt::format("{:.2f} {}", bits(bytes), what));
  };
  add(breakdown.own, "in pages");
  // Sequences that share a window's pages need some of their own, once they go on.
  add(breakdown.unfilled, spec.max_sequences > 1 ? "in pages that are not full, or kept for what sequences share"
                                                 : "in pages that are not full");
  add(breakdown.dense, fmt::format("tail and sinks (dense, {})", info(first.dense).name));
  add(breakdown.steps, fmt::format("room for steps of {} tokens (-ub)", spec.max_step_tokens));
  const std::string k(name(first.k)), v(name(first.v));
  return fmt::format("{} at {}: {:.2f} bits/value = {}", k == v ? k : k + "/" + v, tokens, bits(breakdown.bytes()),
                     fmt::join(parts, " + "));
}

}  // namespace rota::tool
