#pragma once

// A memory of llama.cpp's whose keys, values and attention are Rota's. One rota_kv_cache has all layers, those with
// windows included; what llama.cpp numbers 0 to n_seq_max - 1 are its sequences.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "llama-adapter.h"
#include "llama-batch.h"
#include "llama-graph.h"
#include "llama-kv-rota-handles.h"
#include "llama-kv-rota-op.h"
#include "llama-kv-rota-spec.h"
#include "llama-kv-rota-store.h"
#include "llama-memory.h"

namespace llama_rota {

// Cells as llama.cpp counts them: a token of several sequences has one. Rota shares pages by itself; this says whether
// a batch fits, and whether two sequences are the same.
class cell_pool {
 public:
  explicit cell_pool(uint32_t cells);

  size_t free() const { return free_.size(); }
  bool is_shared(uint32_t cell) const { return users_[cell] > 1; }
  uint32_t take();
  void share(const std::vector<uint32_t>& cells);
  void give(uint32_t cell);

 private:
  std::vector<uint16_t> users_;
  std::vector<uint32_t> free_;
};

// A sequence of llama.cpp's: positions [first, first + cells.size()).
struct sequence {
  bool is_open = false;
  rota_sequence id = {};
  llama_pos first = 0;
  std::vector<uint32_t> cells;
  std::vector<llama_token>
      tokens;          // of its first cells; fewer where one is not known, or not all that was computed with
  std::string broken;  // why it cannot go on until it is removed; "" if it can

  llama_pos end() const { return first + static_cast<llama_pos>(cells.size()); }
  bool can_be_stored() const { return is_open && first == 0 && tokens.size() == cells.size(); }
};

}  // namespace llama_rota

class llama_kv_rota : public llama_memory_i {
 public:
  // Throws a sentence if the model, or the context, cannot be served.
  llama_kv_rota(const llama_model& model, const llama_memory_params& params, const llama_cparams& cparams);
  ~llama_kv_rota() override = default;

  llama_memory_context_ptr init_batch(llama_batch_allocr& balloc, uint32_t n_ubatch, bool embd_all) override;
  llama_memory_context_ptr init_full() override;
  llama_memory_context_ptr init_update(llama_context* lctx, bool optimize) override;

  bool get_can_shift() const override { return false; }

  void clear(bool data) override;
  bool seq_rm(llama_seq_id seq_id, llama_pos p0, llama_pos p1) override;
  void seq_cp(llama_seq_id seq_id_src, llama_seq_id seq_id_dst, llama_pos p0, llama_pos p1) override;
  void seq_keep(llama_seq_id seq_id) override;
  void seq_add(llama_seq_id seq_id, llama_pos p0, llama_pos p1, llama_pos shift) override;
  void seq_div(llama_seq_id seq_id, llama_pos p0, llama_pos p1, int d) override;
  llama_pos seq_pos_min(llama_seq_id seq_id) const override;
  llama_pos seq_pos_max(llama_seq_id seq_id) const override;

  std::map<ggml_backend_buffer_type_t, size_t> memory_breakdown() const override;

  void state_write(llama_io_write_i& io, llama_seq_id seq_id, llama_state_seq_flags flags) const override;
  void state_read(llama_io_read_i& io, llama_seq_id seq_id, llama_state_seq_flags flags) override;

  // The tokens of an ubatch join their sequences; the graph's ops then compute. False if they cannot.
  bool begin(const llama_ubatch& ubatch);

  // The graph was computed. False if an op failed: the sequences are then as before.
  bool end();

  // The graph that is about to be computed does what its weights say, and nothing else: no adapter, and so on.
  void computes_plainly(bool plainly) { is_plain_ = plainly; }

  // llama_rota_restore()
  size_t restore(llama_seq_id seq_id, const llama_token* tokens, size_t n_past, size_t n_tokens);

  ggml_tensor* build_attn(const llama_rota::ops::build_call& call) { return ops_.build(call); }
  uint64_t window(uint32_t layer) const;

 private:
  struct extension {
    llama_seq_id seq_id;
    uint64_t tokens;
  };

  bool has(llama_seq_id seq_id) const;
  std::vector<llama_ubatch> split(llama_batch_allocr& balloc, uint32_t n_ubatch) const;
  std::string misfit(const llama_batch& batch) const;
  void open(llama_rota::sequence& sequence);
  void close(llama_rota::sequence& sequence);
  void fork(const llama_rota::sequence& from, llama_rota::sequence& to);
  void truncate(llama_rota::sequence& sequence, uint64_t length);
  void shrink(llama_rota::sequence& sequence, uint64_t length);
  void keep();
  uint64_t room_for(const llama_rota::sequence& sequence) const;
  void load(const llama_rota::store::match_ptr& match, const llama_token* tokens, llama_rota::sequence& to);
  void roll_back();
  bool serves(const llama_rota::sequence& sequence, llama_pos p0, llama_pos p1) const;
  void read_one(llama_io_read_i& io, llama_seq_id seq_id);

  const bool no_alloc_;
  const uint32_t n_ctx_seq_;
  llama_rota::description description_;
  uint64_t bytes_;  // at most
  llama_rota::team team_;
  llama_rota::device_ptr device_;  // null with no_alloc
  llama_rota::cache_ptr cache_;
  std::unique_ptr<llama_rota::store> store_;  // null without one, or with no_alloc
  llama_rota::ops ops_;
  llama_rota::cell_pool cells_;
  std::vector<llama_rota::sequence> sequences_;
  std::vector<extension> extensions_;  // of the step that is under way
  std::vector<std::pair<llama_seq_id, llama_seq_id>>
      coupled_;  // when it is done, the second becomes a fork of the first
  bool under_way_ = false;
  bool is_plain_ = false;  // of the step that is under way
};

class llama_kv_rota_context : public llama_memory_context_i {
 public:
  llama_kv_rota_context(llama_kv_rota* memory, llama_memory_status status, std::vector<llama_ubatch> ubatches = {})
      : memory_(memory), status_(status), ubatches_(std::move(ubatches)) {}

  bool next() override { return ++at_ < ubatches_.size(); }
  bool apply() override { return memory_->begin(ubatches_.at(at_)); }
  bool computed() override { return memory_->end(); }
  const llama_ubatch& get_ubatch() const override { return ubatches_.at(at_); }
  llama_memory_status get_status() const override { return status_; }

  llama_kv_rota* memory() const { return memory_; }

 private:
  llama_kv_rota* memory_;
  llama_memory_status status_;
  std::vector<llama_ubatch> ubatches_;
  size_t at_ = 0;
};

namespace llama_rota {

// Whether a LoRA adapter or a control vector is in use: keys and values are then not those of the weights.
bool has_adapter(const llama_adapter_loras& loras, const llama_adapter_cvec& vectors, int64_t n_layer);

}  // namespace llama_rota

// For graphs. What they give is null if the memory is not Rota's.
std::unique_ptr<llm_graph_input_attn_kv> llama_kv_rota_input(const llm_graph_context& graph);
std::unique_ptr<llm_graph_input_attn_kv_iswa> llama_kv_rota_input_iswa(const llm_graph_context& graph);
ggml_tensor* llama_kv_rota_attn(const llm_graph_context& graph, ggml_tensor* wo, ggml_tensor* wo_b, ggml_tensor* wo_s,
                                ggml_tensor* q, ggml_tensor* k, ggml_tensor* v, ggml_tensor* kq_b, ggml_tensor* sinks,
                                float kq_scale, int il);
