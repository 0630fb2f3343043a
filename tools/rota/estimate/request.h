#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/numbers.h"
#include "cli/options.h"
#include "model/model.h"
#include "rota/kv_spec.h"

// What `rota estimate` is asked: of which model, and held against which memory.

namespace rota::tool {

struct EstimateOptions {
  std::string model{};
  bool list_models = false, fit = false, beyond = false;
  std::uint64_t layers = 0, kv_heads = 0, head_dim = 0, value_dim = 0, window = 0;
  std::vector<std::string> groups{};
  std::vector<std::uint64_t> contexts{};
  CodecLists codecs{};
  std::uint64_t sequences = 1, step_tokens = KvCacheSpec{}.max_step_tokens;
  std::uint64_t page = CacheOptions{}.page, tail = CacheOptions{}.tail, sinks = CacheOptions{}.sinks;
  std::string device = "cpu";
  std::string memory{}, weights{}, reserve{};
  Output output = Output::text;
};

// What a cache is held against.
struct MemoryBudget {
  std::string of;
  std::uint64_t all = 0, weights = 0, reserved = 0;

  std::uint64_t left() const noexcept {
    const std::uint64_t taken = saturating_add(weights, reserved);
    return all > taken ? all - taken : 0;
  }
};

[[noreturn]] void fail_usage(std::string what, std::string next = "rota estimate --help");

// Fails by the option's name where the number is 2^32 or more.
std::uint32_t narrowed(const std::string& option, std::uint64_t number);

// Fails where options do not go together.
void check(const EstimateOptions& options);

Model chosen_model(const EstimateOptions& options);
MemoryBudget chosen_memory(const EstimateOptions& options, const Model& model);

}  // namespace rota::tool
