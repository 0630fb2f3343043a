#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "core/extent.h"
#include "harness/counter.h"
#include "harness/elements.h"
#include "harness/environment.h"
#include "harness/guarded.h"
#include "harness/on_device.h"
#include "harness/pages.h"
#include "harness/source_file.h"
#include "ops/seal/seal_reference.h"
#include "rota/rota.h"

namespace rota::ops {
namespace {

using reference::kWidths;
using test::new_counter;
using test::PageKind;
using test::read_counter;

// Every head size that there is.
std::vector<std::uint32_t> head_sizes() {
  std::vector<std::uint32_t> sizes;
  for (std::uint32_t dim = 1; dim <= 2048; ++dim) {
    if (codec::rotation_of(dim)) sizes.push_back(dim);
  }
  return sizes;
}

// Values of whole pages, [page][head][slot][dim] in f16.
struct DensePages {
  PageFormat format;
  std::uint64_t heads;
  std::vector<std::uint16_t> values;

  std::uint64_t head_size() const { return std::uint64_t{format.tokens} * format.head_dim; }
  std::uint64_t pages() const { return values.size() / head_size() / heads; }
  SlotShape shape() const {
    return {.pages = pages(), .page_slots = format.tokens, .heads = heads, .dim = format.head_dim};
  }
  std::span<const std::uint16_t> head_of(std::uint64_t page, std::uint64_t head, std::uint64_t tokens) const {
    return std::span(values).subspan((page * heads + head) * head_size(), tokens * format.head_dim);
  }
};

class SealOnDevice : public test::OnDevice {
 protected:
  DensePages draw(const PageFormat& format, std::span<const PageKind> kinds, std::uint64_t heads) {
    DensePages dense{format, heads, {}};
    for (std::size_t i = 0; i < kinds.size() * heads; ++i) {
      const auto page = test::draw_page(random, kinds[i / heads], format.tokens, format.head_dim);
      dense.values.insert(dense.values.end(), page.begin(), page.end());
    }
    return dense;
  }

  Buffer upload(const DensePages& dense) {
    Buffer buffer = device.allocate(dense.values.size() * 2).value();
    buffer.write(std::as_bytes(std::span(dense.values))).value();
    return buffer;
  }

  // Pages as given, or partial ones with sinks, each to another place than it comes from; one place stays as it is.
  std::vector<SealPage> moves(const DensePages& dense) {
    std::vector<SealPage> pages;
    for (std::uint64_t page = 0; page < dense.pages(); ++page) {
      const std::uint64_t tokens = dense.format.tokens;
      pages.push_back({.from = page,
                       .to = (page + 2) % (dense.pages() + 1),
                       .tokens = random() % 3 == 0 ? random() % (tokens + 1) : tokens,
                       .sinks = random() % 2 == 0 ? random() % 6 : 0});
    }
    return pages;
  }

  // Seals and compares every byte with the definition. Returns how many values there were.
  std::uint64_t expect_definition(const DensePages& dense, std::span<const SealPage> pages) {
    const PageFormat& format = dense.format;
    const std::uint64_t bytes = page_bytes(format);
    const std::uint64_t places = dense.pages() + 1;
    test::Guarded sealed(device, places * dense.heads * bytes / 2, DType::f16);
    std::vector<std::byte> wanted(places * dense.heads * bytes, test::Guarded::kPoison);
    std::uint64_t non_finite = 5;
    Buffer counter = new_counter(device, non_finite);
    for (const SealPage& page : pages) {
      for (std::uint64_t head = 0; head < dense.heads; ++head) {
        reference::Sealer sealer(format);
        const auto one = sealer.seal(dense.head_of(page.from, head, page.tokens.value_or(format.tokens)), page.sinks);
        std::ranges::copy(one, wanted.begin() + static_cast<std::ptrdiff_t>((page.to * dense.heads + head) * bytes));
        non_finite += sealer.non_finite();
      }
    }
    SealedView to = SealedView::packed(sealed.buffer, format, {.pages = places, .heads = dense.heads});
    to.offset_bytes = sealed.offset * 2;
    EXPECT_OK(test::run_on(device, [&](Encoder& encoder) {
      seal(encoder, {.from = SlotView::head_major(upload(dense), DType::f16, dense.shape()),
                     .to = to,
                     .pages = pages,
                     .non_finite = {counter}});
    }));
    const auto found = sealed.read();
    EXPECT_TRUE(found == wanted) << describe_mismatch(format, found, wanted);
    EXPECT_TRUE(sealed.guards_intact());
    EXPECT_EQ(read_counter(counter), non_finite);
    return dense.values.size();
  }

