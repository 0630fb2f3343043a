#include "report/eval_join.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "report/series.h"

namespace rota::tool {
namespace {

using ByTokens = std::map<std::uint64_t, double>;
using Rows = std::map<std::string, const EvalRow*>;

std::size_t rows_with_quality(const Eval& file) {
  return static_cast<std::size_t>(std::ranges::count_if(file.rows, [](auto& row) { return row.kld_mean.has_value(); }));
}

std::size_t rows_with_times(const Eval& file) {
  return static_cast<std::size_t>(
      std::ranges::count_if(file.rows, [](auto& row) { return !row.ms_per_token.empty(); }));
}

// The file of which most rows have it; the first of equals, and none if no row has it.
template <class Count>
const Eval* richest(const std::vector<const Eval*>& files, Count count) {
  const Eval* best = nullptr;
  for (const Eval* file : files) {
    if (count(*file) > (best == nullptr ? 0 : count(*best))) best = file;
  }
  return best;
}

// How many rows of a file have a number, by tokens.
std::map<std::uint64_t, std::size_t> counts_by_tokens(const Eval& file, ByTokens EvalRow::* member) {
  std::map<std::uint64_t, std::size_t> counts;
  for (const EvalRow& row : file.rows) {
    for (const auto& [tokens, value] : row.*member) ++counts[tokens];
  }
  return counts;
}

// The deepest of those that most rows have.
std::uint64_t depth_of(const Eval& file) {
  std::pair<std::size_t, std::uint64_t> best{0, 0};
  for (const auto& [depth, count] : counts_by_tokens(file, &EvalRow::ms_per_token)) {
    best = std::max(best, {count, depth});
  }
  return best.second;
}

// Of the contexts that most rows have, the one nearest to where times were measured; the largest if none were.
void choose_memory(EvalTable& table) {
  std::tuple<std::size_t, double> best{0, 0};
  for (const Eval* file : {table.times, table.quality}) {
    if (file == nullptr) continue;
    for (const auto& [context, count] : counts_by_tokens(*file, &EvalRow::bytes)) {
      const auto far = static_cast<double>(context), depth = static_cast<double>(table.depth);
      const std::tuple rank(count, table.times == nullptr ? far : -std::max(far - depth, depth - far));
      if (table.memory != nullptr && rank <= best) continue;
      best = rank;
      table.memory = file;
      table.context = context;
    }
  }
}

Rows rows_of(const Eval* file) {
  Rows rows;
  if (file == nullptr) return rows;
  for (const EvalRow& row : file->rows) rows.emplace(joined_name(row), &row);
  return rows;
}

std::optional<double> at_tokens(const Rows& rows, const std::string& name, ByTokens EvalRow::* member,
                                std::uint64_t tokens) {
  const auto row = rows.find(name);
  if (row == rows.end()) return {};
  const ByTokens& values = row->second->*member;
  const auto value = values.find(tokens);
  return value == values.end() ? std::nullopt : std::optional(value->second);
}

// Names are as their files have them, unless two caches would have the same.
void name_caches(std::vector<EvalCache>& caches, const std::map<std::string, std::string>& own_names) {
  std::map<std::string, int> uses;
  for (const auto& [joined, own] : own_names) ++uses[own];
  for (EvalCache& cache : caches) {
    const std::string& own = own_names.at(cache.key);
    if (uses[own] == 1) cache.name = own;
  }
}

// Those of most bits first; of as many, as their files have them.
void fill(EvalTable& table) {
  const Rows quality = rows_of(table.quality), times = rows_of(table.times), memory = rows_of(table.memory);
  std::map<std::string, std::string> own_names;
  for (const Eval* file : {table.quality, table.times}) {
    if (file == nullptr) continue;
    for (const EvalRow& row : file->rows) {
      const std::string name = joined_name(row);
      if (!own_names.emplace(name, row.codec).second) continue;
      EvalCache cache{.key = name, .name = name, .kind = row.kind, .rotated = row.rotated, .bits = row.bits_stored};
      if (const auto found = quality.find(name); found != quality.end()) {
        cache.kld = found->second->kld_mean;
        cache.top1 = found->second->top1;
      }
      cache.ms = at_tokens(times, name, &EvalRow::ms_per_token, table.depth);
      cache.ms_p10 = at_tokens(times, name, &EvalRow::ms_per_token_p10, table.depth);
      cache.ms_p90 = at_tokens(times, name, &EvalRow::ms_per_token_p90, table.depth);
      cache.bytes = at_tokens(memory, name, &EvalRow::bytes, table.context);
      const auto behind = std::ranges::upper_bound(table.caches, cache.bits, std::ranges::greater{}, &EvalCache::bits);
      table.caches.insert(behind, std::move(cache));
    }
  }
  name_caches(table.caches, own_names);
}

}  // namespace

const EvalCache* EvalTable::base(std::optional<double> EvalCache::* value) const {
  const EvalCache* best = nullptr;
  const auto rank = [](const EvalCache& cache) {
    return cache.name == "f16" ? 0 : cache.is_reference() ? 1 : cache.name == "rota f16" ? 2 : 3;
  };
  for (const EvalCache& cache : caches) {
    if (!(cache.*value) || rank(cache) == 3) continue;
    if (best == nullptr || rank(cache) < rank(*best)) best = &cache;
  }
  return best;
}

std::string model_name(const Eval& file) {
  std::string name = file.weights.empty() ? file.model : file.weights;
  while (name.size() > 1 && name.ends_with('/')) name.pop_back();
  return name.substr(name.find_last_of('/') + 1);
}

std::string joined_name(const EvalRow& row) {
  return row.codec + (row.rotated && !row.codec.ends_with("+rot") ? "+rot" : "");
}

std::string line_of(EvalRow::Kind kind, bool rotated, const std::string& codec) {
  if (kind == EvalRow::Kind::engine) return "the engine's formats";
  if (kind == EvalRow::Kind::simulated) return rotated ? "ggml's formats, rotated" : "ggml's formats";
  return codec.find('/') == std::string::npos ? family_of(codec) : "K and V differ";
}

std::vector<EvalTable> joined_tables(const std::vector<Eval>& files) {
  std::vector<std::string> order;
  std::map<std::string, std::vector<const Eval*>> models;
  for (const Eval& file : files) {
    if (file.rows.empty()) continue;
    auto& group = models[model_name(file)];
    if (group.empty()) order.push_back(model_name(file));
    group.push_back(&file);
  }
  std::vector<EvalTable> tables;
  for (const std::string& model : order) {
    std::vector<const Eval*>& left = models[model];
    while (!left.empty()) {
      EvalTable table;
      table.quality = richest(left, rows_with_quality);
      table.times = richest(left, rows_with_times);
      if (table.times != nullptr) table.depth = depth_of(*table.times);
      choose_memory(table);
      fill(table);
      for (std::size_t index = 0; index < files.size(); ++index) {
        if (&files[index] == table.quality || &files[index] == table.times) table.files.push_back(index);
      }
      std::erase_if(left, [&](const Eval* file) { return file == table.quality || file == table.times; });
      tables.push_back(std::move(table));
    }
  }
  return tables;
}

}  // namespace rota::tool
