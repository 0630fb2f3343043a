#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/fields.h"

// What `rota bench` and `rota distort` wrote, read back. A file may come from anywhere: whatever is in these structs
// was checked.

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
  bool noisy = false;
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

struct ReportData {
  std::vector<Bench> bench;
  std::vector<Distort> distort;
};

// Throws Failure, which names the file, the row, the key, what was found and what was wanted.
ReportData read_reports(const std::vector<std::string>& paths);

}  // namespace rota::tool
