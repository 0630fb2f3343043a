#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "core/extent.h"
#include "harness/attend_case.h"
#include "harness/counter.h"
#include "harness/guarded.h"
#include "harness/on_device.h"

// Sequences laid out by hand among NaN, as a cache has them or as callers may.

namespace rota::test {

class AttendLayouts : public OnSharedDevice {
 protected:
  // ---- numbers

  Numbers draw(std::uint64_t tokens, std::uint64_t heads, std::uint64_t dim, const Draw& one) {
    Numbers numbers{heads, dim, std::vector<float>(tokens * heads * dim)};
    for (std::size_t i = 0; i < numbers.values.size(); ++i) {
      numbers.values[i] = static_cast<float>(one(random, i / (heads * dim)));
    }
    return numbers;
  }

  Buffer upload(std::span<const std::byte> bytes) {
    Buffer buffer = device.allocate(core::round_up(std::max<std::uint64_t>(bytes.size(), 4), 4)).value();
    buffer.write(bytes).value();
    return buffer;
  }

  static void put(std::vector<std::byte>& bytes, DType dtype, std::uint64_t index, float value) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
    save_bits(bytes, dtype, index,
              dtype == DType::f32   ? bits
              : dtype == DType::f16 ? f16_from_f32(value)
                                    : bf16_from_f32(value));
  }

  View view_of(const Numbers& numbers, DType dtype = DType::f32) {
    std::vector<std::byte> bytes(numbers.values.size() * info(dtype).bytes);
    for (std::size_t i = 0; i < numbers.values.size(); ++i) put(bytes, dtype, i, numbers.values[i]);
    return View::token_major(upload(bytes), dtype, {numbers.length(), numbers.heads, numbers.dim});
  }

  View queries(std::uint64_t tokens, std::uint64_t heads, std::uint64_t dim, DType dtype = DType::f32) {
    return view_of(draw(tokens, heads, dim, gaussian()), dtype);
  }
  View queries(const Case& of, DType dtype = DType::f32) {
    return queries(of.tokens(), of.heads(), of.head_dim, dtype);
  }

  View per_head(const std::vector<float>& values) { return view_of({values.size(), 1, values}); }

  // ---- sequences

  // Draws sequences and lays them out.
  Stored store_sequences(const Case& of) {
    Stored stored;
    for (const std::uint64_t length : of.lengths) {
      stored.k.push_back(draw(length, of.kv_heads, of.head_dim, of.k_draw));
      stored.v.push_back(draw(length, of.kv_heads, of.value_dim, of.v_draw));
    }
    stored.kv = lay_out(of, stored.k, stored.v);
    return stored;
  }

  // Sequences as a cache has them, in pages in any order. All that is not a token, the dense slot of a sealed one, and
  // what has left the window is NaN.
  KvView lay_out(const Case& of, const std::vector<Numbers>& k, const std::vector<Numbers>& v) {
    KvView kv{.k = lay_side(of, KvSide::keys, k), .v = lay_side(of, KvSide::values, v), .window = of.window};
    if (of.keep_sinks) kv.sinks = of.sinks;
    for (const Numbers& sequence : k) kv.lengths.edit().push_back(sequence.length());
    return kv;
  }

  // Memory of the caller's own.
  struct Slots {
    DType dtype = DType::f16;
    std::uint64_t page_slots = 64;
    enum class Order : std::uint8_t { head_major, token_major, transposed, padded } order = Order::head_major;
    std::vector<std::uint64_t> capacities = {};  // of each sequence's ring; else as long as the sequence
    bool shuffled = true;
  };

  SlotView slot_view(const Slots& slots, std::uint64_t pages, std::uint64_t heads, std::uint64_t dim) const {
    SlotView view = slots.order == Slots::Order::head_major
                        ? SlotView::head_major({}, slots.dtype, {pages, slots.page_slots, heads, dim})
                        : SlotView::token_major({}, slots.dtype, {pages, slots.page_slots, heads, dim});
    if (slots.order == Slots::Order::transposed) {
      view.slot_stride = 1;
      view.dim_stride = slots.page_slots + 3;
      view.head_stride = dim * view.dim_stride;
      view.page_stride = heads * view.head_stride;
    }
    if (slots.order == Slots::Order::padded) {
      view.head_stride += 1;
      view.slot_stride = heads * view.head_stride + 5;
      view.page_stride = slots.page_slots * view.slot_stride + 7;
    }
    view.offset = slots.order == Slots::Order::head_major ? 64 : 13;
    return view;
  }

