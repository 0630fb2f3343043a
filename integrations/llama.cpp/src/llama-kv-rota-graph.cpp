#include <stdexcept>

#include "llama-impl.h"
#include "llama-kv-cache-iswa.h"
#include "llama-kv-cache.h"
#include "llama-kv-rota.h"

// How graphs meet a llama_kv_rota: attention has no inputs, so that any graph of as many tokens is used again.

bool llama_rota::has_adapter(const llama_adapter_loras& loras, const llama_adapter_cvec& vectors, int64_t n_layer) {
  for (int64_t il = 0; il < n_layer; ++il) {
    if (vectors.tensor_for(static_cast<int>(il)) != nullptr) return true;
  }
  return !loras.empty();
}

namespace {

// Whether keys and values are what the weights make of a token and those before it.
bool is_plain(const llm_graph_context& graph) {
  return graph.cparams.causal_attn && !graph.cparams.warmup && !graph.cparams.training &&
         !llama_rota::has_adapter(*graph.loras, *graph.cvec, graph.n_layer);
}

template <class Base>
class input_of_rota final : public Base {
 public:
  input_of_rota(const llm_graph_context& graph, llama_kv_rota* memory)
      : Base(graph.hparams, graph.cparams, nullptr), memory_(memory), is_plain_(is_plain(graph)) {}

  // Of the graph that is computed, built now or used again.
  void set_input(const llama_ubatch* /*ubatch*/) override { memory_->computes_plainly(is_plain_); }
  bool can_reuse(const llm_graph_params& /*params*/) override { return true; }

 private:
  llama_kv_rota* const memory_;
  const bool is_plain_;
};

llama_kv_rota* memory_of(const llm_graph_context& graph) {
  const auto* const context = dynamic_cast<const llama_kv_rota_context*>(graph.mctx);
  return context != nullptr ? context->memory() : nullptr;
}

void check_tensor(const ggml_tensor* tensor) {
  if (tensor == nullptr) return;
  if (tensor->type != GGML_TYPE_F32 || tensor->nb[0] != sizeof(float) || tensor->ne[3] != 1) {
    throw std::runtime_error(std::string("--rota: the model's attention has a tensor of another kind: ") +
                             tensor->name);
  }
}

// The output projection, as llama.cpp's own attention ends: some architectures want it in f32.
ggml_tensor* projected(const llm_graph_context& graph, ggml_tensor* cur, ggml_tensor* wo, ggml_tensor* wo_b,
                       ggml_tensor* wo_s) {
  const bool in_f32 = graph.arch == LLM_ARCH_GLM4 || graph.arch == LLM_ARCH_GLM4_MOE || graph.arch == LLM_ARCH_JAIS2;
  if (wo != nullptr && in_f32) {
    cur = graph.build_lora_mm(wo, cur);
    ggml_prec_set_acc(cur, GGML_PREC_F32);
    if (wo_s != nullptr) cur = ggml_mul(graph.ctx0, cur, wo_s);
  } else if (wo != nullptr) {
    cur = graph.build_lora_mm(wo, cur, wo_s);
  }
  return wo_b != nullptr ? ggml_add(graph.ctx0, cur, wo_b) : cur;
}

}  // namespace

std::unique_ptr<llm_graph_input_attn_kv> llama_kv_rota_input(const llm_graph_context& graph) {
  llama_kv_rota* const memory = memory_of(graph);
  if (memory == nullptr) return nullptr;
  return std::make_unique<input_of_rota<llm_graph_input_attn_kv>>(graph, memory);
}

std::unique_ptr<llm_graph_input_attn_kv_iswa> llama_kv_rota_input_iswa(const llm_graph_context& graph) {
  llama_kv_rota* const memory = memory_of(graph);
  if (memory == nullptr) return nullptr;
  return std::make_unique<input_of_rota<llm_graph_input_attn_kv_iswa>>(graph, memory);
}

ggml_tensor* llama_kv_rota_attn(const llm_graph_context& graph, ggml_tensor* wo, ggml_tensor* wo_b, ggml_tensor* wo_s,
                                ggml_tensor* q, ggml_tensor* k, ggml_tensor* v, ggml_tensor* kq_b, ggml_tensor* sinks,
                                float kq_scale, int il) {
  llama_kv_rota* const memory = memory_of(graph);
  if (memory == nullptr) return nullptr;
  const llama_hparams& hparams = graph.hparams;
  const auto layer = static_cast<uint32_t>(il);
  // The first graph is built as the context is made, which then fails with the sentence.
  if (kq_b != nullptr) throw std::runtime_error("--rota: the model adds a bias to each pair of positions");
  if ((k == nullptr) != (v == nullptr))
    throw std::runtime_error("--rota: a layer has keys without values, or values without keys");
  for (const ggml_tensor* tensor : {q, k, v, sinks}) check_tensor(tensor);
  llama_rota::ops::build_call call = {};
  call.ctx = graph.ctx0;
  call.layer = layer;
  call.q = q;
  call.k = k;
  call.v = v;
  call.sinks = sinks;
  call.scale = kq_scale;
  call.soft_cap = hparams.attn_soft_cap ? hparams.f_attn_logit_softcapping : 0.0F;
  call.max_alibi_bias = hparams.use_alibi ? hparams.f_max_alibi_bias : 0.0F;
  call.causal = graph.cparams.causal_attn;
  call.value_dim = hparams.n_embd_head_v(layer);
  if (!call.causal && memory->window(layer) != 0) {
    call.refused = "--rota: attention without a causal mask in a layer with a window";
  }
  ggml_tensor* const result = memory->build_attn(call);
  ggml_build_forward_expand(graph.gf, result);
  graph.cb(result, "kqv_out", il);
  return projected(graph, result, wo, wo_b, wo_s);
}
