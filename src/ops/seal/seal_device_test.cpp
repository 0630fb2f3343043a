#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "harness/guarded.h"
#include "harness/on_device.h"
#include "harness/pages.h"
#include "harness/source_file.h"
#include "ops/seal/seal_reference.h"
#include "rota/rota.h"

namespace rota::ops {
namespace {

using test::PageKind;

constexpr std::array kWidths{2U, 3U, 4U, 5U, 6U, 8U};

// Every head size that there is.
std::vector<std::uint32_t> head_sizes() {
  std::vector<std::uint32_t> sizes;
  for (std::uint32_t dim = 1; dim <= 2048; ++dim) {
    if (codec::rotation_of(dim)) sizes.push_back(dim);
  }
  return sizes;
}

std::uint64_t read_counter(const Buffer& buffer, std::uint64_t offset_bytes = 0) {
  std::array<std::byte, 8> bytes{};
  buffer.read(bytes, offset_bytes).value();
  return std::bit_cast<std::uint64_t>(bytes);
}

Buffer new_counter(Device& device, std::uint64_t start = 0) {
  Buffer counter = device.allocate(8).value();
  counter.write(std::as_bytes(std::span(&start, 1))).value();
  return counter;
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
                       std::uint32_t{format.codec.bits}, format.side == KvSide::keys ? "keys" : "values",
                       std::uint32_t{format.head_dim}, format.tokens, static_cast<int>(format.codec.scale),
                       format.codec.key_mean, at % page_bytes(format), page_bytes(format));
  }

  PageFormat draw_format(std::uint32_t dim, std::uint32_t bits) {
    return {.codec = {.bits = bits,
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
  const char* const asked = std::getenv("ROTA_TEST_SEAL_VALUES");
  const std::uint64_t wanted = asked == nullptr ? 0 : std::strtoull(asked, nullptr, 10);
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

}  // namespace
}  // namespace rota::ops
