#pragma once

#include <ggml.h>

#include <cstdint>
#include <string>
#include <vector>

namespace rota::eval {

// What keeps keys and values: one of llama.cpp's types, or Rota.
struct Cache {
  std::string name;                // as tables show it
  ggml_type type = GGML_TYPE_F16;  // of llama.cpp's caches
  std::string rota{};              // what llama_context_params::rota takes; empty: llama.cpp's own cache

  bool is_rota() const { return !rota.empty(); }
};

// "q8_0" is llama.cpp's, "turbo4" and "rota:SPEC" are Rota's. Throws Failure.
Cache cache_from(const std::string& text);

// The cache with which all others are compared: llama.cpp's f16.
Cache base_cache();

// What is stored for good, in bits per value: of Rota's caches, in sealed pages.
struct Stored {
  std::string k, v;  // codecs, or llama.cpp's types
  double bits = 0;
};
Stored stored_by(const Cache& cache, std::uint32_t head_dim);

}  // namespace rota::eval
