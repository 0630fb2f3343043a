#pragma once

#include <string>
#include <vector>

namespace rota::core {

std::string cpu_name();

// Instruction sets that kernels may choose by, in the spelling of the compilers' flags.
std::vector<std::string> cpu_features();

}  // namespace rota::core
