#pragma once

// Page stores in folders, for tests.

#include <filesystem>
#include <string>
#include <vector>

#include "world.h"

namespace rota_llama {

using Text = std::vector<llama_token>;

// A folder with a page store, and what is beside it. It goes with the object.
class Store {
 public:
  Store();
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // What --rota takes, with time enough for a machine that is slow.
  std::string spec(const std::string& more = "") const {
    return "turbo8,tail=16,deadline=60000,flush=60000,store=file:" + pages() + more;
  }
  std::string pages() const { return path_ + "/pages"; }

  // A file beside the store, by its path.
  std::string file(const std::string& name, const std::string& bytes) const;

  // Of all pages that are stored.
  std::vector<std::filesystem::path> objects() const;

 private:
  std::string path_;
};

inline Text part(const Text& from, size_t begin, size_t end) {
  return {from.begin() + std::ptrdiff_t(begin), from.begin() + std::ptrdiff_t(end)};
}

// llama_rota_restore() of all tokens but the last.
size_t restore(Context& context, llama_seq_id seq_id, const Text& tokens, size_t n_past = 0);

// The logits after each of these tokens, in steps of `step`.
std::vector<std::vector<float>> all_logits(Context& context, llama_seq_id seq_id, size_t from, const Text& tokens,
                                           size_t step = 512);

// The mean Kullback-Leibler divergence in nats.
double divergence(const std::vector<std::vector<float>>& from, const std::vector<std::vector<float>>& of);

// A LoRA adapter for keys and values of the first layer, as a file.
void write_lora(const llama_model* model, const std::string& path);

}  // namespace rota_llama
