#include "ops/seal/seal.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <map>

#include "harness/on_device.h"
#include "rota_kernels/seal.h"
#include "rota_kernels/unseal.h"

// The pure half of `seal` and `unseal`: every bad argument, the launches of a good call, and what kernels need.

namespace rota::ops {
namespace {

constexpr PageFormat kFormat{.codec = turbo(4), .side = KvSide::keys, .head_dim = 64, .tokens = 64};

// A sound call that tests spoil in one place.
struct Call {
  explicit Call(Device& device)
      : dense(device.allocate(std::uint64_t{3} * 64 * 2 * 64 * 2).value()),
        sealed(device.allocate(5 * 2 * page_bytes(kFormat)).value()),
        counter(device.allocate(16).value()),
        slots(SlotView::head_major(dense, DType::f16, {.pages = 3, .page_slots = 64, .heads = 2, .dim = 64})),
        pages(SealedView::packed(sealed, kFormat, {.pages = 5, .heads = 2})),
        count{counter, 8} {}

  Buffer dense, sealed, counter;
  SlotView slots;
  SealedView pages;
  Counter count;
  std::vector<SealPage> seals{{.from = 2, .to = 4}, {.from = 0, .to = 1, .tokens = 7, .sinks = 4}};
  std::vector<UnsealPage> unseals{{.from = 4, .to = 1}, {.from = 0, .to = 0, .tokens = 9}};
};

class SealCheck : public ::testing::Test {
 protected:
  Result<SealPlan> check(const Call& call) const {
    return check_seal({.from = call.slots, .to = call.pages, .pages = call.seals, .non_finite = call.count}, target);
  }
  Result<SealPlan> check_back(const Call& call) const {
    return check_unseal({.from = call.pages, .to = call.slots, .pages = call.unseals}, target);
  }

  void expect_refused(const std::function<void(Call&)>& spoil, std::string_view text,
                      Errc code = Errc::invalid_argument) {
    Call call(device);
    spoil(call);
    test::expect_error(check(call), code, {"seal: ", text});
  }
  void expect_refused_back(const std::function<void(Call&)>& spoil, std::string_view text) {
    Call call(device);
    spoil(call);
    test::expect_error(check_back(call), Errc::invalid_argument, {"unseal: ", text});
  }

