#include "bench/cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <variant>
#include <vector>

#include "cli/command.h"
#include "cli/show.h"
#include "rota/ops.h"

namespace rota::tool {
namespace {

constexpr std::uint32_t kPage = 128;

std::uint64_t pages_for(std::uint64_t tokens) { return (tokens + kPage - 1) / kPage; }

std::uint64_t copies_for(std::uint64_t rotated_bytes, std::uint64_t copy_bytes) {
  return std::max<std::uint64_t>(1, (rotated_bytes + copy_bytes - 1) / copy_bytes);
}

std::vector<float> normal_numbers(std::uint64_t count) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(count);
  std::ranges::generate(numbers, [&] { return normal(random); });
  return numbers;
}

std::vector<std::byte> as_bytes_of(std::span<const float> numbers, DType dtype) {
  std::vector<std::byte> bytes(numbers.size() * info(dtype).bytes);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const std::uint32_t bits = dtype == DType::f32   ? std::bit_cast<std::uint32_t>(numbers[i])
                               : dtype == DType::f16 ? f16_from_f32(numbers[i])
                                                     : bf16_from_f32(numbers[i]);
    for (std::uint32_t b = 0; b < info(dtype).bytes; ++b) {
      bytes[i * info(dtype).bytes + b] = static_cast<std::byte>(bits >> (8 * b));
    }
  }
  return bytes;
}

// Memory that holds `pattern`, again and again.
Buffer filled(Device& device, std::uint64_t bytes, std::span<const std::byte> pattern) {
  Buffer buffer = device.allocate(bytes).value();
  for (std::uint64_t at = 0; at < bytes; at += pattern.size()) {
    buffer.write(pattern.first(std::min<std::uint64_t>(pattern.size(), bytes - at)), at).value();
  }
  return buffer;
}

Buffer numbers_in(Device& device, DType dtype, std::uint64_t count) {
  const std::uint64_t some = std::min<std::uint64_t>(count, 1U << 20);
  return filled(device, count * info(dtype).bytes, as_bytes_of(normal_numbers(some), dtype));
}

void submit(Device& device, const std::function<void(Encoder&)>& record) {
  Encoder encoder = device.encoder();
  record(encoder);
  std::move(encoder).submit().value().wait().value();
}

