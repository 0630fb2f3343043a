#include "llama-kv-rota-store.h"

#include <array>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "llama-cparams.h"
#include "llama-hparams.h"
#include "llama-impl.h"
#include "llama-model.h"

namespace llama_rota {

#if defined(ROTA_LLAMA_STORE)

namespace {

constexpr uint64_t kFlushMs = 5000;

using page_store_ptr = std::unique_ptr<rota_page_store, destroyer<rota_page_store_destroy>>;

page_store_ptr open_pages(const std::string& url, uint64_t deadline_ms) {
  rota_page_store_options options = ROTA_PAGE_STORE_OPTIONS_INIT;
  options.deadline_ms = deadline_ms;
  rota_page_store* pages = nullptr;
  check(rota_page_store_open(url.c_str(), &options, &pages));
  return page_store_ptr(pages);
}

std::string salt_from(const std::string& path) {
  if (path.empty()) return "";
  std::ifstream file(path, std::ios::binary);
  std::string salt{std::istreambuf_iterator<char>(file), {}};
  if (!file) throw std::runtime_error("--rota: salt_file=" + path + " cannot be read");
  if (salt.empty()) throw std::runtime_error("--rota: salt_file=" + path + " is empty");
  return salt;
}

}  // namespace

std::unique_ptr<store> store::open(const options& chosen, const llama_model& model, const llama_cparams& cparams,
                                   rota_kv_cache* cache) {
  if (chosen.store.empty()) return nullptr;
  const std::string salt = salt_from(chosen.salt_file);
  if (chosen.weights.empty() && model.files.empty()) {
    throw std::runtime_error(
        "--rota: what the weights are cannot be told, as their files do not have all of them (--override-kv): name "
        "them by weights=NAME");
  }
  const uint64_t deadline_ms = chosen.deadline_ms.value_or(0);  // 0: librota's own
  const page_store_ptr pages = open_pages(chosen.store, deadline_ms);
  if (cache == nullptr) return nullptr;
  const std::string weights = chosen.weights.empty() ? weights_facts(model.files) : "name " + chosen.weights;
  const std::string rope = rope_facts(model, cparams);
  rota_prefix_store_options options = ROTA_PREFIX_STORE_OPTIONS_INIT;
  options.weights = weights.c_str();
  options.rope = rope.c_str();
  options.salt = salt.empty() ? nullptr : salt.data();
  options.salt_bytes = salt.size();
  options.deadline_ms = deadline_ms;
  rota_prefix_store* prefixes = nullptr;
  check(rota_prefix_store_create(pages.get(), cache, &options, &prefixes));
  digest named;
  named.add(weights.data(), weights.size());
  named.add(rope.data(), rope.size());
  std::unique_ptr<store> result(new store(store_ptr(prefixes), named.value(), chosen.flush_ms.value_or(kFlushMs)));
  uint64_t page = 0;
  check(rota_prefix_store_page(prefixes, &page));
  LLAMA_LOG_INFO("llama_kv_rota: store = %s, pages of %u tokens, weights named by %s, %s salt\n",
                 chosen.store.substr(0, chosen.store.find(':')).c_str(), unsigned(page),
                 chosen.weights.empty() ? "their files" : chosen.weights.c_str(), salt.empty() ? "no" : "a");
  return result;
}

// What is queued is worth some time. Then the log says what became of everything.
store::~store() {
  const bool is_done = rota_prefix_store_flush(prefixes_.get(), flush_ms_) == ROTA_OK;
  watch();
  rota_prefix_counters counters = ROTA_PREFIX_COUNTERS_INIT;
  if (rota_prefix_store_counters(prefixes_.get(), &counters) != ROTA_OK) return;
  if (!is_done) LLAMA_LOG_WARN("llama_kv_rota: the store has not taken all pages within %u ms\n", unsigned(flush_ms_));
  using number = unsigned long long;
  LLAMA_LOG_INFO(
      "llama_kv_rota: store: pages matched %llu, missed %llu, loaded %llu (%.1f MiB), failed to load %llu, stored %llu "
      "(%.1f MiB), there already %llu, dropped %llu; calls failed %llu\n",
      number(counters.matched), number(counters.missed), number(counters.loaded),
      double(counters.loaded_bytes) / 1024.0 / 1024.0, number(counters.failed_loads), number(counters.stored),
      double(counters.stored_bytes) / 1024.0 / 1024.0, number(counters.already_stored),
      number(counters.dropped_puts + counters.queued_puts), number(counters.failed_calls));
}

void store::put(rota_sequence sequence, const std::vector<llama_token>& tokens) {
  const rota_status status = rota_prefix_store_put(prefixes_.get(), sequence, tokens.data(), tokens.size());
  const bool was_refused = is_refused_;
  is_refused_ = status != ROTA_OK;
  if (is_refused_ && !was_refused) LLAMA_LOG_WARN("llama_kv_rota: nothing is stored: %s\n", rota_last_message());
}

store::match_ptr store::match(const llama_token* tokens, uint64_t count) {
  rota_prefix_match* match = nullptr;
  check(rota_prefix_store_match(prefixes_.get(), tokens, count, &match));
  return match_ptr(match);
}

uint64_t store::tokens_of(const match_ptr& match) {
  uint64_t tokens = 0;
  check(rota_prefix_match_tokens(match.get(), &tokens));
  return tokens;
}

uint64_t store::load(const match_ptr& match, rota_sequence& sequence) {
  uint64_t tokens = 0;
  check(rota_prefix_store_load(prefixes_.get(), match.get(), &sequence, &tokens, nullptr, nullptr));
  return tokens;
}

void store::watch() {
  rota_prefix_counters counters = ROTA_PREFIX_COUNTERS_INIT;
  std::array<char, 512> error = {};
  if (rota_prefix_store_counters(prefixes_.get(), &counters) != ROTA_OK ||
      rota_prefix_store_last_error(prefixes_.get(), error.data(), error.size()) != ROTA_OK) {
    return;
  }
  const uint64_t successes = counters.matched + counters.loaded + counters.stored + counters.already_stored;
  if (counters.failed_calls != failures_) {
    if (!is_failing_) LLAMA_LOG_WARN("llama_kv_rota: the store fails, and prompts are computed: %s\n", error.data());
    is_failing_ = true;
  } else if (is_failing_ && successes != successes_) {
    LLAMA_LOG_WARN("llama_kv_rota: the store works again\n");
    is_failing_ = false;
  }
  failures_ = counters.failed_calls;
  successes_ = successes;
}

#else

std::unique_ptr<store> store::open(const options& chosen, const llama_model& /*model*/,
                                   const llama_cparams& /*cparams*/, rota_kv_cache* /*cache*/) {
  if (chosen.store.empty()) return nullptr;
  throw std::runtime_error("--rota: store=: librota was built without its page store (ROTA_STORE)");
}

store::~store() = default;
void store::put(rota_sequence /*sequence*/, const std::vector<llama_token>& /*tokens*/) {}
store::match_ptr store::match(const llama_token* /*tokens*/, uint64_t /*count*/) { return nullptr; }
uint64_t store::tokens_of(const match_ptr& /*match*/) { return 0; }
uint64_t store::load(const match_ptr& /*match*/, rota_sequence& /*sequence*/) { return 0; }
void store::watch() {}

#endif

std::string rope_facts(const llama_model& model, const llama_cparams& cparams) {
  // LongRoPE has two sets of factors, and the context's size chooses.
  const bool has_long = !model.layers.empty() && model.layers.front().rope_long != nullptr;
  const bool is_long = has_long && cparams.n_ctx_seq > model.hparams.n_ctx_orig_yarn;
  std::array<char, 512> text = {};
  std::snprintf(text.data(), text.size(),
                "llama.cpp rope: scaling %d, base %.9g, scale %.9g, yarn %u %.9g %.9g %.9g %.9g, factors %s",
                int(cparams.rope_scaling_type), double(cparams.rope_freq_base), double(cparams.rope_freq_scale),
                cparams.n_ctx_orig_yarn, double(cparams.yarn_ext_factor), double(cparams.yarn_attn_factor),
                double(cparams.yarn_beta_fast), double(cparams.yarn_beta_slow), is_long ? "long" : "short");
  return text.data();
}

}  // namespace llama_rota
