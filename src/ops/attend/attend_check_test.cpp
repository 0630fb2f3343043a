#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ops/attend/attend_call_reference.h"

// Every bad argument of `attend`.

namespace rota::ops {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

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
    c.kv.lengths.edit()[1] = 90;  // as much as the ring has
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
  expect_refused([](Call& c) { c.kv.sinks = 1; }, "kv.sinks is 1; wanted 0 where there is no window");
  expect_refused(
      [](Call& c) {
        c.kv.window = 7;
        c.mask = Mask::none;
      },
      "mask is none; wanted causal where there is a window");
}

TEST_F(AttendCheck, RefusesSequencesThatDoNotFitTogether) {
  expect_refused([](Call& c) { c.kv.lengths.edit().pop_back(); },
                 "kv.lengths is of 1 sequences; wanted as many as k and v have");
  expect_refused([](Call& c) { c.kv.k.sequences.edit().pop_back(); }, "kv.lengths is of 2 sequences");
  expect_refused([](Call& c) { c.kv.v.sequences.edit().pop_back(); }, "kv.lengths is of 2 sequences");
  expect_refused([](Call& c) { c.query_tokens.pop_back(); }, "query_tokens is of 1 sequences; wanted the 2 of kv");
  expect_refused([](Call& c) { c.query_tokens.push_back(0); }, "query_tokens is of 3 sequences; wanted the 2 of kv");
  expect_refused([](Call& c) { c.query_tokens.clear(); }, "query_tokens is 2 tokens together; wanted the 5 of q");
  expect_refused([](Call& c) { c.query_tokens[1] = 2; }, "query_tokens is 4 tokens together; wanted the 5 of q");
  expect_refused([](Call& c) { c.query_tokens[1] = 4; },
                 "query_tokens[1] is 4; wanted at most the 3 tokens that q has left");
  expect_refused([](Call& c) { c.query_tokens[1] = kMax; },
                 "query_tokens[1] is 18446744073709551615; wanted at most the 3");
  expect_refused([](Call& c) { c.kv.lengths.edit()[1] = 2; },
                 "query_tokens[1] is 3; wanted at most the 2 tokens of the sequence");
  expect_accepted([](Call& c) {  // who sees all need not be among the keys
    c.kv.lengths.edit()[1] = 2;
    c.mask = Mask::none;
  });
  for (const std::uint64_t length : {std::uint64_t{1} << 31, std::uint64_t{1} << 32, kMax}) {
    expect_refused([&](Call& c) { c.kv.lengths.edit()[1] = length; },
                   fmt::format("kv.lengths[1] is {}; wanted at most 2147483647", length));
  }
  expect_accepted([](Call& c) { c.kv.lengths.edit()[1] = 2147483647; });  // a ring's
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
    expect_refused([&](Call& c) { side(c).sequences.edit()[1] = nullptr; },
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
                   second + "a ring with sealed pages, sinks, a step's pages or pages that");
    expect_refused([&](Call& c) { pages(c, 1).step_page = 1; }, second + "a ring with sealed pages, sinks, a step's");
    expect_refused([&](Call& c) { pages(c, 0).step_page = 9; }, first + "a step's pages that are not there");
    for (const std::uint64_t beyond : {std::uint64_t{6}, std::uint64_t{1} << 58, kMax}) {
      expect_refused(
          [&](Call& c) {
            side(c).step = side(c).dense;
            pages(c, 0).step_page = beyond;
          },
          first + "a step's pages that are not there");
    }
    expect_refused(
        [&](Call& c) {
          side(c).step = side(c).dense;
          pages(c, 0).step_page = pages(c, 0).sealed_pages - 1;
        },
        first + "a step's pages that are not there");
    expect_refused(
        [&](Call& c) {
          side(c).step = side(c).dense;
          side(c).step->shape.pages = 1;
          pages(c, 0).step_page = pages(c, 0).sealed_pages;
          pages(c, 0).page_table.back() = 1;
        },
        first + "a physical page beyond the pool's pages");
    expect_refused(
        [&](Call& c) {
          side(c).step = side(c).dense;
          side(c).step->shape.page_slots = 1;
        },
        "step.shape.page_slots is 1");
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
  test::expect_error(check(many_pages), Errc::unsupported, {"attend: a plan takes at least 16044 bytes; gpu:7"});

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
  call.kv.k.sequences.edit().clear();
  call.kv.v.sequences.edit().clear();
  call.query_tokens.clear();
  EXPECT_TRUE(check(call)->empty());
}

}  // namespace
}  // namespace rota::ops
