#pragma once

#include <string>
#include <vector>

#include "report/data.h"
#include "report/words.h"

// What the page says in words about errors.

namespace rota::tool {

inline std::string source_name(const std::string& source) { return cut(source, 60); }

// Of one file. Each finding begins with `prefix`.
std::vector<std::string> distort_findings(const Distort& file, const std::string& prefix);

}  // namespace rota::tool