  static std::string describe_mismatch(const PageFormat& format, const std::vector<std::byte>& found,
                                       const std::vector<std::byte>& wanted) {
    const auto at = static_cast<std::size_t>(std::ranges::mismatch(found, wanted).in1 - found.begin());
    return fmt::format("{} bits, {}, head size {}, pages of {}, scale rule {}, mean {}: byte {} of a page of {}",
                       format.bits(), format.side == KvSide::keys ? "keys" : "values", std::uint32_t{format.head_dim},
                       format.tokens, static_cast<int>(std::get<Turbo>(format.codec).scale),
                       std::get<Turbo>(format.codec).key_mean, at % page_bytes(format), page_bytes(format));
  }

  PageFormat draw_format(std::uint32_t dim, std::uint32_t bits) {
    return {.codec = Turbo{.bits = bits,
                           .scale = static_cast<ScaleRule>(random() % 5 < 3 ? 2 : random() % 2),
                           .key_mean = random() % 4 != 0,
                           .seed = static_cast<std::uint32_t>(random())},
            .side = random() % 2 == 0 ? KvSide::keys : KvSide::values,
            .head_dim = dim,
            .tokens = random() % 2 == 0 ? 64U : 128U};
  }

  std::mt19937_64 random{20261115};
};

// ROTA_TEST_SEAL_VALUES asks for more values than the usual run takes: 100000000 take half a minute on the CPU.
TEST_F(SealOnDevice, GivesTheBytesOfTheDefinition) {
  const std::uint64_t wanted = test::number_from("ROTA_TEST_SEAL_VALUES", 0);
  std::uint64_t values = 0;
  std::uint64_t kind = 0;
  do {
    for (const std::uint32_t dim : head_sizes()) {
      for (const std::uint32_t bits : kWidths) {
        const std::array kinds{test::kPageKinds[kind % test::kPageKinds.size()],
                               test::kPageKinds[(kind + 1) % test::kPageKinds.size()]};
        ++kind;
        const DensePages dense = draw(draw_format(dim, bits), kinds, 2);
        values += expect_definition(dense, moves(dense));
        if (HasFailure()) return;
      }
    }
  } while (values < wanted);
  RecordProperty("values", std::to_string(values));
}

TEST_F(SealOnDevice, GivesTheBytesOfTheDefinitionOnRecordedKeysAndValues) {
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(std::string(ROTA_SOURCE_FOLDER) + "/tests/captures")) {
    const std::string name = file.path().filename();
    if (name.ends_with("_k.npy") || name.ends_with("_v.npy")) names.push_back(name);
  }
  ASSERT_EQ(names.size(), 16U);
  for (const std::string& name : names) {
    const auto values = test::read_halves("tests/captures/" + name);
    ASSERT_EQ(values.size(), 512U * 64);
    for (const std::uint32_t bits : kWidths) {
      const DensePages dense{.format = {.codec = turbo(bits),
                                        .side = name.ends_with("_k.npy") ? KvSide::keys : KvSide::values,
                                        .head_dim = 64},
                             .heads = 1,
                             .values = values};
      std::vector<SealPage> pages;
      for (std::uint64_t page = 0; page < 4; ++page) {
        pages.push_back({.from = page, .to = page, .sinks = page == 0 ? 4U : 0U});
      }
      expect_definition(dense, pages);
      if (HasFailure()) return;
    }
  }
}

// Dense elements anywhere: any dtype and strides, pages of several sequences and layers in one call.
TEST_F(SealOnDevice, TakesAnyDTypeAndLayout) {
  constexpr std::uint64_t kHeads = 3;
  constexpr std::uint64_t kPages = 2;
  const PageFormat format{.codec = turbo(4), .side = KvSide::keys, .head_dim = 48, .tokens = 64};
  for (const DTypeInfo& dtype : kDTypes) {
    for (const bool spread : {false, true}) {
      const std::uint64_t dim_stride = spread ? 3 : 1;
      const std::uint64_t slot_stride = kHeads * format.head_dim * dim_stride + (spread ? 5 : 0);
      const std::uint64_t elements = kPages * format.tokens * slot_stride;
      const auto source = test::random_elements(random, dtype.dtype, elements);
      Buffer buffer = device.allocate(core::round_up(source.size(), 4)).value();
      buffer.write(source).value();
      const SlotView from{
          .buffer = buffer,
          .dtype = dtype.dtype,
          .shape = {.pages = kPages, .page_slots = format.tokens, .heads = kHeads, .dim = format.head_dim},
          .page_stride = format.tokens * slot_stride,
          .slot_stride = slot_stride,
          .head_stride = format.head_dim * dim_stride,
          .dim_stride = dim_stride};
      DensePages dense{format, kHeads, {}};
      for (std::uint64_t i = 0; i < kPages * kHeads * format.tokens * format.head_dim; ++i) {
        const std::uint64_t d = i % format.head_dim;
        const std::uint64_t slot = i / format.head_dim % format.tokens;
        const std::uint64_t head = i / format.head_dim / format.tokens % kHeads;
        const std::uint64_t page = i / format.head_dim / format.tokens / kHeads;
        const std::uint64_t element =
            page * from.page_stride + slot * slot_stride + head * from.head_stride + d * dim_stride;
        dense.values.push_back(static_cast<std::uint16_t>(
            test::convert_bits(test::load_bits(source, dtype.dtype, element), dtype.dtype, DType::f16)));
      }
      std::vector<std::byte> wanted;
      std::uint64_t non_finite = 0;
      for (std::uint64_t i = 0; i < kPages * kHeads; ++i) {
        reference::Sealer sealer(format);
        const auto page = sealer.seal(dense.head_of(i / kHeads, i % kHeads, format.tokens));
        wanted.insert(wanted.end(), page.begin(), page.end());
        non_finite += sealer.non_finite();
      }
      Buffer sealed = device.allocate(wanted.size()).value();
      Buffer counter = new_counter(device);
      const std::array pages{SealPage{.from = 0, .to = 0}, SealPage{.from = 1, .to = 1}};
      ASSERT_OK(test::run_on(device, [&](Encoder& encoder) {
        seal(encoder, {.from = from,
                       .to = SealedView::packed(sealed, format, {.pages = kPages, .heads = kHeads}),
                       .pages = pages,
                       .non_finite = {counter}});
      }));
      std::vector<std::byte> found(wanted.size());
      sealed.read(found).value();
      EXPECT_TRUE(found == wanted) << dtype.name << (spread ? " spread" : "");
      EXPECT_EQ(read_counter(counter), non_finite);
      EXPECT_GT(non_finite, 0U);
    }
  }
}

TEST_F(SealOnDevice, CountsBeyond32Bits) {
  constexpr std::uint64_t kStart = 0xffffff00;
  const PageFormat format{.codec = turbo(2), .side = KvSide::values, .head_dim = 16, .tokens = 64};
  const DensePages dense{format, 1, std::vector<std::uint16_t>(64 * 16, 0x7e01)};
  Buffer counter = device.allocate(64).value();
  counter.write(std::vector<std::byte>(64)).value();
  counter.write(std::as_bytes(std::span(&kStart, 1)), 24).value();
  Buffer sealed = device.allocate(page_bytes(format)).value();
  const SealPage page{.from = 0, .to = 0};
  ASSERT_OK(test::run_on(device, [&](Encoder& encoder) {
    seal(encoder, {.from = SlotView::head_major(upload(dense), DType::f16, dense.shape()),
                   .to = SealedView::packed(sealed, format, {.pages = 1, .heads = 1}),
                   .pages = {&page, 1},
                   .non_finite = {counter, 24}});
  }));
  EXPECT_EQ(read_counter(counter, 24), kStart + 64 * 16);
  EXPECT_EQ(read_counter(counter, 16), 0U);
  EXPECT_EQ(read_counter(counter, 32), 0U);
}

TEST_F(SealOnDevice, OrdersItselfAmongOtherCommands) {
  // store -> seal -> unseal in one encoder: each reads what the one before wrote.
  const PageFormat format{.codec = turbo(8), .side = KvSide::values, .head_dim = 32, .tokens = 64};
  const std::array kinds{PageKind::gaussian};
  const DensePages dense = draw(format, kinds, 2);
  Buffer tail = device.allocate(dense.values.size() * 2).value();
  Buffer sealed = device.allocate(2 * page_bytes(format)).value();
  Buffer restored = device.allocate(dense.values.size() * 4).value();
  const StorePair pair{.from = View::head_major(upload(dense), DType::f16, {.tokens = 64, .heads = 2, .dim = 32}),
                       .to = SlotView::head_major(tail, DType::f16, dense.shape())};
  const TokenRun run{.tokens = 64, .position = 0, .capacity = 64};
  const SealPage page{.from = 0, .to = 0};
  const UnsealPage back{.from = 0, .to = 0};
  const SealedView pages = SealedView::packed(sealed, format, {.pages = 1, .heads = 2});
  ASSERT_OK(test::run_on(device, [&](Encoder& encoder) {
    store(encoder, {.pairs = {&pair, 1}, .sequences = {&run, 1}});
    seal(encoder, {.from = pair.to, .to = pages, .pages = {&page, 1}, .non_finite = {new_counter(device)}});
    unseal(encoder,
           {.from = pages, .to = SlotView::head_major(restored, DType::f32, dense.shape()), .pages = {&back, 1}});
  }));
  std::vector<float> found(dense.values.size());
  restored.read(std::as_writable_bytes(std::span(found))).value();
  double error = 0;
  double energy = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double value = static_cast<double>(f32_from_f16(dense.values[i]));
    error += std::pow(static_cast<double>(found[i]) - value, 2);
    energy += value * value;
  }
  EXPECT_LT(error, 1e-4 * energy);
}

