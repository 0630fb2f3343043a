#include "page_store/block_form.h"

#include <algorithm>

#include "core/error.h"

namespace rota::page_store {
namespace {

// The first page that the newest of `tokens` sees.
std::uint64_t first_seen_page(const KvGroup& group, std::uint64_t tokens) {
  return group.window && tokens > *group.window ? (tokens - *group.window) / group.page : 0;
}

}  // namespace

Result<BlockForm> BlockForm::of(std::span<const KvGroup> groups) {
  BlockForm form;
  form.groups_.assign(groups.begin(), groups.end());
  for (const KvGroup& group : groups) {
    form.tokens_ = std::max<std::uint64_t>(form.tokens_, group.page);  // pages are powers of two
    form.has_windows_ |= group.window.has_value();
  }
  for (const std::uint64_t block : {std::uint64_t{0}, std::uint64_t{1}}) {
    if (Status status = form.lay_out(block); !status) return status.error();
  }
  return form;
}

std::uint64_t BlockForm::first_window_block(std::uint64_t blocks) const noexcept {
  std::uint64_t first = blocks;
  for (const KvGroup& group : groups_) {
    if (group.window) first = std::min(first, first_seen_page(group, blocks * tokens_) * group.page / tokens_);
  }
  return first;
}

Result<KvSavedLayout> BlockForm::laid_out(std::uint64_t begin, std::uint64_t end, Pages pages) const {
  KvSaved saved{.begin = begin * tokens_, .end = end * tokens_};
  for (const KvGroup& group : groups_) {
    const std::uint64_t seen = pages == Pages::seen ? first_seen_page(group, saved.end) : 0;
    const auto side = [&](const KvCodec& codec) -> KvSavedSide {
      const std::uint64_t end_page = saved.end / group.page;
      return {.first_page = std::max(saved.begin / group.page, seen),
              .sealed_pages = sealed_codec(codec) ? end_page : 0,
              .end_page = end_page};
    };
    saved.groups.push_back({.group = group, .k = side(group.k)});
    if (!group.v_in_k) saved.groups.back().v = side(group.v);
  }
  return lay_out_saved(saved);
}

Result<KvSavedLayout> BlockForm::saved(std::uint64_t begin, std::uint64_t end) const {
  return laid_out(begin, end, Pages::seen);
}

bool BlockForm::is_window(const KvSavedPart& part) const noexcept {
  const KvGroup& group = groups_[part.of];
  return group.window && (part.kind != KvSavedPart::Kind::sinks || !group.keep_sinks);
}

std::uint64_t BlockForm::block_of(const KvSavedPart& part) const noexcept {
  return part.kind == KvSavedPart::Kind::sinks ? 0 : part.page * groups_[part.of].page / tokens_;
}

BlockForm::PartId BlockForm::id_of(const KvSavedPart& part) const noexcept {
  const bool is_page = part.kind == KvSavedPart::Kind::page;
  return {part.kind, part.of, part.side, is_page ? part.page % (tokens_ / groups_[part.of].page) : 0};
}

PartPlace BlockForm::place_of(const KvSavedPart& part) const {
  return places_[block_of(part) == 0 ? 0 : 1].at(id_of(part));
}

Status BlockForm::lay_out(std::uint64_t block) {
  auto layout = laid_out(block, block + 1, Pages::all);
  if (!layout) return layout.error();
  for (const KvSavedPart& part : layout->parts) {
    const StoredPart object = is_window(part) ? StoredPart::window : StoredPart::pages;
    std::uint64_t& size = sizes_[block][static_cast<std::size_t>(object)];
    places_[block].emplace(id_of(part), PartPlace{object, size, part.bytes});
    size += part.bytes;
  }
  return {};
}

}  // namespace rota::page_store