// Some pages of normal numbers, sealed by the op itself.
std::vector<std::byte> sealed_pages(Device& device, const PageFormat& format, std::uint64_t heads) {
  constexpr std::uint64_t kPages = 2;
  const SlotShape slots{.pages = kPages, .page_slots = kPage, .heads = heads, .dim = format.head_dim};
  const Buffer dense = numbers_in(device, DType::f16, kPages * kPage * heads * format.head_dim);
  std::vector<std::byte> bytes(kPages * heads * page_bytes(format));
  const Buffer sealed = device.allocate(bytes.size()).value();
  const Buffer counter = filled(device, 8, std::vector<std::byte>(8));
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
  SideMaker(Device& device, const BenchShape& shape, KvSide side)
      : device_(device),
        shape_(shape),
        dim_(side == KvSide::keys ? shape.head_dim : shape.value_dim),
        format_{.codec = turbo(4), .side = side, .head_dim = static_cast<std::uint32_t>(dim_), .tokens = kPage} {
    const KvCodec& codec = side == KvSide::keys ? shape.k : shape.v;
    const std::uint64_t all = pages_for(shape.keys);
    if (const auto* const turbo = std::get_if<Turbo>(&codec)) {
      format_.codec = *turbo;
      check(format_).value();
      sealed_pages_ = (shape.keys - std::min(shape.keys, shape.tail)) / kPage;
      if (sealed_pages_ > 0) pattern_ = sealed_pages(device, format_, shape.kv_heads);
    } else {
      dtype_ = std::get<DType>(codec);
    }
    dense_pages_ = all - sealed_pages_;
    first_page_ = shape.window ? (shape.keys - std::min(shape.keys, *shape.window)) / kPage : 0;
  }

  // What attention reads of one copy: tokens inside the window.
  std::uint64_t read_bytes() const {
    const std::uint64_t sealed = sealed_pages_ - std::min(sealed_pages_, first_page_);
    const std::uint64_t first =
        std::max(shape_.keys - std::min(shape_.keys, shape_.window.value_or(shape_.keys)), sealed_pages_ * kPage);
    return shape_.sequences * shape_.kv_heads *
           (sealed * page_bytes(format_) + (shape_.keys - first) * dim_ * info(dtype_).bytes);
  }

  std::uint64_t copy_bytes() const {
    return shape_.sequences * shape_.kv_heads *
           (sealed_pages_ * page_bytes(format_) + dense_pages_ * kPage * dim_ * info(dtype_).bytes);
  }

  KvSideView copy(std::minstd_rand& random) const {
    const std::uint64_t dense = shape_.sequences * dense_pages_;
    const SlotShape slots{
        .pages = std::max<std::uint64_t>(dense, 1), .page_slots = kPage, .heads = shape_.kv_heads, .dim = dim_};
    KvSideView view{.dense = SlotView::head_major(
                        numbers_in(device_, dtype_, slots.pages * kPage * shape_.kv_heads * dim_), dtype_, slots)};
    const std::uint64_t sealed = shape_.sequences * sealed_pages_;
    if (sealed > 0) {
      const SealedShape pages{.pages = sealed, .heads = shape_.kv_heads};
      const std::uint64_t bytes = sealed * shape_.kv_heads * page_bytes(format_);
      view.sealed = SealedView::packed(filled(device_, bytes, pattern_), format_, pages);
    }
    const std::vector<std::uint32_t> sealed_order = order(sealed, random);
    const std::vector<std::uint32_t> dense_order = order(dense, random);
    for (std::uint64_t sequence = 0; sequence < shape_.sequences; ++sequence) {
      const auto list = std::make_shared<KvPages>();
      list->sealed_pages = sealed_pages_;
      const auto add = [&](const std::vector<std::uint32_t>& from, std::uint64_t count) {
        for (std::uint64_t page = 0; page < count; ++page) list->page_table.push_back(from[sequence * count + page]);
      };
      add(sealed_order, sealed_pages_);
      add(dense_order, dense_pages_);
      view.sequences.push_back(list);
    }
    return view;
  }

 private:
  std::vector<std::uint32_t> order(std::uint64_t pages, std::minstd_rand& random) const {
    std::vector<std::uint32_t> places(pages);
    std::iota(places.begin(), places.end(), 0U);
    if (shape_.scattered) std::ranges::shuffle(places, random);
    return places;
  }

  Device& device_;
  const BenchShape& shape_;
  std::uint64_t dim_;
  PageFormat format_;
  DType dtype_ = DType::f16;
  std::uint64_t sealed_pages_ = 0, dense_pages_ = 0, first_page_ = 0;
  std::vector<std::byte> pattern_{};
};

// Calls go round through the copies, whoever asks for them.
BenchWork rotating(Device& device, std::uint64_t copies, std::function<void(Encoder&, std::uint64_t copy)> record) {
  const auto next = std::make_shared<std::uint64_t>(0);
  return {.run = [device, copies, next, record = std::move(record)](std::uint64_t calls) mutable {
    submit(device, [&](Encoder& encoder) {
      for (std::uint64_t call = 0; call < calls; ++call) record(encoder, (*next)++ % copies);
    });
  }};
}

BenchWork attend_work(BenchDevice& bench, const BenchShape& shape) {
  Device& device = bench.device;
  const SideMaker keys(device, shape, KvSide::keys);
  const SideMaker values(device, shape, KvSide::values);
  const std::uint64_t copy_bytes = keys.copy_bytes() + values.copy_bytes();
  const std::uint64_t copies = copies_for(shape.rotated_bytes, copy_bytes);
  bench.take(copies * copy_bytes);
  std::minstd_rand random(3);
  const auto views = std::make_shared<std::vector<KvView>>();
  for (std::uint64_t copy = 0; copy < copies; ++copy) {
    views->push_back({.k = keys.copy(random),
                      .v = values.copy(random),
                      .lengths = std::vector<std::uint64_t>(shape.sequences, shape.keys),
                      .window = shape.window});
  }
  const std::uint64_t tokens = shape.sequences * shape.rows;
  const std::uint64_t heads = shape.kv_heads * shape.group;
  const View q = View::token_major(numbers_in(device, DType::f32, tokens * heads * shape.head_dim), DType::f32,
                                   {tokens, heads, shape.head_dim});
  std::vector<MutView> outs;
  for (std::uint64_t copy = 0; copy < copies; ++copy) {
    outs.push_back(MutView::token_major(numbers_in(device, DType::f32, tokens * heads * shape.value_dim), DType::f32,
                                        {tokens, heads, shape.value_dim}));
  }
  const std::vector<std::uint64_t> rows(shape.sequences, shape.rows);
  const double scale = 1 / std::sqrt(static_cast<double>(shape.head_dim));
  BenchWork work = rotating(device, copies, [=](Encoder& encoder, std::uint64_t copy) {
    attend(encoder, {.q = q, .kv = (*views)[copy], .out = outs[copy], .scale = scale, .query_tokens = rows});
  });
  work.bytes = keys.read_bytes() + values.read_bytes();
  return work;
}

