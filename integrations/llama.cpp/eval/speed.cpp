#include "speed.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <regex>

#include "failure.h"
#include "statistics.h"

namespace rota::eval {
namespace {

constexpr std::uint32_t kRun = 8;     // tokens that are decoded before they are rolled back
constexpr std::uint32_t kRoom = 256;  // behind the largest depth

// The text, again and again where it is too short: speed does not depend on what is said.
Tokens tokens_of(const llama_model& model, const Options& options, std::uint32_t wanted) {
  Tokens tokens = read_tokens(model, options.text);
  const std::size_t period = tokens.size();
  while (tokens.size() < wanted) tokens.push_back(tokens[tokens.size() - period]);
  return tokens;
}

double ms_of_step(Sequence& sequence, const Tokens& tokens) {
  const auto begin = std::chrono::steady_clock::now();
  sequence.decode(tokens.data() + sequence.depth(), 1, Sequence::Outputs::all);
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

// By turns, so that what disturbs the machine disturbs all caches alike.
std::vector<Timing> time_depth(std::vector<Sequence>& sequences, const Tokens& tokens, std::uint32_t rounds) {
  std::vector<std::vector<double>> ms(sequences.size());
  for (std::uint32_t round = 0; round < rounds + 1; ++round) {
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      const std::uint32_t depth = sequences[i].depth();
      for (std::uint32_t step = 0; step < kRun; ++step) {
        const double taken = ms_of_step(sequences[i], tokens);
        if (round > 0) ms[i].push_back(taken);  // the first round only warms up
      }
      sequences[i].roll_back_to(depth);
    }
  }
  std::vector<Timing> timings;
  for (const auto& one : ms) timings.push_back({quantile(one, 0.5), quantile(one, 0.1), quantile(one, 0.9)});
  return timings;
}

Pause pause_of(const std::vector<double>& ms, std::uint32_t from) {
  const auto longest = std::max_element(ms.begin(), ms.end());
  return {quantile(ms, 0.5), quantile(ms, 0.99), *longest, from + static_cast<std::uint32_t>(longest - ms.begin())};
}

}  // namespace

Sizes speed_sizes(const Options& options) { return {options.depths.back() + kRoom}; }

std::vector<Timings> measure_speed(Engine& engine, const Options& options) {
  const llama_model_ptr model = engine.load();
  const Tokens tokens = tokens_of(*model, options, options.depths.back() + kRun);
  std::vector<Sequence> sequences = open_all(engine, *model, options.caches, speed_sizes(options));
  std::vector<Timings> result(sequences.size());
  for (const std::uint32_t depth : options.depths) {
    std::fprintf(stderr, "speed: behind %u tokens\n", depth);
    for (Sequence& sequence : sequences) sequence.fill_up_to(depth, tokens);
    const std::vector<Timing> timings = time_depth(sequences, tokens, options.rounds);
    for (std::size_t i = 0; i < sequences.size(); ++i) result[i][depth] = timings[i];
  }
  return result;
}

std::vector<Pause> measure_pauses(Engine& engine, const Options& options) {
  const Options::Steps steps = *options.pause;
  const llama_model_ptr model = engine.load();
  const Tokens tokens = tokens_of(*model, options, steps.to);
  std::vector<Sequence> sequences = open_all(engine, *model, options.caches, {steps.to});
  // Other programs make a step longer, and never shorter.
  std::vector<std::vector<double>> least(sequences.size(), std::vector<double>(steps.to - steps.from, 1e30));
  for (std::uint32_t repeat = 0; repeat < options.repeats; ++repeat) {
    std::fprintf(stderr, "pauses: run %u of %u\n", repeat + 1, options.repeats);
    for (Sequence& sequence : sequences) {
      sequence.clear();
      sequence.fill_up_to(steps.from, tokens);
    }
    for (std::uint32_t step = 0; step < steps.to - steps.from; ++step) {
      for (std::size_t i = 0; i < sequences.size(); ++i) {
        least[i][step] = std::min(least[i][step], ms_of_step(sequences[i], tokens));
      }
    }
  }
  std::vector<Pause> result;
  for (const auto& one : least) result.push_back(pause_of(one, steps.from));
  return result;
}

std::vector<Memory> measure_memory(Engine& engine, const Options& options) {
  // A cache of layers with a window and one of the others are logged one by one.
  static const std::regex size(R"(: size = +([0-9.]+) MiB( at most)? \( *[0-9]+ cells)");
  constexpr double kMiB = 1024.0 * 1024.0;
  const llama_model_ptr model = engine.load_without_weights();
  std::vector<Memory> result;
  for (const Cache& cache : options.caches) {
    engine.check_served(cache, speed_sizes(options));
    engine.said();
    const llama_context_ptr context = engine.open(*model, cache, speed_sizes(options));
    const std::string said = engine.said();
    Memory memory;
    memory.context = llama_n_ctx(context.get());
    for (auto at = std::sregex_iterator(said.begin(), said.end(), size); at != std::sregex_iterator(); ++at) {
      memory.bytes += std::llround(std::stod((*at)[1]) * kMiB);
    }
    if (memory.bytes == 0) engine.fail("llama.cpp does not log the size of cache " + cache.name);
    memory.rotated = said.find("attn_rot_k = 1") != std::string::npos;
    result.push_back(memory);
  }
  return result;
}

}  // namespace rota::eval
