#include "ops/attend/attend.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "core/extent.h"
#include "harness/on_device.h"
#include "ops/attend/plan_reader.h"

// The pure half of `attend`: every bad argument, and the plan that a good call leads to.

namespace rota::ops {
namespace {

constexpr auto kMax = std::numeric_limits<std::uint64_t>::max();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

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
    kv.k.sequences.assign(k.begin(), k.end());
    kv.v.sequences.assign(v.begin(), v.end());
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

class AttendCheck : public ::testing::Test {
 protected:
  Result<AttendPlan> check(const Call& call) const {
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
    target.limits = {.max_binding_bytes = max_binding_bytes, .shared_memory_bytes = 32768};
    target.kind = DeviceKind::discrete_gpu;
  }
};

TEST_F(AttendCheck, AcceptsASoundCall) {
  expect_accepted([](Call&) {});
  expect_accepted([](Call& c) {
    c.sink_logits.reset();
    c.alibi_slopes.reset();
    c.log_sum_exp.reset();
    c.soft_cap.reset();
  });
  expect_accepted([](Call& c) { c.scale = -1e30; });
  expect_accepted([](Call& c) {
    c.kv.window = kMax;
    c.kv.lengths[1] = 90;  // as much as the ring has
  });
  expect_accepted([](Call& c) { c.mask = Mask::none; });
  expect_accepted([](Call& c) { c.q.token_stride = c.q.head_stride = 0; });  // one vector for all: only read
  expect_accepted([](Call& c) {                                              // one each
    c.q = c.q.slice(0, 2);
    c.out = c.out.slice(0, 2);
    c.log_sum_exp = c.log_sum_exp->slice(0, 2);
    c.query_tokens.clear();
  });
}

TEST_F(AttendCheck, RefusesShapesThatDoNotFitTogether) {
  expect_refused([](Call& c) { c.q.shape.dim = 63; }, "q.shape.dim is 63; wanted 64, as kv.k.dense.shape.dim is");
  expect_refused([](Call& c) { c.out.shape.tokens = 4; }, "out.shape.tokens is 4; wanted 5, as q.shape.tokens is");
  expect_refused([](Call& c) { c.out.shape.heads = 3; }, "out.shape.heads is 3; wanted 4, as q.shape.heads is");
  expect_refused([](Call& c) { c.out.shape.dim = 31; }, "out.shape.dim is 31; wanted 32, as kv.v.dense.shape.dim is");
  expect_refused([](Call& c) { c.q.shape.heads = c.out.shape.heads = 3; },
                 "q.shape.heads is 3; wanted a multiple of the 2 heads of kv");
  expect_refused([](Call& c) { c.q.shape.heads = c.out.shape.heads = 1; }, "q.shape.heads is 1; wanted a multiple");
  expect_refused([](Call& c) { c.q.shape.heads = c.out.shape.heads = 0; }, "q.shape.heads is 0; wanted a multiple");
  expect_refused([](Call& c) { c.q.shape.tokens = kMax; }, "q.shape.tokens is 18446744073709551615; wanted at most");
  expect_refused([](Call& c) { c.q.shape.heads = kMax - 1; }, "q.shape.heads is 18446744073709551614; wanted at most");
  expect_refused([](Call& c) { c.sink_logits->shape.heads = 3; }, "sink_logits.shape is [1, 3, 1]; wanted [1, 4, 1]");
  expect_refused([](Call& c) { c.alibi_slopes->shape.heads = 2; }, "alibi_slopes.shape is [1, 2, 1]; wanted [1, 4, 1]");
  expect_refused([](Call& c) { c.alibi_slopes = View::token_major(c.alibi_slopes->buffer, DType::f32, {4, 1, 1}); },
                 "alibi_slopes.shape is [4, 1, 1]; wanted [1, 4, 1]");
  expect_refused([](Call& c) { c.log_sum_exp->shape.tokens = 4; }, "log_sum_exp.shape is [4, 4, 1]; wanted [5, 4, 1]");
  expect_refused([](Call& c) { c.log_sum_exp->shape.heads = 2; }, "log_sum_exp.shape is [5, 2, 1]; wanted [5, 4, 1]");
}

TEST_F(AttendCheck, RefusesKeysAndValuesThatDoNotFitTogether) {
  const Buffer large = device.allocate(1 << 20).value();
  expect_refused([](Call& c) { c.kv.v.dense.shape.heads = c.kv.v.sealed->shape.heads = c.kv.v.sinks->shape.heads = 1; },
                 "kv.v.dense.shape.heads is 1; wanted 2, as kv.k.dense.shape.heads is");
  for (const bool keys : {true, false}) {
    const auto side = [keys](Call& c) -> KvSideView& { return keys ? c.kv.k : c.kv.v; };
    const std::string name = keys ? "kv.k." : "kv.v.";
    const auto reformat = [&](Call& c, const std::function<void(PageFormat&)>& change) {
      PageFormat format = side(c).sealed->format;
      change(format);
      side(c).sealed = SealedView::packed(large, format, side(c).sealed->shape);
    };
    expect_refused([&](Call& c) { side(c).dense.shape.dim = 1025; },
                   name + "dense.shape.dim is 1025; wanted at most 1024");
    expect_refused([&](Call& c) { side(c).dense.shape.dim = 0; }, name + "dense.shape.dim is 0; wanted at least 1");
    expect_refused([&](Call& c) { side(c).dense.shape.heads = 0; }, name + "dense.shape.heads is 0; wanted at least 1");
    expect_refused([&](Call& c) { side(c).dense.shape.page_slots = 0; },
                   name + "dense.shape.page_slots is 0; wanted at least 1");
    expect_refused([&](Call& c) { side(c).dense.shape.page_slots = kMax; },
                   name + "dense.shape.page_slots is 18446744073709551615; wanted at most 4294967295");
    expect_refused([&](Call& c) { side(c).dense.shape.pages = kMax; },
                   name + "dense.shape.pages is 18446744073709551615; wanted at most 4294967295");
    expect_refused([&](Call& c) { reformat(c, [&](PageFormat& format) { format.tokens = keys ? 128 : 64; }); },
                   name + "sealed.format.tokens is " + (keys ? "128; wanted 64" : "64; wanted 128"));
    expect_refused([&](Call& c) { side(c).sealed->format.head_dim = 16; },
                   name + "sealed.format.head_dim is 16; wanted");
    expect_refused([&](Call& c) { side(c).sealed->shape.heads = 1; },
                   name + "sealed.shape.heads is 1; wanted 2, as " + name + "dense is");
    expect_refused(
        [&](Call& c) { reformat(c, [&](PageFormat& format) { format.side = keys ? KvSide::values : KvSide::keys; }); },
        name + "sealed.format.side is " + (keys ? "values" : "keys"));
    expect_refused([&](Call& c) { std::get<Turbo>(side(c).sealed->format.codec).bits = 7; },
                   name + "sealed: page format: codec.bits is 7");
    expect_refused([&](Call& c) { side(c).sinks->shape.heads = 1; }, name + "sinks is of other heads");
    expect_refused([&](Call& c) { side(c).sinks->shape.dim = 16; }, name + "sinks is of other heads, dim");
    expect_refused([&](Call& c) { side(c).sinks->dtype = DType::bf16; },
                   name + "sinks is of other heads, dim or dtype");
  }
}

TEST_F(AttendCheck, RefusesBadViews) {
  struct Memory {
    std::string_view name;
    std::function<Buffer&(Call&)> buffer;
    std::function<void(Call&)> move;  // out of its buffer
    std::string_view ends;
    std::function<DType&(Call&)> dtype;
  };
  const std::vector<Memory> memories{
      {"q", [](Call& c) -> Buffer& { return c.q.buffer; }, [](Call& c) { c.q.offset = 1; }, "5124",
       [](Call& c) -> DType& { return c.q.dtype; }},
      {"out", [](Call& c) -> Buffer& { return c.out.buffer; }, [](Call& c) { c.out.offset = 1; }, "1282",
       [](Call& c) -> DType& { return c.out.dtype; }},
      {"log_sum_exp", [](Call& c) -> Buffer& { return c.log_sum_exp->buffer; },
       [](Call& c) { c.log_sum_exp->offset = 1; }, "84", [](Call& c) -> DType& { return c.log_sum_exp->dtype; }},
      {"sink_logits", [](Call& c) -> Buffer& { return c.sink_logits->buffer; },
       [](Call& c) { c.sink_logits->offset = 1; }, "20", [](Call& c) -> DType& { return c.sink_logits->dtype; }},
      {"alibi_slopes", [](Call& c) -> Buffer& { return c.alibi_slopes->buffer; },
       [](Call& c) { c.alibi_slopes->offset = 1; }, "20", [](Call& c) -> DType& { return c.alibi_slopes->dtype; }},
      {"kv.k.dense", [](Call& c) -> Buffer& { return c.kv.k.dense.buffer; }, [](Call& c) { c.kv.k.dense.offset = 1; },
       "98306", [](Call& c) -> DType& { return c.kv.k.dense.dtype; }},
      {"kv.v.dense", [](Call& c) -> Buffer& { return c.kv.v.dense.buffer; }, [](Call& c) { c.kv.v.dense.offset = 1; },
       "98306", [](Call& c) -> DType& { return c.kv.v.dense.dtype; }},
      {"kv.k.sinks", [](Call& c) -> Buffer& { return c.kv.k.sinks->buffer; }, [](Call& c) { c.kv.k.sinks->offset = 1; },
       "2050", [](Call& c) -> DType& { return c.kv.k.sinks->dtype; }},
      {"kv.v.sinks", [](Call& c) -> Buffer& { return c.kv.v.sinks->buffer; }, [](Call& c) { c.kv.v.sinks->offset = 1; },
       "1026", [](Call& c) -> DType& { return c.kv.v.sinks->dtype; }},
      {"kv.k.sealed",
       [](Call& c) -> Buffer& { return c.kv.k.sealed->buffer; },
       [](Call& c) { c.kv.k.sealed->offset_bytes = 64; },
       "",
       {}},
      {"kv.v.sealed",
       [](Call& c) -> Buffer& { return c.kv.v.sealed->buffer; },
       [](Call& c) { c.kv.v.sealed->offset_bytes = 64; },
       "",
       {}},
  };
  Device other = Device::open({.device = "cpu", .threads = 1}).value();
  const Buffer elsewhere = other.allocate(1 << 20).value();
  for (const Memory& memory : memories) {
    expect_refused([&](Call& c) { memory.buffer(c) = {}; }, fmt::format("{} is a view of no buffer", memory.name));
    expect_refused([&](Call& c) { memory.buffer(c) = elsewhere; },
                   fmt::format("{} is in a buffer of another device", memory.name));
    expect_refused(memory.move, fmt::format("{} is a view that ends at byte {}", memory.name, memory.ends));
    if (!memory.dtype) continue;
    expect_refused([&](Call& c) { memory.dtype(c) = static_cast<DType>(9); },
                   fmt::format("{} is of dtype 9", memory.name));
  }
  expect_refused([](Call& c) { c.q.token_stride = kMax; }, "q is a view that ends beyond 2^64 bytes");
  expect_refused([](Call& c) { c.out.head_stride = 31; }, "out is a layout with strides 128, 31, 1");
  expect_refused([](Call& c) { c.log_sum_exp->head_stride = 0; }, "log_sum_exp is a layout with strides 4, 0, 1");
}

TEST_F(AttendCheck, RefusesResultsThatShareBytesWithOthers) {
  struct Read {
    std::string_view name;
    std::function<void(Call&, const Buffer&)> move;
  };
  const std::vector<Read> reads{
      {"q", [](Call& c, const Buffer& to) { c.q.buffer = to; }},
      {"kv.k.dense", [](Call& c, const Buffer& to) { c.kv.k.dense.buffer = to; }},
      {"kv.v.dense", [](Call& c, const Buffer& to) { c.kv.v.dense.buffer = to; }},
      {"kv.k.sealed", [](Call& c, const Buffer& to) { c.kv.k.sealed->buffer = to; }},
      {"kv.v.sealed", [](Call& c, const Buffer& to) { c.kv.v.sealed->buffer = to; }},
      {"kv.k.sinks", [](Call& c, const Buffer& to) { c.kv.k.sinks->buffer = to; }},
      {"kv.v.sinks", [](Call& c, const Buffer& to) { c.kv.v.sinks->buffer = to; }},
      {"sink_logits", [](Call& c, const Buffer& to) { c.sink_logits->buffer = to; }},
      {"alibi_slopes", [](Call& c, const Buffer& to) { c.alibi_slopes->buffer = to; }},
      {"log_sum_exp", [](Call& c, const Buffer& to) { c.log_sum_exp->buffer = to; }},
  };
  const Buffer both = device.allocate(1 << 20).value();
  for (const Read& read : reads) {
    expect_refused(
        [&](Call& c) {
          read.move(c, both);
          c.out.buffer = both;
        },
        fmt::format("{} is in bytes 0 to", read.name));
    expect_accepted([&](Call& c) {
      read.move(c, both);
      c.out.buffer = both;
      c.out.offset = 200000;
    });
    if (read.name == "log_sum_exp") continue;
    expect_refused(
        [&](Call& c) {
          read.move(c, both);
          c.log_sum_exp->buffer = both;
        },
        fmt::format("{} is in bytes 0 to", read.name));
  }
  expect_refused(
      [&](Call& c) {
        c.q.buffer = c.out.buffer = both;
        c.out.offset = (5 * 4 * 64 * 4 - 4) / 2;
      },
      "q is in bytes 0 to 5120 of one buffer with out; wanted bytes outside of its 5116 to 6396");
  expect_accepted([&](Call& c) {  // only results must be apart
    c.kv.k.dense.buffer = c.kv.v.dense.buffer = c.q.buffer = both;
  });
}

TEST_F(AttendCheck, RefusesBadNumbers) {
  for (const double scale : {kNaN, kInfinity, -kInfinity, 1.1e30, -1e31, 1e300}) {
    expect_refused([&](Call& c) { c.scale = scale; }, "wanted a number from -1e+30 to 1e+30");
  }
  for (const double cap : {0.0, -30.0, kNaN, kInfinity, 1e39, 1e-39, 1e-60}) {
    expect_refused([&](Call& c) { c.soft_cap = cap; }, "soft_cap is");
  }
  expect_refused([](Call& c) { c.mask = static_cast<Mask>(2); }, "mask is 2; wanted causal or none");
  expect_refused([](Call& c) { c.arithmetic = static_cast<Arithmetic>(77); }, "arithmetic is 77; wanted stored or f32");
  expect_refused([](Call& c) { c.kv.window = 0; }, "kv.window is 0; wanted at least 1");
  expect_refused(
      [](Call& c) {
        c.kv.window = 7;
        c.mask = Mask::none;
      },
      "mask is none; wanted causal where there is a window");
}

TEST_F(AttendCheck, RefusesSequencesThatDoNotFitTogether) {
  expect_refused([](Call& c) { c.kv.lengths.pop_back(); },
                 "kv.lengths is of 1 sequences; wanted as many as k and v have");
  expect_refused([](Call& c) { c.kv.k.sequences.pop_back(); }, "kv.lengths is of 2 sequences");
  expect_refused([](Call& c) { c.kv.v.sequences.pop_back(); }, "kv.lengths is of 2 sequences");
  expect_refused([](Call& c) { c.query_tokens.pop_back(); }, "query_tokens is of 1 sequences; wanted the 2 of kv");
  expect_refused([](Call& c) { c.query_tokens.push_back(0); }, "query_tokens is of 3 sequences; wanted the 2 of kv");
  expect_refused([](Call& c) { c.query_tokens.clear(); }, "query_tokens is 2 tokens together; wanted the 5 of q");
  expect_refused([](Call& c) { c.query_tokens[1] = 2; }, "query_tokens is 4 tokens together; wanted the 5 of q");
  expect_refused([](Call& c) { c.query_tokens[1] = 4; },
                 "query_tokens[1] is 4; wanted at most the 3 tokens that q has left");
  expect_refused([](Call& c) { c.query_tokens[1] = kMax; },
                 "query_tokens[1] is 18446744073709551615; wanted at most the 3");
  expect_refused([](Call& c) { c.kv.lengths[1] = 2; },
                 "query_tokens[1] is 3; wanted at most the 2 tokens of the sequence");
  expect_accepted([](Call& c) {  // who sees all need not be among the keys
    c.kv.lengths[1] = 2;
    c.mask = Mask::none;
  });
  for (const std::uint64_t length : {std::uint64_t{1} << 31, std::uint64_t{1} << 32, kMax}) {
    expect_refused([&](Call& c) { c.kv.lengths[1] = length; },
                   fmt::format("kv.lengths[1] is {}; wanted at most 2147483647", length));
  }
  expect_accepted([](Call& c) { c.kv.lengths[1] = 2147483647; });  // a ring's
}

TEST_F(AttendCheck, PositionsThatPassTheLargestNumberAreRefused) {
  for (const std::uint64_t tokens : {std::uint64_t{1}, std::uint64_t{2}, kMax}) {
    const TokenRun run{.tokens = tokens, .position = kMax, .capacity = 64};
    EXPECT_EQ(KvView::of_slots({}, {}, {&run, 1}).lengths, std::vector{kMax});
    expect_refused(
        [&](Call& c) {
          c.kv = KvView::of_slots(c.kv.k.dense, c.kv.v.dense, {&run, 1});
          c.query_tokens = {5};
        },
        fmt::format("kv.lengths[0] is {}; wanted at most 2147483647", kMax));
  }
  const TokenRun run{.tokens = 3, .position = 200, .capacity = 64};
  EXPECT_EQ(KvView::of_slots({}, {}, {&run, 1}).lengths, std::vector<std::uint64_t>{203});
}

TEST_F(AttendCheck, RefusesBadPageLists) {
  for (const bool keys : {true, false}) {
    const auto pages = [keys](Call& c, std::size_t sequence) -> KvPages& {
      return keys ? *c.k[sequence] : *c.v[sequence];
    };
    const auto side = [keys](Call& c) -> KvSideView& { return keys ? c.kv.k : c.kv.v; };
    const std::string name = keys ? "kv.k.sequences" : "kv.v.sequences";
    const std::string first = name + "[0] is ";
    const std::string second = name + "[1] is ";
    expect_refused([&](Call& c) { side(c).sequences[1] = nullptr; },
                   second + "null; wanted the pages of a sequence of 200");
    expect_refused([&](Call& c) { pages(c, 0).page_table.pop_back(); },
                   first + "a list of fewer pages; wanted the pages of a sequence of 300 tokens");
    expect_refused([&](Call& c) { pages(c, 0).page_table.clear(); }, first + "a list of fewer pages");
    expect_refused([&](Call& c) { pages(c, 0).first_page = 6; }, first + "a list of fewer pages");
    expect_refused([&](Call& c) { pages(c, 0).first_page = kMax; }, first + "a list of fewer pages");
    expect_refused([&](Call& c) { pages(c, 0).sealed_pages = 6; }, first + "sealed pages that are not there");
    expect_refused([&](Call& c) { pages(c, 0).sealed_pages = kMax; }, first + "sealed pages that are not there");
    expect_refused([&](Call& c) { side(c).sealed.reset(); }, first + "sealed pages that are not there");
    expect_refused([&](Call& c) { pages(c, 0).page_table.front() = 3; },
                   first + "a physical page beyond the pool's pages");
    expect_refused([&](Call& c) { pages(c, 0).page_table.back() = 6; },
                   first + "a physical page beyond the pool's pages");
    expect_refused(
        [&](Call& c) {
          pages(c, 0).sealed_pages = 0;
          pages(c, 0).page_table.front() = 6;
        },
        first + "a physical page beyond the pool's pages");
    expect_refused([&](Call& c) { pages(c, 0).sinks = 2; }, first + "sinks of no page");
    expect_refused([&](Call& c) { side(c).sinks.reset(); }, first + "sinks of no page");
    expect_refused([&](Call& c) { pages(c, 1).ring = 0; }, name + "[1].ring is 0; wanted at least 1");
    expect_refused([&](Call& c) { pages(c, 1).ring = (std::uint64_t{1} << 32) + 5; },
                   name + "[1].ring is 4294967301; wanted at most 4294967295");
    expect_refused([&](Call& c) { pages(c, 1).ring = 129; }, second + "a list of fewer pages");
    expect_refused([&](Call& c) { pages(c, 1).page_table.front() = 6; },
                   second + "a physical page beyond the pool's pages");
    expect_refused([&](Call& c) { pages(c, 1).sealed_pages = 1; }, second + "a ring with sealed pages");
    expect_refused([&](Call& c) { pages(c, 1).sinks = 0; }, second + "a ring with sealed pages, sinks");
    expect_refused([&](Call& c) { pages(c, 1).first_page = 1; },
                   second + "a ring with sealed pages, sinks or pages that");
    expect_accepted([&](Call& c) { pages(c, 0).page_table.push_back(77); });  // a page that no token is in yet
    expect_accepted([&](Call& c) {                                            // all that were sealed have left
      const std::uint64_t left = pages(c, 0).sealed_pages;
      pages(c, 0).first_page = left;
      pages(c, 0).page_table.erase(pages(c, 0).page_table.begin(),
                                   pages(c, 0).page_table.begin() + static_cast<std::ptrdiff_t>(left));
      side(c).sealed.reset();
      c.kv.window = 80;
    });
  }
}

TEST_F(AttendCheck, RefusesQueriesWhoseWindowBeginsBeforeWhatIsThere) {
  for (const bool keys : {true, false}) {
    // Of 300 tokens two pages of keys (of 64) or one of values (of 128) have left. Query tokens are at 295 and on.
    const auto leave = [keys](Call& c, std::optional<std::uint64_t> window) {
      KvPages& pages = keys ? *c.k[0] : *c.v[0];
      pages.first_page = keys ? 2 : 1;
      pages.page_table.erase(pages.page_table.begin(), pages.page_table.begin() + (keys ? 2 : 1));
      pages.sinks.reset();
      c.query_tokens = {5, 0};
      c.kv.window = window;
    };
    const std::string there = keys ? "and kv.k.sequences[0] has nothing before position 128"
                                   : "and kv.v.sequences[0] has nothing before position 128";
    expect_accepted([&](Call& c) { leave(c, 296 - 128); });
    expect_refused(
        [&](Call& c) { leave(c, 296 - 127); },
        "query_tokens[0] is 5; wanted query tokens that see what is there: the first sees position 127 and on, " +
            there);
    expect_refused([&](Call& c) { leave(c, {}); }, "the first sees position 0 and on, " + there);
    expect_refused(
        [&](Call& c) {
          leave(c, {});
          c.mask = Mask::none;
        },
        "the first sees position 0 and on, " + there);
  }
  // A ring of 100 keys and 90 values, 200 tokens, query tokens at 197 and on: a window is held to what the ring has.
  expect_accepted([](Call& c) { c.kv.window = 198 - 110; });
  expect_refused(
      [](Call& c) { c.kv.window = 198 - 110 + 1; },
      "query_tokens[1] is 3; wanted query tokens that see what is there: the first sees position 109 and on, and "
      "kv.v.sequences[1] has nothing before position 110");
}

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
    kv.k.sequences.push_back(pages);
    kv.v.sequences.push_back(pages);
    kv.lengths.push_back(length);
    query_tokens.push_back(tokens_of_query);
  }
};

