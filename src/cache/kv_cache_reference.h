#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "harness/elements.h"
#include "ops/seal/seal_reference.h"
#include "rota/rota.h"

// What a cache promises, written as plain lists of vectors by position.

namespace rota::cache::reference {

// One token's values in one group side: [layer][head][dim].
using Values = std::shared_ptr<const std::vector<float>>;

struct Sealed {
  std::vector<std::vector<std::byte>> bytes;         // [layer][head]
  std::vector<Values> sinks;                         // of page 0: its first tokens as they were
  mutable std::vector<std::vector<float>> values{};  // [layer][head], decoded when they are first asked for
};

struct GroupSideSpec {
  const KvGroup* group;
  KvSide side;
  DType dense;
  std::optional<PageFormat> format;
  std::uint64_t layers, heads, dim;
  bool in_keys = false;  // values that are the first numbers of the keys

  std::uint64_t vector_size() const { return layers * heads * dim; }
};

inline std::vector<GroupSideSpec> group_sides_of(const KvCacheSpec& spec) {
  std::vector<GroupSideSpec> group_sides;
  for (const KvGroup& group : spec.groups) {
    for (const KvSide side : {KvSide::keys, KvSide::values}) {
      const bool in_keys = side == KvSide::values && group.v_in_k;
      const KvCodec& codec = side == KvSide::keys || in_keys ? group.k : group.v;
      const std::uint32_t key_dim = group.head_dim;
      const std::uint32_t dim = side == KvSide::keys ? key_dim : group.value_dim.value_or(key_dim);
      const Turbo* const turbo = std::get_if<Turbo>(&codec);
      GroupSideSpec group_side{
          &group,         side, turbo != nullptr ? group.dense : std::get<DType>(codec), {}, group.layers.size(),
          group.kv_heads, dim};
      group_side.in_keys = in_keys;
      if (turbo != nullptr) group_side.format = PageFormat{*turbo, side, dim, group.page};
      group_sides.push_back(group_side);
    }
  }
  return group_sides;
}

inline float in_dtype(float value, DType dtype) {
  return static_cast<float>(test::value_of(test::bits_of(static_cast<double>(value), dtype), dtype));
}

// One sequence's keys or values.
class SequenceSide {
 public:
  explicit SequenceSide(const GroupSideSpec& spec) : spec_(&spec) {}

  const GroupSideSpec& spec() const { return *spec_; }
  std::uint64_t first_page() const { return first_page_; }
  std::uint64_t sealed_pages() const { return sealed_pages_; }
  const Sealed& sealed(std::uint64_t page) const { return *sealed_.at(page); }
  const Values& dense(std::uint64_t position) const { return tokens_.at(position); }

  // What attention finds: a dim of each, of one layer's head.
  const float* vector(std::uint64_t position, std::uint64_t head) const {
    if (position >= sealed_pages_ * size()) return dense(position)->data() + head * spec_->dim;
    const Sealed& page = sealed(position / size());
    if (position < page.sinks.size()) return page.sinks[position]->data() + head * spec_->dim;
    page.values.resize(page.bytes.size());
    std::vector<float>& values = page.values[head];
    if (values.empty()) values = ops::reference::Unsealer(*spec_->format).unseal(page.bytes[head]);
    return values.data() + position % size() * spec_->dim;
  }

  // By the definition: a page is sealed when all of it is older than the tail, and leaves when nobody sees any of it:
  // neither the newest token, even after the whole tail was taken back, nor a query from position `first_query` on.
  std::uint64_t due(std::uint64_t length) const {
    std::uint64_t page = sealed_pages_;
    while (spec_->format && (page + 1) * size() + spec_->group->tail <= length) ++page;
    return page;
  }
  std::uint64_t gone(std::uint64_t length, std::uint64_t first_query) const {
    std::uint64_t page = first_page_;
    const auto is_gone = [&](std::uint64_t end, std::uint64_t window) {
      return end + spec_->group->tail + window <= length && end + window <= first_query + 1;
    };
    while (spec_->group->window && is_gone((page + 1) * size(), *spec_->group->window)) ++page;
    return page;
  }

  void settle(std::uint64_t length, std::uint64_t first_query) {
    advance(gone(length, first_query), due(length));
    paced_layers = 0;
  }

  // Whether a step to `length` takes turns: layer after layer, its tokens are dense and then as if settled. That is so
  // if it needs more dense pages than the sequence, when it is settled, has before it and after it; and, where pages
  // are sealed within some tokens, more than the tail, a page and these tokens may take.
  bool takes_turns(const KvCacheSpec& spec, std::uint64_t length) const {
    if (spec.layer_order == LayerOrder::together || (!spec_->format && !spec_->group->window)) return false;
    const auto pages = [&](std::uint64_t tokens) { return (tokens + size() - 1) / size(); };
    const auto first_dense = [&](std::uint64_t tokens) { return std::max(gone(tokens, tokens), due(tokens)); };
    const std::uint64_t before = pages(tokens_.size()) - first_dense(tokens_.size());
    const std::uint64_t after = pages(length) - first_dense(length);
    const bool paced = spec.seal_within && spec_->format && !spec_->group->window;
    const std::uint64_t room = paced ? pages(spec_->group->tail + size() + *spec.seal_within) : 0;
    return pages(length) - first_dense(tokens_.size()) > std::max({before, after, room});
  }
  bool in_turn = false;  // the newest step does, and the last layer is still as it was

