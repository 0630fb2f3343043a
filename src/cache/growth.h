#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace rota::cache {

// Makes room for one more element of `list`, which holds fewer than `most`, and for as many indices in every list of
// `indices`. Capacity doubles up to `most`. `list` comes last: once it has room, an index of any of its elements can be
// pushed without memory, in code that must not fail.
template <class T, class... Index>
void make_room(std::uint64_t most, std::vector<T>& list, std::vector<Index>&... indices) {
  if (list.size() < list.capacity()) return;
  constexpr std::uint64_t kFew = 16;
  const auto room = static_cast<std::size_t>(std::min(most, std::max<std::uint64_t>(kFew, 2 * list.size())));
  (indices.reserve(room), ...);
  list.reserve(room);
}

}  // namespace rota::cache