DType dense_type(const KvCodec& codec, std::string_view op) {
  if (const auto* const dtype = std::get_if<DType>(&codec)) return *dtype;
  throw Failure(Exit::usage,
                fmt::format("{} writes dense numbers, and {} is none of f16, bf16 and f32", op, name(codec)),
                "rota bench seal --help");
}

BenchWork store_work(BenchDevice& bench, const BenchShape& shape) {
  Device& device = bench.device;
  const DType types[] = {dense_type(shape.k, "store"), dense_type(shape.v, "store")};
  const std::uint64_t dims[] = {shape.head_dim, shape.value_dim};
  const std::uint64_t tokens = shape.sequences * shape.keys;
  std::uint64_t bytes = 0;
  for (int side : {0, 1}) bytes += tokens * shape.kv_heads * dims[side] * (2 + info(types[side]).bytes);
  const std::uint64_t copies = copies_for(shape.rotated_bytes, bytes);
  bench.take(copies * bytes);
  const auto pairs = std::make_shared<std::vector<StorePair>>();
  for (std::uint64_t copy = 0; copy < copies; ++copy) {
    for (int side : {0, 1}) {
      const std::uint64_t count = tokens * shape.kv_heads * dims[side];
      pairs->push_back(
          {.from = View::token_major(numbers_in(device, DType::f16, count), DType::f16,
                                     {tokens, shape.kv_heads, dims[side]}),
           .to = SlotView::head_major(numbers_in(device, types[side], count), types[side],
                                      {.page_slots = tokens, .heads = shape.kv_heads, .dim = dims[side]})});
    }
  }
  const TokenRun run{.tokens = tokens, .position = 0, .capacity = tokens};
  BenchWork work = rotating(device, copies, [=](Encoder& encoder, std::uint64_t copy) {
    store(encoder, {.pairs = std::span(*pairs).subspan(2 * copy, 2), .sequences = {&run, 1}});
  });
  work.bytes = bytes;
  return work;
}

BenchWork rope_work(BenchDevice& bench, const BenchShape& shape) {
  Device& device = bench.device;
  const DType dtype = dense_type(shape.k, "rope");
  const std::uint64_t tokens = shape.sequences * shape.keys;
  const std::uint64_t counts[] = {shape.kv_heads * shape.group, shape.kv_heads};
  const std::uint64_t bytes = 2 * tokens * (counts[0] + counts[1]) * shape.head_dim * info(dtype).bytes;
  const std::uint64_t copies = copies_for(shape.rotated_bytes, bytes / 2);
  bench.take(copies * bytes / 2);
  const auto tensors = std::make_shared<std::vector<RopeTensor>>();
  for (std::uint64_t copy = 0; copy < copies; ++copy) {
    for (const std::uint64_t heads : counts) {
      const Buffer numbers = numbers_in(device, dtype, tokens * heads * shape.head_dim);
      tensors->push_back(RopeTensor::in_place(MutView::token_major(numbers, dtype, {tokens, heads, shape.head_dim})));
    }
  }
  std::vector<std::int64_t> positions(tokens);
  std::iota(positions.begin(), positions.end(), std::int64_t{0});
  BenchWork work = rotating(device, copies, [=](Encoder& encoder, std::uint64_t copy) {
    const Rotary rotary{.pairing = Pairing::halves, .theta = 5e5};
    rope(encoder, {.tensors = std::span(*tensors).subspan(2 * copy, 2), .positions = positions, .rotary = rotary});
  });
  work.bytes = bytes;
  return work;
}

