#include "ops/seal/seal.h"

#include <algorithm>
#include <cmath>
#include <compare>
#include <iterator>
#include <numbers>
#include <optional>
#include <span>
#include <string_view>

#include "codec/codecs.h"
#include "core/check.h"
#include "rota_kernels/seal.h"
#include "rota_kernels/unseal.h"
#include "runtime/recorder.h"
#include "runtime/strides.h"

namespace rota::ops {
namespace {

constexpr std::string_view kSealName = "seal";
constexpr std::string_view kUnsealName = "unseal";

constexpr auto kSealBindings = runtime::accesses({{kSealBindingDense, Access::read},
                                                  {kSealBindingSealed, Access::write},
                                                  {kSealBindingPlan, Access::read},
                                                  {kSealBindingTable, Access::read},
                                                  {kSealBindingCounter, Access::write}});
constexpr auto kUnsealBindings = runtime::accesses({{kUnsealBindingSealed, Access::read},
                                                    {kUnsealBindingDense, Access::write},
                                                    {kUnsealBindingPlan, Access::read},
                                                    {kUnsealBindingTable, Access::read}});
constexpr runtime::Kernel kSeal{
    .name = kSealName, .code = kernels::seal::kCode, .bindings = kSealBindings, .cpu = seal_cpu};
constexpr runtime::Kernel kUnseal{
    .name = kUnsealName, .code = kernels::unseal::kCode, .bindings = kUnsealBindings, .cpu = unseal_cpu};

// Both ops, told apart by which view is which.
struct Sides {
  std::string_view op;
  const SlotView& dense;
  const SealedView& sealed;
  bool sealing;
  const runtime::Target& target;

