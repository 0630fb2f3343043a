#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/extent.h"
#include "harness/counter.h"
#include "harness/guarded.h"
#include "harness/on_device.h"
#include "ops/attend/attend_reference.h"

// What the tests of `attend` share: sequences laid out by hand among NaN, calls, and what a result may differ by.

namespace rota::test {

using ops::reference::Definition;
using ops::reference::QueryVector;
using ops::reference::VectorResult;

// A number of the token at a position.
using Draw = std::function<double(std::mt19937_64&, std::uint64_t position)>;

inline Draw gaussian(double deviation = 1) {
  return [normal = std::normal_distribution<double>(0, deviation)](std::mt19937_64& random, std::uint64_t) mutable {
    return normal(random);
  };
}

struct Case {
  KvCodec k = DType::f16, v = DType::f16;
  std::uint32_t head_dim = 64, value_dim = 64, kv_heads = 1, group = 8;
  std::vector<std::uint64_t> lengths = {200}, query_tokens = {1};
  std::optional<std::uint64_t> window = {};
  DType dense = DType::f16;  // of tail and sinks
  std::uint32_t page = 64;
  std::uint64_t tail = 64, sinks = 4;
  Draw k_draw = gaussian(), v_draw = gaussian();

  std::uint64_t heads() const { return std::uint64_t{kv_heads} * group; }
  std::uint64_t tokens() const { return std::accumulate(query_tokens.begin(), query_tokens.end(), std::uint64_t{0}); }
};

// A sequence's keys or values before they are stored: [position][head][dim].
struct Numbers {
  std::uint64_t heads = 0, dim = 0;
  std::vector<float> values = {};

  const float* vector(std::uint64_t position, std::uint64_t head) const {
    return values.data() + (position * heads + head) * dim;
  }
  std::uint64_t length() const { return values.size() / heads / dim; }
};

struct Stored {
  std::vector<Numbers> k, v;
  KvView kv;
};

// What is asked beside keys and values.
struct Asked {
  View q;
  std::vector<std::uint64_t> query_tokens = {};
  std::optional<double> scale = {};  // else 1 / sqrt(dim)
  DType out = DType::f32;
  Mask mask = Mask::causal;
  std::optional<double> soft_cap = {};
  std::optional<View> sink_logits = {}, alibi_slopes = {};
  bool log_sum_exp = true;
  Arithmetic arithmetic = Arithmetic::f32;  // whose error has a bound of its own, not the codec's
};

struct Answer {
  Shape shape = {};
  DType dtype = DType::f32;
  std::vector<std::byte> out = {}, log_sum_exp = {};

  double at(const QueryVector& vector, std::uint64_t d) const {
    return value_of(load_bits(out, dtype, (vector.token * shape.heads + vector.head) * shape.dim + d), dtype);
  }
  double log_sum_exp_at(const QueryVector& vector) const {
    return value_of(load_bits(log_sum_exp, DType::f32, vector.token * shape.heads + vector.head), DType::f32);
  }
  // All bits of `count` tokens.
  Answer part(std::uint64_t first, std::uint64_t count) const {
    Answer some{.shape = {count, shape.heads, shape.dim}, .dtype = dtype};
    const auto cut = [&](const std::vector<std::byte>& all, std::uint64_t token_bytes) {
      if (all.empty()) return all;
      const auto begin = all.begin() + static_cast<std::ptrdiff_t>(first * token_bytes);
      return std::vector(begin, begin + static_cast<std::ptrdiff_t>(count * token_bytes));
    };
    some.out = cut(out, shape.heads * shape.dim * info(dtype).bytes);
    some.log_sum_exp = cut(log_sum_exp, shape.heads * sizeof(float));
    return some;
  }
  friend bool operator==(const Answer& a, const Answer& b) { return a.out == b.out && a.log_sum_exp == b.log_sum_exp; }
};

class AttendOnDevice : public OnSharedDevice {
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
    for (const Numbers& sequence : k) kv.lengths.push_back(sequence.length());
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

  // ---- calls

