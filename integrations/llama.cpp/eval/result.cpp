#include "result.h"

#include <ggml-backend.h>
#include <rota/c.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>
#include <sstream>

namespace rota::eval {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kLongestText = 4096;  // that `rota report` reads
constexpr double kMiB = 1024.0 * 1024.0;

std::string formatted(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

// Cells of all lines, the head's first; the first column is left-aligned.
using Cells = std::vector<std::vector<std::string>>;

std::string markdown(const Cells& lines) {
  std::vector<std::size_t> widths(lines.front().size());
  for (const auto& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::ostringstream out;
  for (std::size_t number = 0; number < lines.size(); ++number) {
    for (std::size_t i = 0; i < widths.size(); ++i) {
      const std::string& cell = lines[number][i];
      const std::string room(widths[i] - cell.size(), ' ');
      out << "| " << (i == 0 ? cell + room : room + cell) << ' ';
    }
    out << "|\n";
    if (number > 0) continue;
    for (std::size_t i = 0; i < widths.size(); ++i)
      out << '|' << std::string(widths[i] + 1, '-') << (i == 0 ? '-' : ':');
    out << "|\n";
  }
  return out.str();
}

std::string now() {
  const std::time_t time = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&time));
  return text;
}

Json by_depth(const Timings& timings, double Timing::* value) {
  Json json = Json::object();
  for (const auto& [depth, timing] : timings) json[std::to_string(depth)] = timing.*value;
  return json;
}

const char* kind_of(const Row& row, const Row& base) {
  if (&row == &base) return "reference";
  return row.cache.is_rota() ? "rota" : "engine";
}

Json row_json(const Row& row, const Row& base) {
  Json json = {{"codec", row.cache.name},
               {"k", row.stored.k},
               {"v", row.stored.v},
               {"kind", kind_of(row, base)},
               {"rotated", row.memory.rotated},
               {"bits_stored", row.stored.bits},
               {"bytes", {{std::to_string(row.memory.context), row.memory.bytes}}}};
  if (row.quality) {
    const Quality& quality = *row.quality;
    json.update({{"kld_mean", quality.kld_mean},
                 {"kld_standard_error", quality.kld_standard_error},
                 {"kld_median", quality.kld_median},
                 {"kld_p99", quality.kld_p99},
                 {"kld_max", quality.kld_max},
                 {"top1", quality.top1},
                 {"perplexity", quality.perplexity}});
  }
  if (!row.timings.empty()) {
    json["ms_per_token"] = by_depth(row.timings, &Timing::median);
    json["ms_per_token_p10"] = by_depth(row.timings, &Timing::p10);
    json["ms_per_token_p90"] = by_depth(row.timings, &Timing::p90);
  }
  return json;
}

Json device_json(std::uint32_t threads) {
  Json json = {{"id", "cpu"}, {"threads", threads}};
  if (ggml_backend_dev_t device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU)) {
    json["name"] = ggml_backend_dev_description(device);
  }
  return json;
}

}  // namespace

std::string table_of(const std::vector<Row>& rows) {
  const Row& base = rows.front();
  Cells lines{{"cache"}};
  if (base.quality) lines[0].insert(lines[0].end(), {"perplexity", "KLD mean", "KLD 99 %", "same top-1"});
  for (const auto& [depth, timing] : base.timings) lines[0].push_back("ms at " + std::to_string(depth) + " (by f16's)");
  lines[0].push_back("MiB");
  for (const Row& row : rows) {
    std::vector<std::string> cells{row.cache.name};
    if (row.quality) {
      cells.push_back(formatted("%.4f", row.quality->perplexity));
      cells.push_back(formatted("%.1e", row.quality->kld_mean));
      cells.push_back(formatted("%.1e", row.quality->kld_p99));
      cells.push_back(formatted("%.2f %%", 100 * row.quality->top1));
    }
    for (const auto& [depth, timing] : row.timings) {
      const double ratio = timing.median / base.timings.at(depth).median;
      cells.push_back(formatted("%.2f", timing.median) + formatted(" (%.2f)", ratio));
    }
    cells.push_back(formatted("%.1f", static_cast<double>(row.memory.bytes) / kMiB));
    lines.push_back(std::move(cells));
  }
  return markdown(lines) + "\nMiB in a context of " + std::to_string(base.memory.context) + " tokens.\n";
}

std::string table_of(const std::vector<Cache>& caches, const std::vector<Pause>& pauses) {
  Cells lines{{"cache", "median ms", "99 %", "longest", "at depth", "longest / median"}};
  for (std::size_t i = 0; i < caches.size(); ++i) {
    const Pause& pause = pauses[i];
    lines.push_back({caches[i].name, formatted("%.2f", pause.median), formatted("%.2f", pause.p99),
                     formatted("%.2f", pause.longest), std::to_string(pause.longest_at),
                     formatted("%.2f", pause.longest / pause.median)});
  }
  return markdown(lines);
}

std::string json_of(const std::vector<Row>& rows, const Options& options) {
  Json json = {{"report", "eval"},
               {"format", 1},
               {"date", now()},
               {"version", rota_version_text()},
               {"build", std::string("llama.cpp ") + llama_version()},
               {"command", options.command.substr(0, kLongestText)},
               {"device", device_json(options.threads)},
               {"model", options.model},
               {"text", options.text},
               {"rows", Json::array()}};
  if (rows.front().quality) {
    json["tokens"] = std::uint64_t{options.tokens} * options.chunks;
    json["chunk"] = options.ubatch;
    json["dtype"] = options.as_is ? "as stored" : "float32";
    json["positions"] = rows.front().quality->positions;
  }
  for (const Row& row : rows) json["rows"].push_back(row_json(row, rows.front()));
  // A file's name may be no UTF-8.
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace rota::eval
