#pragma once

// The attention of one layer as an op of ggml's: appends the layer's keys and values to the step, and attends.

#include <atomic>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "ggml-backend.h"
#include "ggml.h"
#include "llama-kv-rota-handles.h"

namespace llama_rota {

// ggml calls an op with all of its threads. Thread 0 records and submits; while Rota computes, the others take tasks,
// and while it does not, they spin, as they do in ggml's own barriers.
class team {
 public:
  // Thread 0: what rota_device_options::parallel_for wants, with a team as `user`.
  static void parallel_for(void* user, uint32_t tasks, rota_task run, void* context);

  // The others: take part until `done` is `until`.
  void help(const std::atomic<uint64_t>& done, uint64_t until);

 private:
  struct loop {
    rota_task run;
    void* context;
    uint32_t tasks;
    std::atomic<uint32_t> next{0};

    void take() {
      for (uint32_t task; (task = next.fetch_add(1)) < tasks;) run(context, task);
    }
  };

  // A helper raises `joined_` before it reads `loop_`, and thread 0 takes `loop_` away before it reads `joined_`: in
  // the one order that all threads see, a helper that found the loop is waited for.
  std::atomic<loop*> loop_{nullptr};
  std::atomic<uint32_t> joined_{0};
};

class ops;

// What a layer's attention is, whatever the batch.
struct op {
  ops* owner;
  uint32_t layer;
  bool has_k, has_sinks, causal;
  float scale, soft_cap;
  std::string refused;            // why it cannot be computed; "" if it can
  buffer_ptr slopes;              // of ALiBi
  std::atomic<uint64_t> done{0};  // the last step that it has served
};

// All ops of a cache, and the step that they serve.
class ops {
 public:
  explicit ops(rota_device* device, team& team) : device_(device), team_(team) {}

  // The graph's tensor: [n_embd_head_v * n_head, n_tokens]. `k` and `v` are null where the layer reads another's.
  struct build_call {
    ggml_context* ctx;
    uint32_t layer;
    ggml_tensor *q, *k, *v, *sinks;
    float scale, soft_cap, max_alibi_bias;
    bool causal;
    int64_t value_dim;
    std::string refused;
  };
  ggml_tensor* build(const build_call& call);

  // The next step, and the encoder of rota_kv_cache_extend(), which the first op submits.
  void begin(step_ptr step, encoder_ptr encoder, std::vector<uint64_t> query_tokens);

  // Whether the encoder was submitted. Else ending the step takes it back.
  bool submitted() const { return submitted_; }

  // Why an op of the step failed; "" if none has.
  const std::string& failure() const { return failure_; }

  void end();

 private:
  static void compute(ggml_tensor* dst, int ith, int nth, void* user);
  void attend(const op& op, ggml_tensor* dst);
  rota_buffer* wrap(const ggml_tensor* tensor);
  rota_view view_of(const ggml_tensor* tensor, uint64_t tokens, uint64_t heads, uint64_t dim);
  buffer_ptr slopes_of(float max_bias, int64_t n_head);

  struct wrapped {
    void* base;
    size_t bytes;
    buffer_ptr buffer;
  };

  rota_device* device_;  // null where nothing is computed
  team& team_;
  std::deque<op> all_;  // graphs that are used again have pointers to them
  std::vector<wrapped> wrapped_;
  step_ptr step_;
  encoder_ptr extending_;
  std::vector<uint64_t> query_tokens_;
  uint64_t step_number_ = 0;
  bool submitted_ = false;
  std::string failure_;
};

}  // namespace llama_rota
