#pragma once

// Rota for C11, C++17 and every language that calls C. docs/c.md is the tutorial; the C++ headers beside this one say
// more about each call, under the same words.
//
// Status. A call returns ROTA_OK, or says why not: rota_last_message() has the sentence. A call that fails leaves what
// it was given, results included, as it was. Nothing is thrown, nothing aborts.
//
// Handles (rota_device, rota_buffer, ...) are made by calls that take `T** result`. The caller owns what it gets and
// ends it by rota_T_destroy(), once; NULL does nothing there. Handles may end in any order: each keeps alive what it
// needs, and a command what it uses. NULL, what never was a handle, and one of another kind are ROTA_INVALID_ARGUMENT.
// Every handle serves any number of threads at once, but for rota_encoder and rota_kv_step: one thread at a time.
//
// Structs begin with struct_size, which ROTA_..._INIT sets, with the defaults. What a library of another age does not
// know is handled so: members that a smaller struct lacks have their defaults; a larger struct is ROTA_UNSUPPORTED
// unless the bytes beyond are zero. In results these bytes are set to zero. Elements of an array have one struct_size,
// and are that far apart. `reserved` is 0. Pointers, strings too, are read during the call only, unless a comment says
// more. rota_sequence, rota_kv_shared_layer, rota_kv_pool_size and rota_kv_pool_counters have no size and never change.
//
// What may be absent: a pointer is NULL, a number 0. Where 0 is a value, ROTA_NONE is absent. Flags are 0 or 1.

// NOLINTBEGIN(modernize-*, readability-identifier-naming): this is C.

#include <stddef.h>
#include <stdint.h>

#include "rota/version.h"

#if defined(_WIN32)
#if defined(ROTA_BUILDING_SHARED)
#define ROTA_C_API __declspec(dllexport)
#elif defined(ROTA_USING_SHARED)
#define ROTA_C_API __declspec(dllimport)
#else
#define ROTA_C_API
#endif
#else
#define ROTA_C_API __attribute__((visibility("default")))
#endif

// Enumerations have 32 bits. To C++ any number is then a value, which the library refuses.
#if defined(__cplusplus)
#define ROTA_ENUM : uint32_t
#else
#define ROTA_ENUM
#endif

// Absent, where 0 is a value.
#define ROTA_NONE UINT64_MAX

