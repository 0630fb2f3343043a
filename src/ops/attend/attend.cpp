#include "ops/attend/attend.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <span>

#include "codec/codecs.h"
#include "core/check.h"
#include "ops/attend/attend_memo.h"
#include "rota_kernels/attend_merge.h"
#include "rota_kernels/attend_query.h"
#include "rota_kernels/attend_split.h"
#include "runtime/recorder.h"
#include "runtime/strides.h"

namespace rota::ops {
namespace {

constexpr auto kQueryBindings = runtime::accesses({{kAttendQueryBindingFrom, Access::read},
                                                   {kAttendQueryBindingKeyTable, Access::read},
                                                   {kAttendQueryBindingSlopes, Access::read},
                                                   {kAttendQueryBindingSinks, Access::read},
                                                   {kAttendQueryBindingQueries, Access::write}});
constexpr auto kSplitBindings = runtime::accesses({{kAttendSplitBindingKeys, Access::read},
                                                   {kAttendSplitBindingValues, Access::read},
                                                   {kAttendSplitBindingPlan, Access::read},
                                                   {kAttendSplitBindingQueries, Access::read},
                                                   {kAttendSplitBindingKeyTable, Access::read},
                                                   {kAttendSplitBindingValueTable, Access::read},
                                                   {kAttendSplitBindingPartials, Access::write}});
constexpr auto kMergeBindings = runtime::accesses({{kAttendMergeBindingPlan, Access::read},
                                                   {kAttendMergeBindingPartials, Access::read},
                                                   {kAttendMergeBindingQueries, Access::read},
                                                   {kAttendMergeBindingValueTable, Access::read},
                                                   {kAttendMergeBindingTo, Access::write},
                                                   {kAttendMergeBindingLogSum, Access::write}});
constexpr runtime::Kernel kQuery{
    .name = "attend_query", .code = kernels::attend_query::kCode, .bindings = kQueryBindings, .cpu = attend_query_cpu};
constexpr runtime::Kernel kSplit{
    .name = "attend_split", .code = kernels::attend_split::kCode, .bindings = kSplitBindings, .cpu = attend_split_cpu};
constexpr runtime::Kernel kMerge{
    .name = "attend_merge", .code = kernels::attend_merge::kCode, .bindings = kMergeBindings, .cpu = attend_merge_cpu};

// What a work item of attend_split costs whatever its keys are, in bytes that take as long to read: a core's
// microsecond.
constexpr std::uint64_t kItemBytes = 16384;

// What a launch is told about one side.
struct SourceOf {
  runtime::Binding binding;
  SlotStrides strides;
  std::uint32_t format;
  std::uint64_t key_bytes;  // about what a key of one head takes
  bool has_mean, in_units;
};

SlotStrides strides_of(const SealedView& view, const runtime::Bindable& bound) {
  constexpr std::uint64_t kWord = sizeof(std::uint32_t);
  return {.offset = bound.first_element / kWord,
          .page = runtime::effective(view.page_stride_bytes, view.shape.pages) / kWord,
          .slot = 0,
          .head = runtime::effective(view.head_stride_bytes, view.shape.heads) / kWord,
          .dim = 0};
}

const SlotView& slots_of(const KvSideView& view, KeySource source) {
  if (source == KeySource::sinks && view.sinks) return *view.sinks;
  return source == KeySource::step && view.step ? *view.step : view.dense;
}

SourceOf source_of(const KvSideView& view, const AttendSide& side, KeySource source) {
  const auto bound = side.bound[static_cast<std::size_t>(source)].value_or(runtime::Bindable{});
  if (source == KeySource::sealed && view.sealed) {
    const SealedView& sealed = *view.sealed;
    return {runtime::bind_in_units(sealed.buffer, bound),
            strides_of(sealed, bound),
            kSealedFormat + sealed.format.bits(),
            page_bytes(sealed.format) / sealed.format.tokens,
            sealed.format.has_mean(),
            true};
  }
  const SlotView& slots = slots_of(view, source);
  const SlotStrides strides = runtime::strides_of(slots, bound);
  return {runtime::bind_in_units(slots.buffer, bound),
          strides,
          static_cast<std::uint32_t>(slots.dtype),
          slots.shape.dim * info(slots.dtype).bytes,
          false,
          runtime::in_whole_units(slots.dtype, strides, slots.shape.dim)};
}

RotationShape rotation_of(const KvSideView& view) {
  if (!view.sealed) return {0, 0};
  return codec::rotation_of(view.sealed->format);
}

// Kernels go over more items than that in turns.
std::uint32_t groups_of(std::uint64_t items) {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(items, runtime::kMaxGroups));
}

template <class AnyView>
std::uint32_t dtype_or_none(const std::optional<AnyView>& view) {
  return view ? static_cast<std::uint32_t>(view->dtype) + 1 : 0;
}

HeadNumbers head_numbers(const std::optional<View>& view, const std::optional<runtime::Bindable>& bound) {
  if (!view || !bound) return {0, 0};
  return {bound->first_element, runtime::effective(view->head_stride, view->shape.heads)};
}

// The commands of one checked call.
class AttendRecording {
 public:
  AttendRecording(runtime::Recorder& recorder, const Attend& call, const AttendViews& views, const UploadedPlan& plan)
      : recorder_(recorder),
        call_(call),
        views_(views),
        plan_(plan.plan),
        words_(plan.words),
        k_dim_(static_cast<std::uint32_t>(call.q.shape.dim)),
        v_dim_(static_cast<std::uint32_t>(call.out.shape.dim)),
        heads_(static_cast<std::uint32_t>(call.q.shape.heads)),
        kv_heads_(static_cast<std::uint32_t>(call.kv.k.dense.shape.heads)) {}

