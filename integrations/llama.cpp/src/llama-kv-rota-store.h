#pragma once

// The page store of a memory: prefixes of its sequences outlive the process, and are shared.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "llama-kv-rota-handles.h"
#include "llama-kv-rota-spec.h"
#include "llama.h"

// Where librota was built without its store there is none.
#if defined(ROTA_LLAMA_STORE)
#include "rota/c_store.h"
#else
struct rota_page_store;
struct rota_prefix_store;
struct rota_prefix_match;
inline void rota_page_store_destroy(rota_page_store*) {}
inline void rota_prefix_store_destroy(rota_prefix_store*) {}
inline void rota_prefix_match_destroy(rota_prefix_match*) {}
#endif

struct llama_cparams;
struct llama_model;

namespace llama_rota {

class store {
 public:
  using match_ptr = std::unique_ptr<rota_prefix_match, destroyer<rota_prefix_match_destroy>>;

  // What `chosen` names, or null if it names none; throws a sentence if that cannot be. Without a cache it is checked,
  // and null.
  static std::unique_ptr<store> open(const options& chosen, const llama_model& model, const llama_cparams& cparams,
                                     rota_kv_cache* cache);
  ~store();
  store(const store&) = delete;
  store& operator=(const store&) = delete;

  // What is sealed by now, behind the caller. The tokens are all of the sequence's.
  void put(rota_sequence sequence, const std::vector<llama_token>& tokens);

  match_ptr match(const llama_token* tokens, uint64_t count);
  static uint64_t tokens_of(const match_ptr& match);

  // Opens a sequence, and gives its length, which may be less than the match. Throws.
  uint64_t load(const match_ptr& match, rota_sequence& sequence);

  // Of what names the weights and their rope.
  uint64_t weights() const { return weights_; }

  // Says in the log when the store has begun to fail, and when it has recovered.
  void watch();

 private:
  using store_ptr = std::unique_ptr<rota_prefix_store, destroyer<rota_prefix_store_destroy>>;

  store(store_ptr prefixes, uint64_t weights, uint64_t flush_ms)
      : prefixes_(std::move(prefixes)), weights_(weights), flush_ms_(flush_ms) {}

  store_ptr prefixes_;
  const uint64_t weights_;
  const uint64_t flush_ms_;                // for what is queued at the end
  bool is_refused_ = false;                // what was put last
  uint64_t failures_ = 0, successes_ = 0;  // as watch() saw them
  bool is_failing_ = false;
};

// FNV-1a. It finds what differs by chance; who can choose weights, or states, can choose what is stored, too.
class digest {
 public:
  void add(const char* bytes, size_t size) {
    for (size_t i = 0; i < size; ++i) value_ = (value_ ^ static_cast<unsigned char>(bytes[i])) * 0x100000001b3U;
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xcbf29ce484222325U;
};

// All that keys and values depend on besides tokens, weights and groups: the engine and its rope. One line.
std::string rope_facts(const llama_model& model, const llama_cparams& cparams);

// What tells the weights in these files from others: metadata, and of each tensor its name, type, shape and a digest of
// places in its bytes. A text of many lines. Throws.
std::string weights_facts(const std::vector<std::string>& files);

}  // namespace llama_rota
