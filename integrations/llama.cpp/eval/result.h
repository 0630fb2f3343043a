#pragma once

#include <optional>
#include <string>
#include <vector>

#include "options.h"
#include "quality.h"
#include "speed.h"

namespace rota::eval {

// All that was measured of one cache.
struct Row {
  Cache cache;
  Stored stored;
  Memory memory;
  std::optional<Quality> quality{};
  Timings timings{};
};

// A table in Markdown.
std::string table_of(const std::vector<Row>& rows);
std::string table_of(const std::vector<Cache>& caches, const std::vector<Pause>& pauses);

// What `rota report` draws: docs/eval.md.
std::string json_of(const std::vector<Row>& rows, const Options& options);

}  // namespace rota::eval
