#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "distort/arrays.h"
#include "rota/result.h"

// What `rota distort` measures on: one head's keys and values and the queries that meet them, recorded or random.

namespace rota::tool {

inline constexpr std::uint64_t kFirstQuery = 256;  // queries before it have little or nothing sealed to see

struct Capture {
  std::string key_name, value_name;  // whom an error is about
  Array queries;                     // [token, query head, dim]
  Array keys, values;                // [token, dim]; as seal reads them where they are not finite
  std::uint64_t non_finite_keys = 0, non_finite_values = 0;
};

// Whether pages may have heads of so many numbers.
Status check_head_dim(std::uint64_t dim);

// Captures of one shape.
struct Source {
  std::string name;
  std::vector<Capture> captures;
  double softmax_scale = 0;
  // Shannon's bound at 0 bits, by the power of what is coded: 1 for normal numbers.
  double entropy_power = 1;

  std::uint64_t tokens() const { return captures.front().keys.shape[0]; }
  std::uint64_t dim() const { return captures.front().keys.shape[1]; }
  std::uint64_t query_heads() const { return captures.front().queries.shape[1]; }
};

// All NAME_q, NAME_k and NAME_v of a folder, .npy or .raw. Throws what names the file that is wrong.
Source read_source(const std::filesystem::path& folder);

inline const std::vector<std::string> kDistributions{"gaussian", "laplace", "student_t3"};

// Independent numbers of variance 1, the same in every run. `distribution` is one of kDistributions.
Source random_source(const std::string& distribution, std::uint64_t dim);

}  // namespace rota::tool
