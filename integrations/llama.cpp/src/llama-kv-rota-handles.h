#pragma once

// Rota's C handles as values that end by themselves, and its statuses as exceptions.

#include <memory>
#include <stdexcept>
#include <string>

#include "rota/c.h"

namespace llama_rota {

template <auto Destroy>
struct destroyer {
  template <class T>
  void operator()(T* handle) const noexcept {
    Destroy(handle);
  }
};

using device_ptr = std::unique_ptr<rota_device, destroyer<rota_device_destroy>>;
using buffer_ptr = std::unique_ptr<rota_buffer, destroyer<rota_buffer_destroy>>;
using encoder_ptr = std::unique_ptr<rota_encoder, destroyer<rota_encoder_destroy>>;
using cache_ptr = std::unique_ptr<rota_kv_cache, destroyer<rota_kv_cache_destroy>>;
using notes_ptr = std::unique_ptr<rota_kv_notes, destroyer<rota_kv_notes_destroy>>;
using step_ptr = std::unique_ptr<rota_kv_step, destroyer<rota_kv_step_destroy>>;

// Throws what the library says.
inline void check(rota_status status) {
  if (status != ROTA_OK) throw std::runtime_error(std::string("rota: ") + rota_last_message());
}

inline encoder_ptr new_encoder(rota_device* device) {
  rota_encoder* encoder = nullptr;
  check(rota_device_encoder(device, &encoder));
  return encoder_ptr(encoder);
}

}  // namespace llama_rota