TEST_F(SealOnDevice, ABadCallIsNamedBySubmit) {
  Encoder encoder = device.encoder();
  Buffer buffer = device.allocate(64).value();
  seal(encoder, {.from = SlotView::head_major(buffer, DType::f16, {.page_slots = 64, .heads = 1, .dim = 24}),
                 .to = {.buffer = buffer, .format = {.codec = turbo(4), .side = KvSide::keys, .head_dim = 24}},
                 .pages = {},
                 .non_finite = {buffer}});
  test::expect_error(std::move(encoder).submit(), Errc::invalid_argument, {"seal: to: page format: head_dim is 24"});
}

// Sealed pages of every kind, any bytes among them, restored into guarded memory.
TEST_F(SealOnDevice, RestoresTheBitsOfTheDefinition) {
  for (const std::uint32_t dim : head_sizes()) {
    for (const std::uint32_t bits : kWidths) {
      const PageFormat format = draw_format(dim, bits);
      const DType dtype = kDTypes[random() % kDTypes.size()].dtype;
      std::vector<std::byte> pages;
      for (const bool any_bytes : {false, true}) {
        const auto kind = test::kPageKinds[random() % test::kPageKinds.size()];
        auto page = reference::Sealer(format).seal(test::draw_page(random, kind, format.tokens, dim));
        const std::size_t first_code = page_bytes(format) - std::size_t{format.tokens} * dim * bits / 8;
        for (std::size_t i = first_code; any_bytes && i < page.size(); ++i) page[i] = static_cast<std::byte>(random());
        // Means and scales that no page has: any bits, and infinities and NaN among them.
        for (std::size_t i = 0; any_bytes && i < first_code; i += 2) {
          if (random() % 4 != 0) continue;
          const auto half = static_cast<std::uint16_t>(random() % 2 == 0 ? random() : 0x7c00 + random() % 3);
          std::memcpy(page.data() + i, &half, sizeof(half));
        }
        pages.insert(pages.end(), page.begin(), page.end());
      }
      Buffer sealed = device.allocate(pages.size()).value();
      sealed.write(pages).value();
      const SlotShape shape{.pages = 3, .page_slots = format.tokens, .heads = 1, .dim = dim};
      test::Guarded dense(device, shape.pages * format.tokens * dim, dtype);
      SlotView to = SlotView::token_major(dense.buffer, dtype, shape);
      to.offset = dense.offset;
      const std::uint64_t some = random() % (format.tokens + 1);
      const std::array moves{UnsealPage{.from = 1, .to = 0}, UnsealPage{.from = 0, .to = 2, .tokens = some}};
      auto wanted = dense.read();
      for (const UnsealPage& move : moves) {
        const auto values = reference::Unsealer(format).unseal(
            std::span(pages).subspan(move.from * page_bytes(format), page_bytes(format)),
            dtype == DType::bf16 ? 65280.0F : 65504.0F);
        for (std::uint64_t i = 0; i < move.tokens.value_or(format.tokens) * dim; ++i) {
          test::save_bits(wanted, dtype, move.to * format.tokens * dim + i,
                          test::bits_of(static_cast<double>(values[i]), dtype));
        }
      }
      ASSERT_OK(test::run_on(device, [&](Encoder& encoder) {
        unseal(encoder,
               {.from = SealedView::packed(sealed, format, {.pages = 2, .heads = 1}), .to = to, .pages = moves});
      }));
      ASSERT_TRUE(dense.read() == wanted) << describe_mismatch(format, dense.read(), wanted);
      ASSERT_TRUE(dense.guards_intact());
    }
  }
}

