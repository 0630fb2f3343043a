#pragma once

#include <cstdint>

namespace rota::core {

// Items one after the other, in rows of one size. Only the first is divided: a division of 64 bits takes as long as a
// small item does.
struct Cursor {
  std::uint64_t row, column, columns;

  constexpr Cursor(std::uint64_t item, std::uint64_t row_size) noexcept
      : row(item / row_size), column(item % row_size), columns(row_size) {}

  constexpr void advance() noexcept {
    if (++column < columns) return;
    column = 0;
    ++row;
  }
};

}  // namespace rota::core