  std::string_view dense_name() const { return sealing ? "from" : "to"; }
  std::string_view sealed_name() const { return sealing ? "to" : "from"; }
  core::Refusal of_dense(std::string_view field = {}) const { return {op, {dense_name(), {}, field}}; }
  core::Refusal of_sealed(std::string_view field = {}) const { return {op, {sealed_name(), {}, field}}; }
};

Status check_shapes(const Sides& sides) {
  const SlotShape& dense = sides.dense.shape;
  const SealedView& sealed = sides.sealed;
  const std::uint64_t most_heads = most_sealed_heads(sealed.format);
  if (sealed.shape.heads > most_heads) {
    return core::refuse(sides.of_sealed("shape.heads"), sealed.shape.heads, "at most {}", most_heads);
  }
  return core::first_error({core::check_index(sides.of_dense("shape.pages"), dense.pages),
                            core::check_index(sides.of_sealed("shape.pages"), sealed.shape.pages),
                            core::check_equal(sides.of_dense("shape.heads"), dense.heads,
                                              {sealed.shape.heads, sides.of_sealed("shape.heads").argument}),
                            core::check_equal(sides.of_dense("shape.page_slots"), dense.page_slots,
                                              {sealed.format.tokens, sides.of_sealed("format.tokens").argument}),
                            core::check_equal(sides.of_dense("shape.dim"), dense.dim,
                                              {sealed.format.head_dim, sides.of_sealed("format.head_dim").argument})});
}

struct PageMove {
  std::uint64_t dense, sealed;
  std::optional<std::uint64_t> tokens;
  std::uint64_t sinks;
};

Status check_move(const Sides& sides, const PageMove& move, std::size_t index) {
  const auto refusal = [&](std::string_view field) { return core::Refusal{sides.op, {"pages", index, field}}; };
  if (move.dense >= sides.dense.shape.pages) {
    return core::refuse(refusal(sides.dense_name()), move.dense, "below the {} of {}", sides.dense.shape.pages,
                        sides.of_dense("shape.pages").argument.text());
  }
  if (move.sealed >= sides.sealed.shape.pages) {
    return core::refuse(refusal(sides.sealed_name()), move.sealed, "below the {} of {}", sides.sealed.shape.pages,
                        sides.of_sealed("shape.pages").argument.text());
  }
  if (move.tokens && *move.tokens > sides.sealed.format.tokens) {
    return core::refuse(refusal("tokens"), *move.tokens, "at most the {} of a page", sides.sealed.format.tokens);
  }
  if (move.sinks > sides.sealed.format.tokens) {
    return core::refuse(refusal("sinks"), move.sinks, "at most the {} of a page", sides.sealed.format.tokens);
  }
  return {};
}

struct PageTarget {
  std::uint64_t page;
  std::size_t index;  // in the call's list
  friend auto operator<=>(const PageTarget&, const PageTarget&) = default;
};

// Two pages for one place would leave it to chance which stays.
Status check_targets_differ(std::string_view op, std::vector<PageTarget> targets) {
  std::ranges::sort(targets);
  const auto twice = std::ranges::adjacent_find(targets, {}, &PageTarget::page);
  if (twice == targets.end()) return {};
  return core::refuse({op, {"pages", std::next(twice)->index, "to"}}, twice->page,
                      "another page than that of pages[{}]", twice->index);
}

Result<SealPlan> check_sides(const Sides& sides) {
  auto sealed = runtime::check_view(sides.target, sides.of_sealed(), sides.sealed);
  if (!sealed) return sealed.error();
  if (Status status = check_shapes(sides); !status) return status.error();
  auto dense = runtime::check_view(sides.target, sides.of_dense(), sides.dense);
  if (!dense) return dense.error();
  const runtime::Bound dense_bound{sides.of_dense().argument, sides.dense.buffer, *dense};
  const runtime::Bound sealed_bound{sides.of_sealed().argument, sides.sealed.buffer, *sealed};
  const Status apart = runtime::check_apart(sides.op, sides.sealing ? dense_bound : sealed_bound,
                                            sides.sealing ? sealed_bound : dense_bound);
  if (!apart) return apart.error();
  return SealPlan{*dense, *sealed, {}, {}};
}

template <class Pages, class ToMove>
Status plan_pages(const Sides& sides, const Pages& pages, const ToMove& to_move, SealPlan& plan) {
  const std::uint64_t bytes = pages.size() * kPageWords * sizeof(std::uint32_t);
  const auto what = [&] { return core::text("{}: a plan for {} pages takes {} bytes", sides.op, pages.size(), bytes); };
  if (Status status = runtime::check_upload(sides.target, bytes, what); !status) return status;
  std::vector<PageTarget> targets;
  for (std::size_t index = 0; index < pages.size(); ++index) {
    const PageMove move = to_move(pages[index]);
    if (Status status = check_move(sides, move, index); !status) return status;
    targets.push_back({pages[index].to, index});
    for (const std::uint64_t word :
         {move.dense, move.sealed, move.tokens.value_or(sides.sealed.format.tokens), move.sinks}) {
      plan.pages.push_back(static_cast<std::uint32_t>(word));
    }
  }
  if (sides.sealed.shape.heads == 0) plan.pages.clear();
  return check_targets_differ(sides.op, std::move(targets));
}

// Of the Hadamard's factor, of what the Hartley part is rounded to, and of how scales are stored.
float unseal_unit(RotationShape shape) {
  const int whole = -static_cast<int>(shape.k / 2) - kScaleExponent - (shape.m > 1 ? 13 - kUnsealShift : 0);
  return std::ldexp(shape.k % 2 == 0 ? 1.0F : std::numbers::sqrt2_v<float> / 2, whole);
}

std::uint32_t dtype_constant(const SlotView& view) { return static_cast<std::uint32_t>(view.dtype); }

}  // namespace

Result<SealPlan> check_seal(const Seal& call, const runtime::Target& target) {
  const Sides sides{kSealName, call.from, call.to, true, target};
  auto plan = check_sides(sides);
  if (!plan) return plan;
  const core::Refusal of_counter{kSealName, {"non_finite"}};
  auto counter = runtime::check_view(target, of_counter, call.non_finite);
  if (!counter) return counter.error();
  plan->counter = *counter;
  const runtime::Bound counted{of_counter.argument, call.non_finite.buffer, plan->counter};
  const Status status = core::first_error(
      {runtime::check_apart(kSealName, counted, {{"from"}, call.from.buffer, plan->dense}),
       runtime::check_apart(kSealName, counted, {{"to"}, call.to.buffer, plan->sealed}),
       plan_pages(
           sides, call.pages,
           [](const SealPage& page) { return PageMove{page.from, page.to, page.tokens, page.sinks}; }, *plan)});
  if (!status) return status.error();
  return plan;
}

Result<SealPlan> check_unseal(const Unseal& call, const runtime::Target& target) {
  const Sides sides{kUnsealName, call.to, call.from, false, target};
  auto plan = check_sides(sides);
  if (!plan) return plan;
  const Status status = plan_pages(
      sides, call.pages, [](const UnsealPage& page) { return PageMove{page.to, page.from, page.tokens, 0}; }, *plan);
  if (!status) return status.error();
  return plan;
}

std::vector<SealLaunch> choose_seal(const SlotView& dense, const SealedView& sealed, const SealPlan& plan) {
  constexpr std::uint64_t kWord = sizeof(std::uint32_t);
  const PageFormat& format = sealed.format;
  const std::uint64_t heads = sealed.shape.heads;
  const RotationShape rotation = codec::rotation_of(format);
  SealParams params{.dense = runtime::strides_of(dense, plan.dense),
                    .sealed_offset = plan.sealed.first_element / kWord,
                    .sealed_page = runtime::effective(sealed.page_stride_bytes, sealed.shape.pages) / kWord,
                    .sealed_head = runtime::effective(sealed.head_stride_bytes, heads) / kWord,
                    .layout_ = codec::layout_of(format),
                    .rotation = rotation,
                    .heads = static_cast<uint>(heads),
                    .first_page = 0,
                    .pages = 0,
                    .scale_rule = codec::scale_rule_of(format),
                    .counter = static_cast<uint>(plan.counter.first_element / kWord),
                    .unit = unseal_unit(rotation),
                    .limit = dense.dtype == DType::bf16 ? 65280.0F : 65504.0F};
  const std::uint64_t page_groups = heads * (format.tokens / kSliceTokens);
  const std::uint64_t most_pages = runtime::kMaxGroups / page_groups;
  const std::uint64_t pages = plan.pages.size() / kPageWords;
  std::vector<SealLaunch> launches;
  for (std::uint64_t first = 0; first < pages; first += most_pages) {
    params.first_page = static_cast<uint>(first);
    params.pages = static_cast<uint>(std::min(most_pages, pages - first));
    launches.push_back(
        {.dispatch = {.groups = static_cast<uint>(params.pages * page_groups),
                      .items = params.pages * heads,
                      .item_bytes = std::uint64_t{format.tokens} * format.head_dim * info(dense.dtype).bytes},
         .params = params});
  }
  return launches;
}

}  // namespace rota::ops

