#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "rota/device.h"
#include "rota/encoder.h"
#include "rota/export.h"
#include "rota/kv_spec.h"
#include "rota/kv_view.h"
#include "rota/result.h"

namespace rota::cache {
class State;
struct Step;
}  // namespace rota::cache

namespace rota::inline ROTA_ABI {

// Names one sequence in one cache. Plain data: copies name the same sequence; after close() it names nothing.
struct Sequence {
  std::uint64_t cache = 0;
  std::uint32_t slot = 0, generation = 0;

  friend constexpr bool operator==(const Sequence&, const Sequence&) = default;
};

struct KvExtension {
  Sequence sequence;
  Required<std::uint64_t> tokens;  // 1 to 65,536
};

// The next tokens of some sequences, one sequence after the other. Every layer of the cache gets their keys and values
// once, in the encoder of extend() or, when that was submitted, in any other; until then no sequence of the step can go
// on. Giving it up is truncate() to the old length; a sequence that was given up or closed leaves the others in the
// step. While a copy of it lives, all that its tokens see stays, until their own sequence goes on: with a window, pages
// that only the step's first tokens see do not leave because another sequence is extended.
class [[nodiscard]] ROTA_API KvStep {
 public:
  // Of each token, for rope().
  std::span<const std::int64_t> positions() const noexcept;

  // Records the storing of one layer's keys and values, [tokens, kv_heads, dim] each. An error is kept by the encoder.
  void append(Encoder& encoder, std::uint32_t layer, const View& k, const View& v);

  // The sequences of this step, with its tokens. Refused when one of them is not in it any more.
  Result<KvView> view(std::uint32_t layer) const;

 private:
  friend class KvCache;
  KvStep(std::shared_ptr<cache::State> state, std::shared_ptr<cache::Step> step) noexcept
      : state_(std::move(state)), step_(std::move(step)) {}

  std::shared_ptr<cache::State> state_;
  std::shared_ptr<cache::Step> step_;
};

struct KvPoolCounters {
  std::uint64_t pages = 0, used = 0, shared = 0;  // shared: used by several sequences
  std::uint64_t bytes_used = 0;

  constexpr std::uint64_t free() const noexcept { return pages - used; }
};

// Of all groups, keys and values together. A page that a sequence gave back counts as used until no command can touch
// it.
struct KvCounters {
  KvPoolCounters sealed, dense, sinks;
  std::uint64_t sequences = 0, tokens = 0;  // a token that several sequences share counts for each
  // Since the cache was made, in what was submitted:
  std::uint64_t seals = 0, unseals = 0;  // pages, for all layers of keys or of values
  std::uint64_t copied_bytes = 0;        // dense bytes that forks, truncations and sinks took
};

struct KvNonFinite {
  std::uint64_t appended = 0;  // infinite or NaN as they were stored; beyond f16's range an f32 value becomes infinite
  std::uint64_t sealed = 0;    // beyond f16's range or NaN when their page was sealed: sealed as +-65504 or 0
};

// The memory of a model's sequences. A token enters dense; a page that is older than the tail is sealed when a later
// step begins. Pages are shared by fork(), and leave at the front where a group has a window. extend, fork, truncate
// and settle change the cache at once and record what must be done. They follow their encoder: if it is dropped, or its
// submission fails, the sequences that it changed are as they were before its first such call; only sequences that were
// opened or closed meanwhile stay so. A call that is refused changes nothing; out of pages is one of the reasons, and
// leaves the encoder as it was, too. Encoders that change different sequences may be open at once. A sequence that an
// open encoder has changed, if only by settling it on the way, is Errc::busy for others until that ends; so are pages
// that it will give back. See wait(). Copies share one cache; every member may be called from any thread.
class ROTA_API KvCache {
 public:
  static Result<KvCache> create(Device& device, const KvCacheSpec& spec);

  const KvCacheSpec& spec() const noexcept;
  const KvMemory& memory() const noexcept;  // what is allocated

  Result<Sequence> open_sequence();
  Status close(Sequence sequence);

  // Makes room for the next tokens.
  Result<KvStep> extend(Encoder& encoder, std::span<const KvExtension> extensions);
  Result<KvStep> extend(Encoder& encoder, Sequence sequence, std::uint64_t tokens);

  // A second sequence with the same tokens. Pages are shared but for the one that is not full, which is copied.
  Result<Sequence> fork(Encoder& encoder, Sequence sequence);

  // Takes back the newest tokens. Inside the tail that moves nothing. Deeper, where it ends inside a page that is
  // sealed or due, the page's tokens are restored with the codec's error. Refused where a window has lost pages that
  // the shorter sequence would see.
  Status truncate(Encoder& encoder, Sequence sequence, std::uint64_t length);

  // Seals what is due now instead of when the next step begins, for every sequence whose steps are whole, as far as
  // pages go.
  Status settle(Encoder& encoder);

  // After Errc::busy: returns when it is worth trying again, or after `at_most` with Errc::busy. That is when no open
  // encoder holds the sequence, nor pages that were short. Two threads that wait for each other's encoders do so until
  // their time is up: submit before you wait.
  Status wait(Sequence sequence, std::chrono::milliseconds at_most) const;

  Result<std::uint64_t> length(Sequence sequence) const;
  Result<KvView> view(std::span<const Sequence> sequences, std::uint32_t layer) const;

  KvCounters counters() const noexcept;
  Result<KvNonFinite> non_finite() const;  // waits for what was submitted

 private:
  explicit KvCache(std::shared_ptr<cache::State> state) noexcept : state_(std::move(state)) {}

  std::shared_ptr<cache::State> state_;
};

}  // namespace rota::inline ROTA_ABI
