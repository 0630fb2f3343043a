#include "ops/merge/merge.h"

#include <algorithm>
#include <bit>
#include <span>

#include "core/check.h"
#include "rota_kernels/merge.h"
#include "runtime/recorder.h"
#include "runtime/strides.h"

namespace rota::ops {
namespace {

constexpr std::string_view kOp = "merge";

constexpr auto kBindings = runtime::accesses({{kFirstOut, Access::read},
                                              {kSecondOut, Access::read},
                                              {kMergedOut, Access::write},
                                              {kFirstLog, Access::read},
                                              {kSecondLog, Access::read},
                                              {kMergedLog, Access::write},
                                              {kMergeStrides, Access::read}});
constexpr runtime::Kernel kMerge{.name = kOp, .code = kernels::merge::kCode, .bindings = kBindings, .cpu = merge_cpu};

constexpr std::uint64_t kMaxDim = 4096;

core::Argument of_out(std::string_view field = {}) { return {"out", {}, field}; }
core::Argument of_log(std::string_view field = {}) { return {"log_sum_exp", {}, field}; }

constexpr bool is_log(std::uint32_t view) { return view >= kFirstLog; }

// A view of one of the parts.
struct Source {
  const View& view;
  std::uint32_t index;  // among the kernel's views
  std::uint32_t part;
  std::string_view part_name, view_name;

  core::Argument argument(std::string_view field = {}) const { return {part_name, {}, view_name, field}; }
};

std::array<Source, 4> sources_of(const Merge& call) {
  return {{{call.first.out, kFirstOut, kFirstPart, "first", "out"},
           {call.second.out, kSecondOut, kSecondPart, "second", "out"},
           {call.first.log_sum_exp, kFirstLog, kFirstPart, "first", "log_sum_exp"},
           {call.second.log_sum_exp, kSecondLog, kSecondPart, "second", "log_sum_exp"}}};
}

Status check_rows(const Shape& found, const Shape& out, core::Argument tokens, core::Argument heads) {
  return core::first_error({core::check_equal({kOp, tokens}, found.tokens, {out.tokens, of_out("shape.tokens")}),
                            core::check_equal({kOp, heads}, found.heads, {out.heads, of_out("shape.heads")})});
}

Status check_one(core::Argument dim, std::uint64_t found) {
  if (found == 1) return {};
  return core::refuse({kOp, dim}, found, "1: a number per row");
}

Status check_shapes(const Merge& call) {
  const Shape& out = call.out.shape;
  if (Status status = core::first_error({core::check_index({kOp, of_out("shape.tokens")}, out.tokens),
                                         core::check_index({kOp, of_out("shape.heads")}, out.heads),
                                         core::check_positive({kOp, of_out("shape.dim")}, out.dim)});
      !status) {
    return status;
  }
  if (out.dim > kMaxDim) return core::refuse({kOp, of_out("shape.dim")}, out.dim, "at most {}", kMaxDim);
  for (const Source& source : sources_of(call)) {
    const Shape& shape = source.view.shape;
    const core::Argument dim = source.argument("shape.dim");
    const Status status = core::first_error(
        {check_rows(shape, out, source.argument("shape.tokens"), source.argument("shape.heads")),
         is_log(source.index) ? check_one(dim, shape.dim)
                              : core::check_equal({kOp, dim}, shape.dim, {out.dim, of_out("shape.dim")})});
    if (!status) return status;
  }
  if (!call.log_sum_exp) return {};
  const Shape& log = call.log_sum_exp->shape;
  return core::first_error(
      {check_rows(log, out, of_log("shape.tokens"), of_log("shape.heads")), check_one(of_log("shape.dim"), log.dim)});
}

struct Written {
  const MutView& view;
  std::uint32_t index;
  core::Argument argument;
};

// A result may lie where a part's own is, or in bytes that no part spans. Returns the parts of the former kind.
Result<std::uint32_t> check_places(const Merge& call, const MergePlan& plan, const Written& result) {
  std::uint32_t in_place = kNoPart;
  for (const Source& source : sources_of(call)) {
    const bool same_kind = is_log(source.index) == is_log(result.index);
    if (same_kind && runtime::same_place(source.view, result.view)) {
      in_place |= source.part;
      continue;
    }
    const Status apart = runtime::check_apart(kOp, {source.argument(), source.view.buffer, plan.views[source.index]},
                                              {result.argument, result.view.buffer, plan.views[result.index]},
                                              same_kind ? ", or exactly its place" : "");
    if (!apart) return apart.error();
  }
  return in_place;
}

bool has_rows(const Merge& call) { return call.out.shape.tokens > 0 && call.out.shape.heads > 0; }

}  // namespace

Result<MergePlan> check_merge(const Merge& call, const runtime::Target& target) {
  if (Status status = check_shapes(call); !status) return status.error();
  MergePlan plan;
  for (const Source& source : sources_of(call)) {
    auto bound = runtime::check_view(target, {kOp, source.argument()}, source.view);
    if (!bound) return bound.error();
    plan.views[source.index] = *bound;
  }
  auto out = runtime::check_view(target, {kOp, of_out()}, call.out);
  if (!out) return out.error();
  plan.views[kMergedOut] = *out;
  auto outs_in_place = check_places(call, plan, {call.out, kMergedOut, of_out()});
  if (!outs_in_place) return outs_in_place.error();
  plan.outs_in_place = *outs_in_place;
  if (!call.log_sum_exp) return plan;

  auto log = runtime::check_view(target, {kOp, of_log()}, *call.log_sum_exp);
  if (!log) return log.error();
  plan.views[kMergedLog] = *log;
  auto logs_in_place = check_places(call, plan, {*call.log_sum_exp, kMergedLog, of_log()});
  if (!logs_in_place) return logs_in_place.error();
  plan.logs_in_place = *logs_in_place;
  const Status apart =
      runtime::check_apart(kOp, {of_log(), call.log_sum_exp->buffer, *log}, {of_out(), call.out.buffer, *out});
  if (!apart) return apart.error();
  return plan;
}

MergeLaunch choose_merge(const Merge& call, const MergePlan& plan) {
  const auto& [tokens, heads, dim] = call.out.shape;
  MergeLaunch launch{.constants = {}, .dispatch = {}, .params = {}, .views = {}};
  for (const Source& source : sources_of(call)) {
    launch.views[source.index] = runtime::strides_of(source.view, plan.views[source.index]);
  }
  launch.views[kMergedOut] = runtime::strides_of(call.out, plan.views[kMergedOut]);
  if (call.log_sum_exp) launch.views[kMergedLog] = runtime::strides_of(*call.log_sum_exp, plan.views[kMergedLog]);

  const auto type_of = [](const View& view) { return static_cast<uint>(view.dtype); };
  const std::uint32_t lanes = std::min(std::bit_ceil((static_cast<uint>(dim) + 1) / 2), kMergeGroupSize);
  launch.params = {.tokens = static_cast<uint>(tokens),
                   .heads = static_cast<uint>(heads),
                   .dim = static_cast<uint>(dim),
                   .row_lanes = lanes,
                   .first_log = type_of(call.first.log_sum_exp),
                   .second_log = type_of(call.second.log_sum_exp),
                   .merged_log = call.log_sum_exp ? type_of(*call.log_sum_exp) : kNoLog,
                   .logs_in_place = plan.logs_in_place};
  launch.constants = {
      {kMergeConstantFirst, type_of(call.first.out)},
      {kMergeConstantSecond, type_of(call.second.out)},
      {kMergeConstantOut, type_of(call.out)},
      {kMergeConstantOutWords, runtime::in_whole_words(call.out.dtype, launch.views[kMergedOut]) ? 1U : 0U},
      {kMergeConstantInPlace, plan.outs_in_place}};
  const std::uint64_t rows = tokens * heads;
  const std::uint64_t groups = (rows - 1) / (kMergeGroupSize / lanes) + 1;
  launch.dispatch = {.groups = static_cast<uint>(std::min<std::uint64_t>(groups, runtime::kMaxGroups)),
                     .items = rows,
                     .item_bytes = dim * (std::uint64_t{info(call.first.out.dtype).bytes} +
                                          info(call.second.out.dtype).bytes + info(call.out.dtype).bytes)};
  return launch;
}

}  // namespace rota::ops

