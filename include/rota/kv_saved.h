#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "rota/export.h"
#include "rota/kv_spec.h"
#include "rota/result.h"

// Sequences as bytes, for files and wires. docs/saved-sequences.md defines them. Reading them needs no device.

namespace rota::inline ROTA_ABI {

// Takes the next bytes. They are the caller's again when it returns. An error ends the call that makes them.
using ByteSink = std::function<Status(std::span<const std::byte>)>;

// Fills all of a span with the next bytes. An error, such as their end, ends the call that wants them.
using ByteSource = std::function<Status(std::span<std::byte>)>;

// Fills all of a span with the bytes from an offset on. May be called by several threads at once. An error ends the
// call that wants them.
using ByteReader = std::function<Status(std::uint64_t offset, std::span<std::byte>)>;

// A source of these bytes, which must stay as long as it is used. It fails at their end.
ROTA_API ByteSource source_of(std::span<const std::byte> bytes);

// Bytes of the engine's own that travel with a sequence: token ids, or the state of layers that have no KV cache. They
// belong to the tokens before `position`, which is a multiple of every group's page, or the end of what is saved.
struct KvNote {
  Required<std::uint64_t> position;
  std::vector<std::byte> bytes = {};
};

// Keys or values in a saved sequence: logical pages [first_page, end_page). Those before sealed_pages are sealed.
struct KvSavedSide {
  std::uint64_t first_page = 0, sealed_pages = 0, end_page = 0;
  bool has_sinks = false;
  std::uint64_t bytes = 0;  // of pages and sinks, without checksums

  friend constexpr bool operator==(const KvSavedSide&, const KvSavedSide&) = default;
};

struct KvSavedGroup {
  KvGroup group;
  KvSavedSide k, v;
};

struct KvSavedNote {
  std::uint64_t position = 0, bytes = 0;
};

// What a saved sequence says of itself.
struct KvSaved {
  std::uint32_t version = 0;
  std::uint64_t begin = 0, end = 0;  // tokens: positions [begin, end) of the sequence
  std::vector<KvSavedGroup> groups = {};
  std::vector<KvSavedNote> notes = {};
  std::uint64_t header_bytes = 0, bytes = 0;  // `bytes`: of all, header and checksums included
};

// A piece of a saved sequence with a checksum of its own: a page in all layers of a group, its sinks, or a note.
struct KvSavedPart {
  enum class Kind : std::uint8_t { page, sinks, note };
  Kind kind = Kind::page;
  std::size_t of = 0;  // the group, or the note
  KvSide side = KvSide::keys;
  std::uint64_t page = 0;               // logical
  std::uint64_t offset = 0, bytes = 0;  // in the saved sequence, with the kSavedSumBytes at the end
};

// What ends each part: its checksum (4 bytes), and how many parts are before it (4 bytes).
inline constexpr std::uint64_t kSavedSumBytes = 8;

// A saved sequence's header as bytes, and where its parts are: for whoever keeps parts apart, and joins them again.
struct KvSavedLayout {
  KvSaved saved;
  std::vector<std::byte> header = {};
  std::vector<KvSavedPart> parts = {};
};

// Of begin, end, the groups, their pages and the notes; all else in `saved` is computed. Errc::io if there can be no
// such saved sequence.
ROTA_API Result<KvSavedLayout> lay_out_saved(const KvSaved& saved);

// The version that KvCache::save() writes.
inline constexpr std::uint32_t kSavedVersion = 1;

// Reads and checks the header. The bytes may come from anywhere: an unknown version is Errc::unsupported, anything else
// that is no saved sequence is Errc::io. Memory is taken as bytes come, not as they claim.
ROTA_API Result<KvSaved> read_saved_header(const ByteSource& source);

// The same, and reads on to the end: every page and note must have its checksum.
ROTA_API Result<KvSaved> verify_saved(const ByteSource& source);

}  // namespace rota::inline ROTA_ABI
