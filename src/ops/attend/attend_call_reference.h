#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/on_device.h"
#include "ops/attend/attend.h"
#include "runtime/inside.h"

// What the tests of attend's pure half share: calls to be spoiled, and what becomes of them.

namespace rota::ops {

// All that is asked before a device is.
struct CheckedAttend : AttendPlan {
  AttendViews views;
};

inline Result<CheckedAttend> check_attend(const Attend& call, const runtime::Target& target) {
  auto views = check_attend_views(call, target);
  if (!views) return views.error();
  auto plan = plan_attend(call, target);
  if (!plan) return plan.error();
  return CheckedAttend{std::move(plan).value(), std::move(views).value()};
}

inline constexpr auto kMax = std::numeric_limits<std::uint64_t>::max();

using Pages = std::shared_ptr<KvPages>;

// A sound call that tests spoil in one place. The first sequence has sinks, sealed pages and a dense end, the second is
// a ring; pages of keys and values differ.
struct Call {
  static constexpr PageFormat kKeyFormat{.codec = turbo(4), .side = KvSide::keys, .head_dim = 64, .tokens = 64};
  static constexpr PageFormat kValueFormat{.codec = turbo(3), .side = KvSide::values, .head_dim = 32, .tokens = 128};

  explicit Call(Device& device) {
    const auto memory = [&](std::uint64_t bytes) { return device.allocate(bytes).value(); };
    q = View::token_major(memory(5 * 4 * 64 * 4), DType::f32, {.tokens = 5, .heads = 4, .dim = 64});
    out = MutView::token_major(memory(5 * 4 * 32 * 2), DType::f16, {.tokens = 5, .heads = 4, .dim = 32});
    log_sum_exp = MutView::token_major(memory(5 * 4 * 4), DType::f32, {.tokens = 5, .heads = 4, .dim = 1});
    sink_logits = View::token_major(memory(16), DType::f32, {.tokens = 1, .heads = 4, .dim = 1});
    alibi_slopes = View::token_major(memory(16), DType::f32, {.tokens = 1, .heads = 4, .dim = 1});
    const auto fill = [&](KvSideView& side, const PageFormat& format) {
      const SlotShape dense{.pages = 6, .page_slots = format.tokens, .heads = 2, .dim = format.head_dim};
      const SlotShape sinks{.pages = 2, .page_slots = 4, .heads = 2, .dim = format.head_dim};
      const std::uint64_t slot_bytes = 2 * sizeof(std::uint16_t) * format.head_dim;
      side.dense = SlotView::token_major(memory(6 * format.tokens * slot_bytes), DType::f16, dense);
      side.sealed = SealedView::packed(memory(3 * 2 * page_bytes(format)), format, {.pages = 3, .heads = 2});
      side.sinks = SlotView::token_major(memory(2 * 4 * slot_bytes), DType::f16, sinks);
    };
    fill(kv.k, kKeyFormat);
    fill(kv.v, kValueFormat);
    k = {std::make_shared<KvPages>(KvPages{.sealed_pages = 3, .page_table = {2, 0, 1, 3, 5}, .sinks = 1}),
         std::make_shared<KvPages>(KvPages{.page_table = {4, 0}, .ring = 100})};
    v = {std::make_shared<KvPages>(KvPages{.sealed_pages = 1, .page_table = {2, 1, 5}, .sinks = 0}),
         std::make_shared<KvPages>(KvPages{.page_table = {0}, .ring = 90})};
    kv.k.sequences.edit().assign(k.begin(), k.end());
    kv.v.sequences.edit().assign(v.begin(), v.end());
    kv.lengths = {300, 200};
  }

  View q;
  MutView out;
  KvView kv;
  std::vector<Pages> k, v;  // as kv has them
  double scale = 0.125;
  std::vector<std::uint64_t> query_tokens{2, 3};
  Mask mask = Mask::causal;
  Arithmetic arithmetic = Arithmetic::stored;
  std::optional<double> soft_cap = 30;
  std::optional<View> sink_logits, alibi_slopes;
  std::optional<MutView> log_sum_exp;
};

// One page of `slots` slots that is all pages of any sequence: small views, and large plans.
struct SmallCall : Call {
  SmallCall(Device& device, std::uint64_t slots, std::uint64_t kv_heads, std::uint64_t group, std::uint64_t tokens)
      : Call(device) {
    const std::uint64_t heads = kv_heads * group;
    const SlotShape shape{.pages = 1, .page_slots = slots, .heads = kv_heads, .dim = 1};
    kv = {};
    kv.k.dense = SlotView::token_major(device.allocate(slots * kv_heads * 2).value(), DType::f16, shape);
    kv.v.dense = kv.k.dense;
    q = View::token_major(device.allocate(4).value(), DType::f16, {tokens, heads, 1});
    q.token_stride = q.head_stride = 0;
    out = MutView::token_major(device.allocate(tokens * heads * 2).value(), DType::f16, {tokens, heads, 1});
    sink_logits.reset();
    alibi_slopes.reset();
    log_sum_exp.reset();
    query_tokens.clear();
  }

  void add_sequence(std::uint64_t length, std::uint64_t tokens_of_query = 1) {
    const auto pages = std::make_shared<KvPages>();
    pages->page_table.resize((length - 1) / kv.k.dense.shape.page_slots + 1);
    kv.k.sequences.edit().push_back(pages);
    kv.v.sequences.edit().push_back(pages);
    kv.lengths.edit().push_back(length);
    query_tokens.push_back(tokens_of_query);
  }
};

class AttendCheck : public ::testing::Test {
 protected:
  Result<CheckedAttend> check(const Call& call) const {
    return check_attend({.q = call.q,
                         .kv = call.kv,
                         .out = call.out,
                         .scale = call.scale,
                         .query_tokens = call.query_tokens,
                         .mask = call.mask,
                         .soft_cap = call.soft_cap,
                         .sink_logits = call.sink_logits,
                         .alibi_slopes = call.alibi_slopes,
                         .log_sum_exp = call.log_sum_exp,
                         .arithmetic = call.arithmetic},
                        target);
  }

  void expect_refused(const std::function<void(Call&)>& spoil, std::string_view text,
                      Errc code = Errc::invalid_argument) {
    Call call(device);
    spoil(call);
    SCOPED_TRACE(text);
    test::expect_error(check(call), code, {"attend: ", text});
  }

  void expect_accepted(const std::function<void(Call&)>& change) {
    Call call(device);
    change(call);
    EXPECT_OK(check(call));
  }

  Device device = Device::open({.device = "cpu", .threads = 1}).value();
  runtime::Target target{runtime::Inside::of(device).get(), "cpu", device.info().limits, device.info().kind};

  // A GPU that is not here.
  void target_gpu(std::uint64_t max_binding_bytes) {
    target.limits = {
        .max_binding_bytes = max_binding_bytes, .shared_memory_bytes = 32768, .cores = 40, .lane_registers = 256};
    target.kind = DeviceKind::discrete_gpu;
  }
};

}  // namespace rota::ops
