#pragma once

#include <string>
#include <vector>

#include "report/bench_view.h"

// What the page says in words about measured times.

namespace rota::tool {

// Of one op in one file.
std::vector<std::string> bench_findings(const BenchView& view, std::size_t file);

// How much the samples of a file differ.
std::vector<std::string> spread_findings(const Bench& file);

// Each later file with the first one, over rows that both have.
std::vector<std::string> file_comparisons(const std::vector<Bench>& files);

}  // namespace rota::tool