TEST_F(AttendCheck, RefusesWhatOneBindingCannotAddress) {
  target.id = "gpu:7";
  target_gpu(10000);
  expect_refused([](Call&) {}, "kv.k.dense spans 98304 bytes; gpu:7 can address 10000 bytes in one binding",
                 Errc::unsupported);

  SmallCall many_queries(device, 1, 1, 4, 100);
  many_queries.add_sequence(500, 100);
  test::expect_error(check(many_queries), Errc::unsupported,
                     {"attend: scratch for 400 query vectors takes 25664 bytes; gpu:7 can address 10000 bytes"});

  SmallCall many_pages(device, 1, 1, 4, 1);
  many_pages.add_sequence(2000);
  test::expect_error(check(many_pages), Errc::unsupported, {"attend: a plan takes at least 16048 bytes; gpu:7"});

  SmallCall many_splits(device, 512, 1, 1, 1500);
  many_splits.add_sequence(60000, 1500);
  target.limits.max_binding_bytes = 130000;
  test::expect_error(check(many_splits), Errc::unsupported,
                     {"attend: a plan takes at least", "gpu:7 can address 130000"});

  SmallCall many_results(device, 512, 2, 8, 1);
  many_results.add_sequence(10000);
  target.limits.max_binding_bytes = 30000;
  test::expect_error(
      check(many_results), Errc::unsupported,
      {"attend: partial results of 16 query vectors take 40960 bytes; gpu:7 can address 30000 bytes in one binding"});
}

