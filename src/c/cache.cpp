#include <algorithm>
#include <chrono>

#include "c/convert.h"
#include "c/handles.h"
#include "c/record.h"
#include "c/structs.h"

// Caches and steps.

using namespace rota::c;
using rota::Status;

namespace {

rota_kv_pool_size c_pool(const rota::KvPoolSize& from) noexcept { return {from.pages, from.page_bytes}; }

rota_kv_pool_counters c_pool(const rota::KvPoolCounters& from) noexcept {
  return {from.pages, from.used, from.shared, from.allocated, from.bytes_used, from.bytes_allocated};
}

// Asked before anything is written.
Status check_places(const Where& call, const rota_kv_memory* memory, const rota_kv_group_memory* groups,
                    std::size_t count, std::size_t wanted) {
  if (Status status = check_result(call.in("memory"), memory); !status) return status;
  if (groups == nullptr) return {};
  if (count != wanted) {
    return refuse(call.in("group_count"), std::to_string(count), std::to_string(wanted) + ", as the cache has");
  }
  for (std::size_t i = 0; i < count; ++i) {
    const Where list = call.in("groups");
    const Where here = list.at(i);
    if (i == 0) {
      if (Status status = check_result(here, groups); !status) return status;
    }
    const auto* const at = element(groups, i);
    if (Status status = check_apart(here, size_of_struct(at), size_of_struct(groups)); !status) return status;
  }
  return {};
}

Status put_memory(const Where& call, const rota::KvMemory& from, rota_kv_memory* memory, rota_kv_group_memory* groups,
                  std::size_t count) {
  if (Status status = check_places(call, memory, groups, count, from.groups.size()); !status) return status;
  put({sizeof(rota_kv_memory), from.max_tokens, from.bytes(), from.counter_bytes, from.host_bytes}, memory);
  if (groups == nullptr) return {};
  for (std::size_t i = 0; i < count; ++i) {
    const rota::KvSideMemory& k = from.groups[i].k;
    const rota::KvSideMemory& v = from.groups[i].v;
    put({sizeof(rota_kv_group_memory), c_pool(k.sealed), c_pool(k.dense), c_pool(k.sinks), c_pool(k.step),
         c_pool(v.sealed), c_pool(v.dense), c_pool(v.sinks), c_pool(v.step)},
        element(groups, i));
  }
  return {};
}

// An encoder for a call that changes a cache: refused, it is left as it is.
Status check_encoder(const Where& call, const rota_encoder* encoder) {
  if (Status status = check_handle(call.in("encoder"), encoder); !status) return status;
  return encoder->refused;
}

}  // namespace

rota_status rota_estimate(const rota_kv_cache_spec* spec, rota_kv_memory* memory, rota_kv_group_memory* groups,
                          size_t group_count) {
  return answer([&]() -> Status {
    const Where call{nullptr, "rota_estimate"};
    const auto known = spec_of(call.in("spec"), spec);
    if (!known) return known.error();
    const auto estimated = rota::estimate(known.value());
    if (!estimated) return estimated.error();
    return put_memory(call, estimated.value(), memory, groups, group_count);
  });
}

rota_status rota_kv_cache_create(rota_device* device, const rota_kv_cache_spec* spec, rota_kv_cache** result) {
  return answer([&]() -> Status {
    const Where call{nullptr, "rota_kv_cache_create"};
    if (Status status = check_handle(call.in("device"), device); !status) return status;
    if (Status status = check_given(call.in("result"), result); !status) return status;
    const auto known = spec_of(call.in("spec"), spec);
    if (!known) return known.error();
    auto cache = rota::KvCache::create(device->device, known.value());
    if (!cache) return cache.error();
    *result = make<rota_kv_cache>(std::move(cache).value()).release();
    return {};
  });
}

rota_status rota_kv_cache_memory(const rota_kv_cache* cache, rota_kv_memory* memory, rota_kv_group_memory* groups,
                                 size_t group_count) {
  return answer([&]() -> Status {
    const Where call{nullptr, "rota_kv_cache_memory"};
    if (Status status = check_handle(call.in("cache"), cache); !status) return status;
    return put_memory(call, cache->cache.memory(), memory, groups, group_count);
  });
}

rota_status rota_kv_cache_reserve(rota_kv_cache* cache, uint64_t tokens) {
  return answer([&]() -> Status {
    const Where call{nullptr, "rota_kv_cache_reserve"};
    if (Status status = check_handle(call.in("cache"), cache); !status) return status;
    return cache->cache.reserve(tokens);
  });
}

