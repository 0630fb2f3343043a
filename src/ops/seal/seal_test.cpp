#include "ops/seal/seal.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <numbers>
#include <random>
#include <set>

#include "harness/on_device.h"
#include "harness/pages.h"
#include "harness/reserved.h"
#include "harness/worker_scratch.h"
#include "ops/seal/seal_reference.h"
#include "rota_kernels/seal.h"
#include "rota_kernels/unseal.h"

// The pure half of `seal` and `unseal`, the definition itself, and what the codec costs: all on the host.

namespace rota::ops {
namespace {

constexpr std::array kWidths{2U, 3U, 4U, 5U, 6U, 8U};
constexpr std::array kHeadSizes{16U,  32U,  48U,  64U,  80U,  96U,  112U, 128U, 144U, 160U, 176U,
                                192U, 208U, 224U, 240U, 256U, 288U, 320U, 352U, 384U, 416U, 448U,
                                480U, 512U, 576U, 640U, 704U, 768U, 832U, 896U, 960U, 1024U};

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

// ---- the definition

TEST(SealDefinition, RotatesAsTheDenseMatrixDoes) {
  std::mt19937_64 random(3);
  for (const std::uint32_t dim : kHeadSizes) {
    const RotationShape shape = *codec::rotation_of(dim);
    const std::size_t size = std::size_t{1} << shape.k;
    const auto entry = [&](std::size_t row, std::size_t column) {
      const double angle = 2 * std::numbers::pi * static_cast<double>(row / size * (column / size) % shape.m) / shape.m;
      const int sign = std::popcount(row % size & column % size) % 2 == 0 ? 1 : -1;
      return (std::cos(angle) + std::sin(angle)) * sign / std::sqrt(static_cast<double>(dim));
    };
    std::vector<std::int64_t> values(dim);
    for (auto& value : values) value = static_cast<std::int64_t>(random() % 131071) - 65535;
    std::vector<double> once(dim);
    std::vector<double> twice(dim);
    for (std::size_t i = 0; i < dim; ++i) {
      for (std::size_t j = 0; j < dim; ++j) once[i] += entry(i, j) * static_cast<double>(values[j]);
    }
    for (std::size_t i = 0; i < dim; ++i) {
      for (std::size_t j = 0; j < dim; ++j) twice[i] += entry(i, j) * once[j];
      ASSERT_NEAR(twice[i], static_cast<double>(values[i]), 1e-6) << dim;  // its own inverse
    }
    // Symmetric and its own inverse is orthonormal.
    const std::size_t i = random() % dim;
    const std::size_t j = random() % dim;
    EXPECT_DOUBLE_EQ(entry(i, j), entry(j, i));

    // In integers a block's sum is off by the rows' rounding and its own, which the Hadamard adds up at random.
    auto mixed = values;
    reference::Sealer({.codec = turbo(4), .side = KvSide::keys, .head_dim = dim}).rotate(mixed);
    const double root = std::sqrt(static_cast<double>(size));
    const double rounding = shape.m == 1 ? 0 : 0.5 + 65535.0 * shape.m * 0.5 / 8192;
    double error = 0;
    double length = 0;
    for (std::size_t d = 0; d < dim; ++d) {
      ASSERT_LE(std::abs(static_cast<double>(mixed[d]) - once[d] * root), rounding * static_cast<double>(size) + 1e-3);
      error += std::pow(static_cast<double>(mixed[d]) / root - once[d], 2);
      length += once[d] * once[d];
    }
    EXPECT_LE(error / length, 1e-7) << dim;
  }
}

// A page's bytes with and without a deliberate error.
TEST(SealDefinition, IsToldApartFromEveryMutationByTheTestsData) {
  std::mt19937_64 random(20261115);
  std::set<reference::Mutation> told;
  const auto last = static_cast<int>(reference::Mutation::last);
  for (int round = 0; round < 60 && told.size() + 1 < static_cast<std::size_t>(last); ++round) {
    for (const std::uint32_t bits : kWidths) {
      const std::uint32_t dim = kHeadSizes[random() % 16];
      const PageFormat format{.codec = Turbo{.bits = bits,
                                             .scale = static_cast<ScaleRule>(random() % 5 < 3 ? 2 : random() % 2),
                                             .key_mean = random() % 4 != 0},
                              .side = random() % 2 == 0 ? KvSide::keys : KvSide::values,
                              .head_dim = dim,
                              .tokens = 64};
      const auto kind = test::kPageKinds[random() % test::kPageKinds.size()];
      const auto values = test::draw_page(random, kind, 64, dim);
      const auto right = reference::Sealer(format).seal(values, 3);
      for (int m = 1; m < last; ++m) {
        const auto mutation = static_cast<reference::Mutation>(m);
        if (told.contains(mutation)) continue;
        if (reference::Sealer(format, mutation).seal(values, 3) != right) told.insert(mutation);
      }
    }
  }
  for (int m = 1; m < last; ++m) {
    EXPECT_TRUE(told.contains(static_cast<reference::Mutation>(m))) << "mutation " << m << " changes nothing";
  }
}

// What a launch tells kernels of a format.
float launch_unit(const PageFormat& format) {
  const SealPlan plan{{}, {}, {}, std::vector<std::uint32_t>(kPageWords)};
  return choose_seal({.shape = {.heads = 1}}, {.buffer = {}, .format = format, .shape = {.pages = 1, .heads = 1}}, plan)
      .front()
      .params.unit;
}

// The CPU kernels as each instruction set has them, beside the definition.
TEST(SealDefinition, IsWhatEveryInstructionSetDoes) {
  std::mt19937_64 random(77);
  for (const std::uint32_t dim : kHeadSizes) {
    for (const std::uint32_t bits : kWidths) {
      const PageFormat format{.codec = Turbo{.bits = bits, .scale = static_cast<ScaleRule>(random() % 3)},
                              .side = random() % 2 == 0 ? KvSide::keys : KvSide::values,
                              .head_dim = dim,
                              .tokens = 64};
      const auto values = test::draw_page(random, test::kPageKinds[random() % test::kPageKinds.size()], 64, dim);
      const auto tokens = static_cast<std::uint32_t>(random() % 65);
      reference::Sealer sealer(format);
      const auto wanted = sealer.seal(std::span(values).first(std::size_t{tokens} * dim), 2);
      const auto wanted_back = reference::Unsealer(format).unseal(wanted);

      auto table = codec::table_of(format);
      std::array<std::uint32_t, kPageWords> plan{0, 0, tokens, 2};
      const SealParams params{.dense = {.offset = 0, .page = 0, .slot = dim, .head = 0, .dim = 1},
                              .layout_ = codec::layout_of(format),
                              .rotation = *codec::rotation_of(dim),
                              .heads = 1,
                              .pages = 1,
                              .scale_rule = static_cast<uint>(std::get<Turbo>(format.codec).scale),
                              .unit = launch_unit(format),
                              .limit = 65504};
      for (const core::Isa isa : core::kIsas) {
        if (!core::runs_here(isa)) continue;
        auto from = values;
        std::vector<std::byte> page(wanted.size(), std::byte{0xff});
        std::uint64_t counted = 0;
        const std::array<std::uint32_t, 1> half{static_cast<std::uint32_t>(DType::f16)};
        const auto bytes_of = [](auto& words) { return reinterpret_cast<std::byte*>(words.data()); };
        seal_cpu({.constants = half,
                  .params = &params,
                  .bound = {bytes_of(from), page.data(), bytes_of(plan), bytes_of(table),
                            reinterpret_cast<std::byte*>(&counted)},
                  .first_item = 0,
                  .last_item = 1,
                  .scratch = test::worker_scratch()},
                 isa);
        ASSERT_TRUE(page == wanted) << core::name_of(isa) << ", head size " << dim << ", bits " << bits;
        ASSERT_EQ(counted, sealer.non_finite());

        std::vector<float> back(std::size_t{64} * dim);
        std::array<std::uint32_t, kPageWords> all{0, 0, 64, 0};
        const std::array<std::uint32_t, 2> single{static_cast<std::uint32_t>(DType::f32), 1};
        unseal_cpu({.constants = single,
                    .params = &params,
                    .bound = {page.data(), bytes_of(back), bytes_of(all), bytes_of(table)},
                    .first_item = 0,
                    .last_item = 1,
                    .scratch = test::worker_scratch()},
                   isa);
        ASSERT_EQ(std::memcmp(back.data(), wanted_back.data(), back.size() * sizeof(float)), 0)
            << core::name_of(isa) << ", head size " << dim << ", bits " << bits;
      }
    }
  }
}

// Pages of one head, sealed and restored on the CPU.
class Sealing {
 public:
  explicit Sealing(const PageFormat& format) : format_(format) {}

