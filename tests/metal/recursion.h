#pragma once

#include <optional>
#include <vector>

#include "tokens.h"

namespace rota::test::metal {

// The token of a call by which a function comes back to itself, directly or through others. Functions are told apart by
// name and number of arguments; members of structs are not looked into.
std::optional<size_t> find_recursion(const std::vector<Token>& tokens);

}  // namespace rota::test::metal
