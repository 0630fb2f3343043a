// Decodes two sequences at 4 bits, in C: a prompt, a fork of it, and steps of one token for both. The last attention is
// compared with attention in f64, and with that of a sequence that was saved and loaded.
//   rota_example_c_decode [DEVICE]

#include <math.h>
#include <rota/c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEADS 4
#define KV_HEADS 2
#define ALL_HEADS (HEADS + 2 * KV_HEADS)
#define DIM 64
#define PROMPT 300
#define STEPS 100
#define SEQUENCES 2
static const double kTheta = 1e4, kScale = 0.125;

static void must(rota_status status) {
  if (status == ROTA_OK) return;
  fprintf(stderr, "%s: %s\n", rota_status_name(status), rota_last_message());
  exit(1);
}

// Stands for a model. Heads 0 to 3 are queries, 4 and 5 keys, 6 and 7 values. The sequences differ after the prompt.
static double number(int64_t sequence, int64_t position, int64_t head, int64_t d) {
  const int64_t text = position < PROMPT ? 0 : sequence;
  return (double)sinf((float)((position * 523 + text * 311 + head * 97 + d * d * 31) % 1009));
}

// Attention of a token over all before it, from its definition. Query and key are rotated by their positions, so that
// only the difference matters.
static void attention(int64_t sequence, int64_t position, int64_t head, double* result) {
  const int64_t key_head = HEADS + head / (HEADS / KV_HEADS);
  double weights = 0;
  memset(result, 0, DIM * sizeof(double));
  for (int64_t at = 0; at <= position; ++at) {
    double logit = 0;
    for (int64_t p = 0; p < DIM / 2; ++p) {
      const double q1 = number(sequence, position, head, p), q2 = number(sequence, position, head, p + DIM / 2);
      const double k1 = number(sequence, at, key_head, p), k2 = number(sequence, at, key_head, p + DIM / 2);
      const double angle = (double)(at - position) * pow(kTheta, -2 * (double)p / DIM);
      logit += (q1 * k1 + q2 * k2) * cos(angle) + (q2 * k1 - q1 * k2) * sin(angle);
    }
    const double weight = exp(kScale * logit);
    weights += weight;
    for (int64_t d = 0; d < DIM; ++d) result[d] += weight * number(sequence, at, key_head + KV_HEADS, d);
  }
  for (int64_t d = 0; d < DIM; ++d) result[d] /= weights;
}

typedef struct {
  rota_device* device;
  rota_kv_cache* cache;
  rota_buffer *qkv, *out;
  float* numbers;     // of a step, on the host
  rota_view q, k, v;  // of qkv, [token][q heads, k heads, v heads][dim], as a fused projection writes it
  rota_view attended;
} engine;

static void set_tokens(engine* e, uint64_t tokens) {
  rota_view all = ROTA_VIEW_INIT;
  must(rota_view_token_major(&all, e->qkv, ROTA_F32, tokens, ALL_HEADS, DIM));
  e->q = e->k = e->v = all;
  e->q.heads = HEADS;
  e->k.heads = e->v.heads = KV_HEADS;
  e->k.offset = (uint64_t)HEADS * DIM;
  e->v.offset = (uint64_t)(HEADS + KV_HEADS) * DIM;
  must(rota_view_token_major(&e->attended, e->out, ROTA_F32, tokens, HEADS, DIM));
}

static void begin(engine* e, const char* device) {
  rota_device_options options = ROTA_DEVICE_OPTIONS_INIT;
  options.device = device;
  must(rota_device_open(&options, &e->device));

  const uint32_t layers[] = {0};
  rota_kv_group group = ROTA_KV_GROUP_INIT;
  group.layers = layers;
  group.layer_count = 1;
  group.kv_heads = KV_HEADS;
  group.head_dim = DIM;
  group.k = group.v = "turbo4";
  rota_kv_cache_spec spec = ROTA_KV_CACHE_SPEC_INIT;
  spec.groups = &group;
  spec.group_count = 1;
  spec.max_tokens = UINT64_C(3) * (PROMPT + STEPS);
  spec.max_sequences = 3;
  must(rota_kv_cache_create(e->device, &spec, &e->cache));

  const size_t numbers = (size_t)PROMPT * ALL_HEADS * DIM;
  e->numbers = malloc(numbers * sizeof(float));
  if (e->numbers == NULL) exit(1);
  must(rota_device_allocate(e->device, numbers * sizeof(float), &e->qkv));
  must(rota_device_allocate(e->device, (uint64_t)PROMPT * HEADS * DIM * sizeof(float), &e->out));
}

