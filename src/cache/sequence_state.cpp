#include "cache/sequence_state.h"

#include <algorithm>

namespace rota::cache {

std::uint64_t first_page_of(const PageRule& rule, std::uint64_t length, std::uint64_t first_query) noexcept {
  return std::min(rule.first_page(length), rule.first_seen_page(first_query));
}

bool is_due(std::span<const GroupSide> group_sides, const SequenceState& sequence, std::uint64_t first_query,
            bool also_at_a_pace) noexcept {
  if (sequence.transition && (also_at_a_pace || !sequence.transition->at_a_pace)) return true;
  for (std::size_t group_side = 0; group_side < group_sides.size(); ++group_side) {
    const PageRule& rule = group_sides[group_side].rule;
    const KvPages& pages = *sequence.group_sides[group_side];
    const std::uint64_t may_wait = !also_at_a_pace && rule.within > 0 ? 1 : 0;
    if (first_page_of(rule, sequence.length, first_query) > pages.first_page) return true;
    if (rule.sealed_pages(sequence.length) > pages.sealed_pages + may_wait) return true;
  }
  return false;
}

std::vector<PageUse> uses_of(const SequenceState& sequence) {
  std::vector<PageUse> uses;
  for (std::size_t group_side = 0; group_side < sequence.group_sides.size(); ++group_side) {
    const KvPages& pages = *sequence.group_sides[group_side];
    for_each_page(pages, [&](const MappedPage& page) { uses.push_back({group_side, page.kind, page.physical}); });
    if (pages.sinks) uses.push_back({group_side, PoolKind::sinks, *pages.sinks});
  }
  if (sequence.transition) {
    const std::vector<PageUse>& leaving = sequence.transition->leaving;
    uses.insert(uses.end(), leaving.begin(), leaving.end());
  }
  return uses;
}

}  // namespace rota::cache