  Attend call_of(const KvView& kv, Asked&& asked) const = delete;  // the call refers to its query tokens
  Attend call_of(const KvView& kv, const Asked& asked) const {
    return {
        .q = asked.q,
        .kv = kv,
        .out = MutView::token_major({}, asked.out, {asked.q.shape.tokens, asked.q.shape.heads, kv.v.dense.shape.dim}),
        .scale = asked.scale.value_or(1 / std::sqrt(static_cast<double>(asked.q.shape.dim))),
        .query_tokens = asked.query_tokens,
        .mask = asked.mask,
        .soft_cap = asked.soft_cap,
        .sink_logits = asked.sink_logits,
        .alibi_slopes = asked.alibi_slopes,
        .arithmetic = asked.arithmetic};
  }

  Answer run(const KvView& kv, const Asked& asked) { return run(device, kv, asked); }

  Answer run(Device& on, const KvView& kv, const Asked& asked) {
    Attend call = call_of(kv, asked);
    const Shape shape = call.out.shape;
    const Guarded out(on, shape.tokens * shape.heads * shape.dim, asked.out);
    const Guarded sums(on, shape.tokens * shape.heads, DType::f32);
    call.out.buffer = out.buffer;
    call.out.offset = out.offset;
    if (asked.log_sum_exp) {
      call.log_sum_exp = MutView::token_major(sums.buffer, DType::f32, {shape.tokens, shape.heads, 1});
      call.log_sum_exp->offset = sums.offset;
    }
    EXPECT_OK(run_on(on, [&](Encoder& encoder) { attend(encoder, call); }));
    EXPECT_TRUE(out.guards_intact() && sums.guards_intact());
    return {shape, asked.out, out.read(), asked.log_sum_exp ? sums.read() : std::vector<std::byte>{}};
  }

  // By the op.
  Answer merge_answers(const Answer& a, const Answer& b) {
    const auto part = [&](const Answer& answer) {
      const Shape per_head{answer.shape.tokens, answer.shape.heads, 1};
      return AttentionState{View::token_major(upload(answer.out), answer.dtype, answer.shape),
                            View::token_major(upload(answer.log_sum_exp), DType::f32, per_head)};
    };
    const AttentionState first = part(a);
    MutView out = MutView::token_major(upload(a.out), a.dtype, a.shape);
    MutView sums = MutView::token_major(upload(a.log_sum_exp), DType::f32, first.log_sum_exp.shape);
    EXPECT_OK(run_on(device, [&](Encoder& encoder) {
      merge(encoder, {.first = first, .second = part(b), .out = out, .log_sum_exp = sums});
    }));
    Answer merged = a;
    out.buffer.read(merged.out).value();
    sums.buffer.read(merged.log_sum_exp).value();
    return merged;
  }

  // ---- what comes of it

  static std::vector<QueryVector> all_vectors(const Asked& asked) {
    std::vector<QueryVector> vectors;
    for (std::uint64_t token = 0; token < asked.q.shape.tokens; ++token) {
      for (std::uint64_t head = 0; head < asked.q.shape.heads; ++head) vectors.push_back({token, head});
    }
    return vectors;
  }

  static constexpr double kTolerance = 1e-5;  // of |out|, and of log_sum_exp beyond 1

