#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cache/page_use.h"
#include "cache/saved_header.h"
#include "rota/kv_saved.h"
#include "rota/kv_view.h"

// What follows the header of a saved sequence.

namespace rota::cache {

// A piece with a checksum of its own: a page in all layers, the sinks, or a note.
struct SavedPart {
  using Kind = KvSavedPart::Kind;
  Kind kind = Kind::page;
  std::size_t of = 0;      // the group side, or the note
  std::uint64_t page = 0;  // logical
  PoolKind pool = PoolKind::dense;
  std::uint64_t tokens = 0;  // of a page that may be dense: it ends with the sequence
  std::uint64_t bytes = 0;
  std::uint32_t number = 0;  // counts the parts

  std::string name(const SavedLayout& of_saved) const;

  // The page of a pool, of a sequence that has it. Precondition: it is no note.
  PageUse page_in(const KvPages& pages) const {
    if (kind == Kind::sinks) return {of, PoolKind::sinks, pages.sinks.value_or(0)};
    return {of, pool, pages.page_table[page - pages.first_page]};
  }
};

// The parts of a saved sequence in their order: by the position at which they end, so that a reader who wants a prefix
// stops early. Of those that end together keys of the first group come first, and notes last.
class SavedParts {
 public:
  explicit SavedParts(const SavedLayout& layout);

  std::optional<SavedPart> next();

 private:
  std::optional<SavedPart> any_next();
  std::uint64_t end_of(std::size_t group_side) const noexcept;  // position, of its next page

  const SavedLayout& layout_;
  std::vector<std::uint64_t> pages_;  // the next of each group side
  std::size_t note_ = 0;
  std::uint32_t number_ = 0;
  bool sinks_given_ = false;  // of the group side whose first page is next
};

// Of a part, with its checksum.
std::uint64_t bytes_with_sum(const SavedPart& part) noexcept;

// Writes parts, each with its checksum.
class SavedWriter {
 public:
  explicit SavedWriter(const ByteSink& sink) noexcept : sink_(sink) {}

  Status write(std::span<const std::byte> bytes);
  Status end(const SavedPart& part);

 private:
  const ByteSink& sink_;
  std::uint32_t sum_ = 0;
};

// Reads one part: to its end, or skips it. end() verifies it.
class SavedPartReader {
 public:
  SavedPartReader(const SavedLayout& layout, const SavedPart& part, const ByteSource& source) noexcept
      : layout_(layout), part_(part), source_(source) {}

  Status read(std::span<std::byte> to);
  Status skip();
  Result<std::vector<std::byte>> read_all();  // takes memory as bytes come
  Status end();

 private:
  const SavedLayout& layout_;
  const SavedPart& part_;
  const ByteSource& source_;
  std::uint32_t sum_ = 0;
};

}  // namespace rota::cache
