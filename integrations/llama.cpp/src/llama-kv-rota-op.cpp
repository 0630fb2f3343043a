#include "llama-kv-rota-op.h"

#include <algorithm>
#include <cmath>

#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
#endif

namespace llama_rota {
namespace {

void relax() {
#if defined(__x86_64__) || defined(_M_X64)
  _mm_pause();
#elif defined(__aarch64__) && defined(__GNUC__)
  __asm__ volatile("yield" ::: "memory");
#endif
}

}  // namespace

void team::parallel_for(void* user, uint32_t tasks, rota_task run, void* context) {
  team& self = *static_cast<team*>(user);
  loop loop{run, context, tasks};
  self.loop_.store(&loop);
  loop.take();
  self.loop_.store(nullptr);
  while (self.joined_.load() != 0) relax();
}

void team::help(const std::atomic<uint64_t>& done, uint64_t until) {
  while (done.load(std::memory_order_acquire) != until) {
    if (loop_.load(std::memory_order_relaxed) == nullptr) {
      relax();
      continue;
    }
    joined_.fetch_add(1);
    if (loop* found = loop_.load()) found->take();
    joined_.fetch_sub(1);
  }
}

buffer_ptr ops::slopes_of(float max_bias, int64_t n_head) {
  if (max_bias <= 0 || device_ == nullptr) return nullptr;
  // The first heads, as many as the largest power of two, have every step of a geometric series; the rest every second
  // of one that falls half as fast.
  const int64_t whole = int64_t{1} << static_cast<int64_t>(std::floor(std::log2(n_head)));
  std::vector<float> slopes;
  for (int64_t head = 0; head < n_head; ++head) {
    const double exponent = head < whole ? -max_bias / double(whole) * double(head + 1)
                                         : -max_bias / 2.0 / double(whole) * double(2 * (head - whole) + 1);
    slopes.push_back(static_cast<float>(std::exp2(exponent)));
  }
  rota_buffer* buffer = nullptr;
  check(rota_device_allocate(device_, slopes.size() * sizeof(float), &buffer));
  buffer_ptr result(buffer);
  check(rota_buffer_write(buffer, slopes.data(), slopes.size() * sizeof(float), 0));
  return result;
}

ggml_tensor* ops::build(const build_call& call) {
  const auto same = [&](const op& op) {
    return op.layer == call.layer && op.has_k == (call.k != nullptr) && op.has_sinks == (call.sinks != nullptr) &&
           op.causal == call.causal && op.scale == call.scale && op.soft_cap == call.soft_cap &&
           op.refused == call.refused;
  };
  auto found = std::find_if(all_.begin(), all_.end(), same);
  if (found == all_.end()) {
    op& added = all_.emplace_back();
    added.owner = this;
    added.layer = call.layer;
    added.has_k = call.k != nullptr;
    added.has_sinks = call.sinks != nullptr;
    added.causal = call.causal;
    added.scale = call.scale;
    added.soft_cap = call.soft_cap;
    added.refused = call.refused;
    added.slopes = slopes_of(call.max_alibi_bias, call.q->ne[1]);
    found = all_.end() - 1;
  }
  std::vector<ggml_tensor*> args = {call.q};
  for (ggml_tensor* tensor : {call.k, call.v, call.sinks}) {
    if (tensor != nullptr) args.push_back(tensor);
  }
  return ggml_custom_4d(call.ctx, GGML_TYPE_F32, call.value_dim * call.q->ne[1], call.q->ne[2], 1, 1, args.data(),
                        static_cast<int>(args.size()), compute, GGML_N_TASKS_MAX, &*found);
}

void ops::begin(step_ptr step, encoder_ptr encoder, std::vector<uint64_t> query_tokens) {
  step_ = std::move(step);
  extending_ = std::move(encoder);
  query_tokens_ = std::move(query_tokens);
  failure_.clear();
  submitted_ = false;
  ++step_number_;
}

void ops::end() {
  step_.reset();
  extending_.reset();
}

// ggml's buffers are few, and stay while graphs are used again. One that was freed is not read before its memory is
// another's, which then has another size or the same bytes to give.
rota_buffer* ops::wrap(const ggml_tensor* tensor) {
  ggml_backend_buffer_t buffer = tensor->view_src != nullptr ? tensor->view_src->buffer : tensor->buffer;
  void* const base = ggml_backend_buffer_get_base(buffer);
  const size_t bytes = ggml_backend_buffer_get_size(buffer);
  for (const wrapped& known : wrapped_) {
    if (known.base == base && known.bytes == bytes) return known.buffer.get();
  }
  constexpr size_t kMost = 16;
  if (wrapped_.size() == kMost) wrapped_.erase(wrapped_.begin());
  rota_buffer* made = nullptr;
  check(rota_device_wrap(device_, base, bytes, nullptr, nullptr, &made));
  wrapped_.push_back({base, bytes, buffer_ptr(made)});
  return made;
}

rota_view ops::view_of(const ggml_tensor* tensor, uint64_t tokens, uint64_t heads, uint64_t dim) {
  rota_view view = ROTA_VIEW_INIT;
  view.buffer = wrap(tensor);
  ggml_backend_buffer_t buffer = tensor->view_src != nullptr ? tensor->view_src->buffer : tensor->buffer;
  const char* const base = static_cast<const char*>(ggml_backend_buffer_get_base(buffer));
  view.offset = static_cast<uint64_t>(static_cast<const char*>(tensor->data) - base) / sizeof(float);
  view.tokens = tokens;
  view.heads = heads;
  view.dim = dim;
  view.token_stride = heads * dim;
  view.head_stride = dim;
  return view;
}

void ops::attend(const op& op, ggml_tensor* dst) {
  if (!op.refused.empty()) throw std::runtime_error(op.refused);
  const auto strided = [&](const ggml_tensor* tensor) {
    rota_view view = view_of(tensor, tensor->ne[2], tensor->ne[1], tensor->ne[0]);
    view.token_stride = tensor->nb[2] / sizeof(float);
    view.head_stride = tensor->nb[1] / sizeof(float);
    return view;
  };
  encoder_ptr encoder = extending_ ? std::move(extending_) : new_encoder(device_);
  const rota_view q = strided(dst->src[0]);
  if (op.has_k) {
    const rota_view k = strided(dst->src[1]), v = strided(dst->src[2]);
    check(rota_kv_step_append(step_.get(), encoder.get(), op.layer, &k, &v));
  }
  const rota_view out = view_of(dst, q.tokens, q.heads, static_cast<uint64_t>(dst->ne[0]) / q.heads);
  rota_view sinks = ROTA_VIEW_INIT, slopes = ROTA_VIEW_INIT;
  rota_attend_call call = ROTA_ATTEND_CALL_INIT;
  call.q = &q;
  call.out = &out;
  call.scale = op.scale;
  call.query_tokens = query_tokens_.data();
  call.query_token_count = query_tokens_.size();
  call.mask = op.causal ? ROTA_MASK_CAUSAL : ROTA_MASK_NONE;
  call.soft_cap = op.soft_cap;
  if (op.has_sinks) {
    sinks = view_of(dst->src[op.has_k ? 3 : 1], 1, q.heads, 1);
    call.sink_logits = &sinks;
  }
  if (op.slopes) {
    check(rota_view_token_major(&slopes, op.slopes.get(), ROTA_F32, 1, q.heads, 1));
    call.alibi_slopes = &slopes;
  }
  check(rota_attend(encoder.get(), step_.get(), op.layer, &call));
  check(rota_encoder_submit(encoder.get(), nullptr));
  submitted_ = true;
}

void ops::compute(ggml_tensor* dst, int ith, int /*nth*/, void* user) {
  op& op = *static_cast<llama_rota::op*>(user);
  ops& self = *op.owner;
  if (ith != 0) return self.team_.help(op.done, self.step_number_);
  if (self.failure_.empty()) {
    try {
      self.attend(op, dst);
    } catch (const std::exception& error) {
      self.failure_ = error.what();
    }
  }
  op.done.store(self.step_number_, std::memory_order_release);
}

}  // namespace llama_rota
