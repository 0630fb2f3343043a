#include "llama-kv-rota-spec.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <stdexcept>

#include "llama-arch.h"
#include "llama-cparams.h"
#include "llama-hparams.h"
#include "llama-kv-rota-handles.h"
#include "llama-model.h"

namespace llama_rota {
namespace {

[[noreturn]] void refuse(const std::string& why) { throw std::runtime_error("--rota: " + why); }

bool is_codec(const std::string& name) {
  for (size_t i = 0; i < rota_codec_count(); ++i) {
    if (name == rota_codec_name(i)) return true;
  }
  return false;
}

std::string codec_from(const std::string& name) {
  if (is_codec(name)) return name;
  std::string known;
  for (size_t i = 0; i < rota_codec_count(); ++i) known += std::string(i == 0 ? "" : ", ") + rota_codec_name(i);
  refuse("'" + name + "' is no codec; there are " + known);
}

uint64_t number_from(const std::string& key, const std::string& text, const std::string& what) {
  if (text.empty() || text.size() > 9 || text.find_first_not_of("0123456789") != std::string::npos) {
    refuse(key + "='" + text + "' is not a number of " + what);
  }
  return std::stoull(text);
}

// Items are separated by commas, so that a comma in a value is written as %2C, as in URLs.
std::string text_from(const std::string& key, std::string text) {
  if (text.empty()) refuse(key + "= wants a text behind it");
  for (size_t at = 0; (at = text.find("%2", at)) != std::string::npos; ++at) {
    if (at + 2 < text.size() && (text[at + 2] == 'C' || text[at + 2] == 'c')) text.replace(at, 3, ",");
  }
  return text;
}

// What follows is decided by the architecture, before a graph is built.
void check_architecture(const llama_model& model, const llama_cparams& cparams) {
  const llama_hparams& hparams = model.hparams;
  const std::string name = llm_arch_name(model.arch);
  if (llm_arch_is_recurrent(model.arch))
    refuse("a model of " + name + " has a recurrent state, and no keys and values");
  if (llm_arch_is_hybrid(model.arch)) refuse("a model of " + name + " mixes attention with a recurrent state");
  if (!hparams.causal_attn)
    refuse("a model of " + name + " attends without a causal mask, and keeps no keys and values");
  if (hparams.is_mla()) refuse("a model of " + name + " has multi-head latent attention (MLA)");
  if (hparams.indexer_head_size > 0) refuse("a model of " + name + " chooses its keys by an indexer");
  if (cparams.ctx_type != LLAMA_CONTEXT_TYPE_DEFAULT) refuse("a context for multi-token prediction (MTP)");
  if (cparams.ctx_other != nullptr) refuse("a context that shares the cache of another");
  if (hparams.swa_type != LLAMA_SWA_TYPE_NONE && hparams.swa_type != LLAMA_SWA_TYPE_STANDARD) {
    refuse("a model of " + name + " has windows that do not end at their token (chunked or symmetric)");
  }
  switch (model.arch) {
    case LLM_ARCH_T5: refuse("a model of " + name + " adds a bias to each pair of positions");
    case LLM_ARCH_GROK: refuse("a model of " + name + " caps its logits in a way of its own");
    case LLM_ARCH_DFLASH:
    case LLM_ARCH_MINIMAX_M3:
    case LLM_ARCH_GEMMA4_ASSISTANT: refuse("a model of " + name + " has a cache of its own kind");
    default: return;
  }
}

void check_devices(const llama_model& model, uint32_t n_layer) {
  for (uint32_t il = 0; il < n_layer; ++il) {
    ggml_backend_dev_t device = model.dev_layer(static_cast<int>(il));
    if (device == nullptr || ggml_backend_dev_type(device) == GGML_BACKEND_DEVICE_TYPE_CPU) continue;
    refuse("layer " + std::to_string(il) + " is on " + ggml_backend_dev_name(device) +
           ", and attention runs on the CPU: use --n-gpu-layers 0");
  }
}

// The layer whose keys and values `il` reads, or -1 if it has its own.
int32_t shared_from(const llama_model& model, uint32_t il) {
  const llama_hparams& hparams = model.hparams;
  const int32_t from = hparams.n_layer_kv_from_start;
  if (from < 0 || il < static_cast<uint32_t>(from)) return -1;
  if (model.arch != LLM_ARCH_GEMMA3N && model.arch != LLM_ARCH_GEMMA4) {
    refuse(std::string("a model of ") + llm_arch_name(model.arch) +
           " shares keys and values between layers in a new way");
  }
  return from - (hparams.is_swa(il) ? 2 : 1);
}

// llama-server takes back up to two tokens of a state that it has restored, which must see their windows then.
uint64_t windowed_tail(uint64_t tail, uint64_t window) {
  constexpr uint64_t kTakenBack = 2;
  return std::min(std::max(tail, kTakenBack), window);
}

}  // namespace

options options::parse(const std::string& text) {
  options result;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string item = text.substr(begin, end - begin);
    const size_t equals = item.find('=');
    begin = end + 1;
    const size_t address = item.find("://");
    if (address < equals) refuse("an address is given as store=" + item.substr(0, address) + "://...");
    if (equals == std::string::npos) {
      result.k = result.v = codec_from(item);
      continue;
    }
    const std::string key = item.substr(0, equals), value = item.substr(equals + 1);
    if (key == "k" || key == "v") {
      (key == "k" ? result.k : result.v) = codec_from(value);
      continue;
    }
    const std::map<std::string, std::string*> texts = {
        {"store", &result.store}, {"salt_file", &result.salt_file}, {"weights", &result.weights}};
    if (texts.count(key) != 0) {
      *texts.at(key) = text_from(key, value);
      continue;
    }
    const std::map<std::string, std::optional<uint64_t>*> times = {{"deadline", &result.deadline_ms},
                                                                   {"flush", &result.flush_ms}};
    if (times.count(key) != 0) {
      *times.at(key) = number_from(key, value, "milliseconds");
      continue;
    }
    const std::map<std::string, uint64_t*> numbers = {
        {"page", &result.page}, {"tail", &result.tail}, {"sinks", &result.sinks}, {"seal_within", &result.seal_within}};
    const auto found = numbers.find(key);
    if (found == numbers.end()) {
      refuse("'" + key +
             "' is unknown; there are k, v, page, tail, sinks, seal_within, store, salt_file, weights, "
             "deadline and flush");
    }
    *found->second = number_from(key, value, "tokens");
  }
  if (result.deadline_ms == uint64_t{0}) refuse("deadline is 0; wanted 1 or more milliseconds");
  for (const auto& [key, is_given] :
       {std::pair("salt_file", !result.salt_file.empty()), std::pair("weights", !result.weights.empty()),
        std::pair("deadline", result.deadline_ms.has_value()), std::pair("flush", result.flush_ms.has_value())}) {
    if (result.store.empty() && is_given) refuse(std::string(key) + "= is for a store, and there is no store=");
  }
  return result;
}

