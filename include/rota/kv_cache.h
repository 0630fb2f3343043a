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
#include "rota/kv_saved.h"
#include "rota/kv_spec.h"
#include "rota/kv_view.h"
#include "rota/result.h"

namespace rota::cache {
class Snapshot;
class State;
struct Step;
}  // namespace rota::cache

namespace rota::inline ROTA_ABI {

// Names a sequence of a cache. Plain data: copies name the same sequence, and none after close().
struct Sequence {
  std::uint64_t cache = 0;
  std::uint32_t index = 0, generation = 0;

  friend constexpr bool operator==(const Sequence&, const Sequence&) = default;
};

// How many tokens a step adds to a sequence.
struct KvExtension {
  Sequence sequence;
  Required<std::uint64_t> tokens;  // 1 to 65,536
};

// The next tokens of one or more sequences, in the order of the extensions.
//
// Every layer must be appended once: in the encoder of extend(), or in any encoder once that one is submitted. Until
// then no sequence of the step can be extended or forked. truncate() to the old length gives the step up for a
// sequence; one that was given up or closed leaves the others in the step.
//
// While a copy of the step lives, all that its tokens see stays until their own sequence goes on. With a window, this
// keeps pages that only the step's first tokens see while other sequences are extended. In a long step it stays in the
// layer that was appended last, in each group, unless layers come together (LayerOrder): attend to a layer before you
// append the next.
class [[nodiscard]] ROTA_API KvStep {
 public:
  // The position of each token, for rope().
  std::span<const std::int64_t> positions() const noexcept;

  // Records the storing of one layer's keys and values. `layer` is the model's number; `k` is [tokens, kv_heads,
  // head_dim], `v` is [tokens, kv_heads, value_dim]. The encoder keeps an error.
  void append(Encoder& encoder, std::uint32_t layer, const View& k, const View& v);
  void append(Encoder& encoder, std::uint32_t layer, const View& k);  // of a group with KvGroup::v_in_k

  // One layer of the step's sequences, with the step's tokens, for attend(). An error if the layer was not appended, is
  // done, or if a sequence is not in the step any more. One view for each extension, with the tokens up to its last.
  Result<KvView> view(std::uint32_t layer) const;

  // The layer's tokens of this step are not attended with any more. Appending the next of its group says so, too: with
  // LayerOrder::in_turn a long step's pages serve one layer after the other, and views of a layer end when it is done.
  // The encoder keeps an error.
  void done(Encoder& encoder, std::uint32_t layer);

 private:
  friend class KvCache;
  KvStep(std::shared_ptr<cache::State> state, std::shared_ptr<cache::Step> step) noexcept
      : state_(std::move(state)), step_(std::move(step)) {}

  std::shared_ptr<cache::State> state_;
  std::shared_ptr<cache::Step> step_;
};

// Pages of one kind. A page that a sequence gave back counts as used until no command can touch it.
struct KvPoolCounters {
  std::uint64_t pages = 0;             // at most
  std::uint64_t used = 0, shared = 0;  // shared: used by several sequences
  std::uint64_t allocated = 0;         // that have memory: those in use, and some that were or will be
  std::uint64_t bytes_used = 0, bytes_allocated = 0;

  constexpr std::uint64_t free() const noexcept { return pages - used; }
};

// Sums over all groups, keys and values together.
struct KvCounters {
  KvPoolCounters sealed, dense, sinks, step;
  std::uint64_t sequences = 0, tokens = 0;  // a token that several sequences share counts for each
  // Submitted so far. Where layers take turns, once the last has had its turn.
  std::uint64_t seals = 0, unseals = 0;  // pages; one holds all layers of a group's keys or values
  std::uint64_t copied_bytes = 0;  // dense bytes: for forks, truncations, sinks, and what a long step leaves dense

  // Of all pages.
  constexpr std::uint64_t bytes_used() const noexcept {
    return sealed.bytes_used + dense.bytes_used + sinks.bytes_used + step.bytes_used;
  }
  constexpr std::uint64_t bytes_allocated() const noexcept {
    return sealed.bytes_allocated + dense.bytes_allocated + sinks.bytes_allocated + step.bytes_allocated;
  }
};

// What KvCache::save() takes.
struct KvSaveOptions {
  std::uint64_t begin = 0;                // position; a multiple of every group's page
  std::optional<std::uint64_t> end = {};  // the same, and pages before it are sealed where a group seals; none: all
  std::span<const KvNote> notes = {};     // positions do not fall, from `begin` to the end
};

// What KvCache::load() takes.
struct KvLoadOptions {
  std::optional<std::uint64_t> tokens = {};  // a multiple of every group's page: those before it alone; none: all
  std::optional<Sequence> onto = {};  // goes on with a sequence that ends where the saved part begins; none: a new one
};

// What KvCache::load() gives.
struct KvLoaded {
  Sequence sequence;
  std::uint64_t length = 0;  // tokens of the sequence
  std::vector<KvNote> notes = {};
};

// Whole pages of a sequence as they were when it was made, whatever becomes of the sequence. Pages that it holds are
// not free for others.
class [[nodiscard]] ROTA_API KvSnapshot {
 public:
  const KvSaved& saved() const noexcept;

  // Gives the pages as bytes, as KvCache::save(), and lets go of each. Waits for what was submitted before it was made.
  Status save(const ByteSink& sink) &&;

 private:
  friend class KvCache;
  explicit KvSnapshot(std::shared_ptr<cache::Snapshot> snapshot) noexcept : snapshot_(std::move(snapshot)) {}

