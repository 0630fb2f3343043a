#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "distort/arrays.h"
#include "rota/result.h"

// What `rota distort` measures on: heads' keys and values and the queries that meet them, recorded or random.

namespace rota::tool {

inline constexpr std::uint64_t kFirstQuery = 256;  // queries before it have little or nothing sealed to see

// Where a capture came from, as far as names and shapes tell.
struct HeadName {
  std::string name{};  // "L00_g0", "layer0 head 3"
  std::optional<std::uint64_t> layer{}, head{};
};

// One KV head.
struct Capture {
  HeadName head{};
  std::string key_name{}, value_name{};  // whom an error is about
  std::vector<float> keys{}, values{};   // [token][dim]; as seal reads them where they are not finite
  std::vector<float> queries{};          // [query head][token][dim]; empty where there are none
};

// Layer and head by the numbers in a name: 0 and 2 of "L00_g2" and of "layers.0.head.2".
HeadName head_name(const std::string& name);

// Whether pages may have heads of so many numbers.
Status check_head_dim(std::uint64_t dim);

// One layer's arrays, or one head's. Shapes agree with each other.
struct CaptureFiles {
  std::string name{};
  std::optional<ArrayFile> queries{};
  ArrayFile keys{}, values{};
  std::uint64_t kv_heads = 1, query_heads = 0;  // query heads of all KV heads
  bool tokens_before_heads = false;             // queries are [token][query head][dim]
};

// Captures of one shape. Recorded ones are read when they are asked for: all of them may be larger than the memory.
struct Source {
  std::string name{};
  std::uint64_t tokens = 0, dim = 0;
  std::uint64_t heads = 0, heads_without_queries = 0;
  double softmax_scale = 0;
  // Shannon's bound at 0 bits, by the power of what is coded: 1 for normal numbers.
  double entropy_power = 1;
  std::vector<CaptureFiles> files{};
  std::vector<Capture> captures{};  // of random numbers
};

// What reading changed.
struct Changed {
  // NaN, infinite or beyond f16.
  std::uint64_t non_finite_keys = 0, non_finite_values = 0;
  std::uint64_t rounded = 0;  // numbers of f64 that f32 does not hold
};

// The file whose numbers take most while its heads are read, and how much that is. None of random numbers.
struct LargestFile {
  std::string name{};
  std::uint64_t bytes = 0;
};

LargestFile largest_file(const Source& source);

// Gives a source's heads, in order. Throws what names the file that is wrong.
class CaptureReader {
 public:
  explicit CaptureReader(const Source& source) : source_(source) {}

  std::optional<Capture> next();
  const Changed& changed() const { return changed_; }

 private:
  void open(const CaptureFiles& files);
  Capture head(const CaptureFiles& files);

  const Source& source_;
  std::size_t file_ = 0, head_ = 0;
  Array queries_{}, keys_{}, values_{};  // of file_, while head_ is not 0
  Changed changed_{};
};

// A .npz file, one of NAME_q, NAME_k and NAME_v, or a folder of any of them, each .npy or .raw. Throws what names the
// file that is wrong.
Source open_source(const std::filesystem::path& path);

inline const std::vector<std::string> kDistributions{"gaussian", "laplace", "student_t3"};

// Independent numbers of variance 1, the same in every run. `distribution` is one of kDistributions.
Source random_source(const std::string& distribution, std::uint64_t dim);

}  // namespace rota::tool
