#include "store_world.h"

#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <stdexcept>

#include "ggml.h"
#include "gguf.h"

namespace rota_llama {

Store::Store() : path_(testing::TempDir() + "rota_llama_store_XXXXXX") {
  if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error("mkdtemp " + path_);
}

Store::~Store() { std::filesystem::remove_all(path_); }

std::string Store::file(const std::string& name, const std::string& bytes) const {
  std::ofstream(path_ + "/" + name, std::ios::binary) << bytes;
  return path_ + "/" + name;
}

std::vector<std::filesystem::path> Store::objects() const {
  std::vector<std::filesystem::path> found;
  if (!std::filesystem::exists(pages() + "/pages")) return found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(pages() + "/pages")) {
    if (entry.is_regular_file()) found.push_back(entry.path());
  }
  return found;
}

size_t restore(Context& context, llama_seq_id seq_id, const Text& tokens, size_t n_past) {
  return llama_rota_restore(context.get(), seq_id, tokens.data(), n_past, tokens.size() - 1);
}

std::vector<std::vector<float>> all_logits(Context& context, llama_seq_id seq_id, size_t from, const Text& tokens,
                                           size_t step) {
  std::vector<std::vector<float>> result;
  for (size_t begin = from; begin < tokens.size(); begin += step) {
    std::vector<Entry> batch;
    for (size_t i = begin; i < std::min(begin + step, tokens.size()); ++i) {
      batch.push_back({{seq_id}, llama_pos(i), tokens[i]});
    }
    EXPECT_EQ(context.decode(batch), 0);
    for (size_t i = 0; i < batch.size(); ++i) result.push_back(context.logits(int(i)));
  }
  return result;
}

double divergence(const std::vector<std::vector<float>>& from, const std::vector<std::vector<float>>& of) {
  const auto log_sum = [](const std::vector<float>& logits) {
    const double most = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (const float logit : logits) sum += std::exp(double(logit) - most);
    return most + std::log(sum);
  };
  double result = 0;
  for (size_t i = 0; i < of.size(); ++i) {
    const double p_sum = log_sum(from.at(i)), q_sum = log_sum(of[i]);
    for (size_t token = 0; token < of[i].size(); ++token) {
      const double p = double(from[i][token]) - p_sum, q = double(of[i][token]) - q_sum;
      result += std::exp(p) * (p - q);
    }
  }
  return result / double(of.size());
}

void write_lora(const llama_model* model, const std::string& path) {
  const int64_t n_embd = llama_model_n_embd(model);
  const int64_t n_kv = n_embd / llama_model_n_head(model) * llama_model_n_head_kv(model);
  ggml_context* const tensors = ggml_init({size_t{1} << 20, nullptr, false});
  gguf_context* const file = gguf_init_empty();
  gguf_set_val_str(file, "general.architecture", "llama");
  gguf_set_val_str(file, "general.type", "adapter");
  gguf_set_val_str(file, "adapter.type", "lora");
  gguf_set_val_f32(file, "adapter.lora.alpha", 1);
  for (const char* side : {"k", "v"}) {
    const std::string name = std::string("blk.0.attn_") + side + ".weight.lora_";
    ggml_tensor* const a = ggml_new_tensor_2d(tensors, GGML_TYPE_F32, n_embd, 1);
    ggml_tensor* const b = ggml_new_tensor_2d(tensors, GGML_TYPE_F32, 1, n_kv);
    for (int64_t i = 0; i < n_embd; ++i) static_cast<float*>(a->data)[i] = 0.1F;
    for (int64_t i = 0; i < n_kv; ++i) static_cast<float*>(b->data)[i] = 0.1F;
    ggml_set_name(a, (name + "a").c_str());
    ggml_set_name(b, (name + "b").c_str());
    gguf_add_tensor(file, a);
    gguf_add_tensor(file, b);
  }
  gguf_write_to_file(file, path.c_str(), false);
  gguf_free(file);
  ggml_free(tensors);
}

}  // namespace rota_llama
