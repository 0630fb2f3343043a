#include "world.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>

namespace rota_llama {

std::vector<llama_token> text_tokens(const llama_model* model, size_t count) {
  std::ifstream file(given.text);
  std::vector<llama_token> tokens = tokens_of(model, {std::istreambuf_iterator<char>(file), {}});
  if (tokens.size() < count) throw std::runtime_error("the text has " + std::to_string(tokens.size()) + " tokens");
  tokens.resize(count);
  return tokens;
}

llama_model* in_f16(const std::string& path) {
  // Its file stays as long: a page store names weights by what their files have.
  struct converted {
    std::string file;
    llama_model_ptr model;
    ~converted() { std::remove(file.c_str()); }
  };
  static std::map<std::string, converted> known;
  const std::string number = std::to_string(getpid()) + "_" + std::to_string(known.size());
  converted& one = known[path];
  if (one.model) return one.model.get();
  one.file = testing::TempDir() + "rota_llama_f16_" + number + ".gguf";
  llama_model_quantize_params params = llama_model_quantize_default_params();
  params.ftype = LLAMA_FTYPE_MOSTLY_F16;
  params.allow_requantize = true;
  params.nthread = 2;
  if (llama_model_quantize(path.c_str(), one.file.c_str(), &params) != 0) {
    throw std::runtime_error("cannot convert " + path);
  }
  one.model.reset(load(one.file));
  return one.model.get();
}

Context::Context(llama_model* model, const Options& options) : model_(model) {
  llama_context_params params = llama_context_default_params();
  params.n_ctx = params.n_batch = options.n_ctx;
  params.n_ubatch = options.n_ubatch;
  params.n_seq_max = options.n_seq_max;
  params.n_threads = params.n_threads_batch = options.threads;
  params.kv_unified = options.unified;
  params.type_k = params.type_v = options.type;
  params.flash_attn_type = options.flash ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
  params.rope_freq_scale = options.rope_freq_scale;
  params.swa_full = false;
  params.abort_callback = options.abort;
  params.abort_callback_data = options.abort_user;
  params.rota = options.rota;
  ctx_.reset(llama_init_from_model(model, params));
}

int Context::decode(const std::vector<Entry>& entries, bool all) {
  constexpr int kMostSequences = 16;
  llama_batch batch = llama_batch_init(int(entries.size()), 0, kMostSequences);
  for (const Entry& entry : entries) {
    const int i = batch.n_tokens++;
    batch.token[i] = entry.token;
    batch.pos[i] = entry.pos;
    batch.n_seq_id[i] = int(entry.seq_ids.size());
    std::copy(entry.seq_ids.begin(), entry.seq_ids.end(), batch.seq_id[i]);
    batch.logits[i] = all || size_t(i) + 1 == entries.size();
  }
  const int status = llama_decode(ctx_.get(), batch);
  llama_batch_free(batch);
  return status;
}

int Context::decode(llama_seq_id seq_id, llama_pos from, const std::vector<llama_token>& tokens, size_t step) {
  for (size_t begin = 0; begin < tokens.size(); begin += step) {
    std::vector<Entry> entries;
    for (size_t i = begin; i < std::min(tokens.size(), begin + step); ++i) {
      entries.push_back({{seq_id}, from + llama_pos(i), tokens[i]});
    }
    if (const int status = decode(entries, false)) return status;
  }
  return 0;
}

std::vector<float> Context::logits(int i) const {
  const float* const found = llama_get_logits_ith(ctx_.get(), i);
  if (found == nullptr) return {};
  return {found, found + llama_vocab_n_tokens(llama_model_get_vocab(model_))};
}

llama_token Context::best(int i) const {
  const std::vector<float> all = logits(i);
  return llama_token(std::max_element(all.begin(), all.end()) - all.begin());
}

std::vector<llama_token> Context::greedy(llama_seq_id seq_id, llama_pos from, size_t count) {
  std::vector<llama_token> said;
  while (said.size() < count) {
    said.push_back(best());
    if (decode(seq_id, from + llama_pos(said.size()) - 1, {said.back()}) != 0) break;
  }
  return said;
}

double normalized_error(const std::vector<float>& a, const std::vector<float>& b) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    error += (double(a[i]) - b[i]) * (double(a[i]) - b[i]);
    norm += double(b[i]) * b[i];
  }
  return error / norm;
}

}  // namespace rota_llama

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc != 5) {
    fprintf(stderr, "usage: rota-llama-tests SMOLLM2.gguf GEMMA3.gguf FOLDER_OF_ARCHITECTURES TEXT\n");
    return 2;
  }
  rota_llama::given = {argv[1], argv[2], argv[3], argv[4]};
  rota_llama::keep_log();
  llama_backend_init();
  const int result = RUN_ALL_TESTS();
  llama_backend_free();
  return result;
}