  // Others' calls leave alone what is sealed at a pace.
  std::uint64_t due_in_passing(std::uint64_t length, bool at_a_pace) const {
    const bool paced = at_a_pace && spec_->format && !spec_->group->window;
    return paced ? std::max(sealed_pages_, std::max<std::uint64_t>(due(length), 1) - 1) : due(length);
  }

  // A step to `length` that takes no turns seals the newest page that is due in some layers, the others in all.
  void settle_at_a_pace(std::uint64_t within, std::uint64_t length) {
    const std::uint64_t now = tokens_.size();
    if (!spec_->format || spec_->group->window) return settle(now, now);
    const std::uint64_t pages = due(now);
    const std::uint64_t had = pages == sealed_pages_ + 1 ? paced_layers : 0;  // perhaps when it was longer
    paced_layers = 0;
    if (pages > sealed_pages_) advance(first_page_, pages - 1);
    if (pages == sealed_pages_) return;
    const std::uint64_t since = std::min(length - pages * size() - spec_->group->tail, within);
    paced_layers = std::max(had, (spec_->layers * since + within - 1) / within);
    if (paced_layers == spec_->layers) settle(now, now);
  }
  std::uint64_t paced_layers = 0;  // the first so many have sealed one page more

  // What a layer has if the step's newest one is `newest`.
  const SequenceSide& in_layer(std::uint32_t layer, std::uint32_t newest) const {
    const auto at = std::ranges::find(spec_->group->layers, layer) - spec_->group->layers.begin();
    const bool is_ahead = in_turn ? layer != newest : static_cast<std::uint64_t>(at) < paced_layers;
    return is_ahead ? ahead() : *this;
  }

  // As layers are that had their turn.
  const SequenceSide& ahead() const {
    if (!in_turn && paced_layers == 0) return *this;
    if (!ahead_) {
      ahead_ = std::make_shared<SequenceSide>(*this);
      ahead_->in_turn = false;
      ahead_->paced_layers = 0;
      if (in_turn) {
        ahead_->settle(tokens_.size(), tokens_.size());
      } else {
        ahead_->advance(first_page_, sealed_pages_ + 1);
      }
    }
    return *ahead_;
  }
  void complete() { *this = SequenceSide(ahead()); }

  // The step is taken back, of which some layers had their turn: page `begin` / size was restored there.
  template <class HadTurn>
  void give_up(std::uint64_t begin, const HadTurn& had_turn) {
    const SequenceSide was = *this;
    complete();
    truncate(begin);
    for (std::uint64_t position = begin / size() * size(); position < begin; ++position) {
      auto values = std::make_shared<std::vector<float>>(*tokens_.at(position));
      const std::uint64_t layer_size = spec_->heads * spec_->dim;
      for (std::uint64_t layer = 0; layer < spec_->layers; ++layer) {
        if (had_turn(layer)) continue;
        const auto from = was.tokens_.at(position)->begin() + static_cast<std::ptrdiff_t>(layer * layer_size);
        std::copy_n(from, layer_size, values->begin() + static_cast<std::ptrdiff_t>(layer * layer_size));
      }
      tokens_.at(position) = std::move(values);
    }
  }

  void advance(std::uint64_t first, std::uint64_t sealed) {
    ahead_.reset();
    for (std::uint64_t page = first_page_; page < first; ++page) {
      sealed_.erase(page);
      for (std::uint64_t i = 0; i < size(); ++i) tokens_.at(page * size() + i).reset();
    }
    first_page_ = std::max(first_page_, first);
    for (std::uint64_t page = std::max(sealed_pages_, first_page_); page < sealed; ++page) seal(page);
    sealed_pages_ = std::max({sealed_pages_, sealed, first_page_});
  }

  void append(Values values) {
    tokens_.push_back(std::move(values));
    ahead_.reset();
  }

  // Whether the shorter sequence has all that it would see.
  bool can_truncate(std::uint64_t length) const {
    const std::uint64_t window = spec_->group->window.value_or(length);
    const std::uint64_t seen = length > window ? length - window : 0;
    return length == 0 || seen >= first_page_ * size();
  }

  // Whether the page that is being sealed at a pace is due with `length` tokens as well.
  bool keeps_pace(std::uint64_t length) const {
    return paced_layers == 0 || (sealed_pages_ + 1) * size() + spec_->group->tail <= length;
  }