rota_status rota_kv_cache_trim(rota_kv_cache* cache) {
  return answer([&]() -> Status {
    const Where call{nullptr, "rota_kv_cache_trim"};
    if (Status status = check_handle(call.in("cache"), cache); !status) return status;
    return cache->cache.trim();
  });
}

rota_status rota_kv_cache_open_sequence(rota_kv_cache* cache, rota_sequence* sequence) {
  return answer([&]() -> Status {
    const Where call{nullptr, "rota_kv_cache_open_sequence"};
    if (Status status = check_handle(call.in("cache"), cache); !status) return status;
    if (Status status = check_given(call.in("sequence"), sequence); !status) return status;
    const auto opened = cache->cache.open_sequence();
    if (!opened) return opened.error();
    *sequence = c_sequence(opened.value());
    return {};
  });
}

rota_status rota_kv_cache_close(rota_kv_cache* cache, rota_sequence sequence) {
  return answer([&]() -> Status {
    const Where call{nullptr, "rota_kv_cache_close"};
    if (Status status = check_handle(call.in("cache"), cache); !status) return status;
    return cache->cache.close(sequence_of(sequence));
  });
}

rota_status rota_kv_cache_extend(rota_kv_cache* cache, rota_encoder* encoder, const rota_kv_extension* extensions,
                                 size_t count, rota_kv_step** result) {
  return answer([&]() -> Status {
    const Where call{nullptr, "rota_kv_cache_extend"};
    if (Status status = check_handle(call.in("cache"), cache); !status) return status;
    if (Status status = check_encoder(call, encoder); !status) return status;
    if (Status status = check_given(call.in("result"), result); !status) return status;
    const Emptied emptied(encoder->scratch);
    auto& list = encoder->scratch.extensions;
    Status taken = each(call.in("extensions"), extensions, count, [&](const Where&, const rota_kv_extension& one) {
      list.push_back({.sequence = sequence_of(one.sequence), .tokens = one.tokens});
      return Status{};
    });
    if (!taken) return taken;
    auto handle = make<rota_kv_step>();  // first: a step that nobody gets would keep its sequences
    auto step = cache->cache.extend(encoder->encoder, list);
    if (!step) return step.error();
    handle->step.emplace(std::move(step).value());
    *result = handle.release();
    return {};
  });
}

rota_status rota_kv_cache_fork(rota_kv_cache* cache, rota_encoder* encoder, rota_sequence sequence,
                               rota_sequence* result) {
  return answer([&]() -> Status {
    const Where call{nullptr, "rota_kv_cache_fork"};
    if (Status status = check_handle(call.in("cache"), cache); !status) return status;
    if (Status status = check_encoder(call, encoder); !status) return status;
    if (Status status = check_given(call.in("result"), result); !status) return status;
    const auto forked = cache->cache.fork(encoder->encoder, sequence_of(sequence));
    if (!forked) return forked.error();
    *result = c_sequence(forked.value());
    return {};
  });
}

rota_status rota_kv_cache_truncate(rota_kv_cache* cache, rota_encoder* encoder, rota_sequence sequence,
                                   uint64_t length) {
  return answer([&]() -> Status {
    const Where call{nullptr, "rota_kv_cache_truncate"};
    if (Status status = check_handle(call.in("cache"), cache); !status) return status;
    if (Status status = check_encoder(call, encoder); !status) return status;
    return cache->cache.truncate(encoder->encoder, sequence_of(sequence), length);
  });
}

rota_status rota_kv_cache_settle(rota_kv_cache* cache, rota_encoder* encoder) {
  return answer([&]() -> Status {
    const Where call{nullptr, "rota_kv_cache_settle"};
    if (Status status = check_handle(call.in("cache"), cache); !status) return status;
    if (Status status = check_encoder(call, encoder); !status) return status;
    return cache->cache.settle(encoder->encoder);
  });
}

rota_status rota_kv_cache_wait(const rota_kv_cache* cache, rota_sequence sequence, uint64_t milliseconds) {
  return answer([&]() -> Status {
    const Where call{nullptr, "rota_kv_cache_wait"};
    if (Status status = check_handle(call.in("cache"), cache); !status) return status;
    using Time = std::chrono::milliseconds;
    const auto longest = static_cast<uint64_t>(Time::max().count());
    return cache->cache.wait(sequence_of(sequence), Time(static_cast<Time::rep>(std::min(milliseconds, longest))));
  });
}