  // f16 values, [token][dim], a whole number of pages.
  std::vector<std::byte> seal(const std::vector<std::uint16_t>& values) {
    const std::uint64_t pages = values.size() / (std::uint64_t{format_.tokens} * format_.head_dim);
    Buffer dense = device_.allocate(values.size() * 2).value();
    dense.write(std::as_bytes(std::span(values))).value();
    Buffer sealed = device_.allocate(pages * page_bytes(format_)).value();
    Buffer counter = device_.allocate(8).value();
    counter.write(std::array<std::byte, 8>{}).value();
    std::vector<SealPage> moves;
    for (std::uint64_t page = 0; page < pages; ++page) moves.push_back({.from = page, .to = page});
    test::run_on(device_, [&](Encoder& encoder) {
      rota::seal(encoder, {.from = SlotView::token_major(dense, DType::f16, shape(pages)),
                           .to = SealedView::packed(sealed, format_, {.pages = pages, .heads = 1}),
                           .pages = moves,
                           .non_finite = {counter}});
    }).value();
    std::vector<std::byte> bytes(sealed.size_bytes());
    sealed.read(bytes).value();
    return bytes;
  }

  template <class Element>
  std::vector<Element> unseal(const std::vector<std::byte>& bytes) {
    const std::uint64_t pages = bytes.size() / page_bytes(format_);
    Buffer sealed = device_.allocate(bytes.size()).value();
    sealed.write(bytes).value();
    std::vector<Element> values(pages * format_.tokens * format_.head_dim);
    Buffer dense = device_.allocate(values.size() * sizeof(Element)).value();
    std::vector<UnsealPage> moves;
    for (std::uint64_t page = 0; page < pages; ++page) moves.push_back({.from = page, .to = page});
    test::run_on(device_, [&](Encoder& encoder) {
      rota::unseal(encoder,
                   {.from = SealedView::packed(sealed, format_, {.pages = pages, .heads = 1}),
                    .to = SlotView::token_major(dense, sizeof(Element) == 4 ? DType::f32 : DType::f16, shape(pages)),
                    .pages = moves});
    }).value();
    dense.read(std::as_writable_bytes(std::span(values))).value();
    return values;
  }