TEST_F(AttendCheck, RefusesMorePartialResultsThanKernelsCount) {
  constexpr std::uint64_t kHeads = 32000;
  SmallCall call(device, 1, kHeads, 16, 1);
  call.add_sequence(1048576);
  test::expect_error(check(call), Errc::unsupported,
                     {"attend: partial results of 512000 query vectors take 17825792000"});
}

TEST_F(AttendCheck, OfNoTokensIsNothing) {
  Call call(device);
  call.q.shape.tokens = call.out.shape.tokens = call.log_sum_exp->shape.tokens = 0;
  call.query_tokens = {0, 0};
  EXPECT_TRUE(check(call)->empty());
  call.kv = {.k = call.kv.k, .v = call.kv.v};
  call.kv.k.sequences.clear();
  call.kv.v.sequences.clear();
  call.query_tokens.clear();
  EXPECT_TRUE(check(call)->empty());
}

// ---- the plan

void require(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(what);
}

struct LaunchedSplit {
  KvSplit split;
  KeySource k, v;

  std::uint64_t end() const { return std::uint64_t{split.first_key} + split.keys; }
};

struct PlannedTile {
  QueryTile tile;
  std::uint64_t round;
  std::vector<LaunchedSplit> splits;
};

// What the words of a plan say, as kernels read them.
std::vector<PlannedTile> query_tiles_of(const AttendPlan& plan) {
  struct Launched {
    KeySource k, v;
    std::uint64_t round;
  };
  const PlanReader reader(plan.words.data());
  std::map<std::uint64_t, Launched> launches;  // by split
  std::vector<PlannedTile> tiles;
  for (std::size_t round = 0; round < plan.rounds.size(); ++round) {
    require(plan.rounds[round].first_query_tile == tiles.size(), "rounds have all query tiles, one after the other");
    for (std::size_t i = 0; i < plan.rounds[round].query_tiles; ++i) {
      tiles.push_back({reader.query_tile(tiles.size()), round, {}});
    }
    for (const AttendLaunch& launch : plan.rounds[round].launches) {
      require(launch.first_split + launch.splits <= plan.words.size(), "a launch's splits are in the plan");
      for (std::uint32_t i = 0; i < launch.splits; ++i) {
        const bool fresh = launches.insert({reader.word(launch.first_split + i), {launch.k, launch.v, round}}).second;
        require(fresh, "a split is launched once");
      }
    }
  }
  std::uint64_t splits = 0;
  for (std::size_t index = 0; index < tiles.size(); ++index) {
    PlannedTile& planned = tiles[index];
    require(planned.tile.first_split == splits, "query tiles have splits one after the other");
    for (std::uint32_t i = 0; i < planned.tile.splits; ++i, ++splits) {
      require(launches.contains(splits), "every split is launched");
      const Launched& launched = launches.at(splits);
      const KvSplit& split = reader.kv_split(splits);
      require(split.query_tile == index, "a split knows its query tile");
      require(launched.round == planned.round, "a query tile's splits are in its round");
      require((split.rotated != 0) == (launched.v == KeySource::sealed), "sealed values are rotated");
      planned.splits.push_back({split, launched.k, launched.v});
    }
  }
  require(launches.size() == splits, "every launched split is a query tile's");
  require(reader.header().splits + splits * (kKvSplitWords + 1) == plan.words.size(), "no word is nobody's");
  return tiles;
}

