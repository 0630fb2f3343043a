#include "ops/attend/attend_bench_case.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <variant>
#include <vector>

#include "rota/ops.h"

namespace rota::bench {
namespace {

constexpr std::uint32_t kPage = 128;

std::uint64_t pages_for(std::uint64_t tokens) { return (tokens + kPage - 1) / kPage; }

// Some pages of normal numbers, sealed by the op itself.
std::vector<std::byte> sealed_pages(Device& device, const PageFormat& format, std::uint64_t heads) {
  constexpr std::uint64_t kPages = 2;
  const SlotShape slots{.pages = kPages, .page_slots = kPage, .heads = heads, .dim = format.head_dim};
  const Buffer dense = numbers_in(device, DType::f16, kPages * kPage * heads * format.head_dim);
  std::vector<std::byte> bytes(kPages * heads * page_bytes(format));
  const Buffer sealed = device.allocate(bytes.size()).value();
  const Buffer counter = cleared(device, 8);
  std::vector<SealPage> pages;
  for (std::uint64_t page = 0; page < kPages; ++page) pages.push_back({.from = page, .to = page});
  submit(device, [&](Encoder& encoder) {
    seal(encoder, {.from = SlotView::head_major(dense, DType::f16, slots),
                   .to = SealedView::packed(sealed, format, {.pages = kPages, .heads = heads}),
                   .pages = pages,
                   .non_finite = {counter}});
  });
  sealed.read(bytes).value();
  return bytes;
}

// One side of a cache: what one copy of it takes, and views of such copies.
class SideMaker {
 public:
  SideMaker(Device& device, const AttendCase& what, KvSide side)
      : device_(device),
        what_(what),
        dim_(side == KvSide::keys ? what.head_dim : what.value_dim),
        format_{.codec = turbo(4), .side = side, .head_dim = static_cast<std::uint32_t>(dim_), .tokens = kPage} {
    const KvCodec& codec = side == KvSide::keys ? what.k : what.v;
    const std::uint64_t all = pages_for(what.keys);
    if (const std::optional<Codec> sealed = sealed_codec(codec)) {
      format_.codec = *sealed;
      check(format_).value();
      sealed_pages_ = (what.keys - std::min(what.keys, what.tail)) / kPage;
      if (sealed_pages_ > 0) pattern_ = sealed_pages(device, format_, what.kv_heads);
    } else {
      dtype_ = std::get<DType>(codec);
    }
    dense_pages_ = all - sealed_pages_;
    first_page_ = what.window ? (what.keys - std::min(what.keys, *what.window)) / kPage : 0;
  }

  // What attention reads of one copy: tokens inside the window.
  std::uint64_t read_bytes() const {
    const std::uint64_t sealed = sealed_pages_ - std::min(sealed_pages_, first_page_);
    const std::uint64_t first =
        std::max(what_.keys - std::min(what_.keys, what_.window.value_or(what_.keys)), sealed_pages_ * kPage);
    return what_.sequences * what_.kv_heads *
           (sealed * page_bytes(format_) + (what_.keys - first) * dim_ * info(dtype_).bytes);
  }

  std::uint64_t copy_bytes() const {
    return what_.sequences * what_.kv_heads *
           (sealed_pages_ * page_bytes(format_) + dense_pages_ * kPage * dim_ * info(dtype_).bytes);
  }

  KvSideView copy(std::minstd_rand& random) const {
    const std::uint64_t dense = what_.sequences * dense_pages_;
    const SlotShape slots{
        .pages = std::max<std::uint64_t>(dense, 1), .page_slots = kPage, .heads = what_.kv_heads, .dim = dim_};
    KvSideView view{.dense = SlotView::head_major(
                        numbers_in(device_, dtype_, slots.pages * kPage * what_.kv_heads * dim_), dtype_, slots)};
    const std::uint64_t sealed = what_.sequences * sealed_pages_;
    if (sealed > 0) {
      const SealedShape pages{.pages = sealed, .heads = what_.kv_heads};
      const std::uint64_t bytes = sealed * what_.kv_heads * page_bytes(format_);
      view.sealed = SealedView::packed(filled(device_, bytes, pattern_), format_, pages);
    }
    const std::vector<std::uint32_t> sealed_order = order(sealed, random);
    const std::vector<std::uint32_t> dense_order = order(dense, random);
    for (std::uint64_t sequence = 0; sequence < what_.sequences; ++sequence) {
      const auto list = std::make_shared<KvPages>();
      list->sealed_pages = sealed_pages_;
      const auto add = [&](const std::vector<std::uint32_t>& from, std::uint64_t count) {
        for (std::uint64_t page = 0; page < count; ++page) list->page_table.push_back(from[sequence * count + page]);
      };
      add(sealed_order, sealed_pages_);
      add(dense_order, dense_pages_);
      view.sequences.edit().push_back(list);
    }
    return view;
  }

 private:
  std::vector<std::uint32_t> order(std::uint64_t pages, std::minstd_rand& random) const {
    std::vector<std::uint32_t> places(pages);
    std::iota(places.begin(), places.end(), 0U);
    if (what_.scattered) std::ranges::shuffle(places, random);
    return places;
  }

  Device& device_;
  const AttendCase& what_;
  std::uint64_t dim_;
  PageFormat format_;
  DType dtype_ = DType::f16;
  std::uint64_t sealed_pages_ = 0, dense_pages_ = 0, first_page_ = 0;
  std::vector<std::byte> pattern_{};
};

}  // namespace

Work attend_work(Place& place, const AttendCase& what) {
  Device& device = place.device;
  const SideMaker keys(device, what, KvSide::keys);
  const SideMaker values(device, what, KvSide::values);
  const std::uint64_t copy_bytes = keys.copy_bytes() + values.copy_bytes();
  const std::uint64_t copies = copies_for(what.rotated_bytes, copy_bytes);
  place.take(copies * copy_bytes);
  std::minstd_rand random(3);
  const auto views = std::make_shared<std::vector<KvView>>();
  for (std::uint64_t copy = 0; copy < copies; ++copy) {
    views->push_back({.k = keys.copy(random),
                      .v = values.copy(random),
                      .lengths = std::vector<std::uint64_t>(what.sequences, what.keys),
                      .window = what.window});
  }
  const std::uint64_t tokens = what.sequences * what.rows;
  const std::uint64_t heads = what.kv_heads * what.group;
  const View q = View::token_major(numbers_in(device, DType::f32, tokens * heads * what.head_dim), DType::f32,
                                   {tokens, heads, what.head_dim});
  std::vector<MutView> outs;
  for (std::uint64_t copy = 0; copy < copies; ++copy) {
    outs.push_back(MutView::token_major(numbers_in(device, DType::f32, tokens * heads * what.value_dim), DType::f32,
                                        {tokens, heads, what.value_dim}));
  }
  const std::vector<std::uint64_t> rows(what.sequences, what.rows);
  const double scale = 1 / std::sqrt(static_cast<double>(what.head_dim));
  const auto record = [=](Encoder& encoder, std::uint64_t copy) {
    attend(encoder, {.q = q, .kv = (*views)[copy], .out = outs[copy], .scale = scale, .query_tokens = rows});
  };
  return {.bytes = keys.read_bytes() + values.read_bytes(), .run = rotating(device, copies, record)};
}

}  // namespace rota::bench
