#include "rota/kv_cache.h"

#include "cache/state.h"
#include "runtime/recorder.h"

namespace rota {
namespace {

Error moved_from(std::string_view op) {
  return core::refuse({op, {"the cache"}}, "moved from", "one that was created");
}

}  // namespace

std::span<const std::int64_t> KvStep::positions() const noexcept {
  return step_ ? std::span<const std::int64_t>(step_->positions) : std::span<const std::int64_t>();
}

void KvStep::append(Encoder& encoder, std::uint32_t layer, const View& k, const View& v) {
  runtime::record(encoder, [&](runtime::Recorder&) -> Status {
    if (!state_) return moved_from("KvStep::append");
    return state_->append(encoder, step_, {layer, k, v});
  });
}

Result<KvView> KvStep::view(std::uint32_t layer) const {
  return core::guarded([&]() -> Result<KvView> {
    if (!state_) return moved_from("KvStep::view");
    return state_->view(*step_, layer);
  });
}

Result<KvCache> KvCache::create(Device& device, const KvCacheSpec& spec) {
  return core::guarded([&]() -> Result<KvCache> {
    auto state = cache::State::create(device, spec);
    if (!state) return state.error();
    return KvCache(std::move(state).value());
  });
}

const KvCacheSpec& KvCache::spec() const noexcept {
  static const KvCacheSpec none;
  return state_ ? state_->spec() : none;
}

const KvMemory& KvCache::memory() const noexcept {
  static const KvMemory none;
  return state_ ? state_->memory() : none;
}

Result<Sequence> KvCache::open_sequence() {
  return core::guarded([&]() -> Result<Sequence> {
    if (!state_) return moved_from("KvCache::open_sequence");
    return state_->open();
  });
}

Status KvCache::close(Sequence sequence) {
  return core::guarded([&]() -> Status {
    if (!state_) return moved_from("KvCache::close");
    return state_->close(sequence);
  });
}

Result<KvStep> KvCache::extend(Encoder& encoder, std::span<const KvExtension> extensions) {
  return core::guarded([&]() -> Result<KvStep> {
    if (!state_) return moved_from("KvCache::extend");
    auto step = state_->extend(encoder, extensions);
    if (!step) return step.error();
    return KvStep(state_, std::move(step).value());
  });
}

Result<KvStep> KvCache::extend(Encoder& encoder, Sequence sequence, std::uint64_t tokens) {
  const KvExtension extension{sequence, tokens};
  return extend(encoder, {&extension, 1});
}

Result<Sequence> KvCache::fork(Encoder& encoder, Sequence sequence) {
  return core::guarded([&]() -> Result<Sequence> {
    if (!state_) return moved_from("KvCache::fork");
    return state_->fork(encoder, sequence);
  });
}

Status KvCache::truncate(Encoder& encoder, Sequence sequence, std::uint64_t length) {
  return core::guarded([&]() -> Status {
    if (!state_) return moved_from("KvCache::truncate");
    return state_->truncate(encoder, sequence, length);
  });
}

Status KvCache::settle(Encoder& encoder) {
  return core::guarded([&]() -> Status {
    if (!state_) return moved_from("KvCache::settle");
    return state_->settle(encoder);
  });
}

Status KvCache::wait(Sequence sequence, std::chrono::milliseconds at_most) const {
  return core::guarded([&]() -> Status {
    if (!state_) return moved_from("KvCache::wait");
    return state_->wait(sequence, at_most);
  });
}

Result<std::uint64_t> KvCache::length(Sequence sequence) const {
  return core::guarded([&]() -> Result<std::uint64_t> {
    if (!state_) return moved_from("KvCache::length");
    return state_->length(sequence);
  });
}

Result<KvView> KvCache::view(std::span<const Sequence> sequences, std::uint32_t layer) const {
  return core::guarded([&]() -> Result<KvView> {
    if (!state_) return moved_from("KvCache::view");
    return state_->view(sequences, layer);
  });
}

KvCounters KvCache::counters() const noexcept { return state_ ? state_->counters() : KvCounters{}; }

Result<KvNonFinite> KvCache::non_finite() const {
  return core::guarded([&]() -> Result<KvNonFinite> {
    if (!state_) return moved_from("KvCache::non_finite");
    return state_->non_finite();
  });
}

}  // namespace rota