// A call's sequence, from the definitions in kv_view.h and ops.h, one key at a time.
struct ModelSequence {
  const Attend& call;
  std::size_t index;

  const KvPages& pages(const KvSideView& side) const { return *side.sequences[index]; }
  std::uint64_t length() const { return call.kv.lengths[index]; }
  std::uint64_t query_tokens() const { return call.query_tokens.empty() ? 1 : call.query_tokens[index]; }
  std::uint64_t group() const { return call.q.shape.heads / call.kv.k.dense.shape.heads; }

  bool is_there(const KvSideView& side, std::uint64_t key) const {
    const KvPages& list = pages(side);
    if (list.ring) return key + *list.ring >= length();
    return key / side.dense.shape.page_slots >= list.first_page;
  }

  bool sees(std::uint64_t query_token, std::uint64_t key) const {
    if (!is_there(call.kv.k, key) || !is_there(call.kv.v, key)) return false;
    if (call.mask == Mask::none) return true;
    const std::uint64_t position = length() - query_tokens() + query_token;
    return key <= position && (!call.kv.window || position - key < *call.kv.window);
  }

  // Of a query token's window, which is all that it may see unless a ring is the window.
  bool has_all_of_its_window(std::uint64_t query_token) const {
    const std::uint64_t position = call.mask == Mask::none ? length() - 1 : length() - query_tokens() + query_token;
    for (const KvSideView* const side : {&call.kv.k, &call.kv.v}) {
      if (pages(*side).ring && !call.kv.window) continue;
      for (std::uint64_t key = 0; length() > 0 && key <= position; ++key) {
        const bool is_asked = !call.kv.window || position - key < *call.kv.window;
        if (is_asked && !is_there(*side, key)) return false;
      }
    }
    return true;
  }