TEST_F(SealOnDevice, RestoresIntoSpreadElements) {
  const PageFormat format{.codec = turbo(5), .side = KvSide::keys, .head_dim = 80, .tokens = 64};
  const std::array kinds{PageKind::sink_like};
  const DensePages drawn = draw(format, kinds, 1);
  const auto page = reference::Sealer(format).seal(drawn.values);
  const auto values = reference::Unsealer(format).unseal(page);
  Buffer sealed = device.allocate(page.size()).value();
  sealed.write(page).value();
  for (const DTypeInfo& dtype : kDTypes) {
    test::Guarded dense(device, 64 * 163, dtype.dtype);
    const SlotView to{.buffer = dense.buffer,
                      .dtype = dtype.dtype,
                      .shape = drawn.shape(),
                      .offset = dense.offset,
                      .slot_stride = 163,
                      .dim_stride = 2};
    auto wanted = dense.read();
    for (std::uint64_t i = 0; i < values.size(); ++i) {
      test::save_bits(wanted, dtype.dtype, i / 80 * 163 + i % 80 * 2,
                      test::bits_of(static_cast<double>(values[i]), dtype.dtype));
    }
    const UnsealPage move{.from = 0, .to = 0};
    ASSERT_OK(test::run_on(device, [&](Encoder& encoder) {
      unseal(encoder,
             {.from = SealedView::packed(sealed, format, {.pages = 1, .heads = 1}), .to = to, .pages = {&move, 1}});
    }));
    EXPECT_TRUE(dense.read() == wanted) << dtype.name;
    EXPECT_TRUE(dense.guards_intact());
  }
}

