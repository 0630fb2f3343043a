#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "report/data.h"

// Files of `rota eval` that measured one model, as one table of caches: what one file has of a cache (its divergence,
// say) beside what another has of it (its time).

namespace rota::tool {

// Steps whose p90 is more than this times their p10 are noisy.
inline constexpr double kWideSpread = 1.5;

struct EvalCache {
  std::string key, name;  // by which rows are joined; which is shown
  EvalRow::Kind kind = EvalRow::Kind::rota;
  bool rotated = false;
  double bits = 0;
  std::optional<double> kld, top1, ms, ms_p10, ms_p90, bytes;

  bool is_reference() const { return kind == EvalRow::Kind::reference; }
  bool is_ours() const { return kind == EvalRow::Kind::rota; }
  bool is_spread_known() const { return ms_p10 && ms_p90; }
  bool is_noisy() const { return is_spread_known() && ms_p90.value_or(0) > kWideSpread * ms_p10.value_or(0); }
};

// Numbers of one column come from one file, at one depth: others were measured otherwise, and must not be compared.
struct EvalTable {
  std::vector<std::size_t> files;  // those that give something, in the order in which they were given
  const Eval* quality = nullptr;   // the file of kld and top1
  const Eval* times = nullptr;     // of ms
  const Eval* memory = nullptr;    // of bytes
  std::uint64_t depth = 0;         // tokens in the cache, of ms
  std::uint64_t context = 0;       // of bytes
  std::vector<EvalCache> caches;   // those of most bits first

  // What others are measured by: f16, else the model's own cache. None if it lacks that number.
  const EvalCache* base(std::optional<double> EvalCache::* value) const;
};

// The name of the file of a model's weights, without its folder.
std::string model_name(const Eval& file);

// What one row is called where those of several files stand together: "q4_0+rot" of an engine that rotates "q4_0".
std::string joined_name(const EvalRow& row);

// Caches that make one line of a chart. Those of two names are K and V.
std::string line_of(EvalRow::Kind kind, bool rotated, const std::string& codec);

// One of each model; more where files measured the same things of it.
std::vector<EvalTable> joined_tables(const std::vector<Eval>& files);

}  // namespace rota::tool
