#include "cache/saved_parts.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "cache/saved_fields.h"
#include "core/crc32c.h"
#include "core/error.h"

namespace rota::cache {

std::string SavedPart::name(const SavedLayout& of_saved) const {
  if (kind == Kind::note) return core::text("the note at position {}", of_saved.saved.notes[of].position);
  const std::string group_side = of_saved.group_sides[of].name();
  return kind == Kind::sinks ? core::text("the sinks of {}", group_side)
                             : core::text("page {} of {}", page, group_side);
}

SavedParts::SavedParts(const SavedLayout& layout) : layout_(layout) {
  for (std::size_t i = 0; i < layout.group_sides.size(); ++i) pages_.push_back(layout.side(i).first_page);
}

std::uint64_t SavedParts::end_of(std::size_t group_side) const noexcept {
  if (pages_[group_side] >= layout_.side(group_side).end_page) return std::numeric_limits<std::uint64_t>::max();
  return std::min((pages_[group_side] + 1) * layout_.group_sides[group_side].rule.page, layout_.saved.end);
}

std::uint64_t bytes_with_sum(const SavedPart& part) noexcept { return part.bytes + kSumBytes; }

std::optional<SavedPart> SavedParts::next() {
  auto part = any_next();
  if (part) part->number = number_++;
  return part;
}

std::optional<SavedPart> SavedParts::any_next() {
  std::size_t first = 0;
  for (std::size_t i = 1; i < pages_.size(); ++i) first = end_of(i) < end_of(first) ? i : first;
  const std::uint64_t end = end_of(first);
  if (const auto& notes = layout_.saved.notes; note_ < notes.size() && notes[note_].position < end) {
    const std::size_t note = note_++;
    return SavedPart{.kind = SavedPart::Kind::note, .of = note, .bytes = notes[note].bytes};
  }
  if (end == std::numeric_limits<std::uint64_t>::max()) return {};
  const GroupSide& group_side = layout_.group_sides[first];
  const KvSavedSide& side = layout_.side(first);
  const std::uint64_t page = pages_[first];
  if (page == side.first_page && side.has_sinks && !std::exchange(sinks_given_, true)) {
    const std::uint64_t sinks = std::min(group_side.rule.sinks, layout_.saved.end);
    return SavedPart{.kind = SavedPart::Kind::sinks,
                     .of = first,
                     .pool = PoolKind::sinks,
                     .tokens = sinks,
                     .bytes = sinks * group_side.slot_bytes()};
  }
  sinks_given_ = false;
  ++pages_[first];
  SavedPart part{.of = first, .page = page, .tokens = end - page * group_side.rule.page};
  if (page < side.sealed_pages) {
    part.pool = PoolKind::sealed;
    part.bytes = group_side.layers * group_side.heads * group_side.sealed_bytes();
  } else {
    part.bytes = part.tokens * group_side.slot_bytes();
  }
  return part;
}

Status SavedWriter::write(std::span<const std::byte> bytes) {
  sum_ = core::crc32c(bytes, sum_);
  return sink_(bytes);
}

Status SavedWriter::end(const SavedPart& part) { return sink_(sum_and(std::exchange(sum_, 0), part.number)); }

Status SavedPartReader::read(std::span<std::byte> to) {
  while (!to.empty()) {
    const auto piece = to.first(std::min<std::size_t>(to.size(), kPiece));  // is summed while it is in a core's cache
    if (Status status = source_(piece); !status) {
      return Error{status.error().code,
                   core::text("saved sequence: in {}: {}", part_.name(layout_), status.error().message)};
    }
    sum_ = core::crc32c(piece, sum_);
    to = to.subspan(piece.size());
  }
  return {};
}

Status SavedPartReader::skip() {
  std::vector<std::byte> piece(static_cast<std::size_t>(std::min(part_.bytes, kPiece)));
  for (std::uint64_t left = part_.bytes; left > 0; left -= std::min(left, kPiece)) {
    const auto next = std::span(piece).first(static_cast<std::size_t>(std::min(left, kPiece)));
    if (Status status = read(next); !status) return status;
  }
  return {};
}

Result<std::vector<std::byte>> SavedPartReader::read_all() {
  std::vector<std::byte> all;
  const ByteSource summed = [&](std::span<std::byte> to) { return read(to); };
  if (Status status = read_up_to(summed, part_.bytes, all); !status) return status.error();
  return all;
}

Status SavedPartReader::end() {
  const std::uint32_t sum = sum_;
  std::array<std::byte, kSumBytes> end{};
  if (Status status = read(end); !status) return status;
  Fields in(end);
  if (const std::uint32_t found = in.u32(); found != sum) {
    return bad_saved(
        core::text("{}: the checksum is {:#010x}; the bytes give {:#010x}", part_.name(layout_), found, sum));
  }
  if (const std::uint32_t found = in.u32(); found != part_.number) {
    return bad_saved(core::text("{}: part {} is where part {} belongs", part_.name(layout_), found, part_.number));
  }
  return {};
}

}  // namespace rota::cache

namespace rota::inline ROTA_ABI {

ByteSource source_of(std::span<const std::byte> bytes) {
  return [rest = bytes](std::span<std::byte> to) mutable -> Status {
    if (to.size() > rest.size()) {
      return Error{Errc::io, core::text("{} bytes are wanted, and {} are left", to.size(), rest.size())};
    }
    if (!to.empty()) std::memcpy(to.data(), rest.data(), to.size());
    rest = rest.subspan(to.size());
    return {};
  };
}

Result<KvSavedLayout> lay_out_saved(const KvSaved& saved) {
  return core::guarded([&]() -> Result<KvSavedLayout> {
    auto layout = cache::saved_layout_of(saved);
    if (!layout) return layout.error();
    KvSavedLayout all{.saved = layout->saved, .header = cache::saved_header(*layout)};
    cache::SavedParts parts(*layout);
    std::uint64_t offset = all.header.size();
    while (const auto part = parts.next()) {
      const bool is_note = part->kind == KvSavedPart::Kind::note;
      all.parts.push_back({.kind = part->kind,
                           .of = is_note ? part->of : layout->group_sides[part->of].group,
                           .side = is_note ? KvSide::keys : layout->group_sides[part->of].side,
                           .page = part->page,
                           .offset = offset,
                           .bytes = cache::bytes_with_sum(*part)});
      offset += cache::bytes_with_sum(*part);
    }
    return all;
  });
}

Result<KvSaved> read_saved_header(const ByteSource& source) {
  return core::guarded([&]() -> Result<KvSaved> {
    auto layout = cache::read_saved_layout(source);
    if (!layout) return layout.error();
    return std::move(layout->saved);
  });
}

Result<KvSaved> verify_saved(const ByteSource& source) {
  return core::guarded([&]() -> Result<KvSaved> {
    auto layout = cache::read_saved_layout(source);
    if (!layout) return layout.error();
    cache::SavedParts parts(*layout);
    while (const auto part = parts.next()) {
      cache::SavedPartReader reader(*layout, *part, source);
      if (Status status = reader.skip(); !status) return status.error();
      if (Status status = reader.end(); !status) return status.error();
    }
    return std::move(layout->saved);
  });
}

}  // namespace rota::inline ROTA_ABI