// [head][page] with gaps between pages, and sealed parts of a page: no byte elsewhere changes.
TEST_F(SealOnDevice, LeavesWhatIsBetweenPagesAlone) {
  constexpr std::uint64_t kPages = 3;
  constexpr std::uint64_t kHeads = 2;
  const PageFormat format{.codec = turbo(3), .side = KvSide::keys, .head_dim = 80, .tokens = 128};
  const std::array kinds{PageKind::gaussian, PageKind::sink_like, PageKind::any_bits};
  const DensePages dense = draw(format, kinds, kHeads);
  const std::uint64_t stride = page_bytes(format) + 192;
  test::Guarded sealed(device, kPages * kHeads * stride / 2, DType::f16);
  const SealedView to{.buffer = sealed.buffer,
                      .format = format,
                      .shape = {.pages = kPages, .heads = kHeads},
                      .offset_bytes = sealed.offset * 2,
                      .page_stride_bytes = stride,
                      .head_stride_bytes = kPages * stride};
  // No tokens, only sinks, and more sinks than tokens: no mean.
  const std::array pages{SealPage{.from = 0, .to = 2, .tokens = 0}, SealPage{.from = 1, .to = 0, .sinks = 128},
                         SealPage{.from = 2, .to = 1, .tokens = 33, .sinks = 40}};
  auto wanted = sealed.read();
  for (const SealPage& page : pages) {
    for (std::uint64_t head = 0; head < kHeads; ++head) {
      const auto one =
          reference::Sealer(format).seal(dense.head_of(page.from, head, page.tokens.value_or(128)), page.sinks);
      std::ranges::copy(one, wanted.begin() + static_cast<std::ptrdiff_t>((head * kPages + page.to) * stride));
    }
  }
  ASSERT_OK(test::run_on(device, [&](Encoder& encoder) {
    seal(encoder, {.from = SlotView::head_major(upload(dense), DType::f16, dense.shape()),
                   .to = to,
                   .pages = pages,
                   .non_finite = {new_counter(device)}});
  }));
  EXPECT_TRUE(sealed.read() == wanted);
  EXPECT_TRUE(sealed.guards_intact());

  test::Guarded restored(device, dense.values.size(), DType::f16);
  SlotView slots = SlotView::head_major(restored.buffer, DType::f16, dense.shape());
  slots.offset = restored.offset;
  const std::array back{UnsealPage{.from = 0, .to = 1}, UnsealPage{.from = 1, .to = 0, .tokens = 0}};
  auto wanted_back = restored.read();
  for (std::uint64_t head = 0; head < kHeads; ++head) {
    const auto values =
        reference::Unsealer(format).unseal(std::span(wanted).subspan(head * kPages * stride, page_bytes(format)));
    for (std::uint64_t i = 0; i < values.size(); ++i) {
      test::save_bits(wanted_back, DType::f16, (kHeads + head) * dense.head_size() + i,
                      test::bits_of(static_cast<double>(values[i]), DType::f16));
    }
  }
  ASSERT_OK(test::run_on(device, [&](Encoder& encoder) { unseal(encoder, {.from = to, .to = slots, .pages = back}); }));
  EXPECT_TRUE(restored.read() == wanted_back);
  EXPECT_TRUE(restored.guards_intact());
}