  Status record() {
    auto k_table = upload_table(call_.kv.k);
    if (!k_table) return k_table.error();
    k_table_ = *std::move(k_table);
    auto v_table = upload_table(call_.kv.v);
    if (!v_table) return v_table.error();
    v_table_ = *std::move(v_table);
    const auto scratch = recorder_.scratch({views_.query_bytes, std::max<std::uint64_t>(plan_.partial_bytes, 1)});
    if (!scratch) return scratch.error();
    queries_ = (*scratch)[0];
    partials_ = (*scratch)[1];

    record_query();
    for (const AttendRound& round : plan_.rounds) {
      for (const AttendLaunch& launch : round.launches) record_launch(launch);
      record_merge(round);
    }
    return {};
  }

 private:
  Result<runtime::Binding> upload_table(const KvSideView& view) {
    if (!view.sealed) return words_;  // not looked at
    return recorder_.memo<AttendMemo>().table_of(recorder_, view.sealed->format);
  }

  void record_query() {
    const auto bind = [&](const std::optional<View>& view, const std::optional<runtime::Bindable>& bound) {
      return view && bound ? runtime::bind(view->buffer, *bound) : words_;
    };
    const AttendQueryParams params{.from = runtime::strides_of(call_.q, views_.q),
                                   .slopes = head_numbers(call_.alibi_slopes, views_.alibi_slopes),
                                   .sinks = head_numbers(call_.sink_logits, views_.sink_logits),
                                   .rotation = plan_.sealed_keys ? rotation_of(call_.kv.k) : RotationShape{0, 0},
                                   .tokens = static_cast<std::uint32_t>(call_.q.shape.tokens),
                                   .heads = heads_,
                                   .dim = k_dim_,
                                   .scale = static_cast<float>(static_cast<double>(call_.scale))};
    const std::uint64_t items = call_.q.shape.tokens * heads_ + 1;
    recorder_.dispatch({kQuery,
                        {{kAttendQueryConstantFrom, static_cast<std::uint32_t>(call_.q.dtype)},
                         {kAttendQueryConstantSlopes, dtype_or_none(call_.alibi_slopes)},
                         {kAttendQueryConstantSinks, dtype_or_none(call_.sink_logits)}},
                        {.groups = groups_of(items), .items = items, .item_bytes = std::uint64_t{8} * k_dim_}},
                       params,
                       {{kAttendQueryBindingFrom, runtime::bind(call_.q.buffer, views_.q)},
                        {kAttendQueryBindingKeyTable, k_table_},
                        {kAttendQueryBindingSlopes, bind(call_.alibi_slopes, views_.alibi_slopes)},
                        {kAttendQueryBindingSinks, bind(call_.sink_logits, views_.sink_logits)},
                        {kAttendQueryBindingQueries, queries_}});
  }

  std::uint32_t window() const {
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(call_.kv.window.value_or(0), core::kMaxIndex));
  }

  // Its own: launches of a round wait for nobody.
  runtime::Binding partials_of(const AttendLaunch& launch) const {
    const std::uint64_t bytes = partial_floats(v_dim_) * sizeof(float);
    runtime::Binding binding = partials_;
    binding.bytes = {partials_.bytes.begin + launch.first_partial * bytes,
                     partials_.bytes.begin + launch.end_partial() * bytes};
    binding.touched = binding.bytes;
    return binding;
  }