  // Relative to the length of what the definition gives; of smaller types half a last place in each dim beside. Where
  // `logits_are_large`: a dot product of n terms is off by about sqrt(n) 2^-24 of itself, and so is then a weight.
  void expect_defined(const KvView& kv, const Asked& asked, const Answer& found, Definition& definition,
                      std::span<const QueryVector> vectors) {
    const auto wanted = definition.results(call_of(kv, asked), vectors);
    for (std::size_t i = 0; i < vectors.size(); ++i) {
      double error = 0;
      double energy = 0;
      double rounding = 0;
      for (std::uint64_t d = 0; d < wanted[i].out.size(); ++d) {
        error += std::pow(found.at(vectors[i], d) - wanted[i].out[d], 2);
        energy += std::pow(wanted[i].out[d], 2);
        if (found.dtype != DType::f32) rounding += std::pow(last_place(found.dtype, wanted[i].out[d]) / 2, 2);
      }
      const double tolerance = kTolerance * (logits_are_large ? std::max(1.0, wanted[i].largest_logit) : 1);
      const double limit =
          tolerance * (logits_are_large ? wanted[i].weighed_values : std::sqrt(energy)) + std::sqrt(rounding);
      if (limit > 0) worst_error = std::max(worst_error, std::sqrt(error) / limit);
      if (!(std::sqrt(error) <= limit)) {
        ADD_FAILURE() << fmt::format("token {}, head {}: off by {} of {}", vectors[i].token, vectors[i].head,
                                     std::sqrt(error), std::sqrt(energy));
        return;
      }
      if (!asked.log_sum_exp) continue;
      const double sum = found.log_sum_exp_at(vectors[i]);
      if (sum == wanted[i].log_sum_exp) continue;  // also where both are -infinity
      const double sum_limit = kTolerance * (1 + std::abs(wanted[i].log_sum_exp));
      if (!(std::abs(sum - wanted[i].log_sum_exp) <= sum_limit)) {
        ADD_FAILURE() << fmt::format("token {}, head {}: log_sum_exp {}, wanted {}", vectors[i].token, vectors[i].head,
                                     sum, wanted[i].log_sum_exp);
        return;
      }
    }
  }

  // Every vector of a call.
  Answer expect_defined(const KvView& kv, const Asked& asked) {
    const Answer found = run(kv, asked);
    Definition definition(kv);
    expect_defined(kv, asked, found, definition, all_vectors(asked));
    return found;
  }

  Answer expect_defined(const Case& what) {
    SCOPED_TRACE(describe(what));
    const Stored stored = store_sequences(what);
    return expect_defined(stored.kv, {.q = queries(what), .query_tokens = what.query_tokens});
  }

  // A view of some of the sequences, as long as they are or as said.
  static KvView some_of(const KvView& all, std::span<const std::size_t> sequences) {
    KvView kv = all;
    kv.lengths.clear();
    kv.k.sequences.clear();
    kv.v.sequences.clear();
    for (const std::size_t sequence : sequences) {
      kv.lengths.push_back(all.lengths[sequence]);
      kv.k.sequences.push_back(all.k.sequences[sequence]);
      kv.v.sequences.push_back(all.v.sequences[sequence]);
    }
    return kv;
  }
  static KvView one_of(const KvView& all, std::size_t sequence) { return some_of(all, {&sequence, 1}); }

  // Sequences of one query token or more, their queries cut out of a larger q.
  static Asked part_of(Asked asked, std::uint64_t first, std::vector<std::uint64_t> tokens) {
    asked.q = asked.q.slice(first, std::accumulate(tokens.begin(), tokens.end(), std::uint64_t{0}));
    asked.query_tokens = std::move(tokens);
    return asked;
  }

  static std::string describe(const KvCodec& codec) {
    const auto* const dtype = std::get_if<DType>(&codec);
    return dtype != nullptr ? std::string(info(*dtype).name)
                            : fmt::format("turbo{}", std::uint32_t{std::get<Turbo>(codec).bits});
  }
  static std::string describe(const Case& what) {
    return fmt::format("{} of {} and {} of {}, group {}, {} sequences, the first of {} with {} query tokens",
                       describe(what.k), what.head_dim, describe(what.v), what.value_dim, what.group,
                       what.lengths.size(), what.lengths[0], what.query_tokens[0]);
  }

  bool on_cpu() const { return device.info().kind == DeviceKind::cpu; }

  std::mt19937_64 random{20261115};
  bool logits_are_large = false;
  double worst_error = 0;  // of what is allowed

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

