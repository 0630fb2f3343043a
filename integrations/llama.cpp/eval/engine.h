#pragma once

#include <llama-cpp.h>

#include <cstdint>
#include <string>
#include <vector>

#include "cache.h"
#include "log.h"

// llama.cpp on the CPU, with its errors as Failure.

namespace rota::eval {

using Tokens = std::vector<llama_token>;

struct Sizes {
  std::uint32_t context;       // tokens
  std::uint32_t ubatch = 512;  // tokens of a step; llama.cpp's own default
};

// The model's file, and what all contexts share: the log, and threads, so that no context's wait for work of another.
class Engine {
 public:
  Engine(std::string path, std::uint32_t threads);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  llama_model_ptr load();
  llama_model_ptr load_without_weights();
  // The same weights in f32, through a temporary file that is gone when this returns.
  llama_model_ptr load_in_f32();

  // Throws Failure with Exit::refused if Rota cannot serve the model.
  void check_served(const Cache& cache, Sizes sizes);
  llama_context_ptr open(llama_model& model, const Cache& cache, Sizes sizes);

  // What llama.cpp said since the last call.
  std::string said() { return log_.take().all; }
  [[noreturn]] void fail(const std::string& what);

  std::uint32_t threads() const { return threads_; }

 private:
  llama_model_ptr load(const std::string& path, llama_model_params params);
  llama_context_params params_of(const Cache& cache, Sizes sizes) const;
  ggml_threadpool* new_pool(std::uint32_t threads);

  Log log_{};
  std::string path_;
  std::uint32_t threads_, prompt_threads_;  // prompts are not timed
  ggml_threadpool *pool_ = nullptr, *prompt_pool_ = nullptr;
};

// All tokens of a text file, and the model's own of a beginning before them, if it has one.
Tokens read_tokens(const llama_model& model, const std::string& path);

// Of keys.
std::uint32_t head_dim_of(const llama_model& model);

// One sequence in one cache.
class Sequence {
 public:
  Sequence(Engine& engine, llama_model& model, const Cache& cache, Sizes sizes)
      : engine_(&engine), name_(cache.name), ubatch_(sizes.ubatch), context_(engine.open(model, cache, sizes)) {}

  enum class Outputs { none, all };

  // Tokens behind those that are there, no more than a step takes.
  void decode(const llama_token* tokens, std::uint32_t count, Outputs outputs);
  // tokens[depth()] to tokens[depth - 1].
  void fill_up_to(std::uint32_t depth, const Tokens& tokens);
  void roll_back_to(std::uint32_t depth);
  void clear();

  std::uint32_t depth() const { return depth_; }
  // Of the token with this number in the last call.
  const float* logits(std::uint32_t index) const;
  std::uint32_t vocabulary() const;  // how many logits a token has

 private:
  Engine* engine_;
  std::string name_;
  std::uint32_t ubatch_, depth_ = 0;
  llama_context_ptr context_;
};

std::vector<Sequence> open_all(Engine& engine, llama_model& model, const std::vector<Cache>& caches, Sizes sizes);

}  // namespace rota::eval
