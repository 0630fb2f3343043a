#include "ops/checksum/checksum.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>

#include "core/check.h"
#include "rota_kernels/checksum.h"
#include "rota_kernels/checksum_clear.h"
#include "runtime/recorder.h"

namespace rota::ops {
namespace {

constexpr std::string_view kOp = "checksum";
constexpr std::uint64_t kWordBytes = sizeof(std::uint32_t);

constexpr auto kClearBindings = runtime::accesses({{kClearBindingSums, Access::write}});
constexpr auto kChecksumBindings =
    runtime::accesses({{kChecksumBindingOf, Access::read}, {kChecksumBindingSums, Access::write}});
constexpr runtime::Kernel kClear{.name = "checksum_clear",
                                 .code = kernels::checksum_clear::kCode,
                                 .bindings = kClearBindings,
                                 .cpu = checksum_clear_cpu};
constexpr runtime::Kernel kChecksum{
    .name = kOp, .code = kernels::checksum::kCode, .bindings = kChecksumBindings, .cpu = checksum_cpu};

core::Argument range_name(std::size_t index, std::string_view field = {}) { return {"of", index, field}; }

Status check_multiple(const core::Refusal& refusal, std::uint64_t bytes) {
  if (bytes % kWordBytes == 0) return {};
  return core::refuse(refusal, bytes, "a multiple of {}", kWordBytes);
}

// Precondition: offset and size are multiples of kWordBytes. An element is a word, whatever it holds.
Result<runtime::Bindable> check_words(const runtime::Target& target, const core::Refusal& refusal,
                                      const WordRange& range) {
  const View words{.buffer = range.buffer,
                   .dtype = DType::f32,
                   .shape = {.tokens = 1, .heads = 1, .dim = range.size_bytes / kWordBytes},
                   .offset = range.offset_bytes / kWordBytes};
  return runtime::check_view(target, refusal, words);
}

// What one binding cannot address is read in parts.
Status add_parts(const Checksum& call, std::size_t index, const runtime::Target& target, ChecksumPlan& plan) {
  const WordRange& range = call.of[index];
  const std::uint64_t most = std::max(core::round_down(target.limits.max_binding_bytes, runtime::kBindingAlignment),
                                      runtime::kBindingAlignment);
  const std::uint64_t end = range.offset_bytes + range.size_bytes;
  for (std::uint64_t begin = range.offset_bytes; begin < end;) {
    const std::uint64_t last = std::min(end, core::round_down(begin, runtime::kBindingAlignment) + most);
    auto bound = check_words(target, {kOp, range_name(index)}, {range.buffer, begin, last - begin});
    if (!bound) return bound.error();
    plan.parts.push_back({index, *bound});
    begin = last;
  }
  return {};
}

Status check_range(const Checksum& call, std::size_t index, const runtime::Target& target, ChecksumPlan& plan) {
  const WordRange& range = call.of[index];
  Status whole_words = core::first_error({check_multiple({kOp, range_name(index, "offset_bytes")}, range.offset_bytes),
                                          check_multiple({kOp, range_name(index, "size_bytes")}, range.size_bytes)});
  if (!whole_words) return whole_words;
  runtime::Target without_limit = target;
  without_limit.limits.max_binding_bytes = std::numeric_limits<std::uint64_t>::max();
  auto bound = check_words(without_limit, {kOp, range_name(index)}, range);
  if (!bound) return bound.error();
  Status apart = runtime::check_apart(kOp, {{"sums"}, call.sums, plan.sums}, {range_name(index), range.buffer, *bound});
  if (!apart) return apart;
  return add_parts(call, index, target, plan);
}

// The sums as a launch of one part sees them: it touches its own only.
runtime::Bindable sum_of(const ChecksumPlan& plan, std::size_t range) {
  runtime::Bindable sum = plan.sums;
  sum.touched.begin += range * kWordBytes;
  sum.touched.end = sum.touched.begin + kWordBytes;
  return sum;
}

std::uint64_t words_of(const runtime::Bindable& bound) { return bound.touched.size() / kWordBytes; }

}  // namespace

Result<ChecksumPlan> check_checksum(const Checksum& call, const runtime::Target& target) {
  if (Status status = check_multiple({kOp, {"sums_offset_bytes"}}, call.sums_offset_bytes); !status) {
    return status.error();
  }
  auto sums = check_words(target, {kOp, {"sums"}}, {call.sums, call.sums_offset_bytes, call.of.size() * kWordBytes});
  if (!sums) return sums.error();
  ChecksumPlan plan{{}, *sums};
  for (std::size_t index = 0; index < call.of.size(); ++index) {
    if (Status status = check_range(call, index, target, plan); !status) return status.error();
  }
  return plan;
}

ClearLaunch choose_clear(const ChecksumPlan& plan) {
  const std::uint64_t words = words_of(plan.sums);
  const std::uint64_t groups = (words - 1) / kChecksumGroupSize + 1;
  return {.dispatch = {.groups = static_cast<uint>(std::min<std::uint64_t>(groups, runtime::kMaxGroups)),
                       .items = words,
                       .item_bytes = kWordBytes},
          .params = {.first = plan.sums.first_element, .words = words}};
}

ChecksumLaunch choose_checksum(const ChecksumPlan& plan, const ChecksumPlan::Part& part) {
  const std::uint64_t first = part.bound.first_element;
  const std::uint64_t words = words_of(part.bound);
  const std::uint64_t chunks = words / (std::uint64_t{kChunkUnits} * kUnitWords) + 1;
  return {.dispatch = {.groups = static_cast<uint>(std::min(chunks, kMaxChecksumGroups)),
                       .items = (first + words - 1) / kRowWords + 1,
                       .item_bytes = kRowWords * kWordBytes},
          .params = {.first = first, .words = words, .sum = plan.sums.first_element + part.range}};
}

}  // namespace rota::ops

namespace rota::inline ROTA_ABI {

void checksum(Encoder& encoder, const Checksum& call) {
  runtime::record(encoder, [&](runtime::Recorder& recorder) -> Status {
    auto plan = ops::check_checksum(call, recorder.target());
    if (!plan) return plan.error();
    if (call.of.empty()) return {};
    const ops::ClearLaunch clear = ops::choose_clear(*plan);
    recorder.dispatch({ops::kClear, {}, clear.dispatch}, clear.params,
                      {{ops::kClearBindingSums, runtime::bind(call.sums, plan->sums)}});
    for (const ops::ChecksumPlan::Part& part : plan->parts) {
      const ops::ChecksumLaunch launch = ops::choose_checksum(*plan, part);
      recorder.dispatch({ops::kChecksum, {}, launch.dispatch}, launch.params,
                        {{ops::kChecksumBindingOf, runtime::bind_in_units(call.of[part.range].buffer, part.bound)},
                         {ops::kChecksumBindingSums, runtime::bind(call.sums, ops::sum_of(*plan, part.range))}});
    }
    return {};
  });
}

}  // namespace rota::inline ROTA_ABI
