#include "cache/saved_header.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "cache/saved_fields.h"
#include "core/check.h"
#include "core/crc32c.h"
#include "core/error.h"
#include "rota/view.h"

namespace rota::cache {
namespace {

// docs/saved-sequences.md has the same tables.
constexpr std::array<char, 8> kMagic{'R', 'O', 'T', 'A', '-', 'S', 'E', 'Q'};
constexpr std::uint32_t kByteOrder = 0x01020304;
constexpr std::uint32_t kForeignByteOrder = 0x04030201;
constexpr std::uint64_t kFixedBytes = 64, kGroupBytes = 48, kSideBytes = 64, kNoteBytes = 16;
constexpr std::uint32_t kSealed = 0xffffffff, kInKeys = 0xfffffffe;  // where the type of elements would be
constexpr std::uint32_t kKeepsSinks = 1;                             // in the flags of keys

class Writer {
 public:
  void u32(std::uint64_t value) { put(value, 4); }
  void u64(std::uint64_t value) { put(value, 8); }
  void bytes(std::span<const std::byte> all) { out_.insert(out_.end(), all.begin(), all.end()); }
  void align() { out_.resize((out_.size() + 7) / 8 * 8); }
  std::vector<std::byte>& out() noexcept { return out_; }

 private:
  void put(std::uint64_t value, std::size_t size) {
    out_.resize(out_.size() + size);
    core::put_little_endian(std::span(out_).last(size), value);
  }