  KvView lay_slots(const Slots& slots, const std::vector<Numbers>& k, const std::vector<Numbers>& v) {
    std::vector<std::vector<std::uint32_t>> tables;
    std::vector<TokenRun> runs;
    std::uint32_t pages = 1;  // nobody's
    for (std::size_t i = 0; i < k.size(); ++i) {
      const std::uint64_t length = k[i].length();
      const std::uint64_t capacity =
          slots.capacities.empty() ? std::max<std::uint64_t>(length, 1) : slots.capacities[i];
      tables.emplace_back((capacity + slots.page_slots - 1) / slots.page_slots);
      for (std::uint32_t& page : tables.back()) page = pages++;
      runs.push_back({.tokens = length, .position = 0, .capacity = capacity});
    }
    std::vector<std::uint32_t> order(pages);
    std::iota(order.begin(), order.end(), 0U);
    if (slots.shuffled) std::ranges::shuffle(order, random);
    for (std::size_t i = 0; i < k.size(); ++i) {
      for (std::uint32_t& page : tables[i]) page = order[page];
      runs[i].page_table = tables[i];
    }
    const auto lay = [&](const std::vector<Numbers>& sequences) {
      SlotView view = slot_view(slots, pages, sequences[0].heads, sequences[0].dim);
      std::vector<std::byte> bytes((view.offset + pages * view.page_stride + 64) * info(slots.dtype).bytes,
                                   Guarded::kPoison);
      for (std::size_t i = 0; i < sequences.size(); ++i) {
        const std::uint64_t length = sequences[i].length();
        const std::uint64_t capacity = runs[i].capacity;
        for (std::uint64_t p = length > capacity ? length - capacity : 0; p < length; ++p) {
          const std::uint64_t slot = p % capacity;
          fill_slot(bytes, view, tables[i][slot / slots.page_slots], slot % slots.page_slots, sequences[i], p);
        }
      }
      view.buffer = upload(bytes);
      return view;
    };
    return KvView::of_slots(lay(k), lay(v), runs);
  }

  std::mt19937_64 random{20261115};

 private:
  static void fill_slot(std::vector<std::byte>& bytes, const SlotView& view, std::uint64_t page, std::uint64_t slot,
                        const Numbers& from, std::uint64_t position) {
    for (std::uint64_t head = 0; head < from.heads; ++head) {
      for (std::uint64_t d = 0; d < from.dim; ++d) {
        const std::uint64_t at = view.offset + page * view.page_stride + slot * view.slot_stride +
                                 head * view.head_stride + d * view.dim_stride;
        put(bytes, view.dtype, at, from.vector(position, head)[d]);
      }
    }
  }

  // Pages of one pool in any order, with some that are nobody's.
  struct Pool {
    std::vector<std::uint32_t> pages;
    std::size_t taken = 0;

    Pool(std::uint64_t count, std::mt19937_64& random) : pages(count + 2) {
      std::iota(pages.begin(), pages.end(), 0U);
      std::ranges::shuffle(pages, random);
    }
    std::uint32_t take() { return pages.at(taken++); }
  };

  // Pages of f32, [page][slot][head][dim], to sealed ones. Every device gives the same bytes, and the CPU at once.
  static std::vector<std::byte> seal_pages(const PageFormat& format, std::uint64_t heads,
                                           const std::vector<float>& values, std::span<const SealPage> pages) {
    Device cpu = Device::open({}).value();
    Buffer from = cpu.allocate(values.size() * sizeof(float)).value();
    from.write(std::as_bytes(std::span(values))).value();
    Buffer to = cpu.allocate(pages.size() * heads * page_bytes(format)).value();
    const Buffer counter = new_counter(cpu);
    run_on(cpu, [&](Encoder& encoder) {
      seal(encoder,
           {.from = SlotView::token_major(from, DType::f32, {pages.size(), format.tokens, heads, format.head_dim}),
            .to = SealedView::packed(to, format, {.pages = pages.size(), .heads = heads}),
            .pages = pages,
            .non_finite = {counter}});
    }).value();
    return ops::reference::contents_of(to);
  }

  struct PageSpan {
    std::uint64_t first, sealed, last;
  };
  static PageSpan page_span(const Case& of, bool seals, std::uint64_t length, std::uint64_t query_tokens) {
    const std::uint64_t seen = of.window.value_or(length) + query_tokens;
    return {.first = of.window && length >= seen ? (length + 1 - seen) / of.page : 0,
            .sealed = seals && length > of.tail ? (length - of.tail) / of.page : 0,
            .last = (length + of.page - 1) / of.page};
  }

  struct PagesToSeal {
    std::vector<float> values;  // [page][slot][head][dim]
    std::vector<SealPage> pages;
    std::vector<std::uint32_t> physical_pages;
  };
  SealedView lay_sealed(const PageFormat& format, const SealedShape& shape, const PagesToSeal& to_seal) {
    SealedView sealed = SealedView::packed({}, format, shape);
    sealed.offset_bytes = 128;
    const std::uint64_t page_stride = sealed.page_stride_bytes;
    std::vector<std::byte> bytes(sealed.offset_bytes + shape.pages * page_stride + 64, Guarded::kPoison);
    if (!to_seal.pages.empty()) {
      const auto made = seal_pages(format, shape.heads, to_seal.values, to_seal.pages);
      for (std::size_t i = 0; i < to_seal.pages.size(); ++i) {
        std::memcpy(bytes.data() + sealed.offset_bytes + to_seal.physical_pages[i] * page_stride,
                    made.data() + i * page_stride, page_stride);
      }
    }
    sealed.buffer = upload(bytes);
    return sealed;
  }