namespace rota::inline ROTA_ABI {

void merge(Encoder& encoder, const Merge& call) {
  runtime::record(encoder, [&](runtime::Recorder& recorder) -> Status {
    auto plan = ops::check_merge(call, recorder.target());
    if (!plan) return plan.error();
    if (!ops::has_rows(call)) return {};
    recorder.set_shape({call.out.shape.tokens, call.out.shape.heads, call.out.shape.dim});
    const ops::MergeLaunch launch = ops::choose_merge(call, *plan);
    auto strides = recorder.upload(std::as_bytes(std::span(launch.views)));
    if (!strides) return strides.error();
    const auto bound = [&](std::uint32_t index, const Buffer& buffer) -> runtime::BoundAt {
      return {index, runtime::bind(buffer, plan->views[index])};
    };
    const runtime::BoundAt nowhere{ops::kMergedLog, runtime::untouched(*strides)};
    recorder.dispatch({ops::kMerge, launch.constants, launch.dispatch}, launch.params,
                      {bound(ops::kFirstOut, call.first.out.buffer),
                       bound(ops::kSecondOut, call.second.out.buffer),
                       bound(ops::kMergedOut, call.out.buffer),
                       bound(ops::kFirstLog, call.first.log_sum_exp.buffer),
                       bound(ops::kSecondLog, call.second.log_sum_exp.buffer),
                       call.log_sum_exp ? bound(ops::kMergedLog, call.log_sum_exp->buffer) : nowhere,
                       {ops::kMergeStrides, *strides}});
    return {};
  });
}

}  // namespace rota::inline ROTA_ABI
