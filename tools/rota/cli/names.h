#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/command.h"

// What was meant by a name that nothing has.

namespace rota::tool {

// Letters that must be put in, taken out or changed to make one of the other; neighbours that stand in each other's
// place are one.
std::size_t distance(std::string_view a, std::string_view b);

std::string lower(std::string text);

// Those of `names` that hold this one, then those that are spelled much like it; at most five.
std::vector<std::string> names_like(const std::string& name, const std::vector<std::string>& names);

// "; did you mean a, b?", or nothing where none is near.
std::string did_you_mean(const std::vector<std::string>& near);

// The option that was meant by "--contxt", in words that other programs have for it, too; empty if none is near.
std::string option_like(std::string_view typed, const std::vector<std::string>& options);

// What stands for other programs' "q8_0" and "fp16": "; turbo8 has as many bits". Empty if nothing does.
std::string codec_hint(std::string_view name);

Failure no_such_command(const std::string& name, const std::vector<std::string>& commands);

}  // namespace rota::tool