  std::shared_ptr<cache::Snapshot> snapshot_;
};

// Values that were lost.
struct KvNonFinite {
  std::uint64_t appended = 0;  // infinite or NaN once stored; an f32 beyond the range of f16 becomes infinite there
  std::uint64_t sealed = 0;    // beyond the range of f16, or NaN, when their page was sealed: as +-65504 or 0
};

// The memory of a model's sequences. Copies share one cache. Every member may be called from any thread.
//
// A token enters dense. A page that is older than the tail is sealed: layer by layer in a long step, else when a later
// step begins. fork() shares pages, and pages leave at the front if a group has a window.
//
// extend, fork, truncate and settle change the cache at once, and record what the device must do. The changes follow
// the encoder: if it is dropped, or its submission fails, the sequences that it changed are again as before its first
// such call. Sequences that were opened or closed meanwhile stay so. A call that is refused changes nothing. Out of
// pages is such a refusal, and leaves the encoder usable.
//
// Memory follows use where the device has sparse memory: pages get theirs as they are taken, and keep it for a while
// when they are free. A cache that cannot grow is out of pages, with the bytes that it asked for. Pages never move.
//
// Encoders that change different sequences may be open at once. A sequence that an open encoder has changed, even by
// settling it on the way, is Errc::busy for other encoders until that one is submitted or dropped. So are pages that it
// will give back. See wait().
class ROTA_API KvCache {
 public:
  static Result<KvCache> create(Device& device, const KvCacheSpec& spec);

  const KvCacheSpec& spec() const noexcept;
  const KvMemory& memory() const noexcept;  // at most; counters() tell how much it is

  // Takes memory now, and keeps it, for so many tokens of all sequences: as estimate() says, to the byte. Within it
  // sequences do not run out of pages. The last call counts, and 0 keeps nothing. Errc::out_of_pages if the device
  // refuses that much; what was reserved before stays so. A CPU's system may promise more than it has.
  Status reserve(std::uint64_t tokens);

  // Gives back memory that no sequence uses and that is not reserved. Waits for what was submitted. Without it memory
  // that was free for a while goes as the cache is used: for 64 to 128 calls that change it.
  Status trim();

  // A new sequence without tokens.
  Result<Sequence> open_sequence();

  // Gives the sequence's pages back. This holds whatever becomes of open encoders.
  Status close(Sequence sequence);

  // Adds tokens to sequences. A sequence may be named more than once: its tokens follow each other, between those of
  // others. Keys and values are appended by the step.
  Result<KvStep> extend(Encoder& encoder, std::span<const KvExtension> extensions);
  Result<KvStep> extend(Encoder& encoder, Sequence sequence, std::uint64_t tokens);

  // A second sequence with the same tokens. All pages are shared except the one that is not full, which is copied.
  Result<Sequence> fork(Encoder& encoder, Sequence sequence);

  // Takes back the newest tokens, so that `length` are left. Inside the tail this moves nothing. If it ends inside a
  // page that is sealed or due, the page's tokens are restored with the codec's error. An error if the shorter sequence
  // would see pages that have left its window.
  Status truncate(Encoder& encoder, Sequence sequence, std::uint64_t length);

  // Seals now what the next step would seal: in every sequence whose steps have all layers, as far as there are pages.
  Status settle(Encoder& encoder);

  // Gives a sequence as bytes, or its whole pages [begin, end) alone. Waits for what was submitted, and submits what
  // settles the sequence, as far as there are pages; a page that has begun to be sealed at a pace is sealed. Its steps
  // must have all layers, and no open encoder may have changed it. Other sequences are left alone. They may go on
  // meanwhile, and so may this one once the first bytes came.
  Status save(Sequence sequence, const ByteSink& sink, const KvSaveOptions& options = {});

  // Holds the whole pages of the positions from `begin` up to `end`, which sealed_length() allows, and leaves their
  // bytes to a later call: this one waits for nothing. With a window, pages that it does not see are not there.
  Result<KvSnapshot> snapshot(Sequence sequence, std::uint64_t begin, std::uint64_t end);

  // Opens a sequence from such bytes, of this device or of any other. Attention, and all that follows, gives the bits
  // that the saved sequence would give on this device. Groups must be the same but for their tails. Each page's
  // checksum is verified. If the call fails nothing has changed. From memory, such as a mapped file, a CPU's threads
  // load side by side, and from a reader as well.
  Result<KvLoaded> load(const ByteSource& source, const KvLoadOptions& options = {});
  Result<KvLoaded> load(const ByteReader& reader, const KvLoadOptions& options = {});
  Result<KvLoaded> load(std::span<const std::byte> bytes, const KvLoadOptions& options = {});

  // After Errc::busy: returns when no open encoder holds the sequence, nor pages that were short; or Errc::busy after
  // `at_most`. Submit before you wait: two threads that wait for each other's encoders do so until their time is up.
  Status wait(Sequence sequence, std::chrono::milliseconds at_most) const;

  // Tokens of the sequence.
  Result<std::uint64_t> length(Sequence sequence) const;

  // Tokens in whole pages that will not change: sealed in every group that seals. A multiple of every group's page.
  Result<std::uint64_t> sealed_length(Sequence sequence) const;

  // The first position that every group still has: 0, unless pages have left a window. truncate() takes 0 and lengths
  // that are at least a window more; without a window, any.
  Result<std::uint64_t> first_position(Sequence sequence) const;

  // One layer of the sequences, for attend(). `layer` is the model's number. An error if a sequence is in a step that
  // has not appended the layer.
  Result<KvView> view(std::span<const Sequence> sequences, std::uint32_t layer) const;

  KvCounters counters() const noexcept;

  // Reads two counts from the device. Waits for the submissions that count.
  Result<KvNonFinite> non_finite() const;

 private:
  explicit KvCache(std::shared_ptr<cache::State> state) noexcept : state_(std::move(state)) {}

  std::shared_ptr<cache::State> state_;
};

}  // namespace rota::inline ROTA_ABI
