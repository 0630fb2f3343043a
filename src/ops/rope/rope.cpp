#include "ops/rope/rope.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "core/check.h"
#include "rota_kernels/rope.h"
#include "runtime/recorder.h"
#include "runtime/strides.h"

namespace rota::ops {
namespace {

constexpr auto kBindings = runtime::accesses({{kRopeBindingFrom, Access::read},
                                              {kRopeBindingTo, Access::write},
                                              {kRopeBindingPositions, Access::read},
                                              {kRopeBindingPairs, Access::read},
                                              {kRopeBindingWeight, Access::read}});
constexpr runtime::Kernel kRope{
    .name = kRopeName, .code = kernels::rope::kCode, .bindings = kBindings, .cpu = rope_cpu};

constexpr std::uint32_t kFewestRowLanes = 8;  // fewer would be kernels of their own for heads that nobody has
constexpr std::int64_t kMaxPosition = std::numeric_limits<std::int32_t>::max();

core::Argument of_tensor(std::size_t index, std::string_view field, std::string_view subfield = {}) {
  return {"tensors", index, field, subfield};
}
core::Refusal refusal(std::size_t index, std::string_view field, std::string_view subfield = {}) {
  return {kRopeName, of_tensor(index, field, subfield)};
}

Status check_shapes(const Rope& call, std::size_t index) {
  const Shape& from = call.tensors[index].from.shape;
  const Shape& to = call.tensors[index].to.shape;
  const Shape& first = call.tensors.front().from.shape;
  const auto check_same = [&](std::string_view field, std::uint64_t found, std::uint64_t wanted) {
    return core::check_equal(refusal(index, "to", field), found, {wanted, of_tensor(index, "from", field)});
  };
  return core::first_error({core::check_index(refusal(index, "from", "shape.tokens"), from.tokens),
                            core::check_index(refusal(index, "from", "shape.heads"), from.heads),
                            core::check_equal(refusal(index, "from", "shape.tokens"), from.tokens,
                                              {first.tokens, of_tensor(0, "from", "shape.tokens")}),
                            check_same("shape.tokens", to.tokens, from.tokens),
                            check_same("shape.heads", to.heads, from.heads),
                            check_same("shape.dim", to.dim, from.dim)});
}

// Heads as large as rope_dim, or all of one size.
Status check_dim(const Rope& call, std::size_t index) {
  const std::uint64_t dim = call.tensors[index].from.shape.dim;
  if (dim > kMaxHeadDim) return core::refuse(refusal(index, "from", "shape.dim"), dim, "at most {}", kMaxHeadDim);
  if (!call.rotary.rope_dim) {
    return core::check_equal(refusal(index, "from", "shape.dim"), dim,
                             {call.tensors.front().from.shape.dim, of_tensor(0, "from", "shape.dim")});
  }
  if (dim >= *call.rotary.rope_dim) return {};
  return core::refuse(refusal(index, "from", "shape.dim"), dim, "at least rotary.rope_dim, {}", *call.rotary.rope_dim);
}

Status check_norm(const HeadNorm& norm, std::size_t index) {
  // Squares below 2^-126 are zero on devices without denormals: beside epsilon that must not show.
  constexpr float kLeast = 0x1p-104F;
  const auto epsilon = static_cast<float>(double{norm.epsilon});
  if (!std::isfinite(epsilon) || epsilon < kLeast) {
    return core::refuse(refusal(index, "norm", "epsilon"), double{norm.epsilon}, "a finite number, at least 2^-104");
  }
  if (!std::isfinite(static_cast<float>(norm.weight_offset))) {
    return core::refuse(refusal(index, "norm", "weight_offset"), norm.weight_offset, "a finite number");
  }
  if (norm.weight_offset != 0 && !norm.weight) {
    return core::refuse(refusal(index, "norm", "weight"), "missing", "the weight that weight_offset is added to");
  }
  return {};
}

Result<runtime::Bindable> check_weight(const View& weight, const Shape& heads, std::size_t index,
                                       const runtime::Target& target) {
  const Shape& shape = weight.shape;
  if (shape.tokens != 1) return core::refuse(refusal(index, "norm", "weight.shape.tokens"), shape.tokens, "1");
  if (shape.heads != 1 && shape.heads != heads.heads) {
    return core::refuse(refusal(index, "norm", "weight.shape.heads"), shape.heads, "1 or {}", heads.heads);
  }
  const Status same_dim = core::check_equal(refusal(index, "norm", "weight.shape.dim"), shape.dim,
                                            {heads.dim, of_tensor(index, "from", "shape.dim")});
  if (!same_dim) return same_dim.error();
  return runtime::check_view(target, refusal(index, "norm", "weight"), weight);
}

Result<RopePlan::Tensor> check_tensor(const Rope& call, std::size_t index, const runtime::Target& target) {
  const RopeTensor& tensor = call.tensors[index];
  if (Status status = core::first_error({check_shapes(call, index), check_dim(call, index),
                                         tensor.norm ? check_norm(*tensor.norm, index) : Status()});
      !status) {
    return status.error();
  }
  auto from = runtime::check_view(target, refusal(index, "from"), tensor.from);
  if (!from) return from.error();
  auto to = runtime::check_view(target, refusal(index, "to"), tensor.to);
  if (!to) return to.error();
  const runtime::Bound written{of_tensor(index, "to"), tensor.to.buffer, *to};
  RopePlan::Tensor checked{*from, *to, {}, runtime::same_place(tensor.from, tensor.to)};
  if (!checked.in_place) {
    const Status status = runtime::check_apart(kRopeName, {of_tensor(index, "from"), tensor.from.buffer, *from},
                                               written, ", or exactly its place");
    if (!status) return status.error();
  }
  if (tensor.norm && tensor.norm->weight) {
    const View& view = *tensor.norm->weight;
    auto weight = check_weight(view, tensor.from.shape, index, target);
    if (!weight) return weight.error();
    const Status status =
        runtime::check_apart(kRopeName, {of_tensor(index, "norm", "weight"), view.buffer, *weight}, written);
    if (!status) return status.error();
    checked.weight = *weight;
  }
  return checked;
}

Result<std::vector<std::uint32_t>> check_positions(const Rope& call, std::uint32_t axes,
                                                   const runtime::Target& target) {
  const std::uint64_t tokens = call.tensors.front().from.shape.tokens;
  if (call.positions.size() != axes * tokens) {
    return core::refuse({kRopeName, {"positions"}}, core::text("{} long", call.positions.size()),
                        "{}: {} tokens on {} {}", axes * tokens, tokens, axes, axes == 1 ? "axis" : "axes");
  }
  const std::uint64_t bytes = call.positions.size() * sizeof(std::uint32_t);
  const auto what = [&] { return core::text("{}: positions take {} bytes", kRopeName, bytes); };
  if (Status status = runtime::check_upload(target, bytes, what); !status) return status.error();
  std::vector<std::uint32_t> positions;
  positions.reserve(call.positions.size());
  for (const std::int64_t position : call.positions) {
    if (position < 0 || position > kMaxPosition) {
      return core::refuse({kRopeName, {"positions", positions.size()}}, position, "a number from 0 to {}",
                          kMaxPosition);
    }
    positions.push_back(static_cast<std::uint32_t>(position));
  }
  return positions;
}

bool has_elements(const RopeTensor& tensor) { return tensor.from.shape.tokens > 0 && tensor.from.shape.heads > 0; }

std::uint32_t norm_constant(const RopeTensor& tensor) {
  if (!tensor.norm) return kNotNormed;
  return tensor.norm->weight ? kNormed + 1 + static_cast<std::uint32_t>(tensor.norm->weight->dtype) : kNormed;
}

}  // namespace

Result<RopePlan> check_rope(const Rope& call, const runtime::Target& target) {
  if (call.tensors.empty()) return core::refuse({kRopeName, {"tensors"}}, "empty", "at least one");
  RopePlan plan;
  for (std::size_t index = 0; index < call.tensors.size(); ++index) {
    auto checked = check_tensor(call, index, target);
    if (!checked) return checked.error();
    plan.tensors.push_back(*checked);
  }
  const std::uint64_t rope_dim = call.rotary.rope_dim.value_or(call.tensors.front().from.shape.dim);
  if (rope_dim % 2 != 0 || rope_dim == 0) {
    return core::refuse({kRopeName, {"rotary.rope_dim"}}, rope_dim, "an even number, at least 2");
  }
  auto pairs = pair_table(call.rotary, rope_dim);
  if (!pairs) return pairs.error();
  plan.pairs = std::move(pairs).value();
  auto positions = check_positions(call, plan.pairs.axes, target);
  if (!positions) return positions.error();
  plan.positions = std::move(positions).value();
  return plan;
}

RopeLaunch choose_rope(const RopeTensor& tensor, const RopePlan::Tensor& bound, const PairTable& pairs) {
  const auto& [tokens, heads, dim] = tensor.from.shape;
  const std::uint32_t turning_units = pairs.unit == kTwoPairs ? pairs.pairs / 2 : pairs.pairs;
  RopeParams params{.from = runtime::strides_of(tensor.from, bound.from),
                    .to = runtime::strides_of(tensor.to, bound.to),
                    .weight = {},
                    .tokens = static_cast<uint>(tokens),
                    .heads = static_cast<uint>(heads),
                    .dim = static_cast<uint>(dim),
                    .pairs = pairs.pairs,
                    .magnitude = pairs.magnitude,
                    .epsilon = 0,
                    .weight_offset = 0,
                    .units = turning_units + (static_cast<uint>(dim) - 2 * pairs.pairs + 1) / 2};
  if (tensor.norm) {
    params.epsilon = static_cast<float>(double{tensor.norm->epsilon});
    params.weight_offset = static_cast<float>(tensor.norm->weight_offset);
    if (tensor.norm->weight && bound.weight) params.weight = runtime::strides_of(*tensor.norm->weight, *bound.weight);
  }

  const std::uint32_t lanes = std::clamp(std::bit_ceil(params.units), kFewestRowLanes, kRopeGroupSize);
  const std::uint64_t rows = tokens * heads;
  const std::uint64_t groups = (rows - 1) / (kRopeGroupSize / lanes) + 1;
  const auto flag = [](bool set) { return set ? 1U : 0U; };
  return {.constants = {{kRopeConstantFrom, static_cast<uint>(tensor.from.dtype)},
                        {kRopeConstantTo, static_cast<uint>(tensor.to.dtype)},
                        {kRopeConstantFromWords, flag(runtime::in_whole_words(tensor.from.dtype, params.from))},
                        {kRopeConstantToWords, flag(runtime::in_whole_words(tensor.to.dtype, params.to))},
                        {kRopeConstantUnit, pairs.unit},
                        {kRopeConstantNorm, norm_constant(tensor)},
                        {kRopeConstantInPlace, flag(bound.in_place)},
                        {kRopeConstantRowLanes, lanes}},
          .dispatch = {.groups = static_cast<uint>(std::min<std::uint64_t>(groups, runtime::kMaxGroups)),
                       .items = rows,
                       .item_bytes = dim * (info(tensor.from.dtype).bytes + info(tensor.to.dtype).bytes)},
          .params = params};
}

}  // namespace rota::ops

