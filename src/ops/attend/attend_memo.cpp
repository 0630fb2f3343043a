#include "ops/attend/attend_memo.h"

#include <algorithm>
#include <span>
#include <utility>

namespace rota::ops {
namespace {

// Groups of layers take turns: more kinds than this are planned again.
constexpr std::size_t kMostPlans = 8;

}  // namespace

std::array<std::uint64_t, PlanKey::kNumbers> PlanKey::numbers_of(const Attend& call) noexcept {
  std::array<std::uint64_t, kNumbers> numbers{};
  std::size_t count = 0;
  const auto add = [&](std::uint64_t number) { numbers[count++] = number; };
  const auto add_optional = [&](const std::optional<std::uint64_t>& number) {
    add(number ? 1 : 0);
    add(number.value_or(0));
  };
  add(call.q.shape.tokens);
  add(call.q.shape.heads);
  add(static_cast<std::uint64_t>(call.mask));
  add_optional(call.kv.window);
  add(call.kv.sinks);
  for (const KvSideView* side : {&call.kv.k, &call.kv.v}) {
    add(side->dense.shape.pages);
    add(side->dense.shape.page_slots);
    add(side->dense.shape.heads);
    add(side->dense.shape.dim);
    add_optional(side->sealed ? std::optional(side->sealed->shape.pages) : std::nullopt);
    add_optional(side->sinks ? std::optional(side->sinks->shape.pages) : std::nullopt);
    add(side->sinks ? side->sinks->shape.page_slots : 0);
    add_optional(side->step ? std::optional(side->step->shape.pages) : std::nullopt);
  }
  return numbers;
}

PlanKey::PlanKey(const Attend& call)
    : numbers_(numbers_of(call)),
      lengths_(call.kv.lengths.items()),
      query_tokens_(call.query_tokens.begin(), call.query_tokens.end()),
      k_(call.kv.k.sequences.items()),
      v_(call.kv.v.sequences.items()) {}

bool PlanKey::is_of(const Attend& call) const noexcept {
  return numbers_ == numbers_of(call) && lengths_ == call.kv.lengths.items() &&
         std::ranges::equal(query_tokens_, call.query_tokens) && k_ == call.kv.k.sequences.items() &&
         v_ == call.kv.v.sequences.items();
}

Result<const UploadedPlan*> AttendMemo::plan_of(runtime::Recorder& recorder, const Attend& call) {
  const auto known = std::ranges::find_if(plans_, [&](const auto& plan) { return plan->key.is_of(call); });
  if (known != plans_.end()) return known->get();
  auto plan = plan_attend(call, recorder.target());
  if (!plan) return plan.error();
  runtime::Binding words;
  if (!plan->empty()) {
    auto uploaded = recorder.upload(std::as_bytes(std::span(plan->words)));
    if (!uploaded) return uploaded.error();
    words = *std::move(uploaded);
  }
  if (plans_.size() == kMostPlans) plans_.erase(plans_.begin());
  plans_.push_back(std::make_unique<const UploadedPlan>(UploadedPlan{PlanKey(call), std::move(plan).value(), words}));
  return plans_.back().get();
}

Result<runtime::Binding> AttendMemo::table_of(runtime::Recorder& recorder, const PageFormat& format) {
  const auto known = std::ranges::find(tables_, format, &Table::format);
  if (known != tables_.end()) return known->binding;
  const codec::Table table = codec::table_of(format);
  auto binding = recorder.upload(std::as_bytes(std::span(table)));
  if (binding) tables_.push_back({format, *binding});
  return binding;
}

}  // namespace rota::ops