// The tokens that come next: of each sequence so many, with their keys, values and attention.
static void decode(engine* e, const rota_sequence* sequences, size_t count, uint64_t tokens_each) {
  rota_kv_extension extensions[SEQUENCES] = {ROTA_KV_EXTENSION_INIT, ROTA_KV_EXTENSION_INIT};
  uint64_t query_tokens[SEQUENCES];
  for (size_t i = 0; i < count; ++i) {
    extensions[i].sequence = sequences[i];
    extensions[i].tokens = query_tokens[i] = tokens_each;
  }
  rota_encoder* encoder = NULL;
  rota_kv_step* step = NULL;
  must(rota_device_encoder(e->device, &encoder));
  must(rota_kv_cache_extend(e->cache, encoder, extensions, count, &step));

  const int64_t* positions = NULL;
  size_t tokens = 0;
  must(rota_kv_step_positions(step, &positions, &tokens));
  const size_t per_token = (size_t)ALL_HEADS * DIM;
  for (size_t i = 0; i < tokens * per_token; ++i) {
    const size_t token = i / per_token, in_token = i % per_token;
    e->numbers[i] = (float)number((int64_t)(token / tokens_each), positions[token], (int64_t)(in_token / DIM),
                                  (int64_t)(in_token % DIM));
  }
  must(rota_buffer_write(e->qkv, e->numbers, tokens * per_token * sizeof(float), 0));
  set_tokens(e, tokens);

  rota_rotary rotary = ROTA_ROTARY_INIT;
  rotary.theta = kTheta;
  rota_rope_tensor both[] = {ROTA_ROPE_TENSOR_INIT, ROTA_ROPE_TENSOR_INIT};
  both[0].from = both[0].to = &e->q;
  both[1].from = both[1].to = &e->k;
  rota_rope_call rope = ROTA_ROPE_CALL_INIT;
  rope.tensors = both;
  rope.tensor_count = 2;
  rope.positions = positions;
  rope.position_count = tokens;
  rope.rotary = &rotary;
  must(rota_rope(encoder, &rope));

  must(rota_kv_step_append(step, encoder, 0, &e->k, &e->v));
  rota_attend_call call = ROTA_ATTEND_CALL_INIT;
  call.q = &e->q;
  call.out = &e->attended;
  call.scale = kScale;
  call.query_tokens = query_tokens;
  call.query_token_count = count;
  must(rota_attend(encoder, step, 0, &call));

  rota_fence* fence = NULL;
  must(rota_encoder_submit(encoder, &fence));
  must(rota_fence_wait(fence));
  rota_fence_destroy(fence);
  rota_kv_step_destroy(step);
  rota_encoder_destroy(encoder);
}

typedef struct {
  unsigned char* bytes;
  size_t size, room;
} saved_bytes;

static int take_bytes(void* user, const void* bytes, size_t size) {
  saved_bytes* saved = user;
  if (saved->size + size > saved->room) {
    const size_t room = 2 * (saved->size + size);
    unsigned char* more = realloc(saved->bytes, room);
    if (more == NULL) return 1;
    saved->bytes = more;
    saved->room = room;
  }
  memcpy(saved->bytes + saved->size, bytes, size);
  saved->size += size;
  return 0;
}

// Attention of the last queries over the first sequence as it was loaded again and over the second as it is.
static void attend_again(engine* e, rota_sequence* sequences, size_t* saved_size) {
  saved_bytes saved = {NULL, 0, 0};
  must(rota_kv_cache_save(e->cache, sequences[0], take_bytes, &saved, NULL));
  must(rota_kv_cache_close(e->cache, sequences[0]));
  must(rota_kv_cache_load_bytes(e->cache, saved.bytes, saved.size, NULL, &sequences[0], NULL, NULL));
  *saved_size = saved.size;
  free(saved.bytes);

  rota_encoder* encoder = NULL;
  must(rota_device_encoder(e->device, &encoder));
  rota_attend_call call = ROTA_ATTEND_CALL_INIT;
  call.q = &e->q;
  call.out = &e->attended;
  call.scale = kScale;
  must(rota_attend_sequences(encoder, e->cache, sequences, SEQUENCES, 0, &call));
  must(rota_encoder_submit(encoder, NULL));
  rota_encoder_destroy(encoder);
}

static double relative_error(const float* found) {
  double error = 0, squares = 0, wanted[DIM];
  for (int row = 0; row < SEQUENCES * HEADS; ++row) {
    attention(row / HEADS, PROMPT + STEPS - 1, row % HEADS, wanted);
    for (int d = 0; d < DIM; ++d) {
      error += pow((double)found[row * DIM + d] - wanted[d], 2);
      squares += wanted[d] * wanted[d];
    }
  }
  return sqrt(error / squares);
}

int main(int argc, char** argv) {
  engine e = {NULL, NULL, NULL, NULL, NULL, ROTA_VIEW_INIT, ROTA_VIEW_INIT, ROTA_VIEW_INIT, ROTA_VIEW_INIT};
  begin(&e, argc > 1 ? argv[1] : "cpu");

  rota_sequence sequences[SEQUENCES];
  must(rota_kv_cache_open_sequence(e.cache, &sequences[0]));
  decode(&e, sequences, 1, PROMPT);
  rota_encoder* encoder = NULL;
  must(rota_device_encoder(e.device, &encoder));
  must(rota_kv_cache_fork(e.cache, encoder, sequences[0], &sequences[1]));
  must(rota_encoder_submit(encoder, NULL));
  rota_encoder_destroy(encoder);
  for (int i = 0; i < STEPS; ++i) decode(&e, sequences, SEQUENCES, 1);

  static float out[SEQUENCES * HEADS * DIM], again[SEQUENCES * HEADS * DIM];
  must(rota_buffer_read(e.out, out, sizeof(out), 0));
  size_t saved_size = 0;
  attend_again(&e, sequences, &saved_size);
  must(rota_buffer_read(e.out, again, sizeof(again), 0));

  uint64_t length = 0;
  must(rota_kv_cache_length(e.cache, sequences[0], &length));
  const double error = relative_error(out);
  int same = 1;
  for (size_t i = 0; i < sizeof(out) / sizeof(out[0]); ++i) same = same && out[i] == again[i];
  printf("2 sequences of %llu tokens at 4 bits: attention is off by %.4f; saved as %llu bytes and loaded, it is %s\n",
         (unsigned long long)length, error, (unsigned long long)saved_size, same ? "the same" : "different");

  rota_buffer_destroy(e.qkv);
  rota_buffer_destroy(e.out);
  rota_kv_cache_destroy(e.cache);
  rota_device_destroy(e.device);
  free(e.numbers);
  return error < 0.03 && same ? 0 : 1;  // the error of 4 bits on these numbers
}