#ifdef __cplusplus
extern "C" {
#endif

// Why a call failed: rota::Errc, and ROTA_OK.
typedef enum rota_status ROTA_ENUM {
  ROTA_OK,
  ROTA_INVALID_ARGUMENT,  // a value of the caller's; the message names the call, the argument, what was found and
                          // wanted
  ROTA_UNSUPPORTED,       // a valid request that this device or build cannot serve
  ROTA_NO_DEVICE,         // no such device, or its driver does not answer
  ROTA_OUT_OF_MEMORY,     // of the host or of a device
  ROTA_OUT_OF_PAGES,      // a cache has no page, or no sequence, left
  ROTA_BUSY,              // held by an encoder that is not submitted yet: see rota_kv_cache_wait()
  ROTA_DEVICE_LOST,       // the device is gone; every later call says so, too
  ROTA_PIPELINE_FAILED,   // the driver refused to build a kernel
  ROTA_IO,                // bytes could not be read or written, or are not what they should be
  ROTA_INTERNAL           // a bug of the library
} rota_status;

// The status in words. A constant.
ROTA_C_API const char* rota_status_name(rota_status status);

// Why the last call of this thread that failed did so; "" before. Valid until this thread's next call that fails.
ROTA_C_API const char* rota_last_message(void);

// Makes a message the thread's last one, cut if it is long; NULL is "". For libraries that answer as this one does,
// such as librota-store.
ROTA_C_API void rota_set_last_message(const char* message);

// The version of the library that is loaded; ROTA_VERSION is that of the headers. Any of the three may be NULL.
ROTA_C_API rota_status rota_version(uint32_t* major, uint32_t* minor, uint32_t* patch);
ROTA_C_API const char* rota_version_text(void);  // a constant

// What ROTA_..._INIT does, for languages without macros: `name` is that of a struct, such as "rota_kv_group", and
// `struct_size` its size for the caller.
ROTA_C_API rota_status rota_struct_init(const char* name, void* structure, size_t struct_size);

// The names of codecs, 0 to rota_codec_count() - 1: "f16", "turbo4". Constants; NULL beyond them.
ROTA_C_API size_t rota_codec_count(void);
ROTA_C_API const char* rota_codec_name(size_t index);

// Handles.
typedef struct rota_backends rota_backends;
typedef struct rota_device rota_device;
typedef struct rota_buffer rota_buffer;
typedef struct rota_encoder rota_encoder;
typedef struct rota_fence rota_fence;
typedef struct rota_kv_cache rota_kv_cache;
typedef struct rota_kv_step rota_kv_step;
typedef struct rota_kv_notes rota_kv_notes;
typedef struct rota_kv_saved rota_kv_saved;

// Devices: rota/device.h.

typedef enum rota_device_kind ROTA_ENUM {
  ROTA_CPU,
  ROTA_DISCRETE_GPU,
  ROTA_INTEGRATED_GPU,
  ROTA_VIRTUAL_GPU,
  ROTA_SOFTWARE_GPU
} rota_device_kind;

// A device, opened or not. Strings belong to the handle that was asked.
typedef struct rota_device_info {
  size_t struct_size;
  const char* id;  // for rota_device_options: "cpu", "vulkan:0"
  const char* name;
  const char* driver;
  const char* features;  // CPU: instruction sets, with spaces between
  rota_device_kind kind;
  uint32_t threads;       // CPU: that an open device computes with; else as opening would choose
  uint64_t memory_bytes;  // CPU: of the machine, or the limit of the process's control groups
  uint64_t max_buffer_bytes;
  uint64_t max_binding_bytes;  // that one view may span
  uint64_t max_sparse_bytes;   // addresses for memory that grows; 0: a cache takes its memory at once
  uint32_t subgroup_size;      // GPU: invocations
  uint32_t max_workgroup_size;
  uint32_t shared_memory_bytes;  // GPU: per workgroup
  uint32_t reserved;
} rota_device_info;
#define ROTA_DEVICE_INFO_INIT {sizeof(rota_device_info), NULL, NULL, NULL, NULL, ROTA_CPU, 0, 0, 0, 0, 0, 0, 0, 0, 0}

// What one backend of this build found on this machine. Strings belong to the rota_backends.
typedef struct rota_backend_report {
  size_t struct_size;
  const char* name;
  rota_status status;  // if there are no devices: why
  uint32_t reserved;
  const char* message;  // of the status
  const char* advice;   // if there are no devices: what to install or do
  size_t device_count;
} rota_backend_report;
#define ROTA_BACKEND_REPORT_INIT {sizeof(rota_backend_report), NULL, ROTA_OK, 0, NULL, NULL, 0}

// Asks every backend of this build for its devices.
ROTA_C_API rota_status rota_list_backends(rota_backends** result);
ROTA_C_API rota_status rota_backends_count(const rota_backends* backends, size_t* count);
ROTA_C_API rota_status rota_backends_get(const rota_backends* backends, size_t backend, rota_backend_report* report);
ROTA_C_API rota_status rota_backends_get_device(const rota_backends* backends, size_t backend, size_t device,
                                                rota_device_info* info);
ROTA_C_API void rota_backends_destroy(rota_backends* backends);

// One task of rota_parallel_for.
typedef void (*rota_task)(void* context, uint32_t task);

// Calls run(context, i) once for each i < tasks, from any threads, and returns when these calls have; tasks are at most
// rota_device_options::threads. Whatever it leaves out is done by the thread that submits. Called by several threads at
// once if several submit, or load sequences.
typedef void (*rota_parallel_for)(void* user, uint32_t tasks, rota_task run, void* context);

// Gets a message of a driver's validation, which is gone when it returns. Called from any thread; must not call rota.
typedef void (*rota_on_validation_message)(void* user, const char* message);

// One command that has run. Strings are gone when the sink returns. Times are in nanoseconds and count from the zero of
// their own clock: CLOCK_MONOTONIC for the host's.
typedef struct rota_trace_event {
  size_t struct_size;  // of the library
  const char* device;
  const char* op;  // the kernel
  uint64_t submission, command;
  uint64_t tokens, heads, dim, keys, sequences;  // of the call; 0 is what does not apply
  uint64_t bytes;                                // between the first and the last that it may touch
  int64_t host_begin, host_time, submitted, device_begin, device_time;
} rota_trace_event;

// Called from several threads at once, with each command that has run; must not call rota.
typedef void (*rota_trace_sink)(void* user, const rota_trace_event* event);

// What rota_device_open() takes. A callback and its `user` stay in use until the device and all that was made from it
// (buffers, encoders, fences, caches, steps) are destroyed.
typedef struct rota_device_options {
  size_t struct_size;
  const char* device;              // an id; NULL: "cpu"
  uint32_t threads;                // CPU: to compute with; 0: one per CPU that affinity and control groups allow
  uint32_t reserved;               // 0
  rota_parallel_for parallel_for;  // CPU: if set, does the work, and rota_encoder_submit() returns when it is done
  void* parallel_for_user;         // its first argument
  const char* pipeline_cache;      // GPU: a file that rota_device_save_pipelines() writes and opening reads
  rota_on_validation_message on_validation_message;  // GPU: if set, validation is on; opening fails where it is missing
  void* on_validation_message_user;                  // its first argument
  rota_trace_sink trace;                             // if set, gets each command that ran
  void* trace_user;                                  // its first argument
} rota_device_options;
#define ROTA_DEVICE_OPTIONS_INIT {sizeof(rota_device_options), NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL}

// The strings are read during the call. The caller destroys the device.
ROTA_C_API rota_status rota_device_open(const rota_device_options* options, rota_device** result);

// The first discrete GPU, else the first integrated GPU, else the CPU.
ROTA_C_API rota_status rota_device_open_best(rota_device** result);

// The strings stay as long as this handle.
ROTA_C_API rota_status rota_device_get_info(const rota_device* device, rota_device_info* info);

// Writes the pipelines that were built so far to rota_device_options::pipeline_cache. A CPU has none.
ROTA_C_API rota_status rota_device_save_pipelines(rota_device* device);

// If nothing else holds the device, waits for all that is in flight there.
ROTA_C_API void rota_device_destroy(rota_device* device);

// Buffers: rota/buffer.h.

// New memory of at least one byte, with undefined contents. The caller destroys the buffer.
ROTA_C_API rota_status rota_device_allocate(rota_device* device, uint64_t bytes, rota_buffer** result);

// A buffer over the caller's own memory, for a CPU: nothing is copied. The memory stays the caller's, and must stay
// where it is until release(user) is called: once, by any thread, when the buffer and the last command that uses it are
// gone; it must not call rota. If the call fails, release is not called. It may be NULL if the memory stays until the
// buffer is destroyed and each submission that uses it has finished. Elements of views must be aligned to their size,
// and sealed pages and counters to 8 bytes. GPUs refuse it. Wrap an arena once: views have offsets.
ROTA_C_API rota_status rota_device_wrap(rota_device* device, void* memory, size_t bytes, void (*release)(void* user),
                                        void* user, rota_buffer** result);

ROTA_C_API rota_status rota_buffer_size(const rota_buffer* buffer, uint64_t* bytes);

// Copy from and to the caller's memory, which is free when they return. They wait for earlier submissions that use the
// buffer.
ROTA_C_API rota_status rota_buffer_write(rota_buffer* buffer, const void* from, size_t bytes, uint64_t offset_bytes);
ROTA_C_API rota_status rota_buffer_read(const rota_buffer* buffer, void* to, size_t bytes, uint64_t offset_bytes);

// The memory stays until the last command that uses it has run.
ROTA_C_API void rota_buffer_destroy(rota_buffer* buffer);

// Encoders and fences: rota/encoder.h.

// A new encoder, which records commands; nothing runs before rota_encoder_submit(). The caller destroys it, submitted
// or not.
ROTA_C_API rota_status rota_device_encoder(rota_device* device, rota_encoder** result);

// The first error that a recording call met (ops, rota_kv_step_append and rota_kv_step_done). After it they do nothing
// and return it again, and so does rota_encoder_submit().
ROTA_C_API rota_status rota_encoder_status(const rota_encoder* encoder);

// Starts the commands. Submissions to one device run in the order of these calls. Ends the encoder's use, whether it
// succeeds or not: what is left is to destroy it. `fence` may be NULL; else the caller destroys the fence.
ROTA_C_API rota_status rota_encoder_submit(rota_encoder* encoder, rota_fence** fence);

// Builds what the device needs for the commands, and runs none. Ends the encoder's use as destroying it does.
ROTA_C_API rota_status rota_encoder_prepare(rota_encoder* encoder);

// Without a submission before, a cache takes back what the encoder's calls changed.
ROTA_C_API void rota_encoder_destroy(rota_encoder* encoder);

// Returns when the submission has finished. On a CPU the thread does a share of the work.
ROTA_C_API rota_status rota_fence_wait(const rota_fence* fence);

// Whether the submission has finished; waits at most so long for that.
ROTA_C_API rota_status rota_fence_wait_for(const rota_fence* fence, uint64_t nanoseconds, uint32_t* done);
ROTA_C_API rota_status rota_fence_done(const rota_fence* fence, uint32_t* done);

// Does not wait, unless nothing else holds the device.
ROTA_C_API void rota_fence_destroy(rota_fence* fence);

// Views: rota/view.h. A view borrows its buffer: the handle must live while the view is used in calls.

typedef enum rota_dtype ROTA_ENUM { ROTA_F32, ROTA_F16, ROTA_BF16 } rota_dtype;

// Head vectors, addressed as [token, head, dim]. Offset and strides count elements. What an op writes to is a rota_view
// as well; the call says which.
typedef struct rota_view {
  size_t struct_size;
  rota_buffer* buffer;
  rota_dtype dtype;
  uint32_t reserved;  // 0
  uint64_t tokens, heads, dim;
  uint64_t offset;
  uint64_t token_stride, head_stride;
  uint64_t dim_stride;  // a view without it has 1
} rota_view;
#define ROTA_VIEW_INIT {sizeof(rota_view), NULL, ROTA_F32, 0, 0, 0, 0, 0, 0, 0, 1}

// Set a whole view: [token][head][dim] or [head][token][dim] in memory. view->struct_size must be set.
ROTA_C_API rota_status rota_view_token_major(rota_view* view, rota_buffer* buffer, rota_dtype dtype, uint64_t tokens,
                                             uint64_t heads, uint64_t dim);
ROTA_C_API rota_status rota_view_head_major(rota_view* view, rota_buffer* buffer, rota_dtype dtype, uint64_t tokens,
                                            uint64_t heads, uint64_t dim);

// The memory of a cache of the caller's own: head vectors, addressed as [page, slot, head, dim]. A contiguous cache is
// one page with all slots. Offset and strides count elements. May be written.
typedef struct rota_slot_view {
  size_t struct_size;
  rota_buffer* buffer;
  rota_dtype dtype;
  uint32_t reserved;  // 0
  uint64_t pages, page_slots, heads, dim;
  uint64_t offset;
  uint64_t page_stride, slot_stride, head_stride;
  uint64_t dim_stride;  // a view without it has 1
} rota_slot_view;
#define ROTA_SLOT_VIEW_INIT {sizeof(rota_slot_view), NULL, ROTA_F16, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1}

// Set a whole view: [page][slot][head][dim] or [page][head][slot][dim] in memory. view->struct_size must be set.
ROTA_C_API rota_status rota_slot_view_token_major(rota_slot_view* view, rota_buffer* buffer, rota_dtype dtype,
                                                  uint64_t pages, uint64_t page_slots, uint64_t heads, uint64_t dim);
ROTA_C_API rota_status rota_slot_view_head_major(rota_slot_view* view, rota_buffer* buffer, rota_dtype dtype,
                                                 uint64_t pages, uint64_t page_slots, uint64_t heads, uint64_t dim);

// Page formats: rota/codec.h.

typedef enum rota_kv_side ROTA_ENUM { ROTA_KEYS, ROTA_VALUES } rota_kv_side;

typedef enum rota_scale_rule ROTA_ENUM { ROTA_SCALE_RMS, ROTA_SCALE_LEAST_SQUARES, ROTA_SCALE_SEARCH } rota_scale_rule;

// How a sealed codec is used, besides its name.
typedef struct rota_codec_options {
  size_t struct_size;
  rota_scale_rule scale;
  uint32_t key_mean;  // subtract the mean of a page's keys before sealing, and store it in the page
  uint32_t seed;      // of the rotation's signs
  uint32_t reserved;  // 0
} rota_codec_options;
#define ROTA_CODEC_OPTIONS_INIT {sizeof(rota_codec_options), ROTA_SCALE_SEARCH, 1, 0x726f7461U, 0}

// The format of a page of one head.
typedef struct rota_page_format {
  size_t struct_size;
  const char* codec;  // by name: "turbo4". In results a constant
  rota_kv_side side;
  uint32_t head_dim;
  uint32_t tokens;  // per page: 128 or 64
  rota_scale_rule scale;
  uint32_t key_mean;
  uint32_t seed;
} rota_page_format;
#define ROTA_PAGE_FORMAT_INIT {sizeof(rota_page_format), "turbo4", ROTA_KEYS, 0, 128, ROTA_SCALE_SEARCH, 1, 0x726f7461U}

#define ROTA_PAGE_DESCRIPTION_BYTES 32

// ROTA_OK if the format exists.
ROTA_C_API rota_status rota_page_format_check(const rota_page_format* format);

// The bytes of a page of one head, a multiple of 64.
ROTA_C_API rota_status rota_page_format_bytes(const rota_page_format* format, uint64_t* bytes);

// The format as bytes, which are stored with pages that leave the process, and back. Bytes may come from anywhere.
ROTA_C_API rota_status rota_page_format_describe(const rota_page_format* format,
                                                 uint8_t description[ROTA_PAGE_DESCRIPTION_BYTES]);
ROTA_C_API rota_status rota_page_format_read(const void* description, size_t bytes, rota_page_format* format);

// Sealed pages, addressed as [page, head]. Offset and strides are multiples of 64 bytes. May be written.
typedef struct rota_sealed_view {
  size_t struct_size;
  rota_buffer* buffer;
  const rota_page_format* format;
  uint64_t pages, heads;
  uint64_t offset_bytes;
  uint64_t page_stride_bytes, head_stride_bytes;
} rota_sealed_view;
#define ROTA_SEALED_VIEW_INIT {sizeof(rota_sealed_view), NULL, NULL, 1, 0, 0, 0, 0}

// Sets a whole view: [page][head] in memory, without gaps. `format` is kept as the pointer that it is.
// view->struct_size must be set.
ROTA_C_API rota_status rota_sealed_view_packed(rota_sealed_view* view, rota_buffer* buffer,
                                               const rota_page_format* format, uint64_t pages, uint64_t heads);

// The description of a cache, and its memory: rota/kv_spec.h.

// A layer without keys and values of its own: its queries see those of `from`.
typedef struct rota_kv_shared_layer {
  uint32_t layer, from;  // the model's numbers
} rota_kv_shared_layer;

// Layers that are stored alike.
typedef struct rota_kv_group {
  size_t struct_size;
  const uint32_t* layers;  // the model's numbers, in any order; no other group has them
  size_t layer_count;
  uint32_t kv_heads;
  uint32_t head_dim;  // of keys. The smallest struct ends here
  const char* k;      // codec by name
  const char* v;
  const rota_codec_options* k_options;  // NULL: the defaults, and always for a codec that is an element type
  const rota_codec_options* v_options;
  uint32_t value_dim;   // 0: head_dim
  rota_dtype dense;     // type of the tail and the sinks, if keys or values are sealed
  uint32_t v_in_k;      // values are the first value_dim numbers of their keys: MLA with its keys absorbed
  uint32_t keep_sinks;  // the sinks stay, and are seen besides the window
  uint64_t page;        // tokens per page: 128 or 64
  uint64_t tail;        // newest tokens: they stay dense, and truncating takes them back for free
  uint64_t sinks;       // first tokens that stay dense beside their sealed page; at most `page`
  uint64_t window;      // newest keys that a token sees, including its own; 0: all
  const rota_kv_shared_layer* shared;  // layers that share the cache of one of `layers`, and are never appended
  size_t shared_count;
} rota_kv_group;
#define ROTA_KV_GROUP_INIT \
  {sizeof(rota_kv_group), NULL, 0, 0, 0, "f16", "f16", NULL, NULL, 0, ROTA_F16, 0, 0, 128, 128, 4, 0, NULL, 0}

typedef enum rota_layer_order ROTA_ENUM { ROTA_LAYERS_IN_TURN, ROTA_LAYERS_TOGETHER } rota_layer_order;

// What rota_kv_cache_create() takes. At most one of max_tokens and max_bytes is given; with neither, the limit is what
// the device has.
typedef struct rota_kv_cache_spec {
  size_t struct_size;
  const rota_kv_group* groups;
  size_t group_count;   // the smallest struct ends here
  uint64_t max_tokens;  // of all sequences together; 0: none
  uint64_t max_bytes;   // of device memory; 0: none
  uint32_t max_sequences;
  rota_layer_order layer_order;
  uint64_t max_step_tokens;  // of all sequences in one step
  uint64_t seal_within;      // tokens over which the sealing of a page is spread; 0: at once
  uint32_t at_once;          // takes all memory as the cache is made
  uint32_t reserved;         // 0
} rota_kv_cache_spec;
#define ROTA_KV_CACHE_SPEC_INIT {sizeof(rota_kv_cache_spec), NULL, 0, 0, 0, 1, ROTA_LAYERS_IN_TURN, 512, 0, 0, 0}

// Pages of equal size.
typedef struct rota_kv_pool_size {
  uint64_t pages, page_bytes;
} rota_kv_pool_size;

// The memory of a group.
typedef struct rota_kv_group_memory {
  size_t struct_size;
  rota_kv_pool_size k_sealed, k_dense, k_sinks, k_step;
  rota_kv_pool_size v_sealed, v_dense, v_sinks, v_step;
} rota_kv_group_memory;
#define ROTA_KV_GROUP_MEMORY_INIT \
  {sizeof(rota_kv_group_memory), {0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}}

// The memory of a cache, at most.
typedef struct rota_kv_memory {
  size_t struct_size;
  uint64_t max_tokens;
  uint64_t bytes;  // of the device
  uint64_t counter_bytes;
  uint64_t host_bytes;  // of the host, at most; not in `bytes`
} rota_kv_memory;
#define ROTA_KV_MEMORY_INIT {sizeof(rota_kv_memory), 0, 0, 0, 0}

// The most that a cache of the description allocates. Needs no device. `groups` is NULL, or an array of `group_count`
// structs, as many as the description has, each with its struct_size set.
ROTA_C_API rota_status rota_estimate(const rota_kv_cache_spec* spec, rota_kv_memory* memory,
                                     rota_kv_group_memory* groups, size_t group_count);

// Caches: rota/kv_cache.h.

// Names a sequence of a cache. Plain data: copies name the same sequence, and none after rota_kv_cache_close().
typedef struct rota_sequence {
  uint64_t cache;
  uint32_t index, generation;
} rota_sequence;

// How many tokens a step adds to a sequence.
typedef struct rota_kv_extension {
  size_t struct_size;
  rota_sequence sequence;
  uint64_t tokens;  // 1 to 65,536
} rota_kv_extension;
#define ROTA_KV_EXTENSION_INIT {sizeof(rota_kv_extension), {0, 0, 0}, 0}

// Pages of one kind.
typedef struct rota_kv_pool_counters {
  uint64_t pages;  // at most
  uint64_t used, shared, allocated;
  uint64_t bytes_used, bytes_allocated;
} rota_kv_pool_counters;

// Sums over all groups, keys and values together.
typedef struct rota_kv_counters {
  size_t struct_size;
  rota_kv_pool_counters sealed, dense, sinks, step;
  uint64_t sequences, tokens;
  uint64_t seals, unseals;  // pages
  uint64_t copied_bytes;
  uint64_t bytes_used, bytes_allocated;  // of all pages
} rota_kv_counters;
#define ROTA_KV_COUNTERS_INIT \
  {sizeof(rota_kv_counters),  \
   {0, 0, 0, 0, 0, 0},        \
   {0, 0, 0, 0, 0, 0},        \
   {0, 0, 0, 0, 0, 0},        \
   {0, 0, 0, 0, 0, 0},        \
   0,                         \
   0,                         \
   0,                         \
   0,                         \
   0,                         \
   0,                         \
   0}

// The caller destroys the cache. It keeps the device.
ROTA_C_API rota_status rota_kv_cache_create(rota_device* device, const rota_kv_cache_spec* spec,
                                            rota_kv_cache** result);

// What the cache takes at most: as rota_estimate(), whose arguments these are.
ROTA_C_API rota_status rota_kv_cache_memory(const rota_kv_cache* cache, rota_kv_memory* memory,
                                            rota_kv_group_memory* groups, size_t group_count);

// Takes memory now, and keeps it, for so many tokens of all sequences; 0 keeps nothing.
ROTA_C_API rota_status rota_kv_cache_reserve(rota_kv_cache* cache, uint64_t tokens);

// Gives back memory that no sequence uses and that is not reserved. Waits for what was submitted.
ROTA_C_API rota_status rota_kv_cache_trim(rota_kv_cache* cache);

// A new sequence without tokens, until rota_kv_cache_close() or the end of the cache.
ROTA_C_API rota_status rota_kv_cache_open_sequence(rota_kv_cache* cache, rota_sequence* sequence);
ROTA_C_API rota_status rota_kv_cache_close(rota_kv_cache* cache, rota_sequence sequence);

// These change the cache at once, and record what the device must do. The changes follow the encoder: if it is
// destroyed without a submission, or that fails, the sequences are as before. A call that is refused changes nothing
// and leaves the encoder usable. All of them want an encoder of the cache's device.

// Adds tokens to sequences, in the order of the extensions; a sequence may be named more than once. Keys and values are
// appended by the step, which the caller destroys.
ROTA_C_API rota_status rota_kv_cache_extend(rota_kv_cache* cache, rota_encoder* encoder,
                                            const rota_kv_extension* extensions, size_t count, rota_kv_step** result);

// A second sequence with the same tokens, which shares all pages but the one that is not full.
ROTA_C_API rota_status rota_kv_cache_fork(rota_kv_cache* cache, rota_encoder* encoder, rota_sequence sequence,
                                          rota_sequence* result);

// Takes back the newest tokens, so that `length` are left.
ROTA_C_API rota_status rota_kv_cache_truncate(rota_kv_cache* cache, rota_encoder* encoder, rota_sequence sequence,
                                              uint64_t length);

// Seals now what the next step would seal.
ROTA_C_API rota_status rota_kv_cache_settle(rota_kv_cache* cache, rota_encoder* encoder);

// After ROTA_BUSY: returns when no open encoder holds the sequence, nor pages that were short; ROTA_BUSY after the
// time.
ROTA_C_API rota_status rota_kv_cache_wait(const rota_kv_cache* cache, rota_sequence sequence, uint64_t milliseconds);

// Tokens of the sequence.
ROTA_C_API rota_status rota_kv_cache_length(const rota_kv_cache* cache, rota_sequence sequence, uint64_t* length);

// The first position that every group still has: 0, unless pages have left a window. rota_kv_cache_truncate() takes 0
// and lengths that are at least a window more; without a window, any.
ROTA_C_API rota_status rota_kv_cache_first_position(const rota_kv_cache* cache, rota_sequence sequence,
                                                    uint64_t* position);

ROTA_C_API rota_status rota_kv_cache_counters(const rota_kv_cache* cache, rota_kv_counters* counters);

// Values that were lost: infinite or NaN once stored, and beyond f16 or NaN when sealed. Waits for what counts them.
ROTA_C_API rota_status rota_kv_cache_non_finite(const rota_kv_cache* cache, uint64_t* appended, uint64_t* sealed);

// Steps of the cache keep it until they are destroyed as well.
ROTA_C_API void rota_kv_cache_destroy(rota_kv_cache* cache);

// The position of each token of the step, for rota_rope(). The array belongs to the step.
ROTA_C_API rota_status rota_kv_step_positions(const rota_kv_step* step, const int64_t** positions, size_t* count);

// Records the storing of one layer's keys and values: [tokens, kv_heads, head_dim] and [tokens, kv_heads, value_dim].
// `v` is NULL for a group with v_in_k. Every layer must be appended once: in the encoder of rota_kv_cache_extend(), or
// in any encoder once that one is submitted. Until then no sequence of the step can be extended or forked.
ROTA_C_API rota_status rota_kv_step_append(rota_kv_step* step, rota_encoder* encoder, uint32_t layer,
                                           const rota_view* k, const rota_view* v);

// The layer's tokens of this step are not attended with any more. Appending the next of its group says so, too.
ROTA_C_API rota_status rota_kv_step_done(rota_kv_step* step, rota_encoder* encoder, uint32_t layer);

// While the step lives, all that its tokens see stays. Destroying it takes back nothing.
ROTA_C_API void rota_kv_step_destroy(rota_kv_step* step);

// Saved sequences: rota/kv_saved.h.

// Takes the next bytes, which are not its own when it returns. Other than 0 ends the call that makes them, by ROTA_IO.
typedef int (*rota_byte_sink)(void* user, const void* bytes, size_t size);

// Fills all of `bytes` with the next ones. Other than 0, as at their end, ends the call that wants them, by ROTA_IO.
typedef int (*rota_byte_source)(void* user, void* bytes, size_t size);

// Bytes of the engine's own that travel with a sequence.
typedef struct rota_kv_note {
  size_t struct_size;
  uint64_t position;
  const void* bytes;  // in results they belong to the rota_kv_notes
  size_t size;
} rota_kv_note;
#define ROTA_KV_NOTE_INIT {sizeof(rota_kv_note), 0, NULL, 0}

typedef struct rota_kv_save_options {
  size_t struct_size;
  uint64_t begin;  // position; a multiple of every group's page. The smallest struct ends here
  uint64_t end;    // the same; ROTA_NONE: all
  const rota_kv_note* notes;
  size_t note_count;
} rota_kv_save_options;
#define ROTA_KV_SAVE_OPTIONS_INIT {sizeof(rota_kv_save_options), 0, ROTA_NONE, NULL, 0}

typedef struct rota_kv_load_options {
  size_t struct_size;
  uint64_t tokens;            // those before it alone; ROTA_NONE: all. The smallest struct ends here
  const rota_sequence* onto;  // goes on with a sequence that ends where the saved part begins; NULL: a new one
} rota_kv_load_options;
#define ROTA_KV_LOAD_OPTIONS_INIT {sizeof(rota_kv_load_options), ROTA_NONE, NULL}

// Gives a sequence as bytes, all of them during the call. `options` is NULL or says which.
ROTA_C_API rota_status rota_kv_cache_save(rota_kv_cache* cache, rota_sequence sequence, rota_byte_sink sink, void* user,
                                          const rota_kv_save_options* options);

// Opens a sequence from such bytes: from a source, or from memory, which is read during the call only. Each page's
// checksum is verified. `options`, `length` and `notes` may be NULL; else the caller destroys the notes.
ROTA_C_API rota_status rota_kv_cache_load(rota_kv_cache* cache, rota_byte_source source, void* user,
                                          const rota_kv_load_options* options, rota_sequence* sequence,
                                          uint64_t* length, rota_kv_notes** notes);
ROTA_C_API rota_status rota_kv_cache_load_bytes(rota_kv_cache* cache, const void* bytes, size_t size,
                                                const rota_kv_load_options* options, rota_sequence* sequence,
                                                uint64_t* length, rota_kv_notes** notes);

// The notes that came with a sequence. Their bytes belong to the handle.
ROTA_C_API rota_status rota_kv_notes_count(const rota_kv_notes* notes, size_t* count);
ROTA_C_API rota_status rota_kv_notes_get(const rota_kv_notes* notes, size_t index, rota_kv_note* note);
ROTA_C_API void rota_kv_notes_destroy(rota_kv_notes* notes);

// Keys or values in a saved sequence: logical pages [first_page, end_page). Those before sealed_pages are sealed.
typedef struct rota_kv_saved_side {
  size_t struct_size;
  uint64_t first_page, sealed_pages, end_page;
  uint64_t bytes;
  uint32_t has_sinks;
  uint32_t reserved;
} rota_kv_saved_side;
#define ROTA_KV_SAVED_SIDE_INIT {sizeof(rota_kv_saved_side), 0, 0, 0, 0, 0, 0}

// What a saved sequence says of itself.
typedef struct rota_kv_saved_info {
  size_t struct_size;
  uint64_t begin, end;
  uint64_t header_bytes, bytes;
  size_t group_count, note_count;
  uint32_t version;
  uint32_t reserved;
} rota_kv_saved_info;
#define ROTA_KV_SAVED_INFO_INIT {sizeof(rota_kv_saved_info), 0, 0, 0, 0, 0, 0, 0, 0}

// Read and check the header, or all bytes, of a saved sequence. They need no device. The caller destroys the result.
ROTA_C_API rota_status rota_read_saved_header(rota_byte_source source, void* user, rota_kv_saved** result);
ROTA_C_API rota_status rota_verify_saved(rota_byte_source source, void* user, rota_kv_saved** result);

// What a group's pointers lead to belongs to the handle. `group`, `k` and `v` may be NULL, and so may the position and
// the bytes of a note.
ROTA_C_API rota_status rota_kv_saved_get_info(const rota_kv_saved* saved, rota_kv_saved_info* info);
ROTA_C_API rota_status rota_kv_saved_get_group(const rota_kv_saved* saved, size_t index, rota_kv_group* group,
                                               rota_kv_saved_side* k, rota_kv_saved_side* v);
ROTA_C_API rota_status rota_kv_saved_get_note(const rota_kv_saved* saved, size_t index, uint64_t* position,
                                              uint64_t* bytes);
ROTA_C_API void rota_kv_saved_destroy(rota_kv_saved* saved);

// Ops: rota/ops.h. They record commands, which keep the buffers that they use. Structs and arrays are read during the
// call only. An error is kept by the encoder: see rota_encoder_status().

typedef enum rota_when_full ROTA_ENUM { ROTA_WHEN_FULL_WRAP, ROTA_WHEN_FULL_REFUSE } rota_when_full;

// Where consecutive tokens of one sequence are stored: rota/token_run.h.
typedef struct rota_token_run {
  size_t struct_size;
  uint64_t tokens;
  uint64_t position;           // of the first token
  uint64_t capacity;           // slots. The smallest struct ends here
  const uint32_t* page_table;  // physical pages; NULL: page 0 of a contiguous cache
  size_t page_count;
  rota_when_full when_full;
  uint32_t reserved;  // 0
} rota_token_run;
#define ROTA_TOKEN_RUN_INIT {sizeof(rota_token_run), 0, 0, 0, NULL, 0, ROTA_WHEN_FULL_WRAP, 0}

typedef struct rota_store_pair {
  size_t struct_size;
  const rota_view* from;
  const rota_slot_view* to;  // written
} rota_store_pair;
#define ROTA_STORE_PAIR_INIT {sizeof(rota_store_pair), NULL, NULL}

typedef struct rota_store_call {
  size_t struct_size;
  const rota_store_pair* pairs;  // such as K and V: each has the same tokens and positions
  size_t pair_count;
  const rota_token_run* sequences;  // together all tokens of the source, one sequence after the other
  size_t sequence_count;            // the smallest struct ends here
  rota_buffer* non_finite;          // a u64 that counts written elements that are infinite or NaN; NULL: none
  uint64_t non_finite_offset_bytes;
} rota_store_call;
#define ROTA_STORE_CALL_INIT {sizeof(rota_store_call), NULL, 0, NULL, 0, NULL, 0}

// Copies head vectors into slots, and converts between element types.
ROTA_C_API rota_status rota_store(rota_encoder* encoder, const rota_store_call* call);

typedef enum rota_pairing ROTA_ENUM { ROTA_PAIR_HALVES, ROTA_PAIR_INTERLEAVED, ROTA_PAIR_SECTION_HALVES } rota_pairing;

typedef enum rota_section_order ROTA_ENUM { ROTA_SECTIONS_CONTIGUOUS, ROTA_SECTIONS_INTERLEAVED } rota_section_order;

typedef enum rota_section_frequencies ROTA_ENUM {
  ROTA_FREQUENCIES_SHARED,
  ROTA_FREQUENCIES_OWN
} rota_section_frequencies;

typedef enum rota_yarn_ramp ROTA_ENUM { ROTA_YARN_WHOLE_PAIRS, ROTA_YARN_EXACT } rota_yarn_ramp;

// Positions with several axes: each axis turns the pairs of its section.
typedef struct rota_rope_sections {
  size_t struct_size;
  const uint32_t* pairs;  // per axis; at most 4 axes
  size_t axis_count;
  rota_section_order order;
  rota_section_frequencies frequencies;
} rota_rope_sections;
#define ROTA_ROPE_SECTIONS_INIT {sizeof(rota_rope_sections), NULL, 0, ROTA_SECTIONS_CONTIGUOUS, ROTA_FREQUENCIES_SHARED}

typedef struct rota_yarn {
  size_t struct_size;
  double factor;
  uint64_t original_context;    // tokens. The smallest struct ends here
  double beta_fast, beta_slow;  // turns
  double extrapolation;         // share of the ramp that is applied, 0 to 1
  rota_yarn_ramp ramp;
  uint32_t reserved;  // 0
} rota_yarn;
#define ROTA_YARN_INIT {sizeof(rota_yarn), 0, 0, 32, 1, 1, ROTA_YARN_WHOLE_PAIRS, 0}

// How a model rotates. docs/rope.md lists the values of many models.
typedef struct rota_rotary {
  size_t struct_size;
  double theta;
  rota_pairing pairing;
  uint32_t reserved;       // 0. The smallest struct ends here
  uint64_t rope_dim;       // coordinates in pairs, from the first on; 0: the whole head
  uint64_t turning_pairs;  // pairs that turn, from the first on; ROTA_NONE: all
  uint64_t exponent_dim;   // 0: rope_dim, or with ROTA_FREQUENCIES_OWN a section's dims
  const float* factors;    // one per pair, or NULL
  size_t factor_count;
  double interpolation;                // linear scaling
  const rota_yarn* yarn;               // instead of linear scaling; NULL: none
  double magnitude;                    // scale of all pairs; 0: 1, or with YaRN 0.1 ln(factor) + 1
  const rota_rope_sections* sections;  // NULL: positions have one axis
} rota_rotary;
#define ROTA_ROTARY_INIT {sizeof(rota_rotary), 0, ROTA_PAIR_HALVES, 0, 0, ROTA_NONE, 0, NULL, 0, 1, NULL, 0, NULL}

// The RMS norm of each head vector.
typedef struct rota_head_norm {
  size_t struct_size;
  double epsilon;
  const rota_view* weight;  // [1, 1, dim] for all heads, or [1, heads, dim]; NULL: 1
  double weight_offset;     // 1 for Gemma 3, whose files store weight - 1
} rota_head_norm;
#define ROTA_HEAD_NORM_INIT {sizeof(rota_head_norm), 0, NULL, 0}

typedef struct rota_rope_tensor {
  size_t struct_size;
  const rota_view* from;       // [tokens, heads, dim]
  const rota_view* to;         // written: the same view as `from`, or other bytes. The smallest struct ends here
  const rota_head_norm* norm;  // before the rotation; NULL: none
} rota_rope_tensor;
#define ROTA_ROPE_TENSOR_INIT {sizeof(rota_rope_tensor), NULL, NULL, NULL}

typedef struct rota_rope_call {
  size_t struct_size;
  const rota_rope_tensor* tensors;  // such as Q and K: each has the same tokens; done one after the other
  size_t tensor_count;
  const int64_t* positions;  // [axis][token]
  size_t position_count;
  const rota_rotary* rotary;
} rota_rope_call;
#define ROTA_ROPE_CALL_INIT {sizeof(rota_rope_call), NULL, 0, NULL, 0, NULL}

// Normalizes head vectors if asked, and rotates them by their positions.
ROTA_C_API rota_status rota_rope(rota_encoder* encoder, const rota_rope_call* call);

typedef struct rota_seal_page {
  size_t struct_size;
  uint64_t from;    // page of slots
  uint64_t to;      // sealed page. The smallest struct ends here
  uint64_t tokens;  // in the page, from the first slot on; ROTA_NONE: all
  uint64_t sinks;   // first tokens that do not count in the key mean
} rota_seal_page;
#define ROTA_SEAL_PAGE_INIT {sizeof(rota_seal_page), 0, 0, ROTA_NONE, 0}

typedef struct rota_seal_call {
  size_t struct_size;
  const rota_slot_view* from;
  const rota_sealed_view* to;  // written
  const rota_seal_page* pages;
  size_t page_count;
  rota_buffer* non_finite;  // a u64 that counts values that f16 cannot hold
  uint64_t non_finite_offset_bytes;
} rota_seal_call;
#define ROTA_SEAL_CALL_INIT {sizeof(rota_seal_call), NULL, NULL, NULL, 0, NULL, 0}

// Compresses pages. Every device gives the same bytes.
ROTA_C_API rota_status rota_seal(rota_encoder* encoder, const rota_seal_call* call);

typedef struct rota_unseal_page {
  size_t struct_size;
  uint64_t from;    // sealed page
  uint64_t to;      // page of slots. The smallest struct ends here
  uint64_t tokens;  // to restore, from the first on; ROTA_NONE: all
} rota_unseal_page;
#define ROTA_UNSEAL_PAGE_INIT {sizeof(rota_unseal_page), 0, 0, ROTA_NONE}

typedef struct rota_unseal_call {
  size_t struct_size;
  const rota_sealed_view* from;
  const rota_slot_view* to;  // written
  const rota_unseal_page* pages;
  size_t page_count;
} rota_unseal_call;
#define ROTA_UNSEAL_CALL_INIT {sizeof(rota_unseal_call), NULL, NULL, NULL, 0}

// Restores the values that readers of sealed pages see.
ROTA_C_API rota_status rota_unseal(rota_encoder* encoder, const rota_unseal_call* call);

typedef enum rota_mask ROTA_ENUM { ROTA_MASK_CAUSAL, ROTA_MASK_NONE } rota_mask;

typedef enum rota_arithmetic ROTA_ENUM { ROTA_ARITHMETIC_STORED, ROTA_ARITHMETIC_F32 } rota_arithmetic;

typedef struct rota_attend_call {
  size_t struct_size;
  const rota_view* q;            // [query token, query head, key dim], one sequence after the other
  const rota_view* out;          // written: [query token, query head, value dim]
  double scale;                  // of the dot products, usually 1 / sqrt(head_dim). The smallest struct ends here
  const uint64_t* query_tokens;  // of each sequence; NULL: one each
  size_t query_token_count;
  rota_mask mask;
  rota_arithmetic arithmetic;
  double soft_cap;                // a logit x becomes cap * tanh(x / cap); 0: none
  const rota_view* sink_logits;   // [1, query heads, 1]; NULL: none
  const rota_view* alibi_slopes;  // [1, query heads, 1]; NULL: none
  const rota_view* log_sum_exp;   // written: [query token, query head, 1], for rota_merge(); NULL: none
} rota_attend_call;
#define ROTA_ATTEND_CALL_INIT \
  {sizeof(rota_attend_call), NULL, NULL, 0, NULL, 0, ROTA_MASK_CAUSAL, ROTA_ARITHMETIC_STORED, 0, NULL, NULL, NULL}

// Attention over keys and values as they are stored: of one layer of a step, whose sequences are its extensions...
ROTA_C_API rota_status rota_attend(rota_encoder* encoder, const rota_kv_step* step, uint32_t layer,
                                   const rota_attend_call* call);

// ... or of a cache's sequences: submit it before a call that closes one of them or changes the cache, or record it
// before that call in the same encoder...
ROTA_C_API rota_status rota_attend_sequences(rota_encoder* encoder, const rota_kv_cache* cache,
                                             const rota_sequence* sequences, size_t count, uint32_t layer,
                                             const rota_attend_call* call);

// ... or of slots that rota_store() wrote. Each run is a whole sequence, from position 0 on.
ROTA_C_API rota_status rota_attend_slots(rota_encoder* encoder, const rota_slot_view* k, const rota_slot_view* v,
                                         const rota_token_run* sequences, size_t count, const rota_attend_call* call);

typedef struct rota_merge_call {
  size_t struct_size;
  const rota_view *first_out, *first_log_sum_exp;    // [token, head, dim], [token, head, 1]
  const rota_view *second_out, *second_log_sum_exp;  // the same
  const rota_view* out;                              // written. The smallest struct ends here
  const rota_view* log_sum_exp;                      // written; NULL: none
} rota_merge_call;
#define ROTA_MERGE_CALL_INIT {sizeof(rota_merge_call), NULL, NULL, NULL, NULL, NULL, NULL}

// The result of attention over the keys of both states, if they have no key in common.
ROTA_C_API rota_status rota_merge(rota_encoder* encoder, const rota_merge_call* call);

// Whole 32-bit words of a buffer.
typedef struct rota_word_range {
  size_t struct_size;
  rota_buffer* buffer;
  uint64_t offset_bytes, size_bytes;  // multiples of 4
} rota_word_range;
#define ROTA_WORD_RANGE_INIT {sizeof(rota_word_range), NULL, 0, 0}

typedef struct rota_checksum_call {
  size_t struct_size;
  const rota_word_range* of;
  size_t count;
  rota_buffer* sums;           // one u32 per range, overwritten
  uint64_t sums_offset_bytes;  // a multiple of 4
} rota_checksum_call;
#define ROTA_CHECKSUM_CALL_INIT {sizeof(rota_checksum_call), NULL, 0, NULL, 0}

// The sum of the little-endian words of each range, modulo 2^32.
ROTA_C_API rota_status rota_checksum(rota_encoder* encoder, const rota_checksum_call* call);

#ifdef __cplusplus
}
#endif

// NOLINTEND(modernize-*, readability-identifier-naming)