  KeySource source(const KvSideView& side, std::uint64_t key) const {
    if (pages(side).sinks && key < side.sinks->shape.page_slots) return KeySource::sinks;
    return key / side.dense.shape.page_slots < pages(side).sealed_pages ? KeySource::sealed : KeySource::dense;
  }

  // Whether a kernel finds a key in memory that is there, and where it should.
  void check_page(const AttendPlan& plan, const KvSideView& side, std::uint64_t key) const {
    const PlanReader reader(plan.words.data());
    const PlanSide& planned = &side == &call.kv.k ? reader.sequence(index).k : reader.sequence(index).v;
    const KvPages& list = pages(side);
    if (source(side, key) == KeySource::sinks) {
      require(planned.sinks == *list.sinks && *list.sinks < side.sinks->shape.pages, "the page of sinks");
      return;
    }
    require(planned.ring == list.ring.value_or(0), "the ring");
    const std::uint64_t page = (planned.ring == 0 ? key : key % planned.ring) / side.dense.shape.page_slots;
    const std::uint32_t at = planned.page_table + static_cast<std::uint32_t>(page);  // may wrap
    require(at < reader.header().query_tiles, "inside the page tables");
    require(reader.word(at) == list.page_table.at(page - list.first_page), "the physical page");
    const bool sealed = source(side, key) == KeySource::sealed;
    require(reader.word(at) < (sealed ? side.sealed->shape.pages : side.dense.shape.pages), "a page of the pool");
  }
};

