#include <algorithm>

#include "llama-context.h"
#include "llama-impl.h"
#include "llama-kv-rota.h"
#include "llama-model.h"

// What is stored of a sequence, and what is loaded.

using namespace llama_rota;

// After a step. Tokens whose keys and values are not what the weights make of them are as good as unknown.
void llama_kv_rota::keep() {
  std::map<llama_seq_id, uint64_t> added;
  for (const extension& extension : extensions_) added[extension.seq_id] += extension.tokens;
  for (const auto& [id, tokens] : added) {
    sequence& sequence = sequences_[id];
    const size_t before = sequence.cells.size() - tokens;
    if (!is_plain_ && sequence.tokens.size() > before) sequence.tokens.resize(before);
    if (sequence.can_be_stored()) store_->put(sequence.id, sequence.tokens);
  }
  store_->watch();
}

// The most tokens that the sequence could have instead of its own.
uint64_t llama_kv_rota::room_for(const sequence& sequence) const {
  const auto is_own = [&](uint32_t cell) { return !cells_.is_shared(cell); };
  const auto own = std::count_if(sequence.cells.begin(), sequence.cells.end(), is_own);
  return std::min(uint64_t{n_ctx_seq_}, cells_.free() + uint64_t(own));
}

void llama_kv_rota::load(const store::match_ptr& match, const llama_token* tokens, sequence& to) {
  const uint64_t length = store_->load(match, to.id);
  to.is_open = true;
  to.tokens.assign(tokens, tokens + length);
  for (uint64_t i = 0; i < length; ++i) to.cells.push_back(cells_.take());
}

size_t llama_kv_rota::restore(llama_seq_id seq_id, const llama_token* tokens, size_t n_past, size_t n_tokens) {
  if (!store_ || !has(seq_id)) return n_past;
  roll_back();
  sequence& to = sequences_[seq_id];
  size_t result = n_past;
  try {
    const uint64_t most = std::min(uint64_t{n_tokens}, room_for(to));
    if (most > n_past) {
      const store::match_ptr match = store_->match(tokens, most);
      if (store::tokens_of(match) > n_past) {
        // The cache has no sequence to spare. What was there is the beginning of what is loaded.
        result = 0;
        close(to);
        load(match, tokens, to);
        result = to.cells.size();
      }
    }
  } catch (const std::exception& error) {
    LLAMA_LOG_WARN("%s: sequence %d: %s\n", __func__, seq_id, error.what());
  }
  store_->watch();
  return result;
}

size_t llama_rota_restore(llama_context* ctx, llama_seq_id seq_id, const llama_token* tokens, size_t n_past,
                          size_t n_tokens) {
  auto* const memory = dynamic_cast<llama_kv_rota*>(ctx->memory.get());
  const bool is_plain = ctx->cparams.causal_attn && !has_adapter(*ctx->loras, *ctx->cvec, ctx->model.hparams.n_layer());
  if (memory == nullptr || !is_plain) return n_past;
  ctx->synchronize();
  return memory->restore(seq_id, tokens, n_past, n_tokens);
}
