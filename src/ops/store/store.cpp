#include "ops/store/store.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string>

#include "core/check.h"
#include "core/placement.h"
#include "rota_kernels/store.h"
#include "runtime/recorder.h"
#include "runtime/strides.h"

namespace rota::ops {
namespace {

constexpr std::string_view kOp = "store";

constexpr auto kBindings = runtime::accesses({{kStoreBindingFrom, Access::read},
                                              {kStoreBindingTo, Access::write},
                                              {kStoreBindingPlan, Access::read},
                                              {kStoreBindingCounter, Access::write}});
constexpr runtime::Kernel kStore{.name = kOp, .code = kernels::store::kCode, .bindings = kBindings, .cpu = store_cpu};

core::Argument from_name(std::size_t index, std::string_view field = {}) { return {"pairs", index, "from", field}; }
core::Argument to_name(std::size_t index, std::string_view field = {}) { return {"pairs", index, "to", field}; }
core::Argument run_name(std::size_t index, std::string_view field) { return {"sequences", index, field}; }

Status check_shapes(const Store& call, std::size_t index) {
  const Shape& from = call.pairs[index].from.shape;
  const SlotShape& to = call.pairs[index].to.shape;
  const StorePair& first = call.pairs.front();
  const auto of_from = [&](std::string_view field) { return core::Refusal{kOp, from_name(index, field)}; };
  const auto of_to = [&](std::string_view field) { return core::Refusal{kOp, to_name(index, field)}; };
  return core::first_error(
      {core::check_index(of_from("shape.tokens"), from.tokens), core::check_index(of_from("shape.heads"), from.heads),
       core::check_index(of_from("shape.dim"), from.dim), core::check_positive(of_to("shape.pages"), to.pages),
       core::check_index(of_to("shape.pages"), to.pages),
       core::check_positive(of_to("shape.page_slots"), to.page_slots),
       core::check_index(of_to("shape.page_slots"), to.page_slots),
       core::check_equal(of_to("shape.heads"), to.heads, {from.heads, from_name(index, "shape.heads")}),
       core::check_equal(of_to("shape.dim"), to.dim, {from.dim, from_name(index, "shape.dim")}),
       core::check_equal(of_from("shape.tokens"), from.tokens, {first.from.shape.tokens, from_name(0, "shape.tokens")}),
       core::check_equal(of_to("shape.page_slots"), to.page_slots,
                         {first.to.shape.page_slots, to_name(0, "shape.page_slots")})});
}

Result<CheckedStore::Pair> check_pair(const Store& call, std::size_t index, const runtime::Target& target) {
  if (Status status = check_shapes(call, index); !status) return status.error();
  const StorePair& pair = call.pairs[index];
  auto from = runtime::check_view(target, {kOp, from_name(index)}, pair.from);
  if (!from) return from.error();
  auto to = runtime::check_view(target, {kOp, to_name(index)}, pair.to);
  if (!to) return to.error();
  const Status apart =
      runtime::check_apart(kOp, {from_name(index), pair.from.buffer, *from}, {to_name(index), pair.to.buffer, *to});
  if (!apart) return apart.error();
  return CheckedStore::Pair{*from, *to};
}

Status check_counter(const Store& call, const runtime::Target& target, CheckedStore& checked) {
  if (!call.non_finite) return {};
  const core::Refusal of_counter{kOp, {"non_finite"}};
  auto counter = runtime::check_view(target, of_counter, *call.non_finite);
  if (!counter) return counter.error();
  const runtime::Bound counted{of_counter.argument, call.non_finite->buffer, *counter};
  for (std::size_t index = 0; index < call.pairs.size(); ++index) {
    const auto& [from, to] = call.pairs[index];
    const CheckedStore::Pair& bound = checked.pairs[index];
    const Status apart =
        core::first_error({runtime::check_apart(kOp, counted, {from_name(index), from.buffer, bound.from}),
                           runtime::check_apart(kOp, counted, {to_name(index), to.buffer, bound.to})});
    if (!apart) return apart;
  }
  checked.counter = *counter;
  return {};
}

// What the targets of a call have in common.
struct Pool {
  std::uint64_t page_slots;
  std::uint64_t fewest_pages, most_pages;
};

Status check_run(const TokenRun& run, std::size_t index, const Pool& pool) {
  const std::uint64_t capacity = run.capacity;
  const std::uint64_t position = run.position;
  if (Status status = core::check_positive({kOp, run_name(index, "capacity")}, capacity); !status) return status;
  if (run.tokens > std::numeric_limits<std::uint64_t>::max() - position) {
    return core::refuse({kOp, run_name(index, "position")}, position, "{} tokens to end below 2^64",
                        std::uint64_t{run.tokens});
  }
  if (run.when_full == WhenFull::refuse && position + run.tokens > capacity) {
    return core::refuse({kOp, run_name(index, "position")}, position,
                        "{} tokens to end within the capacity of {}, since this sequence does not wrap",
                        std::uint64_t{run.tokens}, capacity);
  }
  if (run.when_full != WhenFull::wrap && run.when_full != WhenFull::refuse) {
    return core::refuse({kOp, run_name(index, "when_full")}, static_cast<unsigned>(run.when_full), "wrap or refuse");
  }
  const std::uint64_t pages_wanted = (capacity - 1) / pool.page_slots + 1;
  if (run.page_table.empty() && pool.most_pages > 1) {
    return core::refuse({kOp, run_name(index, "page_table")}, "empty", "the sequence's pages in a pool of {}",
                        pool.most_pages);
  }
  if (run.page_table.empty() && pages_wanted > 1) {
    return core::refuse({kOp, run_name(index, "capacity")}, capacity,
                        "at most the {} slots of one page where there is no table", pool.page_slots);
  }
  if (!run.page_table.empty() && run.page_table.size() < pages_wanted) {
    return core::refuse({kOp, run_name(index, "page_table")}, core::text("of {} pages", run.page_table.size()),
                        "{} for a capacity of {} in pages of {} slots", pages_wanted, capacity, pool.page_slots);
  }
  return {};
}

// Two stretches of one page that share a slot would leave the slot's value to chance.
Status check_slots_differ(std::vector<core::Stretch> stretches) {
  std::ranges::sort(stretches, [](const core::Stretch& a, const core::Stretch& b) {
    return std::pair(a.at.page, a.at.slot) < std::pair(b.at.page, b.at.slot);
  });
  const auto clash = std::ranges::adjacent_find(stretches, [](const core::Stretch& a, const core::Stretch& b) {
    return a.at.page == b.at.page && a.at.slot + a.count > b.at.slot;
  });
  if (clash == stretches.end()) return {};
  const auto other = std::next(clash);
  return core::refuse(
      {kOp, {"sequences"}},
      core::text("two tokens ({} and {}) for slot {} of page {}", clash->token + other->at.slot - clash->at.slot,
                 other->token, other->at.slot, other->at.page),
      "a slot of its own for each token");
}

Status place_tokens(const Store& call, std::vector<core::Stretch>& stretches) {
  const SlotShape& first = call.pairs.front().to.shape;
  Pool pool{first.page_slots, first.pages, first.pages};
  for (const StorePair& pair : call.pairs) {
    pool.fewest_pages = std::min(pool.fewest_pages, pair.to.shape.pages);
    pool.most_pages = std::max(pool.most_pages, pair.to.shape.pages);
  }

  stretches.clear();
  std::uint64_t first_token = 0;
  for (std::size_t index = 0; index < call.sequences.size(); ++index) {
    const TokenRun& run = call.sequences[index];
    if (Status status = check_run(run, index, pool); !status) return status;
    const std::size_t first_stretch = stretches.size();
    core::for_each_stretch(run, first_token, pool.page_slots,
                           [&](const core::Stretch& stretch) { stretches.push_back(stretch); });
    for (const core::Stretch& stretch : std::span(stretches).subspan(first_stretch)) {
      if (stretch.at.page < pool.fewest_pages) continue;
      return core::refuse({kOp, run_name(index, "page_table")},
                          core::text("a table that names page {}", stretch.at.page),
                          "pages below {}, the size of the pool", pool.fewest_pages);
    }
    first_token += run.tokens;
  }
  return {};
}

std::uint64_t tokens_in(std::span<const core::Stretch> stretches) {
  std::uint64_t tokens = 0;
  for (const core::Stretch& stretch : stretches) tokens += stretch.count;
  return tokens;
}

bool has_elements(const StorePair& pair) { return pair.to.shape.heads > 0 && pair.to.shape.dim > 0; }

// Plans of an encoder's calls: the layers of a step store their tokens in the same slots.
class StoreMemo {
 public:
  CheckedStore checked;  // room that calls use one after the other