namespace rota::inline ROTA_ABI {

void rope(Encoder& encoder, const Rope& call) {
  runtime::record(encoder, [&](runtime::Recorder& recorder) -> Status {
    auto plan = ops::check_rope(call, recorder.target());
    if (!plan) return plan.error();
    if (std::ranges::none_of(call.tensors, ops::has_elements)) return {};
    auto positions = recorder.upload(std::as_bytes(std::span(plan->positions)));
    if (!positions) return positions.error();
    auto pairs = recorder.upload(std::as_bytes(std::span(plan->pairs.words)));
    if (!pairs) return pairs.error();

    for (std::size_t index = 0; index < call.tensors.size(); ++index) {
      const RopeTensor& tensor = call.tensors[index];
      if (!ops::has_elements(tensor)) continue;
      recorder.set_shape({tensor.from.shape.tokens, tensor.from.shape.heads, tensor.from.shape.dim});
      const ops::RopePlan::Tensor& bound = plan->tensors[index];
      const ops::RopeLaunch launch = ops::choose_rope(tensor, bound, plan->pairs);
      const bool weighted = tensor.norm && tensor.norm->weight && bound.weight;
      const auto weight = weighted ? runtime::bind(tensor.norm->weight->buffer, *bound.weight) : *pairs;
      recorder.dispatch({ops::kRope, launch.constants, launch.dispatch}, launch.params,
                        {{ops::kRopeBindingFrom, runtime::bind(tensor.from.buffer, bound.from)},
                         {ops::kRopeBindingTo, runtime::bind(tensor.to.buffer, bound.to)},
                         {ops::kRopeBindingPositions, *positions},
                         {ops::kRopeBindingPairs, *pairs},
                         {ops::kRopeBindingWeight, weight}});
    }
    return {};
  });
}

}  // namespace rota::inline ROTA_ABI