// 16 splits for each octave: 512 keys at first (on a CPU 2048), 4096 at last.
bool on_grid(const runtime::Target& target, std::uint64_t position) {
  if (target.is_cpu()) return position % (position < 65536 ? 2048 : 4096) == 0;
  return position % (position < 16384 ? 512 : position < 32768 ? 1024 : position < 65536 ? 2048 : 4096) == 0;
}

void check_query_tile(const ModelSequence& sequence, const runtime::Target& target, const AttendPlan& plan,
                      const PlannedTile& planned) {
  const std::uint64_t first_token = planned.tile.first_vector / sequence.group();
  const std::uint64_t last_token = (planned.tile.first_vector + planned.tile.vectors - 1) / sequence.group();
  const auto& splits = planned.splits;
  std::uint64_t next = 0;  // split
  std::uint64_t covered = 0;
  for (std::uint64_t key = 0; key < sequence.length(); ++key) {
    bool seen = false;
    for (std::uint64_t token = first_token; token <= last_token; ++token) seen = seen || sequence.sees(token, key);
    while (next < splits.size() && splits[next].end() <= key) ++next;
    const bool held = next < splits.size() && splits[next].split.first_key <= key;
    require(held == seen, "splits have the keys that query tokens see, and no others");
    if (!held) continue;
    ++covered;
    const LaunchedSplit& one = splits[next];
    require(one.k == sequence.source(sequence.call.kv.k, key), "a split's keys have one source");
    require(one.v == sequence.source(sequence.call.kv.v, key), "a split's values have one source");
    const bool begins = key == one.split.first_key;
    require(begins || !on_grid(target, key), "splits end on the grid");
    sequence.check_page(plan, sequence.call.kv.k, key);
    sequence.check_page(plan, sequence.call.kv.v, key);
    const bool cut = begins && next > 0;
    require(!cut || on_grid(target, key) || one.k != splits[next - 1].k || one.v != splits[next - 1].v,
            "splits end where they must only");
  }
  std::uint64_t keys = 0;
  for (const LaunchedSplit& one : splits) keys += one.split.keys;
  require(keys == covered, "splits do not overlap");
}

void check_scratch(const Attend& call, const runtime::Target& target, const AttendPlan& plan,
                   std::span<const PlannedTile> tiles) {
  const std::uint64_t bytes = 4 * (16 + core::round_up(call.out.shape.dim, 16));
  const std::uint64_t most = std::min<std::uint64_t>(std::uint64_t{128} << 20, target.limits.max_binding_bytes);
  std::uint64_t largest = 0;
  for (std::size_t round = 0; round < plan.rounds.size(); ++round) {
    std::uint64_t used = 0;
    for (const PlannedTile& planned : tiles) {
      if (planned.round != round) continue;
      for (const LaunchedSplit& one : planned.splits) {
        require(one.split.first_partial == used, "partial results lie one after the other");
        used += call.kv.k.dense.shape.heads * planned.tile.vectors;
      }
    }
    require(used * bytes <= most || plan.rounds[round].query_tiles == 1, "rounds bound the scratch");
    largest = std::max(largest, used * bytes);
  }
  require(plan.partial_bytes == largest, "scratch holds the largest round");
  const Shape& q = call.q.shape;
  const std::uint64_t floats = q.tokens * q.heads * core::round_up(q.dim, 16) * (call.kv.k.sealed ? 2 : 1);
  require(plan.query_bytes == 4 * (core::round_up(2 * q.heads, 16) + floats), "scratch holds the queries");
  require(plan.words.size() * sizeof(std::uint32_t) <= target.limits.max_binding_bytes, "the plan fits");
}

void check_plan(const Attend& call, const runtime::Target& target, const AttendPlan& plan) {
  const std::vector<PlannedTile> tiles = query_tiles_of(plan);
  const std::uint32_t most = target.is_cpu() ? kCpuVectors : kGpuVectors;
  require(plan.vectors <= most, "as many vectors as kernels hold");
  std::uint64_t token = 0;
  std::size_t next = 0;
  for (std::size_t index = 0; index < call.kv.lengths.size(); ++index) {
    const ModelSequence sequence{call, index};
    const PlanSequence& planned = PlanReader(plan.words.data()).sequence(index);
    require(planned.tokens == sequence.length() && planned.query_tokens == sequence.query_tokens() &&
                planned.first_query_token == token,
            "the sequence's numbers");
    for (std::uint64_t key = 0; key < sequence.length(); ++key) {
      require((key >= planned.first_key) == (sequence.is_there(call.kv.k, key) && sequence.is_there(call.kv.v, key)),
              "the first key that is there");
    }
    std::uint64_t vectors = 0;
    for (; next < tiles.size() && tiles[next].tile.sequence == index; ++next) {
      require(tiles[next].tile.first_vector == vectors && tiles[next].tile.vectors > 0,
              "query tiles have all vectors, once");
      require(tiles[next].tile.vectors <= plan.vectors, "no query tile is larger than the largest");
      vectors += tiles[next].tile.vectors;
      check_query_tile(sequence, target, plan, tiles[next]);
    }
    require(vectors == sequence.query_tokens() * sequence.group(), "all vectors have query tiles");
    token += sequence.query_tokens();
  }
  require(next == tiles.size(), "query tiles are in the order of their sequences");
  check_scratch(call, target, plan, tiles);
}

bool has_all_that_queries_see(const Attend& call) {
  for (std::size_t i = 0; i < call.kv.lengths.size(); ++i) {
    const ModelSequence sequence{call, i};
    for (std::uint64_t query_token = 0; query_token < sequence.query_tokens(); ++query_token) {
      if (!sequence.has_all_of_its_window(query_token)) return false;
    }
  }
  return true;
}

