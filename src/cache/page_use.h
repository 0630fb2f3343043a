#pragma once

#include <cstddef>
#include <cstdint>

namespace rota::cache {

enum class PoolKind : std::uint8_t { sealed, dense, sinks, step };
inline constexpr std::size_t kPoolKinds = 4;

// One sequence's use of one page. It counts in the page's pool from take() or share() to release().
struct PageUse {
  std::size_t group_side;
  PoolKind kind;
  std::uint32_t page;

  friend bool operator==(const PageUse&, const PageUse&) = default;
};

}  // namespace rota::cache