  KvSideView lay_side(const Case& of, KvSide side, const std::vector<Numbers>& sequences) {
    const KvCodec& codec = side == KvSide::keys ? of.k : of.v;
    const auto* const turbo = std::get_if<Turbo>(&codec);
    const DType dtype = turbo != nullptr ? of.dense : std::get<DType>(codec);
    const std::uint64_t heads = sequences[0].heads;
    const std::uint64_t dim = sequences[0].dim;
    std::vector<PageSpan> spans;
    std::uint64_t dense_pages = 0;
    std::uint64_t sealed_pages = 0;
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      spans.push_back(page_span(of, turbo != nullptr, sequences[i].length(), of.query_tokens[i]));
      dense_pages += spans.back().last - std::max(spans.back().first, spans.back().sealed);
      sealed_pages += std::max(spans.back().first, spans.back().sealed) - spans.back().first;
    }
    Pool dense_pool(dense_pages, random);
    Pool sealed_pool(sealed_pages, random);
    Pool sink_pool(sequences.size(), random);
    Pool step_pool(of.step_pages * sequences.size(), random);

    const auto make_pool = [&](const Pool& pool, std::uint64_t offset) {
      SlotView slots = SlotView::head_major({}, dtype, {pool.pages.size(), of.page, heads, dim});
      slots.offset = offset;
      return slots;
    };
    const auto poisoned = [&](const SlotView& slots) {
      return std::vector<std::byte>((slots.offset + slots.shape.pages * slots.page_stride + 64) * info(dtype).bytes,
                                    Guarded::kPoison);
    };
    const SlotView dense = make_pool(dense_pool, 64);
    const SlotView step = make_pool(step_pool, 16);
    std::vector<std::byte> dense_bytes = poisoned(dense);
    std::vector<std::byte> step_bytes = poisoned(step);
    SlotView sinks =
        SlotView::head_major({}, dtype, {sequences.size() + 2, std::max<std::uint64_t>(of.sinks, 1), heads, dim});
    std::vector<std::byte> sink_bytes((sequences.size() + 2) * sinks.page_stride * info(dtype).bytes, Guarded::kPoison);
    PagesToSeal to_seal;
    KvSideView view{.dense = dense};
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      const PageSpan& span = spans[i];
      auto pages = std::make_shared<KvPages>();
      pages->first_page = span.first;
      pages->sealed_pages = span.sealed;
      const std::uint64_t dense_from = std::max(span.first, span.sealed);
      const std::uint64_t step_page = span.last - std::min(of.step_pages, span.last - dense_from);
      if (step_page < span.last) pages->step_page = std::max(step_page, span.sealed);
      for (std::uint64_t page = span.first; page < span.last; ++page) {
        if (page < span.sealed) {
          const float* const from = sequences[i].vector(page * of.page, 0);
          const std::uint64_t nth = to_seal.pages.size();
          to_seal.values.insert(to_seal.values.end(), from, from + of.page * heads * dim);
          to_seal.pages.push_back({.from = nth, .to = nth, .sinks = page == 0 ? of.sinks : 0});
          to_seal.physical_pages.push_back(sealed_pool.take());
          pages->page_table.push_back(to_seal.physical_pages.back());
          continue;
        }
        const bool of_step = page >= step_page;
        pages->page_table.push_back(of_step ? step_pool.take() : dense_pool.take());
        for (std::uint64_t p = page * of.page; p < std::min((page + 1) * of.page, sequences[i].length()); ++p) {
          fill_slot(of_step ? step_bytes : dense_bytes, of_step ? step : dense, pages->page_table.back(), p % of.page,
                    sequences[i], p);
        }
      }
      if (of.sinks > 0 && (of.keep_sinks || (span.sealed > 0 && span.first == 0))) {
        pages->sinks = sink_pool.take();
        const std::uint64_t count = std::min(of.sinks, sequences[i].length());
        for (std::uint64_t p = 0; p < count; ++p) fill_slot(sink_bytes, sinks, *pages->sinks, p, sequences[i], p);
      }
      view.sequences.edit().push_back(std::move(pages));
    }
    view.dense.buffer = upload(dense_bytes);
    if (of.step_pages > 0) {
      view.step = step;
      view.step->buffer = upload(step_bytes);
    }
    if (of.sinks > 0 && (turbo != nullptr || of.keep_sinks)) {
      sinks.buffer = upload(sink_bytes);
      view.sinks = sinks;
    }
    if (turbo == nullptr) return view;
    const PageFormat format{
        .codec = *turbo, .side = side, .head_dim = static_cast<std::uint32_t>(dim), .tokens = of.page};
    view.sealed = lay_sealed(format, {.pages = sealed_pages + 2, .heads = heads}, to_seal);
    return view;
  }
};

}  // namespace rota::test