// More pages than the workgroups of one launch serve.
TEST_F(SealOnDevice, ServesMorePagesThanOneLaunchDoes) {
  constexpr std::uint64_t kPages = 16500;
  constexpr std::uint64_t kHeads = 2;
  const PageFormat format{.codec = turbo(2), .side = KvSide::values, .head_dim = 16, .tokens = 64};
  const std::array kinds{PageKind::gaussian, PageKind::student, PageKind::laplace};
  const DensePages dense = draw(format, kinds, kHeads);
  std::vector<std::byte> wanted;
  for (std::uint64_t i = 0; i < kinds.size() * kHeads; ++i) {
    const auto page = reference::Sealer(format).seal(dense.head_of(i / kHeads, i % kHeads, 1));
    wanted.insert(wanted.end(), page.begin(), page.end());
  }
  std::vector<SealPage> pages;
  // Hardly any tokens: it is about the pages, and software drivers are slow.
  for (std::uint64_t page = 0; page < kPages; ++page) {
    pages.push_back({.from = page * page % 3, .to = page, .tokens = page % 500 == 0 ? 1U : 0U});
  }
  Buffer sealed = device.allocate(kPages * kHeads * page_bytes(format)).value();
  ASSERT_OK(test::run_on(device, [&](Encoder& encoder) {
    seal(encoder, {.from = SlotView::head_major(upload(dense), DType::f16, dense.shape()),
                   .to = SealedView::packed(sealed, format, {.pages = kPages, .heads = kHeads}),
                   .pages = pages,
                   .non_finite = {new_counter(device)}});
  }));
  std::vector<std::byte> found(sealed.size_bytes());
  sealed.read(found).value();
  const std::uint64_t bytes = kHeads * page_bytes(format);
  const std::vector<std::byte> nothing(bytes);
  for (const SealPage& page : pages) {
    const std::byte* const want = *page.tokens == 0 ? nothing.data() : wanted.data() + page.from * bytes;
    ASSERT_EQ(std::memcmp(found.data() + page.to * bytes, want, bytes), 0) << std::uint64_t{page.to};
  }
}

}  // namespace
}  // namespace rota::ops
