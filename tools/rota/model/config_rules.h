#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

// What transformers' classes take where a config.json is silent, and how their layers differ.

namespace rota::tool {

enum class Windows : std::uint8_t {
  as_said,   // by layer_types or a pattern alone
  in_all,    // every layer has the window, if there is one
  periodic,  // all but the last of every `period`
  switched,  // use_sliding_window says whether, max_window_layers from which layer on
  chunked,   // as periodic, of attention_chunk_size
};

struct ConfigRule {
  std::string_view type;
  Windows windows = Windows::as_said;
  std::uint64_t period = 0;
  std::uint64_t window = 0, heads = 0, kv_heads = 0, head_dim = 0, context = 0;  // 0: no default
};

constexpr auto kConfigRules = std::to_array<ConfigRule>({
    {"cohere2", Windows::periodic, 4, 4096},
    {"exaone4", Windows::periodic, 4},
    {"gemma", Windows::as_said, 0, 0, 16, 16, 256, 8192},
    {"gemma2", Windows::periodic, 2, 4096, 8, 4, 256, 8192},
    {"gemma3_text", Windows::periodic, 6, 4096, 8, 4, 256, 131072},
    {"gemma3n_text", Windows::periodic, 5, 512, 8, 2, 256, 32768},
    {"gpt_oss", Windows::periodic, 2, 128, 64, 8, 64, 131072},
    {"llama4_text", Windows::chunked, 4, 8192, 40, 8, 128, 131072},
    {"ministral", Windows::in_all, 0, 4096, 32, 8, 0, 131072},
    {"mistral", Windows::in_all, 0, 4096, 32, 8, 0, 131072},
    {"mixtral", Windows::in_all, 0, 0, 32, 8, 0, 131072},
    {"olmo3", Windows::periodic, 4, 4096},
    {"phi3", Windows::in_all},
    {"phimoe", Windows::in_all},
    {"qwen2", Windows::switched},
    {"qwen2_5_vl", Windows::switched},
    {"qwen2_5_vl_text", Windows::switched},
    {"qwen2_moe", Windows::switched},
    {"qwen2_vl", Windows::switched},
    {"qwen2_vl_text", Windows::switched},
    {"qwen3", Windows::switched},
    {"qwen3_moe", Windows::switched},
    {"starcoder2", Windows::in_all},
});
static_assert(std::ranges::is_sorted(kConfigRules, {}, &ConfigRule::type));

// Every layer sees all tokens, or the file says which do not.
constexpr auto kPlainTypes = std::to_array<std::string_view>({"apertus",
                                                              "arcee",
                                                              "bamba",
                                                              "bitnet",
                                                              "bloom",
                                                              "chatglm",
                                                              "codegen",
                                                              "cohere",
                                                              "dbrx",
                                                              "deepseek_v2",
                                                              "deepseek_v3",
                                                              "deepseek_v32",
                                                              "dots1",
                                                              "ernie4_5",
                                                              "ernie4_5_moe",
                                                              "exaone",
                                                              "falcon",
                                                              "falcon_h1",
                                                              "gemma4_text",
                                                              "glm",
                                                              "glm4",
                                                              "glm4_moe",
                                                              "glm4_moe_lite",
                                                              "glm_moe_dsa",
                                                              "gpt2",
                                                              "gpt_bigcode",
                                                              "gpt_neox",
                                                              "gptj",
                                                              "granite",
                                                              "granitemoe",
                                                              "granitemoehybrid",
                                                              "helium",
                                                              "hunyuan_v1_dense",
                                                              "hunyuan_v1_moe",
                                                              "internlm2",
                                                              "internlm3",
                                                              "jamba",
                                                              "kimi_k2",
                                                              "kimi_linear",
                                                              "lfm2",
                                                              "lfm2_moe",
                                                              "llama",
                                                              "minicpm",
                                                              "minicpm3",
                                                              "minimax",
                                                              "minimax_m2",
                                                              "mllama_text_model",
                                                              "mpt",
                                                              "nemotron",
                                                              "nemotron_h",
                                                              "olmo",
                                                              "olmo2",
                                                              "olmoe",
                                                              "opt",
                                                              "persimmon",
                                                              "phi",
                                                              "qwen",
                                                              "qwen3_5_moe_text",
                                                              "qwen3_5_text",
                                                              "qwen3_next",
                                                              "qwen3_vl_moe_text",
                                                              "qwen3_vl_text",
                                                              "seed_oss",
                                                              "smollm3",
                                                              "stablelm",
                                                              "xverse"});
static_assert(std::ranges::is_sorted(kPlainTypes));

constexpr auto kTypesWithoutCache = std::to_array<std::string_view>(
    {"albert", "bart",   "bert",  "clip",       "deberta-v2", "distilbert", "electra",    "falcon_mamba",
     "mamba",  "mamba2", "mbart", "modernbert", "mpnet",      "mt5",        "nomic_bert", "roberta",
     "rwkv",   "siglip", "t5",    "vit",        "wav2vec2",   "whisper",    "xlm-roberta"});
static_assert(std::ranges::is_sorted(kTypesWithoutCache));

// What layer_types says of a layer.
enum class LayerKind : std::uint8_t { full, sliding, recurrent, none };

struct NamedLayerKind {
  std::string_view name;
  LayerKind kind;
};

constexpr auto kLayerKinds = std::to_array<NamedLayerKind>({{"attention", LayerKind::full},
                                                            {"chunked_attention", LayerKind::sliding},
                                                            {"conv", LayerKind::recurrent},
                                                            {"full_attention", LayerKind::full},
                                                            {"hybrid", LayerKind::full},  // and a recurrent state
                                                            {"hybrid_sliding", LayerKind::sliding},
                                                            {"indexed_attention", LayerKind::full},
                                                            {"linear_attention", LayerKind::recurrent},
                                                            {"mamba", LayerKind::recurrent},
                                                            {"mamba2", LayerKind::recurrent},
                                                            {"mlp", LayerKind::none},
                                                            {"moe", LayerKind::none},
                                                            {"recurrent", LayerKind::recurrent},
                                                            {"sliding_attention", LayerKind::sliding}});

}  // namespace rota::tool
