#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "rota/c.h"

struct llama_cparams;
struct llama_model;

namespace llama_rota {

// What --rota takes: "turbo4", "k=turbo8,v=turbo4,tail=128".
struct options {
  std::string k = "turbo4", v = "turbo4";  // codecs by name
  uint64_t page = 64, tail = 128, sinks = 4;
  uint64_t seal_within = 0;  // tokens over which the sealing of a page is spread; 0: at once
  std::string store;         // the page store's URL, which may have a password; "": none
  std::string salt_file;     // its bytes are a tenant's salt; "": none
  std::string weights;       // names the weights in the store; "": what their files have does
  // That a call of the store or opening it may wait, and that what is queued at the end has; none: as ever.
  std::optional<uint64_t> deadline_ms, flush_ms;

  // Throws a sentence that says what is allowed.
  static options parse(const std::string& text);
};

// The cache of a model, as rota_kv_cache_create() takes it. Pointers in `spec` lead to the other members.
struct description {
  // Throws a sentence if the model has what Rota cannot serve.
  description(const llama_model& model, const llama_cparams& cparams, options options_of_user);
  description(const description&) = delete;
  description& operator=(const description&) = delete;

  // The most that the cache allocates.
  uint64_t bytes() const;

  // The longest step after which every page that leaves a window can have been stored.
  uint32_t storable_step() const;

  const options chosen;
  rota_kv_cache_spec spec = ROTA_KV_CACHE_SPEC_INIT;
  std::vector<rota_kv_group> groups;
  std::deque<std::vector<uint32_t>> layers;              // of each group
  std::deque<std::vector<rota_kv_shared_layer>> shared;  // of each group
  uint32_t n_layer = 0;                                  // that have keys and values of their own
};

}  // namespace llama_rota