description::description(const llama_model& model, const llama_cparams& cparams, options options_of_user)
    : chosen(std::move(options_of_user)) {
  const llama_hparams& hparams = model.hparams;
  check_architecture(model, cparams);
  // The layers that predict several tokens at once are another context's.
  const bool has_trunk = hparams.n_layer_nextn > 0 && hparams.n_layer() > 0 && hparams.router_layer < 0;
  const uint32_t end = has_trunk ? hparams.n_layer() : hparams.n_layer_all;
  check_devices(model, end);

  using shape = std::array<uint32_t, 4>;  // window, heads, dims of keys and of values
  std::map<shape, size_t> group_of;
  std::map<uint32_t, size_t> group_of_layer;
  for (uint32_t il = 0; il < end; ++il) {
    const int32_t from = shared_from(model, il);
    if (from >= 0) {
      shared[group_of_layer.at(static_cast<uint32_t>(from))].push_back({il, static_cast<uint32_t>(from)});
      continue;
    }
    if (!hparams.has_kv(il) || hparams.n_head_kv(il) == 0) continue;
    const uint32_t window = hparams.is_swa(il) ? hparams.n_swa : 0;
    const shape key = {window, hparams.n_head_kv(il), hparams.n_embd_head_k(il), hparams.n_embd_head_v(il)};
    const auto added = group_of.emplace(key, groups.size());
    if (added.second) {
      rota_kv_group group = ROTA_KV_GROUP_INIT;
      group.kv_heads = key[1];
      group.head_dim = key[2];
      group.value_dim = key[3];
      group.window = window;
      group.page = chosen.page;
      group.tail = window != 0 ? windowed_tail(chosen.tail, window) : chosen.tail;
      group.sinks = std::min(chosen.sinks, chosen.page);
      groups.push_back(group);
      layers.emplace_back();
      shared.emplace_back();
    }
    layers[added.first->second].push_back(il);
    group_of_layer[il] = added.first->second;
    ++n_layer;
  }
  if (groups.empty()) refuse(std::string("a model of ") + llm_arch_name(model.arch) + " keeps no keys and values");
  for (size_t i = 0; i < groups.size(); ++i) {
    groups[i].k = chosen.k.c_str();
    groups[i].v = chosen.v.c_str();
    groups[i].layers = layers[i].data();
    groups[i].layer_count = layers[i].size();
    groups[i].shared = shared[i].data();
    groups[i].shared_count = shared[i].size();
  }
  spec.groups = groups.data();
  spec.group_count = groups.size();
  spec.max_tokens = uint64_t{cparams.n_ctx_seq} * (cparams.kv_unified ? 1 : cparams.n_seq_max);
  spec.max_sequences = cparams.n_seq_max;
  spec.max_step_tokens = cparams.n_ubatch;
  spec.seal_within = chosen.seal_within;
}

uint32_t description::storable_step() const {
  // Shorter steps would cost more than they save: prefixes then end where tokens came one by one.
  constexpr uint64_t kLeast = 256;
  uint64_t most = std::numeric_limits<uint32_t>::max();
  for (const rota_kv_group& group : groups) {
    if (group.window >= kLeast + group.page) most = std::min(most, group.window - group.page);
  }
  return static_cast<uint32_t>(most);
}

uint64_t description::bytes() const {
  rota_kv_memory memory = ROTA_KV_MEMORY_INIT;
  check(rota_estimate(&spec, &memory, nullptr, 0));
  return memory.bytes;
}

}  // namespace llama_rota
