#include <algorithm>
#include <filesystem>
#include <functional>
#include <random>
#include <set>

#include "ggml-backend.h"
#include "gguf.h"
#include "world.h"

// Every architecture of which llama.cpp makes a small random model: attention over Rota's f16 cache is as near to
// llama.cpp's over f32 as llama.cpp's own over f16 is; or the model is refused in a sentence.

namespace rota_llama {
namespace {

constexpr size_t kTokens = 192;

// What a model says after a prompt in two steps and tokens one by one.
std::vector<float> logits_of(llama_model* model, const Options& options) {
  Context context(model, options);
  if (!context.made()) return {};
  std::vector<llama_token> tokens(kTokens);
  const int32_t n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
  for (size_t i = 0; i < kTokens; ++i) tokens[i] = llama_token((i * i * 7 + i * 3 + 1) % size_t(n_vocab));
  if (context.decode(0, 0, {tokens.begin(), tokens.end() - 4}, 100) != 0) return {};
  if (context.decode(0, llama_pos(kTokens) - 4, {tokens.end() - 4, tokens.end()}, 1) != 0) return {};
  return context.logits();
}

// Whether it is served. If so, its logits were compared.
bool serves(llama_model* model, const std::string& name) {
  Options own, rota;
  own.n_ctx = rota.n_ctx = 256;
  own.rota = nullptr;
  rota.rota = "f16";
  logged().clear();
  const std::vector<float> found = logits_of(model, rota);
  if (found.empty()) {
    EXPECT_NE(logged().find("--rota: a model of "), std::string::npos) << name << "\n" << logged();
    return false;
  }
  const std::vector<float> half = logits_of(model, own);
  own.type = GGML_TYPE_F32;
  own.flash = false;
  const std::vector<float> wanted = logits_of(model, own);
  if (half.empty() || wanted.empty()) {
    ADD_FAILURE() << name << "\n" << logged();
    return true;
  }
  // The order of additions in f32 alone makes 1e-10 of it in models whose logits are differences of large numbers.
  EXPECT_LE(normalized_error(found, wanted), std::max(normalized_error(half, wanted), 1e-10)) << name;
  return true;
}

// A state instead of keys and values; latent attention; an indexer; a mask, windows or a cap of their own.
const std::set<std::string> kRefused = {
    "bailingmoe3-moe", "deepseek4-moe",  "falcon-h1-dense", "glm5-next-moe",    "granitehybrid-dense",
    "jamba-dense",     "kimi-k3-moe",    "kimi-linear-moe", "lfm2-dense",       "lfm2moe-moe",
    "mamba-dense",     "mamba2-dense",   "minimax-01-moe",  "nemotron_h-dense", "nemotron_h_moe-dense",
    "plamo2-dense",    "qwen35-dense",   "qwen35moe-moe",   "qwen3next-moe",    "qwen4exp-moe",
    "deepseek2-moe",   "deepseek32-moe", "dots3note-moe",   "glm-dsa-moe",      "hy_v4-moe",
    "mistral4-moe",    "minimax-m3-moe", "dream-dense",     "llada-dense",      "llada-moe-moe",
    "rnd1-moe",        "llama4-moe",     "grok-moe"};

TEST(Architectures, AttendAsLlamaCppDoesOrAreRefusedInASentence) {
  std::set<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(given.architectures)) {
    const std::string name = file.path().stem().string();
    const llama_model_ptr model(load(file.path().string()));
    EXPECT_EQ(serves(model.get(), name), kRefused.count(name) == 0) << name << "\n" << logged();
    names.insert(name);
  }
  // With ALiBi, a soft cap, sink logits, and windows in some of the layers.
  for (const char* name : {"bloom-dense", "mpt-dense", "gemma2-dense", "gpt-oss-moe", "cohere2-dense", "mimo2-moe"}) {
    EXPECT_EQ(names.count(name), 1U) << name;
  }
  for (const std::string& name : kRefused) EXPECT_EQ(names.count(name), 1U) << name;
}

TEST(Architectures, AreRefusedBeforeTheirWeightsAreLoaded) {
  llama_context_params params = llama_context_default_params();
  params.rota = "turbo4";
  const auto check = [&](const std::string& path) {
    logged().clear();
    return llama_rota_check(path.c_str(), llama_model_default_params(), params);
  };
  EXPECT_TRUE(check(given.smollm2)) << logged();
  EXPECT_TRUE(check(given.gemma)) << logged();
  EXPECT_EQ(logged(), "");
  EXPECT_FALSE(check(given.architectures + "/deepseek2-moe.gguf"));
  EXPECT_NE(logged().find("latent attention"), std::string::npos) << logged();
  EXPECT_FALSE(check("/nowhere.gguf"));
  params.rota = "turbo9";
  EXPECT_FALSE(check(given.smollm2));
  EXPECT_NE(logged().find("is no codec"), std::string::npos) << logged();
}

// Gemma 3n: its last layers have no keys and values of their own. llama.cpp saves no small one.
llama_model_ptr make_gemma3n() {
  const std::unique_ptr<gguf_context, decltype(&gguf_free)> metadata(gguf_init_empty(), gguf_free);
  const std::pair<const char*, uint32_t> numbers[] = {
      {"context_length", 256},      {"embedding_length", 64},       {"block_count", 24},
      {"feed_forward_length", 96},  {"attention.head_count", 2},    {"attention.head_count_kv", 1},
      {"attention.key_length", 64}, {"attention.value_length", 64}, {"attention.sliding_window", 32},
      {"vocab_size", 128}};
  gguf_set_val_str(metadata.get(), "general.architecture", "gemma3n");
  for (const auto& [name, value] : numbers)
    gguf_set_val_u32(metadata.get(), (std::string("gemma3n.") + name).c_str(), value);
  gguf_set_val_f32(metadata.get(), "gemma3n.attention.layer_norm_rms_epsilon", 1e-5F);
  gguf_set_val_str(metadata.get(), "tokenizer.ggml.model", "no_vocab");
  const auto fill = [](ggml_tensor* tensor, void* /*user*/) {
    std::mt19937 random(static_cast<unsigned>(std::hash<std::string>()(tensor->name)));
    std::normal_distribution<float> normal(0, 0.1F);
    std::vector<float> values(size_t(ggml_nelements(tensor)));
    for (float& value : values) value = normal(random);
    ggml_backend_tensor_set(tensor, values.data(), 0, ggml_nbytes(tensor));
  };
  return llama_model_ptr(llama_model_init_from_user(metadata.get(), fill, nullptr, llama_model_default_params()));
}

TEST(Architectures, LayersThatShareKeysAndValuesAttendAsLlamaCppDoes) {
  const llama_model_ptr model = make_gemma3n();
  ASSERT_TRUE(model) << logged();
  EXPECT_TRUE(serves(model.get(), "gemma3n")) << logged();
}

}  // namespace
}  // namespace rota_llama