  KvSideView lay_side(const Case& of, KvSide side, const std::vector<Numbers>& sequences) {
    const KvCodec& codec = side == KvSide::keys ? of.k : of.v;
    const auto* const turbo = std::get_if<Turbo>(&codec);
    const DType dtype = turbo != nullptr ? of.dense : std::get<DType>(codec);
    const std::uint64_t heads = sequences[0].heads;
    const std::uint64_t dim = sequences[0].dim;
    struct SequenceState {
      std::uint64_t first, sealed, last;  // pages
    };
    std::vector<SequenceState> plans;
    std::uint64_t dense_pages = 0;
    std::uint64_t sealed_pages = 0;
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      const std::uint64_t length = sequences[i].length();
      const std::uint64_t seen = of.window.value_or(length) + of.query_tokens[i];
      SequenceState plan{.first = length >= seen ? (length + 1 - seen) / of.page : 0,
                         .sealed = turbo != nullptr && length > of.tail ? (length - of.tail) / of.page : 0,
                         .last = (length + of.page - 1) / of.page};
      if (!of.window) plan.first = 0;
      dense_pages += plan.last - std::max(plan.first, plan.sealed);
      sealed_pages += std::max(plan.first, plan.sealed) - plan.first;
      plans.push_back(plan);
    }
    Pool dense_pool(dense_pages, random);
    Pool sealed_pool(sealed_pages, random);
    Pool sink_pool(sequences.size(), random);

    SlotView dense = SlotView::head_major({}, dtype, {dense_pages + 2, of.page, heads, dim});
    dense.offset = 64;
    std::vector<std::byte> dense_bytes((dense.offset + (dense_pages + 2) * dense.page_stride + 64) * info(dtype).bytes,
                                       Guarded::kPoison);
    SlotView sinks =
        SlotView::head_major({}, dtype, {sequences.size() + 2, std::max<std::uint64_t>(of.sinks, 1), heads, dim});
    std::vector<std::byte> sink_bytes((sequences.size() + 2) * sinks.page_stride * info(dtype).bytes, Guarded::kPoison);
    std::vector<float> to_seal;
    std::vector<SealPage> seals;
    std::vector<std::uint32_t> physical_pages;
    KvSideView view{.dense = dense};
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      const SequenceState& plan = plans[i];
      auto pages = std::make_shared<KvPages>();
      pages->first_page = plan.first;
      pages->sealed_pages = plan.sealed;
      for (std::uint64_t page = plan.first; page < plan.last; ++page) {
        if (page < plan.sealed) {
          const float* const from = sequences[i].vector(page * of.page, 0);
          to_seal.insert(to_seal.end(), from, from + of.page * heads * dim);
          seals.push_back({.from = seals.size(), .to = seals.size(), .sinks = page == 0 ? of.sinks : 0});
          physical_pages.push_back(sealed_pool.take());
          pages->page_table.push_back(physical_pages.back());
          continue;
        }
        pages->page_table.push_back(dense_pool.take());
        for (std::uint64_t p = page * of.page; p < std::min((page + 1) * of.page, sequences[i].length()); ++p) {
          fill_slot(dense_bytes, dense, pages->page_table.back(), p % of.page, sequences[i], p);
        }
      }
      if (plan.sealed > 0 && plan.first == 0 && of.sinks > 0) {
        pages->sinks = sink_pool.take();
        for (std::uint64_t p = 0; p < of.sinks; ++p) fill_slot(sink_bytes, sinks, *pages->sinks, p, sequences[i], p);
      }
      view.sequences.push_back(std::move(pages));
    }
    view.dense.buffer = upload(dense_bytes);
    if (turbo == nullptr) return view;
    if (of.sinks > 0) {
      sinks.buffer = upload(sink_bytes);
      view.sinks = sinks;
    }
    const PageFormat format{
        .codec = *turbo, .side = side, .head_dim = static_cast<std::uint32_t>(dim), .tokens = of.page};
    SealedView sealed = SealedView::packed({}, format, {.pages = sealed_pages + 2, .heads = heads});
    sealed.offset_bytes = 128;
    std::vector<std::byte> sealed_bytes(sealed.offset_bytes + (sealed_pages + 2) * sealed.page_stride_bytes + 64,
                                        Guarded::kPoison);
    if (!seals.empty()) {
      const auto made = seal_pages(format, heads, to_seal, seals);
      for (std::size_t i = 0; i < physical_pages.size(); ++i) {
        std::memcpy(sealed_bytes.data() + sealed.offset_bytes + physical_pages[i] * sealed.page_stride_bytes,
                    made.data() + i * sealed.page_stride_bytes, sealed.page_stride_bytes);
      }
    }
    sealed.buffer = upload(sealed_bytes);
    view.sealed = sealed;
    return view;
  }
};

}  // namespace rota::test
