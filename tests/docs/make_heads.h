#pragma once

#include <rota/rota.h>

#include <cstddef>
#include <span>
#include <vector>

// Head vectors in a buffer of their own, f32, token by token: what a document's fragment has from elsewhere.
inline rota::MutView make_heads(rota::Device& device, rota::Shape shape) {
  std::vector<float> numbers(shape.tokens * shape.heads * shape.dim);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = 0.01F * static_cast<float>(i % 97);
  auto buffer = device.allocate(numbers.size() * sizeof(float)).value();
  buffer.write(std::as_bytes(std::span(numbers))).value();
  return rota::MutView::token_major(buffer, rota::DType::f32, shape);
}
