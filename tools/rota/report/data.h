#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/fields.h"

// What `rota bench`, `rota distort` and `rota eval` wrote, read back. A file may come from anywhere: whatever is in
// these structs was checked.

namespace rota::tool {

// What measured, when and where. Empty: the file does not say.
struct Origin {
  std::string path;
  std::string label;  // a short name that no other file has
  std::string version, commit, build, date, command;
  std::vector<std::string> devices;
};

// A row whose file names one codec has it for keys and values.
struct Bench {
  Origin origin;
  std::optional<double> read_spread;
  bool noisy = false, interrupted = false;
  std::vector<BenchRow> rows;
};

// mse is error's power by signal's power.
struct StorageRow {
  std::string source, side, codec;
  std::optional<std::uint64_t> head_dim, values;
  double bits_stored = 0, mse = 0;
  std::optional<double> theory_mse, shannon_mse, max_error;
};

struct AttentionRow {
  std::string source, k, v;
  double bits_stored = 0;
  std::optional<double> logit_error, kl, output_error;
};

struct Distort {
  Origin origin;
  std::vector<StorageRow> rows;
  std::vector<AttentionRow> attention;
};

// One codec, or the model's own cache, with which all are compared. docs/eval.md defines the numbers.
struct EvalRow {
  enum class Kind { reference, rota, simulated, engine };  // engine: a cache of its own, measured
  std::string codec;
  Kind kind = Kind::rota;
  bool rotated = false;
  double bits_stored = 0;
  std::optional<double> kld_mean, perplexity;  // missing where only time was measured
  std::optional<double> kld_p99, kld_max, top1, attention_error_mean, attention_error_worst, sealed_share;
  std::vector<double> attention_errors;                                              // of each layer
  std::map<std::uint64_t, double> bytes;                                             // by tokens of the context
  std::map<std::uint64_t, double> ms_per_token, ms_per_token_p10, ms_per_token_p90;  // by tokens in the cache
};

struct Eval {
  Origin origin;
  std::string model, weights, text;  // weights: the file that the model's come from, if it is another
  std::optional<std::uint64_t> tokens, chunk;
  std::vector<EvalRow> rows;
};

struct ReportData {
  std::vector<Bench> bench;
  std::vector<Distort> distort;
  std::vector<Eval> eval;
};

// Throws Failure, which names the file, the row, the key, what was found and what was wanted.
ReportData read_reports(const std::vector<std::string>& paths);

}  // namespace rota::tool