  Device device = Device::open({.device = "cpu", .threads = 1}).value();
  runtime::Target target{runtime::Inside::of(device).get(), "cpu", device.info().limits};
};

TEST_F(SealCheck, PlansWhichPageGoesWhere) {
  const Call call(device);
  const auto plan = check(call);
  ASSERT_OK(plan);
  EXPECT_EQ(plan->pages, (std::vector<std::uint32_t>{2, 4, 64, 0, 0, 1, 7, 4}));
  const auto back = check_back(call);
  ASSERT_OK(back);
  EXPECT_EQ(back->pages, (std::vector<std::uint32_t>{1, 4, 64, 0, 0, 0, 9, 0}));
}

TEST_F(SealCheck, RefusesViewsThatDoNotFitTogether) {
  expect_refused([](Call& c) { c.slots.shape.heads = 1; }, "from.shape.heads is 1; wanted 2, as to.shape.heads is");
  expect_refused([](Call& c) { c.slots.shape.dim = 32; }, "from.shape.dim is 32; wanted 64, as to.format.head_dim is");
  expect_refused([](Call& c) { c.slots.shape.page_slots = 32; },
                 "from.shape.page_slots is 32; wanted 64, as to.format.tokens is");
  expect_refused_back([](Call& c) { c.slots.shape.heads = 1; },
                      "to.shape.heads is 1; wanted 2, as from.shape.heads is");
  expect_refused([](Call& c) { c.slots.shape.pages = std::uint64_t{1} << 32; }, "from.shape.pages is 4294967296");
  expect_refused([](Call& c) { c.slots.dtype = static_cast<DType>(9); }, "from is of dtype 9");
}

TEST_F(SealCheck, RefusesFormatsThatDoNotExist) {
  expect_refused([](Call& c) { std::get<Turbo>(c.pages.format.codec).bits = 7; }, "to: page format: codec.bits is 7");
  expect_refused([](Call& c) { c.pages.format.head_dim = 24; }, "to: page format: head_dim is 24");
  expect_refused_back([](Call& c) { c.pages.format.tokens = 65; }, "from: page format: tokens is 65");
}

TEST_F(SealCheck, RefusesViewsOutsideTheirBuffers) {
  expect_refused([](Call& c) { c.slots.shape.pages = 4; }, "from is a view that ends at byte");
  expect_refused([](Call& c) { c.pages.shape.pages = 6; }, "to is a view that ends at byte");
  expect_refused([](Call& c) { c.pages.offset_bytes = 64; }, "to is a view that ends at byte");
  expect_refused([](Call& c) { c.pages.page_stride_bytes = std::numeric_limits<std::uint64_t>::max() - 63; },
                 "to is a view that ends beyond 2^64 bytes");
  expect_refused([](Call& c) { c.pages.buffer = {}; }, "to is a view of no buffer");
  expect_refused([](Call& c) { c.pages.offset_bytes = 32; }, "a view with offset_bytes of 32; wanted a multiple of 64");
  expect_refused([](Call& c) { c.pages.head_stride_bytes -= 4; }, "a view with head_stride_bytes of");
  expect_refused([](Call& c) { c.pages.head_stride_bytes = 64; }, "a place of its own");
  expect_refused([](Call& c) { c.pages.page_stride_bytes = c.pages.head_stride_bytes; }, "a place of its own");
  expect_refused([](Call& c) { c.count.buffer = {}; }, "non_finite is a view of no buffer");
  expect_refused([](Call& c) { c.count.offset_bytes = 16; }, "non_finite is a view that ends at byte 24");
  expect_refused([](Call& c) { c.count.offset_bytes = 4; }, "non_finite is at byte 4; wanted a multiple of 8");
}

TEST_F(SealCheck, RefusesMoreHeadsThanOneLaunchServes) {
  constexpr std::uint64_t kHeads = 32768;
  Buffer wide = device.allocate(kHeads * page_bytes(kFormat)).value();
  expect_refused([&](Call& c) { c.pages = SealedView::packed(wide, kFormat, {.pages = 1, .heads = kHeads}); },
                 "to.shape.heads is 32768; wanted at most 32767");
}

TEST_F(SealCheck, RefusesBuffersOfAnotherDevice) {
  Device other = Device::open({.device = "cpu", .threads = 1}).value();
  Buffer elsewhere = other.allocate(1 << 20).value();
  expect_refused([&](Call& c) { c.slots.buffer = elsewhere; }, "from is in a buffer of another device");
  expect_refused([&](Call& c) { c.pages.buffer = elsewhere; }, "to is in a buffer of another device");
  expect_refused([&](Call& c) { c.count.buffer = elsewhere; }, "non_finite is in a buffer of another device");
}

TEST_F(SealCheck, RefusesSidesThatShareBytes) {
  Buffer both = device.allocate(1 << 20).value();
  expect_refused([&](Call& c) { c.slots.buffer = c.pages.buffer = both; }, "from is in bytes 0 to");
  expect_refused_back([&](Call& c) { c.slots.buffer = c.pages.buffer = both; }, "from is in bytes 0 to");
  expect_refused([&](Call& c) { c.count.buffer = c.pages.buffer; }, "non_finite is in bytes 8 to 16");
  expect_refused([&](Call& c) { c.count.buffer = c.slots.buffer; }, "non_finite is in bytes 8 to 16");
  Call apart(device);
  apart.slots.buffer = apart.pages.buffer = both;
  apart.pages.offset_bytes = apart.dense.size_bytes();
  EXPECT_OK(check(apart));
}

TEST_F(SealCheck, RefusesPagesThatAreNotThere) {
  expect_refused([](Call& c) { c.seals[0].from = 3; }, "pages[0].from is 3; wanted below the 3 of from.shape.pages");
  expect_refused([](Call& c) { c.seals[1].to = 5; }, "pages[1].to is 5; wanted below the 5 of to.shape.pages");
  expect_refused([](Call& c) { c.seals[1].from = std::numeric_limits<std::uint64_t>::max(); }, "pages[1].from is 1844");
  expect_refused([](Call& c) { c.seals[1].tokens = 65; }, "pages[1].tokens is 65; wanted at most the 64 of a page");
  expect_refused([](Call& c) { c.seals[1].sinks = 65; }, "pages[1].sinks is 65; wanted at most the 64 of a page");
  expect_refused([](Call& c) { c.seals[1].to = 4; }, "pages[1].to is 4; wanted another page than that of pages[0]");
  expect_refused_back([](Call& c) { c.unseals[1].to = 1; },
                      "pages[1].to is 1; wanted another page than that of pages[0]");
  expect_refused_back([](Call& c) { c.unseals[0].from = 5; }, "pages[0].from is 5; wanted below the 5");
  Call twice(device);
  twice.seals[1].from = 2;  // one page may be sealed into two places
  EXPECT_OK(check(twice));
}

TEST_F(SealCheck, RefusesWhatOneBindingOfADeviceCannotAddress) {
  target.limits.max_binding_bytes = 1024;
  expect_refused([](Call&) {}, "to spans", Errc::unsupported);
}

TEST_F(SealCheck, OfNoPagesOrHeadsIsNothing) {
  Call call(device);
  call.seals.clear();
  EXPECT_TRUE(check(call)->empty());
  Call headless(device);
  headless.slots.shape.heads = headless.pages.shape.heads = 0;
  EXPECT_TRUE(check(headless)->empty());
}

TEST_F(SealCheck, LaunchesOnceForAPromptAndAFewTimesForMany) {
  const Call call(device);
  const auto plan = check(call);
  const auto launches = choose_seal(call.slots, call.pages, *plan);
  ASSERT_EQ(launches.size(), 1U);
  EXPECT_EQ(launches[0].dispatch.groups, 2U * 2 * (64 / kSliceTokens));
  EXPECT_EQ(launches[0].dispatch.items, 4U);
  EXPECT_EQ(launches[0].params.pages, 2U);

  // 131,072 tokens, 8 heads, 32 layers: 32,768 pages.
  SealPlan many = *plan;
  many.pages.assign(std::size_t{32768} * kPageWords, 0);
  SealedView pages = call.pages;
  pages.shape = {.pages = 32768, .heads = 8};
  pages.format.tokens = 128;
  std::uint64_t planned = 0;
  const auto some = choose_seal(call.slots, pages, many);
  for (const SealLaunch& launch : some) {
    EXPECT_EQ(launch.params.first_page, planned);
    EXPECT_LE(launch.dispatch.groups, runtime::kMaxGroups);
    EXPECT_EQ(launch.dispatch.groups, launch.params.pages * 8 * 4);
    planned += launch.params.pages;
  }
  EXPECT_EQ(planned, 32768U);
  EXPECT_EQ(some.size(), 17U);
}

// Bytes of a kernel's variables in the storage class Workgroup: words, and arrays of words.
[[maybe_unused]] std::uint64_t shared_bytes(std::span<const std::uint32_t> spirv) {
  constexpr std::uint32_t kTypeArray = 28;
  constexpr std::uint32_t kTypePointer = 32;
  constexpr std::uint32_t kConstant = 43;
  constexpr std::uint32_t kVariable = 59;
  constexpr std::uint32_t kWorkgroup = 4;
  std::map<std::uint32_t, std::uint32_t> constants, lengths, pointees;
  std::uint64_t bytes = 0;
  for (std::size_t at = 5; at < spirv.size(); at += spirv[at] >> 16) {
    const std::uint32_t* const words = &spirv[at];
    switch (words[0] & 0xffff) {
      case kConstant: constants[words[2]] = words[3]; break;
      case kTypeArray: lengths[words[1]] = constants.at(words[3]); break;
      case kTypePointer: pointees[words[1]] = words[3]; break;
      case kVariable:
        if (words[3] != kWorkgroup) break;
        bytes += 4ULL * (lengths.contains(pointees.at(words[1])) ? lengths.at(pointees.at(words[1])) : 1);
        break;
      default: break;
    }
  }
  return bytes;
}

#if ROTA_HAS_VULKAN
TEST(SealKernels, NeedNoMoreSharedMemoryThanEveryDeviceHas) {
  constexpr std::uint64_t kEveryDevice = 16384;
  EXPECT_GT(shared_bytes(kernels::seal::kCode.spirv), 2 * 4 * kMaxTurboDim);
  EXPECT_LE(shared_bytes(kernels::seal::kCode.spirv), kEveryDevice);
  EXPECT_GE(shared_bytes(kernels::unseal::kCode.spirv), 4 * kMaxTurboDim);
  EXPECT_LE(shared_bytes(kernels::unseal::kCode.spirv), kEveryDevice);
}
#endif

}  // namespace
}  // namespace rota::ops