// Whether a list names what the sequence needs, page by page.
bool is_sound(const KvSideView& side, const KvPages& pages, std::uint64_t length) {
  if (pages.ring && (*pages.ring == 0 || pages.first_page != 0 || pages.sealed_pages != 0 || pages.sinks)) return false;
  if (pages.sinks && (!side.sinks || *pages.sinks >= side.sinks->shape.pages)) return false;
  const std::uint64_t count =
      (pages.ring.value_or(length) + side.dense.shape.page_slots - 1) / side.dense.shape.page_slots;
  if (pages.first_page > count || pages.sealed_pages > count) return false;
  for (std::uint64_t page = pages.first_page; page < count; ++page) {
    if (page - pages.first_page >= pages.page_table.size()) return false;
    const std::uint32_t physical_page = pages.page_table[page - pages.first_page];
    if (page < pages.sealed_pages ? !side.sealed || physical_page >= side.sealed->shape.pages
                                  : physical_page >= side.dense.shape.pages) {
      return false;
    }
  }
  return true;
}

class AttendPlans : public AttendCheck {
 protected:
  // Of all sizes from the first case on.
  static std::uint64_t upto(std::uint64_t most) {
    return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::uint64_t>(0, most + 1));
  }
  static bool sometimes(std::uint64_t one_of) { return upto(one_of - 1) == 0; }

  KvSideView draw_side(KvSide which, std::uint64_t heads) const {
    const PageFormat format{.codec = turbo(3), .side = which, .head_dim = 16, .tokens = sometimes(2) ? 64U : 128U};
    const bool sealed = !sometimes(3);
    const std::uint64_t page = sealed ? format.tokens : 1 + upto(200);
    KvSideView side{.dense = SlotView::token_major(
                        memory, DType::f16, {.pages = 1 + upto(4), .page_slots = page, .heads = heads, .dim = 16})};
    if (sealed) side.sealed = SealedView::packed(memory, format, {.pages = 1 + upto(4), .heads = heads});
    if (!sometimes(3)) {
      side.sinks = SlotView::token_major(memory, DType::f16,
                                         {.pages = 1 + upto(2), .page_slots = upto(10), .heads = heads, .dim = 16});
    }
    return side;
  }

  // Pages have left up to `seen`, seldom beyond.
  static KvPages draw_pages(const KvSideView& side, std::uint64_t length, std::uint64_t seen) {
    KvPages pages;
    if (sometimes(3)) pages.ring = 1 + upto(400);
    const std::uint64_t page = side.dense.shape.page_slots;
    const std::uint64_t count = (pages.ring.value_or(length) + page - 1) / page;
    if (!pages.ring) {
      if (sometimes(2)) pages.first_page = upto(sometimes(10) ? count : std::min(count, seen / page));
      pages.sealed_pages = upto(side.sealed ? count : pages.first_page);
      if (side.sinks && sometimes(2)) pages.sinks = static_cast<std::uint32_t>(upto(side.sinks->shape.pages - 1));
    }
    for (std::uint64_t at = pages.first_page; at < count; ++at) {
      const std::uint64_t pool = at < pages.sealed_pages ? side.sealed->shape.pages : side.dense.shape.pages;
      pages.page_table.push_back(static_cast<std::uint32_t>(upto(pool - 1)));
    }
    if (sometimes(4)) pages.page_table.push_back(static_cast<std::uint32_t>(upto(kMax >> 32)));
    return pages;
  }

  Call draw() {
    Call call(device);
    const std::uint64_t heads = 1 + upto(2);
    const std::uint64_t group = 1 + upto(4);
    call.kv = {.k = draw_side(KvSide::keys, heads), .v = draw_side(KvSide::values, heads)};
    if (sometimes(3)) call.mask = Mask::none;
    if (call.mask == Mask::causal && sometimes(2)) call.kv.window = 1 + upto(sometimes(2) ? 20 : 1500);
    call.query_tokens.clear();
    call.k.clear();
    call.v.clear();
    std::uint64_t tokens = 0;
    for (std::uint64_t sequences = upto(4); sequences > 0; --sequences) {
      const std::uint64_t length = upto(sometimes(2) ? 40 : 2500);
      call.kv.lengths.push_back(length);
      call.query_tokens.push_back(upto(call.mask == Mask::none ? 20 : std::min<std::uint64_t>(length, 20)));
      tokens += call.query_tokens.back();
      const std::uint64_t before = length + 1 - std::max<std::uint64_t>(call.query_tokens.back(), 1);
      const std::uint64_t seen = before - std::min(before, call.kv.window.value_or(before));
      call.k.push_back(std::make_shared<KvPages>(draw_pages(call.kv.k, length, seen)));
      call.v.push_back(std::make_shared<KvPages>(draw_pages(call.kv.v, length, seen)));
    }
    if (call.kv.window && !call.k.empty() && sometimes(2)) {  // begins near where another source does
      const std::uint64_t sealed = call.k[0]->sealed_pages * call.kv.k.dense.shape.page_slots;
      const std::uint64_t end = call.kv.lengths[0] + 1 - call.query_tokens[0];
      call.kv.window = 1 + (end > sealed ? end - sealed - upto(1) : 0);
    }
    call.kv.k.sequences.assign(call.k.begin(), call.k.end());
    call.kv.v.sequences.assign(call.v.begin(), call.v.end());
    call.q = View::token_major(memory, DType::f16, {.tokens = tokens, .heads = heads * group, .dim = 16});
    call.out = MutView::token_major(results, DType::f16, {.tokens = tokens, .heads = heads * group, .dim = 16});
    call.sink_logits.reset();
    call.alibi_slopes.reset();
    call.log_sum_exp.reset();
    target.limits = device.info().limits;
    target.kind = device.info().kind;
    if (sometimes(2)) target_gpu(1 << 20);
    if (sometimes(4)) target.limits.max_binding_bytes = 300000;
    return call;
  }

  // What spoils a list, perhaps.
  static void change(KvPages& pages) {
    const auto near = [](std::uint64_t value) { return value + upto(4) - std::min<std::uint64_t>(value, 2); };
    switch (upto(5)) {
      case 0: pages.first_page = near(pages.first_page); break;
      case 1: pages.sealed_pages = near(pages.sealed_pages); break;
      case 2: pages.page_table.resize(near(pages.page_table.size())); break;
      case 3:
        if (!pages.page_table.empty())
          pages.page_table[upto(pages.page_table.size() - 1)] = static_cast<std::uint32_t>(upto(6));
        break;
      case 4: pages.sinks = static_cast<std::uint32_t>(upto(3)); break;
      default: pages.ring = near(pages.ring.value_or(2)); break;
    }
  }

  Attend attend_of(const Call& call) const {
    return {
        .q = call.q, .kv = call.kv, .out = call.out, .scale = 1, .query_tokens = call.query_tokens, .mask = call.mask};
  }

  Buffer memory = device.allocate(1 << 20).value();
  Buffer results = device.allocate(1 << 20).value();
};

