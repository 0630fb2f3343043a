#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rota/result.h"

namespace rota::core {

// All of a regular file; nothing where there is none. What is no regular file is an error, and waits for nobody.
Result<std::optional<std::vector<std::byte>>> read_file(const std::string& path, std::uint64_t most_bytes);

// Readers see the old file or the new one, never half of one; nor do two writers meet. Nobody can guess the name that
// it is written under, and no link is followed there.
Status replace_file(const std::string& path, std::span<const std::byte> bytes);

}  // namespace rota::core
