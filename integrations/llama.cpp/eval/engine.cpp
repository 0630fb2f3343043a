#include "engine.h"

#include <ggml-backend.h>
#include <ggml-cpu.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <thread>
#include <utility>

#include "failure.h"
#include "temporary_file.h"

namespace rota::eval {
namespace {

// The CPU's part of ggml may be a library that is loaded at run time.
template <class Function>
Function* cpu_function(const char* name) {
  ggml_backend_dev_t device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
  void* const found =
      device == nullptr ? nullptr : ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(device), name);
  if (found == nullptr) throw Failure(Exit::failed, std::string("ggml has no ") + name + "() for the CPU");
  return reinterpret_cast<Function*>(found);
}

llama_model_params cpu_params() {
  llama_model_params params = llama_model_default_params();
  params.n_gpu_layers = 0;
  return params;
}

}  // namespace

Engine::Engine(std::string path, std::uint32_t threads)
    : path_(std::move(path)),
      threads_(threads),
      prompt_threads_(std::max(threads, std::thread::hardware_concurrency())) {
  llama_backend_init();
  pool_ = new_pool(threads_);
  prompt_pool_ = new_pool(prompt_threads_);
}

Engine::~Engine() {
  for (ggml_threadpool* pool : {pool_, prompt_pool_}) {
    cpu_function<decltype(ggml_threadpool_free)>("ggml_threadpool_free")(pool);
  }
}

ggml_threadpool* Engine::new_pool(std::uint32_t threads) {
  ggml_threadpool_params params = ggml_threadpool_params_default(static_cast<int>(threads));
  ggml_threadpool* const pool = cpu_function<decltype(ggml_threadpool_new)>("ggml_threadpool_new")(&params);
  if (pool == nullptr) fail("ggml starts no " + std::to_string(threads) + " threads");
  return pool;
}

void Engine::fail(const std::string& what) {
  const std::string errors = log_.take().errors;
  throw Failure(Exit::failed, errors.empty() ? what : what + ": " + errors);
}

llama_model_ptr Engine::load(const std::string& path, llama_model_params params) {
  if (!std::ifstream(path)) fail("the model '" + path + "' cannot be read");
  llama_model_ptr model(llama_model_load_from_file(path.c_str(), params));
  if (!model) fail("llama.cpp does not load the model '" + path + "'");
  return model;
}

llama_model_ptr Engine::load() { return load(path_, cpu_params()); }

llama_model_ptr Engine::load_without_weights() {
  llama_model_params params = cpu_params();
  params.no_alloc = true;
  params.load_mode = LLAMA_LOAD_MODE_NONE;
  return load(path_, params);
}

llama_model_ptr Engine::load_in_f32() {
  const TemporaryFile file("rota-eval");
  llama_model_quantize_params params = llama_model_quantize_default_params();
  params.ftype = LLAMA_FTYPE_ALL_F32;
  params.allow_requantize = true;
  params.nthread = static_cast<int>(prompt_threads_);
  if (llama_model_quantize(path_.c_str(), file.path().c_str(), &params) != 0) {
    fail("llama.cpp does not write the weights of '" + path_ + "' in f32 to '" + file.path() +
         "'; --as-is needs no file, and TMPDIR names another folder");
  }
  llama_model_params mapped = cpu_params();
  mapped.load_mode = LLAMA_LOAD_MODE_MMAP;  // which outlives the file's name
  return load(file.path(), mapped);
}

// What llama.cpp's own tools would take, for one sequence.
llama_context_params Engine::params_of(const Cache& cache, Sizes sizes) const {
  llama_context_params params = llama_context_default_params();
  params.n_ctx = sizes.context;
  params.n_batch = params.n_ubatch = sizes.ubatch;
  params.n_threads = params.n_threads_batch = static_cast<int>(threads_);
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;  // which types of few bits need
  params.swa_full = false;
  params.no_perf = true;
  params.type_k = params.type_v = cache.type;
  params.rota = cache.is_rota() ? cache.rota.c_str() : nullptr;
  return params;
}

void Engine::check_served(const Cache& cache, Sizes sizes) {
  if (!cache.is_rota() || llama_rota_check(path_.c_str(), cpu_params(), params_of(cache, sizes))) return;
  throw Failure(Exit::refused, "Rota refuses '" + path_ + "' with cache " + cache.name + ": " + log_.take().errors);
}

