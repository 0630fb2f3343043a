// Seals a page of 128 keys at 4 bits, restores it, and prints its size and its error.

#include <rota/rota.h>

#include <cmath>
#include <cstdio>
#include <vector>

int main() {
  constexpr std::uint64_t kHeads = 2;
  const rota::PageFormat format{.codec = rota::turbo(4), .side = rota::KvSide::keys, .head_dim = 128};
  const rota::SlotShape shape{.pages = 1, .page_slots = format.tokens, .heads = kHeads, .dim = format.head_dim};

  std::vector<float> keys(kHeads * format.tokens * format.head_dim);
  for (std::size_t i = 0; i < keys.size(); ++i)
    keys[i] = static_cast<float>(std::sin(0.37 * static_cast<double>(i * i % 1009)));
  std::vector<float> restored(keys.size());

  auto device = rota::Device::open_best().value();
  auto dense = device.allocate(keys.size() * sizeof(float)).value();
  auto sealed = device.allocate(kHeads * rota::page_bytes(format)).value();
  auto counter = device.allocate(8).value();
  std::uint64_t non_finite = 0;
  dense.write(std::as_bytes(std::span(keys))).value();
  counter.write(std::as_bytes(std::span(&non_finite, 1))).value();

  const auto slots = rota::SlotView::token_major(dense, rota::DType::f32, shape);
  const auto pages = rota::SealedView::packed(sealed, format, {.pages = 1, .heads = kHeads});
  const rota::SealPage page{.from = 0, .to = 0};
  const rota::UnsealPage back{.from = 0, .to = 0};

  auto encoder = device.encoder();
  rota::seal(encoder, {.from = slots, .to = pages, .pages = {&page, 1}, .non_finite = {counter}});
  rota::unseal(encoder, {.from = pages, .to = slots, .pages = {&back, 1}});
  std::move(encoder).submit().value().wait().value();

  dense.read(std::as_writable_bytes(std::span(restored))).value();
  counter.read(std::as_writable_bytes(std::span(&non_finite, 1))).value();
  double error = 0, energy = 0;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    error += std::pow(static_cast<double>(restored[i]) - static_cast<double>(keys[i]), 2);
    energy += std::pow(static_cast<double>(keys[i]), 2);
  }
  std::printf("on %s: %.3f bits per value, %.2f %% of the energy lost, %llu values not finite\n",
              device.info().id.c_str(),
              8.0 * static_cast<double>(sealed.size_bytes()) / static_cast<double>(keys.size()), 100 * error / energy,
              static_cast<unsigned long long>(non_finite));
}