BenchWork seal_work(BenchDevice& bench, const BenchShape& shape) {
  Device& device = bench.device;
  struct Side {
    SlotView from;
    SealedView to;
  };
  const std::uint64_t pages = shape.sequences * std::max<std::uint64_t>(1, shape.keys / kPage);
  const auto format_of = [&](KvSide side) {
    const KvCodec& codec = side == KvSide::keys ? shape.k : shape.v;
    const auto* const turbo = std::get_if<Turbo>(&codec);
    if (turbo == nullptr) {
      throw Failure(Exit::usage, fmt::format("seal makes pages of turbo2 to turbo8, not of {}", name(codec)),
                    "rota bench seal -ctk turbo4 -ctv turbo4");
    }
    const PageFormat format{
        .codec = *turbo,
        .side = side,
        .head_dim = static_cast<std::uint32_t>(side == KvSide::keys ? shape.head_dim : shape.value_dim),
        .tokens = kPage};
    check(format).value();
    return format;
  };
  std::uint64_t bytes = 0;
  for (const KvSide side : {KvSide::keys, KvSide::values}) {
    const PageFormat format = format_of(side);
    bytes += pages * shape.kv_heads * (page_bytes(format) + std::uint64_t{2} * kPage * format.head_dim);
  }
  const std::uint64_t copies = copies_for(shape.rotated_bytes, bytes);
  bench.take(copies * bytes);
  const auto sides = std::make_shared<std::vector<Side>>();
  for (std::uint64_t copy = 0; copy < copies; ++copy) {
    for (const KvSide side : {KvSide::keys, KvSide::values}) {
      const PageFormat format = format_of(side);
      const SlotShape slots{.pages = pages, .page_slots = kPage, .heads = shape.kv_heads, .dim = format.head_dim};
      sides->push_back(
          {SlotView::head_major(numbers_in(device, DType::f16, pages * kPage * shape.kv_heads * format.head_dim),
                                DType::f16, slots),
           SealedView::packed(device.allocate(pages * shape.kv_heads * page_bytes(format)).value(), format,
                              {.pages = pages, .heads = shape.kv_heads})});
    }
  }
  std::vector<SealPage> list;
  for (std::uint64_t page = 0; page < pages; ++page) list.push_back({.from = page, .to = page});
  const Buffer counter = filled(device, 8, std::vector<std::byte>(8));
  BenchWork work = rotating(device, copies, [=](Encoder& encoder, std::uint64_t copy) {
    for (const Side& side : std::span(*sides).subspan(2 * copy, 2)) {
      seal(encoder, {.from = side.from, .to = side.to, .pages = list, .non_finite = {counter}});
    }
  });
  work.bytes = bytes;
  return work;
}

}  // namespace

void BenchDevice::take(std::uint64_t bytes) {
  if (bytes > memory_left) {
    throw Failure(Exit::failed_check,
                  fmt::format("{} more are needed on {} than the {} that rota takes of its memory", bytes_text(bytes),
                              device.info().id, bytes_text(memory_left)),
                  "fewer cases at a time, or less memory to go round through: --rotate 64");
  }
  memory_left -= bytes;
}

BenchWork make_work(BenchDevice& bench, const BenchShape& shape) {
  using Maker = BenchWork (*)(BenchDevice&, const BenchShape&);
  static const std::map<std::string, Maker> makers{
      {"attend", attend_work}, {"rope", rope_work}, {"seal", seal_work}, {"store", store_work}};
  return makers.at(shape.op)(bench, shape);
}

BenchWork make_read(BenchDevice& bench) {
  Device& device = bench.device;
  constexpr std::uint64_t kBuffers = 4;
  constexpr std::uint64_t kMost = std::uint64_t{128} << 20;  // four of them are more than caches hold
  const std::uint64_t limit = device.info().limits.max_binding_bytes;
  const std::uint64_t bytes = limit == 0 ? kMost : std::min(kMost, limit / 64 * 64);
  bench.take(kBuffers * bytes);
  std::vector<Buffer> buffers;
  for (std::uint64_t i = 0; i < kBuffers; ++i) buffers.push_back(numbers_in(device, DType::f32, bytes / 4));
  const Buffer sums = device.allocate(kBuffers * 4).value();
  BenchWork work = rotating(device, kBuffers, [=](Encoder& encoder, std::uint64_t copy) {
    const WordRange range{.buffer = buffers[copy], .size_bytes = bytes};
    checksum(encoder, {.of = {&range, 1}, .sums = sums, .sums_offset_bytes = copy * 4});
  });
  work.bytes = bytes;
  return work;
}

}  // namespace rota::tool
