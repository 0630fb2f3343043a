#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "harness/on_device.h"
#include "runtime/recorder.h"

// Calls of one encoder share plans where, and only where, nothing that a plan follows from differs.

namespace rota::test {
namespace {

constexpr std::uint64_t kPage = 16, kPages = 8, kDim = 32, kKeys = 40;

class AttendMemo : public OnDevice {
 protected:
  AttendMemo() {
    std::vector<float> numbers(kPages * kPage * kDim);
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i * 2654435761 % 1000) / 500 - 1;
    for (Buffer* buffer : {&pool, &query}) {
      *buffer = device.allocate(numbers.size() * sizeof(float)).value();
      buffer->write(std::as_bytes(std::span(numbers))).value();
    }
  }

  // One sequence with these pages.
  KvView view_of(std::vector<std::uint32_t> pages, std::uint64_t length = kKeys) const {
    const SlotView slots =
        SlotView::token_major(pool, DType::f32, {.pages = kPages, .page_slots = kPage, .heads = 1, .dim = kDim});
    KvView view{.k = {.dense = slots}, .v = {.dense = slots}, .lengths = {length}};
    const auto list = std::make_shared<KvPages>();
    list->page_table = std::move(pages);
    view.k.sequences = {list};
    view.v.sequences = {list};
    return view;
  }

  Attend call_of(const KvView& view, const Buffer& out, std::uint64_t tokens = 1) const {
    const Shape shape{tokens, 2, kDim};
    return {.q = View::token_major(query, DType::f32, shape),
            .kv = view,
            .out = MutView::token_major(out, DType::f32, shape),
            .scale = 0.2};
  }

  Buffer room(std::uint64_t tokens = 1) { return device.allocate(tokens * 2 * kDim * sizeof(float)).value(); }

  static std::vector<float> numbers_in(const Buffer& buffer) {
    std::vector<float> numbers(buffer.size_bytes() / sizeof(float));
    buffer.read(std::as_writable_bytes(std::span(numbers))).value();
    return numbers;
  }

  // Each call in an encoder of its own, then all in one: the results must be the same.
  void expect_as_alone(const std::vector<KvView>& views) {
    std::vector<std::vector<float>> wanted;
    for (const KvView& view : views) {
      const Buffer out = room();
      ASSERT_OK(run_on(device, [&](Encoder& encoder) { attend(encoder, call_of(view, out)); }));
      wanted.push_back(numbers_in(out));
    }
    std::vector<Buffer> outs;
    ASSERT_OK(run_on(device, [&](Encoder& encoder) {
      for (const KvView& view : views) attend(encoder, call_of(view, outs.emplace_back(room())));
    }));
    for (std::size_t i = 0; i < views.size(); ++i) EXPECT_EQ(numbers_in(outs[i]), wanted[i]) << "call " << i;
  }

  Buffer pool, query;
};

TEST_F(AttendMemo, LayersWithTheSamePagesUploadOnce) {
  const KvView view = view_of({3, 1, 2});
  const Buffer outs[] = {room(), room(), room()};
  Encoder encoder = device.encoder();
  for (const Buffer& out : outs) attend(encoder, call_of(view, out));
  const runtime::Recorder& recorder = *runtime::Inside::of(encoder);
  std::vector<core::ByteRange> plans;
  for (const runtime::Command& command : recorder.commands().all()) {
    if (command.kernel->name == "attend_merge") plans.push_back(command.bindings[0].bytes);
  }
  ASSERT_EQ(plans.size(), 3U);
  EXPECT_EQ(plans[0].begin, plans[1].begin);
  EXPECT_EQ(plans[0].begin, plans[2].begin);
  ASSERT_OK(std::move(encoder).submit().value().wait());
  EXPECT_EQ(numbers_in(outs[0]), numbers_in(outs[2]));
}

TEST_F(AttendMemo, WhateverDiffersIsPlannedAgain) {
  const KvView first = view_of({3, 1, 2});
  KvView shorter = first;
  shorter.lengths = {kKeys - 1};
  KvView windowed = first;
  windowed.window = 20;
  KvView other_pages = view_of({2, 1, 3});
  KvView values_elsewhere = first;
  values_elsewhere.v.sequences = other_pages.v.sequences;
  expect_as_alone({first, shorter, windowed, other_pages, values_elsewhere, first, shorter, windowed});
}

// Whoever changes a list through a reference that he kept changes no plan of an earlier call.
TEST_F(AttendMemo, AListThatIsWrittenBetweenCallsIsPlannedAgain) {
  KvView view = view_of({3, 1, 2});
  KvView shorter = view;
  shorter.lengths = {kKeys - 7};
  const Buffer alone = room(), first = room(), second = room();
  ASSERT_OK(run_on(device, [&](Encoder& encoder) { attend(encoder, call_of(shorter, alone)); }));
  std::vector<std::uint64_t>& lengths = view.lengths.edit();
  ASSERT_OK(run_on(device, [&](Encoder& encoder) {
    attend(encoder, call_of(view, first));
    lengths[0] = kKeys - 7;
    attend(encoder, call_of(view, second));
  }));
  EXPECT_EQ(numbers_in(second), numbers_in(alone));
  EXPECT_NE(numbers_in(first), numbers_in(second));
}

TEST_F(AttendMemo, MoreKindsThanItKeepsAreStillRight) {
  std::vector<KvView> views;
  for (std::uint64_t i = 0; i < 20; ++i) views.push_back(view_of({3, 1, 2}, kKeys - i));
  for (std::uint64_t i = 0; i < 20; ++i) views.push_back(views[i]);
  expect_as_alone(views);
}

TEST_F(AttendMemo, QueryTokensAndHeadsCount) {
  const KvView view = view_of({3, 1, 2});
  const std::uint64_t three[] = {3};
  const Buffer one = room(), many = room(3), alone = room(3);
  Attend call = call_of(view, alone, 3);
  call.query_tokens = three;
  ASSERT_OK(run_on(device, [&](Encoder& encoder) { attend(encoder, call); }));
  call.out.buffer = many;
  ASSERT_OK(run_on(device, [&](Encoder& encoder) {
    attend(encoder, call_of(view, one));
    attend(encoder, call);
  }));
  EXPECT_EQ(numbers_in(many), numbers_in(alone));
}

// A pool that has fewer pages is another one: the same list is refused there.
TEST_F(AttendMemo, ChecksAreNotRemembered) {
  const KvView view = view_of({3, 1, 7});
  KvView smaller = view;
  smaller.k.dense.shape.pages = smaller.v.dense.shape.pages = 7;
  const Buffer out = room();
  Encoder encoder = device.encoder();
  attend(encoder, call_of(view, out));
  EXPECT_OK(encoder.status());
  attend(encoder, call_of(smaller, out));
  expect_error(encoder.status(), Errc::invalid_argument, {"a physical page beyond the pool's pages"});
}

}  // namespace
}  // namespace rota::test
