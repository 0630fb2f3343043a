#pragma once

// Models, contexts and batches of llama.cpp's, for tests.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "llama-cpp.h"
#include "llama.h"

namespace rota_llama {

// Paths from the command line.
struct Arguments {
  std::string smollm2, gemma, architectures, text;
};
inline Arguments given;

// What llama.cpp logged, newest last; tests look for sentences in it.
inline std::string& logged() {
  static std::string text;
  return text;
}

inline void keep_log() {
  llama_log_set([](ggml_log_level, const char* text, void*) { logged() += text; }, nullptr);
}

inline llama_model* load(const std::string& path) {
  llama_model* const model = llama_model_load_from_file(path.c_str(), llama_model_default_params());
  if (model == nullptr) throw std::runtime_error("cannot load " + path + "\n" + logged());
  return model;
}

inline llama_model* smollm2() {
  static const llama_model_ptr model(load(given.smollm2));
  return model.get();
}

inline llama_model* gemma() {
  static const llama_model_ptr model(load(given.gemma));
  return model.get();
}

// The same weights in f16. Products with quantized weights round activations to 8 bits, so that another order of
// additions, as in a batch of another size, is seen in the third digit; with these it is in the sixth.
llama_model* in_f16(const std::string& path);

inline std::vector<llama_token> tokens_of(const llama_model* model, const std::string& text) {
  const llama_vocab* const vocab = llama_model_get_vocab(model);
  std::vector<llama_token> tokens(text.size() + 8);
  const int n = llama_tokenize(vocab, text.data(), int(text.size()), tokens.data(), int(tokens.size()), true, true);
  tokens.resize(size_t(std::max(n, 0)));
  return tokens;
}

// The first `count` tokens of the text that the command line names.
std::vector<llama_token> text_tokens(const llama_model* model, size_t count);

struct Entry {
  std::vector<llama_seq_id> seq_ids;
  llama_pos pos;
  llama_token token;
};

struct Options {
  const char* rota = "turbo4";  // null: llama.cpp's own cache
  ggml_type type = GGML_TYPE_F16;
  uint32_t n_ctx = 2048, n_seq_max = 1, n_ubatch = 512;
  int threads = 1;
  bool unified = true;
  bool flash = true;
  float rope_freq_scale = 0;  // 0: the model's
  ggml_abort_callback abort = nullptr;
  void* abort_user = nullptr;
};

class Context {
 public:
  Context(llama_model* model, const Options& options);

  bool made() const { return ctx_ != nullptr; }
  llama_context* get() const { return ctx_.get(); }
  llama_memory_t memory() const { return llama_get_memory(ctx_.get()); }

  // llama_decode(). Logits come of all tokens, or of the last.
  int decode(const std::vector<Entry>& entries, bool all = true);

  // Tokens of one sequence from a position on, in batches of `step`.
  int decode(llama_seq_id seq_id, llama_pos from, const std::vector<llama_token>& tokens, size_t step = 512);

  // Of entry `i` of the last batch; -1 is the last.
  std::vector<float> logits(int i = -1) const;
  llama_token best(int i = -1) const;

  // What the sequence says next, token by token, from the last batch's last logits on.
  std::vector<llama_token> greedy(llama_seq_id seq_id, llama_pos from, size_t count);

 private:
  llama_context_ptr ctx_;
  const llama_model* model_;
};

// sum (a - b)^2 / sum b^2
double normalized_error(const std::vector<float>& a, const std::vector<float>& b);

}  // namespace rota_llama