rota_status rota_kv_cache_length(const rota_kv_cache* cache, rota_sequence sequence, uint64_t* length) {
  return answer([&]() -> Status {
    const Where call{nullptr, "rota_kv_cache_length"};
    if (Status status = check_handle(call.in("cache"), cache); !status) return status;
    if (Status status = check_given(call.in("length"), length); !status) return status;
    const auto found = cache->cache.length(sequence_of(sequence));
    if (!found) return found.error();
    *length = found.value();
    return {};
  });
}

rota_status rota_kv_cache_first_position(const rota_kv_cache* cache, rota_sequence sequence, uint64_t* position) {
  return answer([&]() -> Status {
    const Where call{nullptr, "rota_kv_cache_first_position"};
    if (Status status = check_handle(call.in("cache"), cache); !status) return status;
    if (Status status = check_given(call.in("position"), position); !status) return status;
    const auto found = cache->cache.first_position(sequence_of(sequence));
    if (!found) return found.error();
    *position = found.value();
    return {};
  });
}

rota_status rota_kv_cache_counters(const rota_kv_cache* cache, rota_kv_counters* counters) {
  return answer([&]() -> Status {
    const Where call{nullptr, "rota_kv_cache_counters"};
    if (Status status = check_handle(call.in("cache"), cache); !status) return status;
    if (Status status = check_result(call.in("counters"), counters); !status) return status;
    const rota::KvCounters from = cache->cache.counters();
    put({sizeof(rota_kv_counters), c_pool(from.sealed), c_pool(from.dense), c_pool(from.sinks), c_pool(from.step),
         from.sequences, from.tokens, from.seals, from.unseals, from.copied_bytes, from.bytes_used(),
         from.bytes_allocated()},
        counters);
    return {};
  });
}

rota_status rota_kv_cache_non_finite(const rota_kv_cache* cache, uint64_t* appended, uint64_t* sealed) {
  return answer([&]() -> Status {
    const Where call{nullptr, "rota_kv_cache_non_finite"};
    if (Status status = check_handle(call.in("cache"), cache); !status) return status;
    if (Status status = check_given(call.in("appended"), appended); !status) return status;
    if (Status status = check_given(call.in("sealed"), sealed); !status) return status;
    const auto found = cache->cache.non_finite();
    if (!found) return found.error();
    *appended = found->appended;
    *sealed = found->sealed;
    return {};
  });
}

void rota_kv_cache_destroy(rota_kv_cache* cache) { destroy("rota_kv_cache_destroy", "cache", cache); }

rota_status rota_kv_step_positions(const rota_kv_step* step, const int64_t** positions, size_t* count) {
  return answer([&]() -> Status {
    const Where call{nullptr, "rota_kv_step_positions"};
    if (Status status = check_handle(call.in("step"), step); !status) return status;
    if (Status status = check_given(call.in("positions"), positions); !status) return status;
    if (Status status = check_given(call.in("count"), count); !status) return status;
    const auto found = step->step->positions();
    *positions = found.data();
    *count = found.size();
    return {};
  });
}

rota_status rota_kv_step_append(rota_kv_step* step, rota_encoder* encoder, uint32_t layer, const rota_view* k,
                                const rota_view* v) {
  return record("rota_kv_step_append", encoder, [&](const Where& call) -> Status {
    if (Status status = check_handle(call.in("step"), step); !status) return status;
    rota::View keys;
    std::optional<rota::View> values;
    if (Status status = view_of(call.in("k"), k, keys); !status) return status;
    if (Status status = view_of(call.in("v"), v, values); !status) return status;
    if (values) {
      step->step->append(encoder->encoder, layer, keys, *values);
    } else {
      step->step->append(encoder->encoder, layer, keys);
    }
    return {};
  });
}

rota_status rota_kv_step_done(rota_kv_step* step, rota_encoder* encoder, uint32_t layer) {
  return record("rota_kv_step_done", encoder, [&](const Where& call) -> Status {
    if (Status status = check_handle(call.in("step"), step); !status) return status;
    step->step->done(encoder->encoder, layer);
    return {};
  });
}

void rota_kv_step_destroy(rota_kv_step* step) { destroy("rota_kv_step_destroy", "step", step); }
