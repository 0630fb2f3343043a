// Stores ten tokens' keys and values into a ring of eight slots, as f16, and looks at one of them.

#include <rota/rota.h>

#include <cstdio>
#include <vector>

int main() {
  constexpr std::uint64_t kTokens = 10, kHeads = 2, kDim = 4, kSlots = 8;
  auto device = rota::Device::open_best().value();
  std::printf("on %s (%s)\n", device.info().name.c_str(), device.info().id.c_str());

  std::vector<float> activations(kTokens * kHeads * kDim);
  for (std::size_t i = 0; i < activations.size(); ++i) activations[i] = 0.5F * static_cast<float>(i);
  auto fresh = device.allocate(activations.size() * sizeof(float)).value();
  fresh.write(std::as_bytes(std::span(activations))).value();

  constexpr rota::SlotShape kRing{.page_slots = kSlots, .heads = kHeads, .dim = kDim};
  auto keys = device.allocate(kSlots * kHeads * kDim * 2).value();
  auto values = device.allocate(kSlots * kHeads * kDim * 2).value();

  const auto from = rota::View::token_major(fresh, rota::DType::f32, {kTokens, kHeads, kDim});
  const rota::StorePair pairs[] = {{from, rota::SlotView::head_major(keys, rota::DType::f16, kRing)},
                                   {from, rota::SlotView::token_major(values, rota::DType::bf16, kRing)}};
  const rota::TokenRun sequence{.tokens = kTokens, .position = 0, .capacity = kSlots};

  auto encoder = device.encoder();
  rota::store(encoder, {.pairs = pairs, .sequences = {&sequence, 1}});
  std::move(encoder).submit().value().wait().value();

  std::vector<std::uint16_t> ring(kSlots * kHeads * kDim);
  keys.read(std::as_writable_bytes(std::span(ring))).value();
  for (std::uint64_t slot = 0; slot < kSlots; ++slot) {  // head 0: slots 0 and 1 hold positions 8 and 9
    std::printf("slot %llu:", static_cast<unsigned long long>(slot));
    for (std::uint64_t d = 0; d < kDim; ++d)
      std::printf(" %5.1f", static_cast<double>(rota::f32_from_f16(ring[slot * kDim + d])));
    std::printf("\n");
  }
}
