#include "rota/kv_cache.h"

#include "cache/state.h"
#include "runtime/recorder.h"

namespace rota::inline ROTA_ABI {
namespace {

Status check(const std::shared_ptr<cache::State>& state, std::string_view op) {
  if (!state) return core::refuse({op, {"the cache"}}, "moved from", "one that was created");
  return state->device().check_here(op);
}

}  // namespace

std::span<const std::int64_t> KvStep::positions() const noexcept {
  return step_ ? std::span<const std::int64_t>(step_->positions) : std::span<const std::int64_t>();
}

void KvStep::append(Encoder& encoder, std::uint32_t layer, const View& k, const View& v) {
  runtime::record(encoder, [&](runtime::Recorder&) -> Status {
    if (Status status = check(state_, "KvStep::append"); !status) return status;
    return state_->append(encoder, step_, {layer, k, &v});
  });
}

void KvStep::append(Encoder& encoder, std::uint32_t layer, const View& k) {
  runtime::record(encoder, [&](runtime::Recorder&) -> Status {
    if (Status status = check(state_, "KvStep::append"); !status) return status;
    return state_->append(encoder, step_, {layer, k, nullptr});
  });
}

void KvStep::done(Encoder& encoder, std::uint32_t layer) {
  runtime::record(encoder, [&](runtime::Recorder&) -> Status {
    if (Status status = check(state_, "KvStep::done"); !status) return status;
    return state_->done(encoder, *step_, layer);
  });
}

Result<KvView> KvStep::view(std::uint32_t layer) const {
  return core::guarded([&]() -> Result<KvView> {
    if (Status status = check(state_, "KvStep::view"); !status) return status.error();
    return state_->view(*step_, layer);
  });
}

Result<KvCache> KvCache::create(Device& device, const KvCacheSpec& spec) {
  return core::guarded([&]() -> Result<KvCache> {
    if (const auto& opened = runtime::Inside::of(device); opened) {
      if (Status status = opened->check_here("KvCache::create"); !status) return status.error();
    }
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

Status KvCache::reserve(std::uint64_t tokens) {
  return core::guarded([&]() -> Status {
    if (Status status = check(state_, "KvCache::reserve"); !status) return status;
    return state_->reserve(tokens);
  });
}

Status KvCache::trim() {
  return core::guarded([&]() -> Status {
    if (Status status = check(state_, "KvCache::trim"); !status) return status;
    return state_->trim();
  });
}

Result<Sequence> KvCache::open_sequence() {
  return core::guarded([&]() -> Result<Sequence> {
    if (Status status = check(state_, "KvCache::open_sequence"); !status) return status.error();
    return state_->open();
  });
}

Status KvCache::close(Sequence sequence) {
  return core::guarded([&]() -> Status {
    if (Status status = check(state_, "KvCache::close"); !status) return status;
    return state_->close(sequence);
  });
}

Result<KvStep> KvCache::extend(Encoder& encoder, std::span<const KvExtension> extensions) {
  return core::guarded([&]() -> Result<KvStep> {
    if (Status status = check(state_, "KvCache::extend"); !status) return status.error();
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
    if (Status status = check(state_, "KvCache::fork"); !status) return status.error();
    return state_->fork(encoder, sequence);
  });
}

Status KvCache::truncate(Encoder& encoder, Sequence sequence, std::uint64_t length) {
  return core::guarded([&]() -> Status {
    if (Status status = check(state_, "KvCache::truncate"); !status) return status;
    return state_->truncate(encoder, sequence, length);
  });
}

Status KvCache::settle(Encoder& encoder) {
  return core::guarded([&]() -> Status {
    if (Status status = check(state_, "KvCache::settle"); !status) return status;
    return state_->settle(encoder);
  });
}

Status KvCache::save(Sequence sequence, const ByteSink& sink, const KvSaveOptions& options) {
  return core::guarded([&]() -> Status {
    if (Status status = check(state_, "KvCache::save"); !status) return status;
    return state_->save(sequence, sink, options);
  });
}

Result<KvSnapshot> KvCache::snapshot(Sequence sequence, std::uint64_t begin, std::uint64_t end) {
  return core::guarded([&]() -> Result<KvSnapshot> {
    if (Status status = check(state_, "KvCache::snapshot"); !status) return status.error();
    auto snapshot = state_->snapshot(sequence, begin, end);
    if (!snapshot) return snapshot.error();
    return KvSnapshot(std::move(snapshot).value());
  });
}

Result<KvLoaded> KvCache::load(const ByteSource& source, const KvLoadOptions& options) {
  return core::guarded([&]() -> Result<KvLoaded> {
    if (Status status = check(state_, "KvCache::load"); !status) return status.error();
    return state_->load(source, options);
  });
}

Result<KvLoaded> KvCache::load(const ByteReader& reader, const KvLoadOptions& options) {
  return core::guarded([&]() -> Result<KvLoaded> {
    if (Status status = check(state_, "KvCache::load"); !status) return status.error();
    return state_->load(reader, options);
  });
}

Result<KvLoaded> KvCache::load(std::span<const std::byte> bytes, const KvLoadOptions& options) {
  return core::guarded([&]() -> Result<KvLoaded> {
    if (Status status = check(state_, "KvCache::load"); !status) return status.error();
    return state_->load(bytes, options);
  });
}

Status KvCache::wait(Sequence sequence, std::chrono::milliseconds at_most) const {
  return core::guarded([&]() -> Status {
    if (Status status = check(state_, "KvCache::wait"); !status) return status;
    return state_->wait(sequence, at_most);
  });
}

Result<std::uint64_t> KvCache::length(Sequence sequence) const {
  return core::guarded([&]() -> Result<std::uint64_t> {
    if (Status status = check(state_, "KvCache::length"); !status) return status.error();
    return state_->length(sequence);
  });
}

Result<std::uint64_t> KvCache::sealed_length(Sequence sequence) const {
  return core::guarded([&]() -> Result<std::uint64_t> {
    if (Status status = check(state_, "KvCache::sealed_length"); !status) return status.error();
    return state_->sealed_length(sequence);
  });
}

Result<std::uint64_t> KvCache::first_position(Sequence sequence) const {
  return core::guarded([&]() -> Result<std::uint64_t> {
    if (Status status = check(state_, "KvCache::first_position"); !status) return status.error();
    return state_->first_position(sequence);
  });
}

Result<KvView> KvCache::view(std::span<const Sequence> sequences, std::uint32_t layer) const {
  return core::guarded([&]() -> Result<KvView> {
    if (Status status = check(state_, "KvCache::view"); !status) return status.error();
    return state_->view(sequences, layer);
  });
}

KvCounters KvCache::counters() const noexcept {
  return state_ && state_->is_here() ? state_->counters() : KvCounters{};
}

Result<KvNonFinite> KvCache::non_finite() const {
  return core::guarded([&]() -> Result<KvNonFinite> {
    if (Status status = check(state_, "KvCache::non_finite"); !status) return status.error();
    return state_->non_finite();
  });
}

}  // namespace rota::inline ROTA_ABI