  Result<runtime::Binding> plan_of(runtime::Recorder& recorder) {
    const auto known = std::ranges::find(plans_, checked.stretches, &Plan::stretches);
    if (known != plans_.end()) return known->words;
    const auto slots = plan_slots(checked.stretches, recorder.target());
    if (!slots) return slots.error();
    auto words = recorder.upload(std::as_bytes(std::span(*slots)));
    if (!words) return words;
    if (plans_.size() == kMostPlans) plans_.erase(plans_.begin());
    plans_.push_back({checked.stretches, *words});
    return words;
  }

 private:
  static constexpr std::size_t kMostPlans = 8;  // keys and values of a few groups

  struct Plan {
    std::vector<core::Stretch> stretches;
    runtime::Binding words;
  };
  std::vector<Plan> plans_;  // the newest last
};

}  // namespace

Result<std::vector<std::uint32_t>> plan_slots(std::span<const core::Stretch> stretches, const runtime::Target& target) {
  if (Status status = check_slots_differ({stretches.begin(), stretches.end()}); !status) return status.error();
  const std::uint64_t tokens = tokens_in(stretches);
  const std::uint64_t plan_bytes = tokens * kPlanWords * sizeof(std::uint32_t);
  const auto what = [&] { return core::text("{}: a plan for {} tokens takes {} bytes", kOp, tokens, plan_bytes); };
  if (Status status = runtime::check_upload(target, plan_bytes, what); !status) return status.error();
  std::vector<std::uint32_t> slots;
  slots.reserve(tokens * kPlanWords);
  for (const core::Stretch& stretch : stretches) {
    for (std::uint64_t i = 0; i < stretch.count; ++i) {
      for (const std::uint64_t word : {stretch.token + i, stretch.at.page, stretch.at.slot + i}) {
        slots.push_back(static_cast<std::uint32_t>(word));
      }
    }
  }
  return slots;
}

Status check_store(const Store& call, const runtime::Target& target, CheckedStore& checked) {
  if (call.pairs.empty()) return core::refuse({kOp, {"pairs"}}, "empty", "at least one");
  checked.pairs.clear();
  checked.counter.reset();
  for (std::size_t index = 0; index < call.pairs.size(); ++index) {
    auto pair = check_pair(call, index, target);
    if (!pair) return pair.error();
    checked.pairs.push_back(*pair);
  }
  if (Status status = check_counter(call, target, checked); !status) return status;

  const StorePair& first = call.pairs.front();
  std::uint64_t left = first.from.shape.tokens;
  for (std::size_t index = 0; index < call.sequences.size(); ++index) {
    const std::uint64_t tokens = call.sequences[index].tokens;
    if (tokens > left) {
      return core::refuse({kOp, run_name(index, "tokens")}, tokens, "at most the {} that the source has left", left);
    }
    left -= tokens;
  }
  if (left != 0) {
    return core::refuse({kOp, {"sequences"}}, core::text("{} tokens long", first.from.shape.tokens - left),
                        "the {} tokens of {}", first.from.shape.tokens, from_name(0).text());
  }
  if (Status status = place_tokens(call, checked.stretches); !status) return status;
  if (std::ranges::any_of(call.pairs, has_elements)) return {};
  Status differ = check_slots_differ(checked.stretches);
  checked.stretches.clear();
  return differ;
}

StoreLaunch choose_store(const StorePair& pair, const CheckedStore::Pair& bound, std::uint64_t tokens,
                         const std::optional<runtime::Bindable>& counter) {
  const auto& [from, to] = pair;
  const StoreParams params{.from = runtime::strides_of(from, bound.from),
                           .to = runtime::strides_of(to, bound.to),
                           .tokens = tokens,
                           .heads = static_cast<uint>(to.shape.heads),
                           .dim = static_cast<uint>(to.shape.dim),
                           .counter = counter ? static_cast<uint>(counter->first_element / sizeof(uint)) : 0};
  const bool from_words = runtime::in_whole_words(from.dtype, params.from);
  const bool to_words = runtime::in_whole_words(to.dtype, params.to);
  const std::uint64_t rows = tokens * params.heads;
  const std::uint64_t groups = (detail::saturating_multiply(rows, (params.dim + 1ULL) / 2) - 1) / kStoreGroupSize + 1;
  return {.constants = {{kStoreConstantFrom, static_cast<uint>(from.dtype)},
                        {kStoreConstantTo, static_cast<uint>(to.dtype)},
                        {kStoreConstantFromWords, from_words ? 1U : 0U},
                        {kStoreConstantToWords, to_words ? 1U : 0U},
                        {kStoreConstantCounts, counter ? 1U : 0U}},
          .dispatch = {.groups = static_cast<uint>(std::min<std::uint64_t>(groups, runtime::kMaxGroups)),
                       .items = rows,
                       .item_bytes = to.shape.dim * (info(from.dtype).bytes + info(to.dtype).bytes)},
          .params = params};
}

void dispatch_store(runtime::Recorder& recorder, const StorePair& pair, const CheckedStore::Pair& bound,
                    const StoreTokens& tokens) {
  const StoreLaunch launch = choose_store(pair, bound, tokens.tokens, tokens.counted);
  // Where nothing is counted a word of the command's own stands in: the plan may be another's, too.
  constexpr std::array<std::byte, sizeof(std::uint32_t)> kNothing{};
  auto counter = tokens.counter ? Result(*tokens.counter) : recorder.upload(kNothing);
  if (!counter) return recorder.fail(counter.error());
  recorder.dispatch({kStore, launch.constants, launch.dispatch}, launch.params,
                    {{kStoreBindingFrom, runtime::bind(pair.from.buffer, bound.from)},
                     {kStoreBindingTo, runtime::bind(pair.to.buffer, bound.to)},
                     {kStoreBindingPlan, tokens.plan},
                     {kStoreBindingCounter, tokens.counter ? *counter : runtime::untouched(*counter)}});
}

}  // namespace rota::ops

namespace rota::inline ROTA_ABI {

void store(Encoder& encoder, const Store& call) {
  runtime::record(encoder, [&](runtime::Recorder& recorder) -> Status {
    auto& memo = recorder.memo<ops::StoreMemo>();
    ops::CheckedStore& checked = memo.checked;
    if (Status status = ops::check_store(call, recorder.target(), checked); !status) return status;
    if (checked.stretches.empty()) return {};
    auto slots = memo.plan_of(recorder);
    if (!slots) return slots.error();
    ops::StoreTokens tokens{.plan = *slots, .tokens = ops::tokens_in(checked.stretches)};
    if (call.non_finite && checked.counter) {
      tokens.counter = runtime::bind(call.non_finite->buffer, *checked.counter);
      tokens.counted = checked.counter;
    }
    for (std::size_t index = 0; index < call.pairs.size(); ++index) {
      const StorePair& pair = call.pairs[index];
      recorder.set_shape({tokens.tokens, pair.to.shape.heads, pair.to.shape.dim});
      if (ops::has_elements(pair)) ops::dispatch_store(recorder, pair, checked.pairs[index], tokens);
    }
    return {};
  });
}

}  // namespace rota::inline ROTA_ABI