llama_context_ptr Engine::open(llama_model& model, const Cache& cache, Sizes sizes) {
  llama_context_ptr context(llama_init_from_model(&model, params_of(cache, sizes)));
  if (!context) {
    fail("llama.cpp opens no context of " + std::to_string(sizes.context) + " tokens with cache " + cache.name);
  }
  llama_attach_threadpool(context.get(), pool_, prompt_pool_);
  llama_set_n_threads(context.get(), static_cast<int>(threads_), static_cast<int>(prompt_threads_));
  return context;
}

Tokens read_tokens(const llama_model& model, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file || text.empty()) throw Failure(Exit::failed, "the text '" + path + "' cannot be read, or is empty");
  const llama_vocab* const vocab = llama_model_get_vocab(&model);
  if (text.size() > INT32_MAX / 2) throw Failure(Exit::failed, "the text '" + path + "' has more than 1 GiB");
  const auto size = static_cast<std::int32_t>(text.size());
  Tokens tokens(text.size() + 2);  // one of a beginning, one of an end
  const std::int32_t count =
      llama_tokenize(vocab, text.data(), size, tokens.data(), static_cast<std::int32_t>(tokens.size()), true, false);
  if (count <= 0) throw Failure(Exit::failed, "the model makes no tokens of the text '" + path + "'");
  tokens.resize(static_cast<std::size_t>(count));
  return tokens;
}

std::uint32_t head_dim_of(const llama_model& model) {
  const auto value_of = [&](const std::string& key) {
    char text[64] = {};
    return llama_model_meta_val_str(&model, key.c_str(), text, sizeof text) > 0 ? std::string(text) : std::string();
  };
  const std::string length = value_of(value_of("general.architecture") + ".attention.key_length");
  if (!length.empty()) return static_cast<std::uint32_t>(std::stoul(length));
  return static_cast<std::uint32_t>(llama_model_n_embd(&model) / std::max(1, llama_model_n_head(&model)));
}

void Sequence::decode(const llama_token* tokens, std::uint32_t count, Outputs outputs) {
  llama_batch batch = llama_batch_init(static_cast<std::int32_t>(count), 0, 1);
  for (std::uint32_t i = 0; i < count; ++i) {
    batch.token[i] = tokens[i];
    batch.pos[i] = static_cast<llama_pos>(depth_ + i);
    batch.n_seq_id[i] = 1;
    batch.seq_id[i][0] = 0;
    batch.logits[i] = outputs == Outputs::all ? 1 : 0;
  }
  batch.n_tokens = static_cast<std::int32_t>(count);
  const std::int32_t status = llama_decode(context_.get(), batch);
  llama_batch_free(batch);
  if (status != 0) {
    engine_->fail("llama_decode() with cache " + name_ + " fails behind " + std::to_string(depth_) +
                  " tokens with status " + std::to_string(status));
  }
  llama_synchronize(context_.get());
  depth_ += count;
}

void Sequence::fill_up_to(std::uint32_t depth, const Tokens& tokens) {
  while (depth_ < depth) decode(tokens.data() + depth_, std::min(ubatch_, depth - depth_), Outputs::none);
}

void Sequence::roll_back_to(std::uint32_t depth) {
  if (!llama_memory_seq_rm(llama_get_memory(context_.get()), 0, static_cast<llama_pos>(depth), -1)) {
    engine_->fail("cache " + name_ + " does not roll back from " + std::to_string(depth_) + " tokens to " +
                  std::to_string(depth));
  }
  depth_ = depth;
}

void Sequence::clear() {
  llama_memory_clear(llama_get_memory(context_.get()), true);
  depth_ = 0;
}

const float* Sequence::logits(std::uint32_t index) const {
  const float* const logits = llama_get_logits_ith(context_.get(), static_cast<std::int32_t>(index));
  if (logits == nullptr) engine_->fail("the model predicts no tokens");
  return logits;
}

std::uint32_t Sequence::vocabulary() const {
  return static_cast<std::uint32_t>(llama_vocab_n_tokens(llama_model_get_vocab(llama_get_model(context_.get()))));
}

std::vector<Sequence> open_all(Engine& engine, llama_model& model, const std::vector<Cache>& caches, Sizes sizes) {
  std::vector<Sequence> sequences;
  for (const Cache& cache : caches) sequences.emplace_back(engine, model, cache, sizes);
  return sequences;
}

}  // namespace rota::eval