  void record_launch(const AttendLaunch& launch) {
    const SourceOf k = source_of(call_.kv.k, views_.k, launch.k);
    const SourceOf v = source_of(call_.kv.v, views_.v, launch.v);
    const AttendSplitParams params{.k = k.strides,
                                   .v = v.strides,
                                   .first_split = launch.first_split,
                                   .splits = launch.splits,
                                   .kv_heads = kv_heads_,
                                   .group = heads_ / kv_heads_,
                                   .k_page = static_cast<std::uint32_t>(call_.kv.k.dense.shape.page_slots),
                                   .v_page = static_cast<std::uint32_t>(call_.kv.v.dense.shape.page_slots),
                                   .tokens = static_cast<std::uint32_t>(call_.q.shape.tokens),
                                   .window = launch.always_seen ? 0 : window(),
                                   .flags = (call_.mask == Mask::causal ? kCausal : 0) |
                                            (call_.arithmetic == Arithmetic::f32 ? kF32Arithmetic : 0) |
                                            (launch.k == KeySource::sinks ? kKeySinks : 0) |
                                            (launch.v == KeySource::sinks ? kValueSinks : 0),
                                   .soft_cap = static_cast<float>(call_.soft_cap.value_or(0)),
                                   .first_partial = launch.first_partial};
    const std::uint64_t items = std::uint64_t{launch.splits} * kv_heads_;
    const std::uint64_t item_bytes = kItemBytes + launch.keys / launch.splits * (k.key_bytes + v.key_bytes);
    recorder_.dispatch({kSplit,
                        {{kAttendSplitConstantKeyFormat, k.format},
                         {kAttendSplitConstantValueFormat, v.format},
                         {kAttendSplitConstantKeyDim, k_dim_},
                         {kAttendSplitConstantValueDim, v_dim_},
                         {kAttendSplitConstantVectors, std::bit_ceil(plan_.vectors)},
                         {kAttendSplitConstantHasMean, k.has_mean ? 1U : 0U},
                         {kAttendSplitConstantKeyUnits, k.in_units ? 1U : 0U},
                         {kAttendSplitConstantValueUnits, v.in_units ? 1U : 0U}},
                        {.groups = groups_of(items), .items = items, .item_bytes = item_bytes}},
                       params,
                       {{kAttendSplitBindingKeys, k.binding},
                        {kAttendSplitBindingValues, v.binding},
                        {kAttendSplitBindingPlan, words_},
                        {kAttendSplitBindingQueries, queries_},
                        {kAttendSplitBindingKeyTable, k_table_},
                        {kAttendSplitBindingValueTable, v_table_},
                        {kAttendSplitBindingPartials, partials_of(launch)}});
  }

  void record_merge(const AttendRound& round) {
    const bool with_log_sum = call_.log_sum_exp && views_.log_sum_exp;
    const AttendMergeParams params{
        .to = runtime::strides_of(call_.out, views_.out),
        .log_sum_exp = with_log_sum ? runtime::strides_of(*call_.log_sum_exp, *views_.log_sum_exp) : Strides{},
        .rotation = rotation_of(call_.kv.v),
        .first_query_tile = round.first_query_tile,
        .query_tiles = round.query_tiles,
        .kv_heads = kv_heads_,
        .group = heads_ / kv_heads_,
        .vectors = plan_.vectors,
        .dim = v_dim_};
    const std::uint64_t items = std::uint64_t{round.query_tiles} * kv_heads_ * plan_.vectors;
    const bool to_words = runtime::in_whole_words(call_.out.dtype, params.to);
    recorder_.dispatch(
        {kMerge,
         {{kAttendMergeConstantTo, static_cast<std::uint32_t>(call_.out.dtype)},
          {kAttendMergeConstantLogSum, dtype_or_none(call_.log_sum_exp)},
          {kAttendMergeConstantSinkLogits, call_.sink_logits ? 1U : 0U},
          {kAttendMergeConstantToWords, to_words ? 1U : 0U}},
         {.groups = groups_of(items), .items = items, .item_bytes = std::uint64_t{64} * v_dim_}},
        params,
        {{kAttendMergeBindingPlan, words_},
         {kAttendMergeBindingPartials, partials_},
         {kAttendMergeBindingQueries, queries_},
         {kAttendMergeBindingValueTable, v_table_},
         {kAttendMergeBindingTo, runtime::bind(call_.out.buffer, views_.out)},
         {kAttendMergeBindingLogSum, with_log_sum ? runtime::bind(call_.log_sum_exp->buffer, *views_.log_sum_exp)
                                                  : runtime::untouched(queries_)}});
  }

  runtime::Recorder& recorder_;
  const Attend& call_;
  const AttendViews& views_;
  const AttendPlan& plan_;
  const runtime::Binding& words_;
  const std::uint32_t k_dim_, v_dim_, heads_, kv_heads_;
  runtime::Binding k_table_, v_table_, queries_, partials_;
};

}  // namespace
}  // namespace rota::ops

namespace rota::inline ROTA_ABI {

void attend(Encoder& encoder, const Attend& call) {
  runtime::record(encoder, [&](runtime::Recorder& recorder) -> Status {
    recorder.set_shape({.tokens = call.q.shape.tokens,
                        .heads = call.q.shape.heads,
                        .dim = call.q.shape.dim,
                        .keys = std::accumulate(call.kv.lengths.begin(), call.kv.lengths.end(), std::uint64_t{0}),
                        .sequences = call.kv.lengths.size()});
    const auto views = ops::check_attend_views(call, recorder.target());
    if (!views) return views.error();
    const auto plan = recorder.memo<ops::AttendMemo>().plan_of(recorder, call);
    if (!plan) return plan.error();
    return (*plan)->plan.empty() ? Status{} : ops::AttendRecording(recorder, call, *views, **plan).record();
  });
}

}  // namespace rota::inline ROTA_ABI