TEST_F(AttendPlans, HaveEveryKeyThatAQuerySeesOnce) {
  EXPECT_TRUE(rc::check("plans", [this] {
    const Call call = draw();
    const Attend attend = attend_of(call);
    const auto plan = check_attend(attend, target);
    RC_CLASSIFY(plan.ok());
    RC_ASSERT(plan.ok() == has_all_that_queries_see(attend));
    if (plan) check_plan(attend, target, *plan);
  }));
}

TEST_F(AttendPlans, OfListsThatMayBeSpoiledAreRefusedOrStayInside) {
  EXPECT_TRUE(rc::check("spoiled lists", [this] {
    const Call call = draw();
    RC_PRE(!call.k.empty());
    for (std::uint64_t changes = 1 + upto(1); changes > 0; --changes) {
      change(*(sometimes(2) ? call.k : call.v)[upto(call.k.size() - 1)]);
    }
    bool sound = true;
    for (std::size_t i = 0; i < call.k.size(); ++i) {
      sound = sound && is_sound(call.kv.k, *call.k[i], call.kv.lengths[i]) &&
              is_sound(call.kv.v, *call.v[i], call.kv.lengths[i]);
    }
    const Attend attend = attend_of(call);
    const auto plan = check_attend(attend, target);
    sound = sound && has_all_that_queries_see(attend);
    RC_ASSERT(plan.ok() == sound);
    RC_CLASSIFY(sound);
    if (plan) check_plan(attend, target, *plan);
  }));
}

TEST_F(AttendPlans, OfASequenceDoNotDependOnOtherSequences) {
  EXPECT_TRUE(rc::check("sequences alone", [this] {
    const Call call = draw();
    const auto plan = check_attend(attend_of(call), target);
    RC_PRE(plan.ok());
    const std::vector<PlannedTile> together = query_tiles_of(*plan);
    std::uint64_t token = 0;
    std::size_t next = 0;
    for (std::size_t i = 0; i < call.query_tokens.size(); ++i) {
      Call alone = call;
      alone.kv.k.sequences = {call.kv.k.sequences[i]};
      alone.kv.v.sequences = {call.kv.v.sequences[i]};
      alone.kv.lengths = {call.kv.lengths[i]};
      alone.query_tokens = {call.query_tokens[i]};
      alone.q = call.q.slice(token, call.query_tokens[i]);
      alone.out = call.out.slice(token, call.query_tokens[i]);
      token += call.query_tokens[i];
      for (const PlannedTile& planned : query_tiles_of(check_attend(attend_of(alone), target).value())) {
        const PlannedTile& same = together.at(next++);
        RC_ASSERT(same.tile.sequence == i);
        RC_ASSERT(same.tile.first_vector == planned.tile.first_vector);
        RC_ASSERT(same.tile.vectors == planned.tile.vectors);
        const auto told = [](const LaunchedSplit& one) {
          return std::tuple(one.split.first_key, one.split.keys, one.k, one.v);
        };
        RC_ASSERT(std::ranges::equal(same.splits, planned.splits, {}, told, told));
      }
    }
    RC_ASSERT(next == together.size());
  }));
}

TEST_F(AttendPlans, OfALongSequenceHaveLongerSplits) {
  Call call(device);
  call.kv.lengths = {140000, 70000};
  call.k[0]->sealed_pages = 2100;
  call.k[0]->page_table.assign(2188, 2);
  call.v[0]->sealed_pages = 1050;
  call.v[0]->page_table.assign(1094, 2);
  call.k[1]->ring = 67000;
  call.k[1]->page_table.assign(1047, 5);
  call.v[1]->ring = 69000;
  call.v[1]->page_table.assign(540, 5);
  const Attend attend = attend_of(call);
  const auto plan = check_attend(attend, target);
  ASSERT_OK(plan);
  check_plan(attend, target, *plan);
}

// 16 splits up to 8192 keys, 16 for each octave up to 131072, then one for 4096 keys.
constexpr std::uint64_t kSplitsOfAMillion = 16 + 4 * 16 + (1048576 - 131072) / 4096;

TEST_F(AttendPlans, OfAMillionKeysInManySequencesAreSmall) {
  constexpr std::uint64_t kSequences = 256;
  SmallCall call(device, 128, 2, 4, kSequences);
  for (std::uint64_t sequence = 0; sequence < kSequences; ++sequence) call.add_sequence(1048576);
  target_gpu(20 << 20);
  const auto plan = check(call);
  ASSERT_OK(plan);
  const std::vector<PlannedTile> tiles = query_tiles_of(*plan);
  ASSERT_EQ(tiles.size(), kSequences);
  for (const PlannedTile& planned : tiles) ASSERT_EQ(planned.splits.size(), kSplitsOfAMillion);
  check_scratch(attend_of(call), target, *plan, tiles);
  // A query tile's partial results: 2 heads, 4 vectors, 32 floats each.
  constexpr std::uint64_t kQueryTileBytes = kSplitsOfAMillion * 2 * 4 * 32 * 4;
  EXPECT_EQ(plan->rounds.size(), (kSequences - 1) / ((20 << 20) / kQueryTileBytes) + 1);
  EXPECT_EQ(plan->words.size(), kPlanHeaderWords + kSequences * (kPlanSequenceWords + 2 * 8192 + kQueryTileWords) +
                                    kSequences * kSplitsOfAMillion * (kKvSplitWords + 1));
}

}  // namespace
}  // namespace rota::ops