  std::vector<std::byte> out_;
};

std::uint64_t pages_bytes(const GroupSide& group_side, const KvSavedSide& side, std::uint64_t end) {
  if (group_side.in_keys) return 0;
  const std::uint64_t sealed = std::max(side.first_page, std::min(side.sealed_pages, side.end_page)) - side.first_page;
  const std::uint64_t dense_from = std::min((side.first_page + sealed) * group_side.rule.page, end);
  const std::uint64_t dense_end = side.end_page > side.first_page ? end : dense_from;
  const std::uint64_t slots = dense_end - dense_from + (side.has_sinks ? std::min(group_side.rule.sinks, end) : 0);
  const std::uint64_t dense = detail::saturating_multiply(slots, group_side.slot_bytes());
  const std::uint64_t heads = detail::saturating_multiply(group_side.layers, group_side.heads);
  const std::uint64_t page = detail::saturating_multiply(heads, group_side.sealed_bytes());
  return std::min(dense, kMaxBytes) + std::min(detail::saturating_multiply(sealed, page), kMaxBytes);
}

void write_side(Writer& out, const GroupSide& group_side, const KvSavedSide& side) {
  out.u32(group_side.format ? kSealed : group_side.in_keys ? kInKeys : static_cast<std::uint32_t>(group_side.dense));
  out.u32(group_side.side == KvSide::keys && group_side.rule.keeps_sinks ? kKeepsSinks : 0);
  out.u64(side.first_page);
  out.u64(side.sealed_pages);
  out.u64(side.end_page);
  if (group_side.format) {
    out.bytes(describe(*group_side.format));
  } else {
    out.bytes(std::array<std::byte, kPageDescriptionBytes>{});
  }
}

void write_group(Writer& out, const SavedLayout& layout, std::size_t index) {
  const KvGroup& group = layout.saved.groups[index].group;
  out.u32(group.layers.size());
  out.u32(group.kv_heads);
  out.u32(group.head_dim);
  out.u32(group.value_dim.value_or(group.head_dim));
  out.u32(group.page);
  out.u32(static_cast<std::uint32_t>(group.dense));
  out.u64(group.tail);
  out.u64(group.sinks);
  out.u64(group.window.value_or(0));
  for (const KvSide side : {KvSide::keys, KvSide::values}) {
    const std::size_t group_side = group_side_of(index, side);
    write_side(out, layout.group_sides[group_side], layout.side(group_side));
  }
  for (const std::uint32_t layer : group.layers) out.u32(layer);
  out.align();
}

Status read_side(Fields& in, KvSide side, KvGroup& group, KvSavedSide& pages) {
  KvCodec& codec = side == KvSide::keys ? group.k : group.v;
  const std::uint32_t dtype = in.u32();
  const std::uint32_t flags = in.u32();
  pages = {.first_page = in.u64(), .sealed_pages = in.u64(), .end_page = in.u64()};
  const auto description = in.bytes(kPageDescriptionBytes);
  if (!in.ok()) return {};  // the caller says so
  if (flags > (side == KvSide::keys ? kKeepsSinks : 0)) return bad_saved("bytes that are to be zero are not");
  group.keep_sinks |= flags == kKeepsSinks;
  if (dtype != kSealed) {
    const auto is_zero = [](std::byte byte) { return byte == std::byte{0}; };
    if (!std::ranges::all_of(description, is_zero)) return bad_saved("bytes that are to be zero are not");
    group.v_in_k = side == KvSide::values && dtype == kInKeys;
    if (group.v_in_k) return {};
    if (dtype >= kDTypes.size()) return bad_saved(core::text("elements of type {}, which is none", dtype));
    codec = static_cast<DType>(dtype);
    return {};
  }
  auto format = read_description(description);
  if (!format) return Error{format.error().code, core::text("saved sequence: {}", format.error().message)};
  const std::uint32_t dim =
      side == KvSide::keys ? std::uint32_t{group.head_dim} : group.value_dim.value_or(group.head_dim);
  if (format->side != side || format->head_dim != dim || format->tokens != group.page) {
    return bad_saved("a description of pages that is not that of their group");
  }
  codec = kv_codec(format->codec);
  return {};
}

Result<KvSavedGroup> read_group(Fields& in) {
  const std::uint32_t layers = in.u32();
  KvSavedGroup read{.group = {.kv_heads = in.u32(), .head_dim = in.u32()}};
  KvGroup& group = read.group;
  group.value_dim = in.u32();
  group.page = in.u32();
  const std::uint32_t dense = in.u32();
  group.tail = in.u64();
  group.sinks = in.u64();
  if (const std::uint64_t window = in.u64(); window > 0) group.window = window;
  if (dense >= kDTypes.size()) return bad_saved(core::text("elements of type {}, which is none", dense));
  group.dense = static_cast<DType>(dense);
  if (Status status = read_side(in, KvSide::keys, group, read.k); !status) return status.error();
  if (Status status = read_side(in, KvSide::values, group, read.v); !status) return status.error();
  Fields numbers(in.bytes(std::uint64_t{4} * layers));
  while (numbers.left() > 0) group.layers.push_back(numbers.u32());
  if (layers % 2 != 0 && in.u32() != 0) return bad_saved("bytes that are to be zero are not");
  return read;
}

// Pages of one side, where the groups are sound.
Status check_pages(const GroupSide& group_side, const KvSavedSide& side, const KvSaved& saved) {
  const PageRule& rule = group_side.rule;
  if (group_side.in_keys && side == KvSavedSide{}) return {};
  const bool sound = !group_side.in_keys && saved.begin % rule.page == 0 &&
                     side.first_page >= saved.begin / rule.page && side.end_page == rule.pages(saved.end) &&
                     side.first_page <= side.end_page &&
                     (side.sealed_pages == 0 || (rule.seals && side.sealed_pages <= saved.end / rule.page)) &&
                     (side.first_page == saved.begin / rule.page || rule.window);
  if (sound) return {};
  return bad_saved(core::text("{} have pages {} to {}, sealed up to {}, for positions {} to {}", group_side.name(),
                              side.first_page, side.end_page, side.sealed_pages, saved.begin, saved.end));
}

Status check_notes(const KvSaved& saved) {
  std::uint64_t before = saved.begin;
  for (const KvSavedNote& note : saved.notes) {
    if (note.position < before || note.position > saved.end) {
      return bad_saved(core::text("a note at position {}, where {} to {} may be", note.position, before, saved.end));
    }
    before = note.position;
  }
  return {};
}

// The first fixed bytes, before a checksum is worth asking for.
Status check_beginning(std::span<const std::byte> fixed) {
  if (std::memcmp(fixed.data(), kMagic.data(), kMagic.size()) != 0) return bad_saved("does not begin with ROTA-SEQ");
  Fields in(fixed.subspan(kMagic.size()));
  const std::uint32_t order = in.u32();
  if (order == kForeignByteOrder)
    return bad_saved("its numbers have their bytes in big-endian order; wanted little-endian");
  if (order != kByteOrder) return bad_saved(core::text("a byte order of {:#010x}; wanted {:#010x}", order, kByteOrder));
  if (const std::uint32_t version = in.u32(); version != kSavedVersion) {
    return Error{Errc::unsupported,
                 core::text("saved sequence: version {}; this build reads version {}", version, kSavedVersion)};
  }
  return {};
}

Result<std::vector<std::byte>> read_header_bytes(const ByteSource& source) {
  std::vector<std::byte> header(kFixedBytes);
  const auto cut_off = [](const Error& error) {
    return Error{error.code, core::text("saved sequence: no whole header: {}", error.message)};
  };
  if (Status status = source(header); !status) return cut_off(status.error());
  if (Status status = check_beginning(header); !status) return status.error();
  const std::uint64_t bytes = Fields(std::span<const std::byte>(header).subspan(16)).u64();
  if (bytes < kFixedBytes + kSumBytes || bytes % 8 != 0 || bytes > kMaxBytes) {
    return bad_saved(core::text("a header of {} bytes", bytes));
  }
  if (Status status = read_up_to(source, bytes, header); !status) return cut_off(status.error());
  const auto summed = std::span<const std::byte>(header).first(header.size() - kSumBytes);
  Fields end(std::span<const std::byte>(header).subspan(summed.size()));
  if (end.u32() != core::crc32c(summed) || end.u32() != 0) return bad_saved("the header's checksum is wrong");
  return header;
}

}  // namespace

Status complete(SavedLayout& layout) {
  KvSaved& saved = layout.saved;
  saved.version = kSavedVersion;
  saved.header_bytes = kFixedBytes + saved.notes.size() * kNoteBytes + kSumBytes;
  std::uint64_t parts = saved.notes.size();
  saved.bytes = 0;
  const auto add = [&](std::uint64_t bytes) {
    saved.bytes = std::min(saved.bytes + std::min(bytes, kMaxBytes), kMaxBytes);
  };
  for (const KvSavedGroup& group : saved.groups) {
    saved.header_bytes += kGroupBytes + 2 * kSideBytes + (group.group.layers.size() + 1) / 2 * 8;
  }
  for (std::size_t i = 0; i < layout.group_sides.size(); ++i) {
    KvSavedSide& side = layout.side(i);
    const GroupSide& group_side = layout.group_sides[i];
    const bool are_there = group_side.rule.keeps_sinks ? saved.begin == 0 && side.end_page > side.first_page
                                                       : side.first_page == 0 && side.sealed_pages > 0;
    side.has_sinks = group_side.rule.sinks > 0 && are_there;
    side.bytes = pages_bytes(group_side, side, saved.end);
    parts += side.end_page - side.first_page + (side.has_sinks ? 1 : 0);
    add(side.bytes);
  }
  for (const KvSavedNote& note : saved.notes) add(note.bytes);
  add(saved.header_bytes);
  add(parts * kSumBytes);
  if (saved.bytes == kMaxBytes) return bad_saved("more than 2^60 bytes");
  return {};
}

std::vector<std::byte> saved_header(const SavedLayout& layout) {
  const KvSaved& saved = layout.saved;
  Writer out;
  out.bytes(std::as_bytes(std::span(kMagic)));
  out.u32(kByteOrder);
  out.u32(saved.version);
  out.u64(saved.header_bytes);
  out.u64(saved.begin);
  out.u64(saved.end);
  out.u32(saved.groups.size());
  out.u32(saved.notes.size());
  out.u64(saved.bytes);
  out.u64(0);
  for (std::size_t i = 0; i < saved.groups.size(); ++i) write_group(out, layout, i);
  for (const KvSavedNote& note : saved.notes) {
    out.u64(note.position);
    out.u64(note.bytes);
  }
  out.bytes(sum_and(core::crc32c(out.out()), 0));
  return std::move(out.out());
}

Result<SavedLayout> saved_layout_of(KvSaved saved) {
  if (saved.begin > saved.end || saved.end > kMaxLength) {
    return bad_saved(core::text("positions {} to {}", saved.begin, saved.end));
  }
  KvCacheSpec spec{.groups = {}, .max_tokens = 1};
  for (const KvSavedGroup& group : saved.groups) spec.groups.push_back(group.group);
  auto meaning = lay_out(spec);
  if (!meaning) return bad_saved(core::text("groups that no cache has: {}", meaning.error().message));
  SavedLayout layout{std::move(saved), std::move(meaning->group_sides)};
  for (std::size_t i = 0; i < layout.group_sides.size(); ++i) {
    if (Status status = check_pages(layout.group_sides[i], layout.side(i), layout.saved); !status)
      return status.error();
  }
  if (Status status = check_notes(layout.saved); !status) return status.error();
  if (Status status = complete(layout); !status) return status.error();
  return layout;
}

Result<SavedLayout> read_saved_layout(const ByteSource& source) {
  auto header = read_header_bytes(source);
  if (!header) return header.error();
  Fields in(std::span<const std::byte>(*header).subspan(24, header->size() - 24 - kSumBytes));
  KvSaved saved;
  saved.begin = in.u64();
  saved.end = in.u64();
  const std::uint32_t groups = in.u32();
  const std::uint32_t notes = in.u32();
  const std::uint64_t bytes = in.u64();
  if (in.u64() != 0) return bad_saved("bytes that are to be zero are not");
  if (groups > kMaxGroups) return bad_saved(core::text("{} groups", groups));
  for (std::uint32_t i = 0; i < groups && in.ok(); ++i) {
    auto group = read_group(in);
    if (!group) return group.error();
    saved.groups.push_back(std::move(group).value());
  }
  for (std::uint32_t i = 0; i < notes && in.ok(); ++i) saved.notes.push_back({in.u64(), in.u64()});
  if (!in.ok() || in.left() > 0) return bad_saved("the header is not as long as its groups and notes");
  auto layout = saved_layout_of(std::move(saved));
  if (!layout) return layout.error();
  if (layout->saved.header_bytes != header->size() || layout->saved.bytes != bytes) {
    return bad_saved(core::text("it says {} bytes, {} of them its header; its pages and notes take {}", bytes,
                                header->size(), layout->saved.bytes));
  }
  return layout;
}

namespace {

std::string codec_text(const GroupSide& group_side) {
  if (!group_side.format) return std::string(info(group_side.dense).name);
  const PageFormat& format = *group_side.format;
  std::string text(name(kv_codec(format.codec)));
  std::visit(
      [&](const auto& codec) {
        if constexpr (requires { codec.scale, codec.seed; }) {
          text += core::text(" (scale rule {}, {} mean, seed {:#x})", static_cast<unsigned>(codec.scale),
                             format.has_mean() ? "with" : "no", codec.seed);
        }
      },
      format.codec);
  return text;
}

}  // namespace

Status check_same_groups(std::string_view op, const SavedLayout& saved, const KvCacheSpec& spec, const Layout& layout) {
  if (saved.saved.groups.size() != spec.groups.size()) {
    return core::refuse({op, {"the number of groups"}}, saved.saved.groups.size(), "the cache's {}",
                        spec.groups.size());
  }
  for (std::size_t i = 0; i < spec.groups.size(); ++i) {
    const KvGroup& found = saved.saved.groups[i].group;
    const KvGroup& own = spec.groups[i];
    const auto same = [&](std::string_view field, const auto& a, const auto& b) -> Status {
      return a == b ? Status{} : core::refuse({op, {"the saved groups", i, field}}, a, "the cache's {}", b);
    };
    const auto same_codec = [&](std::string_view field, KvSide side) -> Status {
      const GroupSide& a = saved.group_sides[group_side_of(i, side)];
      const GroupSide& b = layout.group_sides[group_side_of(i, side)];
      if (a.format == b.format && (a.format || a.dense == b.dense)) return {};
      return core::refuse({op, {"the saved groups", i, field}}, codec_text(a), "the cache's {}", codec_text(b));
    };
    Status status = core::first_error(
        {same("layers.size()", found.layers.size(), own.layers.size()),
         found.layers == own.layers ? Status{}
                                    : core::refuse({op, {"the saved groups", i, "layers"}}, "a list of other layers",
                                                   "the cache's, in its order"),
         same("kv_heads", std::uint32_t{found.kv_heads}, std::uint32_t{own.kv_heads}),
         same("head_dim", std::uint32_t{found.head_dim}, std::uint32_t{own.head_dim}),
         same("value_dim", found.value_dim.value_or(found.head_dim), own.value_dim.value_or(own.head_dim)),
         same("page", found.page, own.page), same("v_in_k", found.v_in_k ? 1 : 0, own.v_in_k ? 1 : 0),
         same_codec("k", KvSide::keys), same_codec("v", KvSide::values),
         same("dense", info(found.dense).name, info(own.dense).name), same("sinks", found.sinks, own.sinks),
         same("keep_sinks", found.keep_sinks ? 1 : 0, own.keep_sinks ? 1 : 0),
         same("window", found.window.value_or(0), own.window.value_or(0))});
    if (!status) return status;
  }
  return {};
}

}  // namespace rota::cache