namespace rota::inline ROTA_ABI {
namespace {

// What both ops' kernels read beside the pages.
struct Uploads {
  runtime::Binding plan, table;
};

Result<Uploads> upload(runtime::Recorder& recorder, const ops::SealPlan& plan, const PageFormat& format) {
  auto pages = recorder.upload(std::as_bytes(std::span(plan.pages)));
  if (!pages) return pages.error();
  const codec::Table words = codec::table_of(format);
  auto table = recorder.upload(std::as_bytes(std::span(words)));
  if (!table) return table.error();
  return Uploads{*pages, *table};
}

}  // namespace

void seal(Encoder& encoder, const Seal& call) {
  runtime::record(encoder, [&](runtime::Recorder& recorder) -> Status {
    auto plan = ops::check_seal(call, recorder.target());
    if (!plan) return plan.error();
    if (plan->empty()) return {};
    recorder.set_shape({call.pages.size() * call.to.format.tokens, call.to.shape.heads, call.to.format.head_dim});
    auto uploads = upload(recorder, *plan, call.to.format);
    if (!uploads) return uploads.error();
    for (const ops::SealLaunch& launch : ops::choose_seal(call.from, call.to, *plan)) {
      recorder.dispatch({ops::kSeal, {{ops::kSealConstantDense, ops::dtype_constant(call.from)}}, launch.dispatch},
                        launch.params,
                        {{ops::kSealBindingDense, runtime::bind(call.from.buffer, plan->dense)},
                         {ops::kSealBindingSealed, runtime::bind(call.to.buffer, plan->sealed)},
                         {ops::kSealBindingPlan, uploads->plan},
                         {ops::kSealBindingTable, uploads->table},
                         {ops::kSealBindingCounter, runtime::bind(call.non_finite.buffer, plan->counter)}});
    }
    return {};
  });
}

void unseal(Encoder& encoder, const Unseal& call) {
  runtime::record(encoder, [&](runtime::Recorder& recorder) -> Status {
    auto plan = ops::check_unseal(call, recorder.target());
    if (!plan) return plan.error();
    if (plan->empty()) return {};
    recorder.set_shape({call.pages.size() * call.from.format.tokens, call.from.shape.heads, call.from.format.head_dim});
    auto uploads = upload(recorder, *plan, call.from.format);
    if (!uploads) return uploads.error();
    for (const ops::SealLaunch& launch : ops::choose_seal(call.to, call.from, *plan)) {
      const std::uint32_t words = runtime::in_whole_words(call.to.dtype, launch.params.dense) ? 1 : 0;
      recorder.dispatch(
          {ops::kUnseal,
           {{ops::kUnsealConstantDense, ops::dtype_constant(call.to)}, {ops::kUnsealConstantDenseWords, words}},
           launch.dispatch},
          launch.params,
          {{ops::kUnsealBindingSealed, runtime::bind(call.from.buffer, plan->sealed)},
           {ops::kUnsealBindingDense, runtime::bind(call.to.buffer, plan->dense)},
           {ops::kUnsealBindingPlan, uploads->plan},
           {ops::kUnsealBindingTable, uploads->table}});
    }
    return {};
  });
}

}  // namespace rota::inline ROTA_ABI
