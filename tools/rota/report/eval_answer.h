#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "report/eval_join.h"

// What a cache costs the model, and what it gains: the first thing on the page.

namespace rota::tool {

inline constexpr double kMiB = 1048576;

struct EvalAnswer {
  std::string html;
  std::vector<std::string> warnings;
  std::size_t charts = 0;
};

// `title` stands above it, unless it is empty.
EvalAnswer answer_of(const EvalTable& table, const std::string& title);

// ms per token against tokens in the cache: an SVG, or nothing. Names are of joined_name(); others are their own.
std::string time_chart(const Eval& file, const std::string& label, const std::map<std::string, std::string>& names,
                       std::size_t& rows_left);

// "M read 2,048 tokens of T in chunks of 128."; nothing if the file says nothing.
std::string measured_text(const Eval& file);

}  // namespace rota::tool
