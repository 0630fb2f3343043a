#include "page_store/joined.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/error.h"
#include "core/little_endian.h"

namespace rota::page_store {

Result<Joined> Joined::of(const BlockForm& form, std::uint64_t begin, std::uint64_t end, const ObjectOf& object_of) {
  auto layout = form.saved(begin, end);
  if (!layout) return layout.error();
  Joined joined;
  joined.header_ = std::move(layout->header);
  for (const KvSavedPart& part : layout->parts) {
    const PartPlace place = form.place_of(part);
    joined.parts_.push_back({part.offset, part.bytes, object_of(form.block_of(part), place.object), place.offset});
  }
  return joined;
}

Status Joined::read(Fetch& fetch, std::uint64_t offset, std::span<std::byte> to) const {
  if (offset < header_.size()) {
    const std::size_t size = std::min<std::size_t>(to.size(), header_.size() - static_cast<std::size_t>(offset));
    std::memcpy(to.data(), header_.data() + offset, size);
    offset += size;
    to = to.subspan(size);
  }
  const auto behind = std::ranges::upper_bound(parts_, offset, {}, &Part::offset);
  for (auto number = static_cast<std::size_t>(behind - parts_.begin()); !to.empty(); ++number) {
    if (number == 0 || number > parts_.size()) return Error{Errc::internal, "stored prefix: read beyond its end"};
    const Part& part = parts_[number - 1];
    const std::uint64_t at = offset - part.offset;
    const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(to.size(), part.bytes - at));
    if (Status status = read_part(fetch, number - 1, at, to.first(size)); !status) return status;
    offset += size;
    to = to.subspan(size);
  }
  return {};
}

// The part's number follows its checksum; stored it is 0.
Status Joined::read_part(Fetch& fetch, std::size_t number, std::uint64_t at, std::span<std::byte> to) const {
  const Part& part = parts_[number];
  if (Status status = fetch.read(part.object, part.object_offset + at, to); !status) return status;
  std::array<std::byte, 4> bytes{};
  core::put_little_endian(bytes, number);
  const std::uint64_t number_at = part.bytes - bytes.size();
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const std::uint64_t position = number_at + i;
    if (position < at || position - at >= to.size()) continue;
    std::byte& byte = to[static_cast<std::size_t>(position - at)];
    if (byte != std::byte{0}) return Error{Errc::io, "stored object: a part has a number where 0 belongs"};
    byte = bytes[i];
  }
  return {};
}

}  // namespace rota::page_store
