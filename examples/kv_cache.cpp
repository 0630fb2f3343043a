// A prompt of 1,500 tokens in chunks, 100 steps of one token, then two branches of the same sequence, in a cache of two
// layers at 4 bits: layer 0 sees 1,024 tokens, layer 1 all. The last results are compared with attention in f64.

#include <rota/rota.h>

#include <iostream>

#include "toy_model.h"

// Extends each sequence by its next tokens, equally many of each. Returns the last token's attention in both layers.
std::vector<std::vector<float>> run(rota::Device& device, rota::KvCache& cache,
                                    const std::vector<rota::KvExtension>& sequences) {
  auto encoder = device.encoder();
  auto step = cache.extend(encoder, sequences).value();  // seals what is due, and makes room
  const auto [q, k, v] = toy::compute(device, step.positions());
  const rota::RopeTensor both[] = {rota::RopeTensor::in_place(q), rota::RopeTensor::in_place(k)};
  const rota::Rotary rotary{.pairing = rota::Pairing::halves, .theta = toy::kTheta};
  rota::rope(encoder, {.tensors = both, .positions = step.positions(), .rotary = rotary});

  std::vector<rota::MutView> outs;
  const std::vector<std::uint64_t> rows(sequences.size(), sequences[0].tokens);
  for (std::uint32_t layer = 0; layer < 2; ++layer) {
    auto buffer = device.allocate(q.shape.tokens * toy::kHeads * toy::kDim * sizeof(float)).value();
    outs.push_back(rota::MutView::token_major(buffer, rota::DType::f32, q.shape));
    step.append(encoder, layer, k, v);
    rota::attend(encoder, {.q = q,
                           .kv = step.view(layer).value(),  // sinks, sealed pages and tail, as they are stored
                           .out = outs.back(),
                           .scale = toy::kScale,
                           .query_tokens = rows});
  }
  std::move(encoder).submit().value().wait().value();
  std::vector<std::vector<float>> last(2, std::vector<float>(toy::kHeads * toy::kDim));
  for (std::size_t layer = 0; layer < 2; ++layer) {
    const auto bytes = std::as_writable_bytes(std::span(last[layer]));
    outs[layer].buffer.read(bytes, (q.shape.tokens - 1) * bytes.size()).value();
  }
  return last;
}

int main(int argc, char** argv) {
  const rota::KvGroup wide{.layers = {1}, .kv_heads = 2, .head_dim = 64, .k = rota::turbo(4), .v = rota::turbo(4)};
  rota::KvGroup local = wide;
  local.layers = {0};
  local.window = 1024;
  auto device = (argc > 1 ? rota::Device::open({.device = argv[1]}) : rota::Device::open_best()).value();
  auto cache = rota::KvCache::create(device, {.groups = {local, wide}, .max_tokens = 8192, .max_sequences = 2}).value();
  const auto sequence = cache.open_sequence().value();
  for (int i = 0; i < 3; ++i) run(device, cache, {{sequence, 500}});
  for (int i = 0; i < 100; ++i) run(device, cache, {{sequence, 1}});
  auto encoder = device.encoder();
  const auto branch = cache.fork(encoder, sequence).value();  // shares every full page
  std::move(encoder).submit().value().wait().value();
  const auto last = run(device, cache, {{sequence, 100}, {branch, 100}});
  const double in_window = toy::relative_error(last[0], toy::attention(1699, 1024));
  const double over_all = toy::relative_error(last[1], toy::attention(1699, 1700));
  std::cout << "on " << device.info().id << ": " << cache.counters().tokens << " tokens, " << cache.counters().seals
            << " pages sealed; attention is off by " << in_window << " in the window, by " << over_all << " over all\n";
  return in_window < 0.03 && over_all < 0.03 ? 0 : 1;  // the error of 4 bits on these numbers
}
