#include "gpu_cost/calls.h"

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <variant>

#include "rota/rota.h"

namespace rota::test {
namespace {

constexpr std::uint64_t kTokens = 128, kHeads = 2, kDim = 128;
constexpr Shape kShape{.tokens = kTokens, .heads = kHeads, .dim = kDim};
constexpr SlotShape kSlots{.page_slots = kTokens, .heads = kHeads, .dim = kDim};

// Room for any tensor here; nothing reads or writes it.
Buffer room(Device& device) { return device.allocate(std::uint64_t{1} << 20).value(); }

struct StoreCase {
  DType from, to;
  std::uint64_t offset = 0;  // an odd one splits words
  bool counted = false;
};

auto storing(const StoreCase& what) {
  return [what](Device& device, Encoder& encoder) {
    StorePair pair{View::token_major(room(device), what.from, kShape),
                   SlotView::token_major(room(device), what.to, kSlots)};
    pair.from.offset = pair.to.offset = what.offset;
    const TokenRun run{.tokens = kTokens, .position = 0, .capacity = kTokens};
    const auto counter = what.counted ? std::optional(Counter{room(device)}) : std::nullopt;
    store(encoder, {.pairs = {&pair, 1}, .sequences = {&run, 1}, .non_finite = counter});
  };
}

struct RopeCase {
  DType dtype;
  Pairing pairing;
  bool normed = false;
};

auto rotating(const RopeCase& what) {
  return [what](Device& device, Encoder& encoder) {
    const HeadNorm norm{.epsilon = 1e-6, .weight = View::token_major(room(device), DType::f32, {1, 1, kDim})};
    const auto tensor = RopeTensor::in_place(MutView::token_major(room(device), what.dtype, kShape),
                                             what.normed ? std::optional(norm) : std::nullopt);
    const std::array<std::int64_t, kTokens> positions{};
    const Rotary rotary{.pairing = what.pairing, .theta = 1e6};
    rope(encoder, {.tensors = {&tensor, 1}, .positions = positions, .rotary = rotary});
  };
}

SealedView sealed_pages(Device& device) {
  const PageFormat format{.codec = turbo(4), .side = KvSide::keys, .head_dim = kDim};
  return SealedView::packed(room(device), format, {.pages = 1, .heads = kHeads});
}

auto sealing(DType dtype) {
  return [dtype](Device& device, Encoder& encoder) {
    const SealPage page{.from = 0, .to = 0};
    seal(encoder, {.from = SlotView::token_major(room(device), dtype, kSlots),
                   .to = sealed_pages(device),
                   .pages = {&page, 1},
                   .non_finite = {room(device)}});
  };
}

auto unsealing(DType dtype) {
  return [dtype](Device& device, Encoder& encoder) {
    const UnsealPage page{.from = 0, .to = 0};
    unseal(
        encoder,
        {.from = sealed_pages(device), .to = SlotView::token_major(room(device), dtype, kSlots), .pages = {&page, 1}});
  };
}

struct AttendCase {
  KvCodec codec;  // of keys and values
  std::uint32_t dim = 128, value_dim = 128, group = 4;
};

auto attending(const AttendCase& what) {
  return [what](Device& device, Encoder& encoder) {
    const auto side_of = [&](KvSide side, std::uint32_t dim) {
      const Turbo* const turbo = std::get_if<Turbo>(&what.codec);
      const DType* const dtype = std::get_if<DType>(&what.codec);
      const auto pages = std::make_shared<KvPages>();
      pages->sealed_pages = turbo == nullptr ? 0 : 1;
      pages->page_table = {0};
      KvSideView view{.dense = SlotView::head_major(room(device), dtype == nullptr ? DType::f16 : *dtype,
                                                    {.page_slots = kTokens, .heads = kHeads, .dim = dim}),
                      .sequences = {pages}};
      if (turbo != nullptr) {
        const PageFormat format{.codec = *turbo, .side = side, .head_dim = dim};
        view.sealed = SealedView::packed(room(device), format, {.pages = 1, .heads = kHeads});
      }
      return view;
    };
    const KvView kv{
        .k = side_of(KvSide::keys, what.dim), .v = side_of(KvSide::values, what.value_dim), .lengths = {kTokens}};
    const std::uint64_t heads = kHeads * what.group;
    attend(encoder, {.q = View::token_major(room(device), DType::f16, {1, heads, what.dim}),
                     .kv = kv,
                     .out = MutView::token_major(room(device), DType::f16, {1, heads, what.value_dim}),
                     .scale = 1});
  };
}

}  // namespace

std::vector<Call> calls() {
  using enum DType;
  return {
      {"f16 to f16", storing({.from = f16, .to = f16})},
      {"f16 to f16, odd offset", storing({.from = f16, .to = f16, .offset = 1})},
      {"f32 to f16, counted", storing({.from = f32, .to = f16, .counted = true})},
      {"bf16 to f16", storing({.from = bf16, .to = f16})},
      {"f16, halves", rotating({.dtype = f16, .pairing = Pairing::halves})},
      {"f16, interleaved", rotating({.dtype = f16, .pairing = Pairing::interleaved})},
      {"f16, halves, normed", rotating({.dtype = f16, .pairing = Pairing::halves, .normed = true})},
      {"f32, halves", rotating({.dtype = f32, .pairing = Pairing::halves})},
      {"from f16", sealing(f16)},
      {"from bf16", sealing(bf16)},
      {"from f32", sealing(f32)},
      {"to f16", unsealing(f16)},
      {"to bf16", unsealing(bf16)},
      {"to f32", unsealing(f32)},
      {"turbo:4, D=128, G=1", attending({.codec = turbo(4), .group = 1})},
      {"turbo:4, D=128, G=4", attending({.codec = turbo(4)})},
      {"turbo:4, D=128, G=8", attending({.codec = turbo(4), .group = 8})},
      {"turbo:2, D=128, G=4", attending({.codec = turbo(2)})},
      {"turbo:3, D=128, G=4", attending({.codec = turbo(3)})},
      {"turbo:3, D=128, G=8", attending({.codec = turbo(3), .group = 8})},
      {"turbo:5, D=128, G=4", attending({.codec = turbo(5)})},
      {"turbo:5, D=128, G=8", attending({.codec = turbo(5), .group = 8})},
      {"turbo:6, D=128, G=4", attending({.codec = turbo(6)})},
      {"turbo:6, D=128, G=8", attending({.codec = turbo(6), .group = 8})},
      {"turbo:8, D=128, G=4", attending({.codec = turbo(8)})},
      {"turbo:8, D=128, G=8", attending({.codec = turbo(8), .group = 8})},
      {"f16, D=128, G=1", attending({.codec = f16, .group = 1})},
      {"f16, D=128, G=4", attending({.codec = f16})},
      {"f16, D=128, G=8", attending({.codec = f16, .group = 8})},
      {"turbo:4, D=64, G=8", attending({.codec = turbo(4), .dim = 64, .value_dim = 64, .group = 8})},
      {"turbo:4, D=80, G=4", attending({.codec = turbo(4), .dim = 80, .value_dim = 80})},
      {"turbo:4, D=256, G=8", attending({.codec = turbo(4), .dim = 256, .value_dim = 256, .group = 8})},
      {"f16, D=256, G=8", attending({.codec = f16, .dim = 256, .value_dim = 256, .group = 8})},
      {"turbo:4, D=512, G=8", attending({.codec = turbo(4), .dim = 512, .value_dim = 512, .group = 8})},
      {"turbo:4, D=576/512, G=8", attending({.codec = turbo(4), .dim = 576, .value_dim = 512, .group = 8})},
  };
}

}  // namespace rota::test