  void truncate(std::uint64_t length) {
    ahead_.reset();
    const std::uint64_t page = length / size();
    if (page < sealed_pages_ && length > 0) {
      if (length % size() > 0) restore(page);
      sealed_.erase(sealed_.lower_bound(page), sealed_.end());
      sealed_pages_ = page;
    }
    tokens_.resize(length);
    if (length > 0) return;
    sealed_.clear();
    first_page_ = sealed_pages_ = 0;
  }

 private:
  std::uint64_t size() const { return spec_->group->page; }

  void seal(std::uint64_t page) {
    auto sealed = std::make_shared<Sealed>();
    const std::uint64_t sinks = page == 0 ? spec_->group->sinks : 0;
    std::vector<std::uint16_t> halves(size() * spec_->dim);
    for (std::uint64_t head = 0; head < spec_->layers * spec_->heads; ++head) {
      for (std::uint64_t t = 0; t < size(); ++t) {
        const float* const values = tokens_.at(page * size() + t)->data() + head * spec_->dim;
        for (std::uint64_t d = 0; d < spec_->dim; ++d) halves[t * spec_->dim + d] = f16_from_f32(values[d]);
      }
      sealed->bytes.push_back(ops::reference::Sealer(*spec_->format).seal(halves, sinks));
    }
    for (std::uint64_t t = 0; t < sinks; ++t) sealed->sinks.push_back(tokens_.at(t));
    for (std::uint64_t t = 0; t < size(); ++t) tokens_.at(page * size() + t).reset();
    sealed_[page] = std::move(sealed);
  }

  void restore(std::uint64_t page) {
    const Sealed& sealed = *sealed_.at(page);
    std::vector<std::vector<float>> values(size(), std::vector<float>(spec_->vector_size()));
    const float limit = spec_->dense == DType::bf16 ? 65280.0F : 65504.0F;
    for (std::uint64_t head = 0; head < sealed.bytes.size(); ++head) {
      const std::vector<float> page_values = ops::reference::Unsealer(*spec_->format).unseal(sealed.bytes[head], limit);
      for (std::uint64_t i = 0; i < page_values.size(); ++i) {
        values[i / spec_->dim][head * spec_->dim + i % spec_->dim] = in_dtype(page_values[i], spec_->dense);
      }
    }
    for (std::uint64_t t = 0; t < size(); ++t) {
      tokens_.at(page * size() + t) =
          t < sealed.sinks.size() ? sealed.sinks[t] : std::make_shared<const std::vector<float>>(std::move(values[t]));
    }
  }

  const GroupSideSpec* spec_;
  std::uint64_t first_page_ = 0, sealed_pages_ = 0;
  std::vector<Values> tokens_;  // by position; null where sealed or gone
  std::map<std::uint64_t, std::shared_ptr<const Sealed>> sealed_;
  mutable std::shared_ptr<SequenceSide> ahead_;
};

struct SequenceState {
  Sequence sequence;
  std::uint64_t length = 0;
  std::vector<SequenceSide> group_sides;
  std::weak_ptr<const KvStep> step = {};  // its newest, as long as somebody may attend with its queries
  std::uint64_t step_begin = 0;
  bool took_turns = false;  // the newest step did: then no layer but the newest has all that it sees
  std::map<std::size_t, std::uint32_t> newest_layers = {};  // of the step, by group

  // What a layer has.
  const SequenceSide& side(std::size_t group_side, std::uint32_t layer) const {
    return group_sides[group_side].in_layer(layer, newest_layer(group_side));
  }
  std::uint32_t newest_layer(std::size_t group_side) const {
    const auto found = newest_layers.find(group_side / 2);
    return found != newest_layers.end() ? found->second : 0;
  }
  bool in_turn() const { return std::ranges::any_of(group_sides, &SequenceSide::in_turn); }
  void complete() {
    for (SequenceSide& group_side : group_sides) group_side.complete();
  }

  bool is_held() const { return !step.expired(); }
  std::uint64_t first_query() const { return is_held() ? step_begin : length; }
  void settle(std::uint64_t first_query) {
    complete();
    for (SequenceSide& group_side : group_sides) group_side.settle(length, first_query);
  }
  bool keeps_pace(std::uint64_t to) const {
    const auto keeps = [&](const SequenceSide& side) { return side.keeps_pace(to); };
    const auto paced = [](const SequenceSide& side) { return side.paced_layers > 0; };
    return std::ranges::any_of(group_sides, paced) && std::ranges::all_of(group_sides, keeps);
  }
  // What a truncation settles: of pages that are sealed at a pace all but the newest.
  void settle_to_cut(std::uint64_t first_query, bool at_a_pace) {
    complete();
    for (SequenceSide& side : group_sides) {
      side.advance(side.gone(length, first_query), side.due_in_passing(length, at_a_pace));
    }
  }
  void truncate(std::uint64_t to) {
    if (!keeps_pace(to)) complete();
    for (SequenceSide& group_side : group_sides) group_side.truncate(to);
    if (to < length) step.reset();
    length = to;
  }
};

}  // namespace rota::cache::reference