  // The mean over tokens of |restored - value|^2 / |value|^2.
  double distortion(const std::vector<std::uint16_t>& values) {
    const auto restored = unseal<float>(seal(values));
    double sum = 0;
    std::uint64_t tokens = 0;
    for (std::size_t token = 0; token < values.size(); token += format_.head_dim) {
      double error = 0;
      double energy = 0;
      for (std::size_t i = token; i < token + format_.head_dim; ++i) {
        const double value = static_cast<double>(f32_from_f16(values[i]));
        error += std::pow(static_cast<double>(restored[i]) - value, 2);
        energy += value * value;
      }
      if (energy == 0) continue;
      sum += error / energy;
      ++tokens;
    }
    return tokens == 0 ? 0 : sum / static_cast<double>(tokens);
  }

 private:
  SlotShape shape(std::uint64_t pages) const {
    return {.pages = pages, .page_slots = format_.tokens, .heads = 1, .dim = format_.head_dim};
  }

  PageFormat format_;
  Device device_ = Device::open({.device = "cpu", .threads = 2}).value();
};

// The error of a table on one coordinate of a vector of length sqrt(dim), uniform on its sphere: what a vector divided
// by its own root mean square is. For large dims it is the normal distribution.
double error_on_sphere(std::uint32_t bits, std::uint32_t dim) {
  const auto levels = codec::levels_of(bits);
  const double unit = codec::unit_of(bits);
  const double radius = std::sqrt(static_cast<double>(dim));
  constexpr int kSteps = 200000;
  double weight = 0;
  double error = 0;
  std::size_t nearest = bits == 8 ? 1 : 0;
  for (int i = 0; i < kSteps; ++i) {
    const double x = radius * (2 * (i + 0.5) / kSteps - 1);
    while (nearest + 1 < levels.size() && 2 * x > (levels[nearest] + levels[nearest + 1]) * unit) ++nearest;
    const double density = std::pow(1 - x * x / dim, (dim - 3) / 2.0);
    weight += density;
    error += density * std::pow(x - levels[nearest] * unit, 2);
  }
  return error / weight;
}

std::vector<std::uint16_t> many_pages(test::PageKind kind, std::uint32_t dim, std::uint64_t values) {
  std::mt19937_64 random(dim * 7 + static_cast<unsigned>(kind));
  std::vector<std::uint16_t> pages;
  while (pages.size() < values) {
    const auto page = test::draw_page(random, kind, 128, dim);
    pages.insert(pages.end(), page.begin(), page.end());
  }
  return pages;
}

TEST(SealDistortion, OfGaussiansIsTheTheorysForEveryWidthAndHeadSize) {
  constexpr std::array kTable{0.117482, 0.0345614, 0.00952201, 0.00251938, 0.000662514, 8.83094e-05};
  for (const std::uint32_t dim : kHeadSizes) {
    // What lies beyond the last level of 8 bits is rare: it takes more values to meet enough of it.
    const auto many = many_pages(test::PageKind::gaussian, dim, 4000000);
    const std::vector few(many.begin(),
                          many.begin() + static_cast<std::ptrdiff_t>(many.size() / 8 / (128 * dim) * 128 * dim));
    for (std::size_t width = 0; width < kWidths.size(); ++width) {
      const auto& values = kWidths[width] == 8 ? many : few;
      const auto distortion = [&](ScaleRule rule) {
        return Sealing({.codec = Turbo{.bits = kWidths[width], .scale = rule}, .side = KvSide::values, .head_dim = dim})
            .distortion(values);
      };
      const double plain = distortion(ScaleRule::rms);
      const auto label = fmt::format("{} bits, head size {}", kWidths[width], dim);
      EXPECT_NEAR(plain / error_on_sphere(kWidths[width], dim), 1, 0.02) << label;
      if (dim >= 128 && kWidths[width] <= 4) {
        EXPECT_NEAR(plain / kTable[width], 1, 0.02) << label;
      }
      // Each rule errs less than the one before.
      const double fitted = distortion(ScaleRule::least_squares);
      const double searched = distortion(ScaleRule::search);
      EXPECT_LT(fitted, plain) << label;
      EXPECT_LT(searched, fitted) << label;
      if (kWidths[width] == 4) {
        const double gain = 1 - searched / plain;
        const double wanted = dim == 64 ? 0.19 : dim == 128 ? 0.13 : dim == 256 ? 0.08 : gain;
        EXPECT_NEAR(gain, wanted, 0.02) << label;
        EXPECT_GT(gain, 0.02) << label;
      }
    }
  }
}

TEST(SealDistortion, OfOtherDistributionsIsNoWorse) {
  for (const std::uint32_t dim : {64U, 80U, 96U, 128U, 256U, 576U}) {
    for (const std::uint32_t bits : kWidths) {
      for (const auto kind : {test::PageKind::laplace, test::PageKind::student, test::PageKind::spike,
                              test::PageKind::constant, test::PageKind::one_value, test::PageKind::denormal}) {
        Sealing codec({.codec = turbo(bits), .side = KvSide::values, .head_dim = dim});
        // These rotate to a few values, not to all: one draw may fall badly.
        const bool few =
            kind == test::PageKind::spike || kind == test::PageKind::constant || kind == test::PageKind::one_value;
        // Scales of one or two steps of the smallest f16 numbers.
        const double rounding = kind == test::PageKind::denormal ? 0.12 : kind == test::PageKind::one_value ? 0.02 : 0;
        const double bound = (few ? 2 : 1.02) * error_on_sphere(bits, dim) + rounding;
        EXPECT_LT(codec.distortion(many_pages(kind, dim, 40000)), bound)
            << bits << " bits, head size " << dim << ", kind " << static_cast<int>(kind);
      }
    }
  }
}

TEST(SealDistortion, OfKeysFallsWithTheMeanRemoved) {
  for (const std::uint32_t dim : {64U, 96U, 128U}) {
    const auto values = many_pages(test::PageKind::far_mean, dim, 40000);
    const auto distortion = [&](bool key_mean) {
      return Sealing({.codec = Turbo{.bits = 4, .key_mean = key_mean}, .side = KvSide::keys, .head_dim = dim})
          .distortion(values);
    };
    EXPECT_LT(distortion(true), 0.01 * distortion(false)) << dim;
  }
}

TEST(SealDistortion, OfSmallKeysAmongLargeOnesIsTheirOwn) {
  // Tokens without the others' mean are sealed with it left in them.
  constexpr std::uint32_t kDim = 128;
  const auto values = many_pages(test::PageKind::sink_like, kDim, 40000);
  Sealing codec({.codec = turbo(4), .side = KvSide::keys, .head_dim = kDim});
  const auto restored = codec.unseal<float>(codec.seal(values));
  for (std::size_t token = 0; token < values.size() / kDim; ++token) {
    if (token % 128 % 9 != 1) continue;
    double error = 0;
    double energy = 0;
    for (std::size_t i = token * kDim; i < (token + 1) * kDim; ++i) {
      const double value = static_cast<double>(f32_from_f16(values[i]));
      error += std::pow(static_cast<double>(restored[i]) - value, 2);
      energy += value * value;
    }
    EXPECT_LT(error, 0.02 * energy) << token;
  }
}

// How much of a page a second sealing changes: bytes per token.
double changed_by_sealing_twice(std::uint32_t bits, ScaleRule rule, test::PageKind kind) {
  std::uint64_t changed = 0;
  std::uint64_t tokens = 0;
  for (const std::uint32_t dim : kHeadSizes) {
    if (dim < 32) continue;
    for (const KvSide side : {KvSide::keys, KvSide::values}) {
      Sealing codec({.codec = Turbo{.bits = bits, .scale = rule, .key_mean = false}, .side = side, .head_dim = dim});
      const auto once = codec.seal(many_pages(kind, dim, 100000));
      const auto twice = codec.seal(codec.unseal<std::uint16_t>(once));
      for (std::size_t i = 0; i < once.size(); ++i) changed += once[i] != twice[i] ? 1U : 0U;
      tokens += once.size() / page_bytes({.codec = turbo(bits), .side = KvSide::values, .head_dim = dim}) * 128;
    }
  }
  return static_cast<double>(changed) / static_cast<double>(tokens);
}

TEST(SealTwice, ChangesNextToNothingWithoutAMean) {
  for (const std::uint32_t bits : kWidths) {
    const double gaussian = changed_by_sealing_twice(bits, ScaleRule::search, test::PageKind::gaussian);
    const double student = changed_by_sealing_twice(bits, ScaleRule::search, test::PageKind::student);
    EXPECT_LE(gaussian, bits == 8 ? 0.03 : 0.003) << bits;
    EXPECT_LE(student, bits == 8 ? 0.03 : 0.006) << bits;
  }
}

}  // namespace
}  // namespace rota::ops
