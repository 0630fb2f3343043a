// Rotates a query and a key, near the sequence's beginning and a million positions later: their product is the same.

#include <rota/rota.h>

#include <cstdio>
#include <vector>

int main() {
  constexpr std::uint64_t kDim = 64;
  auto device = rota::Device::open_best().value();
  std::printf("on %s (%s)\n", device.info().name.c_str(), device.info().id.c_str());
  const rota::Rotary rotary{.pairing = rota::Pairing::halves, .theta = 1e6};

  for (const std::int64_t start : {0, 1'000'000}) {
    // Token 0 is the query, token 1 the key, 37 positions before it.
    std::vector<float> heads(2 * kDim);
    for (std::size_t i = 0; i < heads.size(); ++i) heads[i] = 0.25F * static_cast<float>(i % 7) - 0.5F;
    auto memory = device.allocate(heads.size() * sizeof(float)).value();
    memory.write(std::as_bytes(std::span(heads))).value();

    const auto x = rota::MutView::token_major(memory, rota::DType::f32, {.tokens = 2, .heads = 1, .dim = kDim});
    const auto tensor = rota::RopeTensor::in_place(x);
    const std::int64_t positions[] = {start + 37, start};
    auto encoder = device.encoder();
    rota::rope(encoder, {.tensors = {&tensor, 1}, .positions = positions, .rotary = rotary});
    std::move(encoder).submit().value().wait().value();

    memory.read(std::as_writable_bytes(std::span(heads))).value();
    double product = 0;
    for (std::size_t d = 0; d < kDim; ++d) product += static_cast<double>(heads[d] * heads[kDim + d]);
    std::printf("positions %lld and %lld: q.k = %.5f\n", static_cast<long long>(positions[0]),
                static_cast<long long>(positions[1]), product);
  }
}
