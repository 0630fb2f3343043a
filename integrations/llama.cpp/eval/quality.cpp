#include "quality.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "failure.h"
#include "statistics.h"

namespace rota::eval {
namespace {

// What was seen with one cache at all positions so far.
struct Seen {
  std::vector<double> surprises, divergences;  // nats
  std::size_t same = 0;

  void add(const Prediction& base, const Prediction& own, llama_token next) {
    surprises.push_back(-own.log_probability(static_cast<std::size_t>(next)));
    divergences.push_back(base.divergence_of(own));
    same += base.likeliest() == own.likeliest() ? 1U : 0U;
  }

  Quality quality() const {
    Quality result;
    result.positions = surprises.size();
    result.perplexity = std::exp(mean(surprises));
    result.kld_mean = mean(divergences);
    result.kld_standard_error = standard_error(divergences);
    result.kld_median = quantile(divergences, 0.5);
    result.kld_p99 = quantile(divergences, 0.99);
    result.kld_max = quantile(divergences, 1);
    result.top1 = static_cast<double>(same) / static_cast<double>(surprises.size());
    return result;
  }
};

Tokens tokens_of(const llama_model& model, const Options& options) {
  Tokens tokens = read_tokens(model, options.text);
  const std::uint64_t wanted = std::uint64_t{options.tokens} * options.chunks;
  if (tokens.size() < wanted) {
    throw Failure(Exit::failed, "the text '" + options.text + "' has " + std::to_string(tokens.size()) +
                                    " tokens; wanted " + std::to_string(wanted) + ", " +
                                    std::to_string(options.chunks) + " chunks of " + std::to_string(options.tokens));
  }
  const llama_vocab* const vocab = llama_model_get_vocab(&model);
  if (llama_vocab_get_add_bos(vocab)) {
    for (std::uint64_t i = 0; i < wanted; i += options.tokens) tokens[i] = llama_vocab_bos(vocab);
  }
  return tokens;
}

// A chunk step by step, each with all caches by turns: the logits of one step are all that is in memory. The first half
// is context only, as with llama-perplexity.
void read_chunk(const llama_token* tokens, const Options& options, std::vector<Sequence>& sequences,
                std::vector<Seen>& seen) {
  const auto vocabulary = static_cast<std::size_t>(sequences.front().vocabulary());
  for (Sequence& sequence : sequences) sequence.clear();
  for (std::uint32_t begin = 0; begin < options.tokens; begin += options.ubatch) {
    const std::uint32_t count = std::min(options.ubatch, options.tokens - begin), end = begin + count;
    const bool scored = end > options.tokens / 2;
    for (Sequence& sequence : sequences) {
      sequence.decode(tokens + begin, count, scored ? Sequence::Outputs::all : Sequence::Outputs::none);
    }
    for (std::uint32_t at = std::max(begin, options.tokens / 2); at < std::min(end, options.tokens - 1); ++at) {
      const Prediction base(sequences.front().logits(at - begin), vocabulary);
      for (std::size_t i = 0; i < sequences.size(); ++i) {
        seen[i].add(base, Prediction(sequences[i].logits(at - begin), vocabulary), tokens[at + 1]);
      }
    }
  }
}

}  // namespace

std::vector<Quality> measure_quality(Engine& engine, const Options& options) {
  const Tokens tokens = tokens_of(*engine.load_without_weights(), options);  // a short text is found at once
  const llama_model_ptr model = options.as_is ? engine.load() : engine.load_in_f32();
  std::vector<Sequence> sequences = open_all(engine, *model, options.caches, {options.tokens, options.ubatch});
  std::vector<Seen> seen(sequences.size());
  for (std::uint32_t chunk = 0; chunk < options.chunks; ++chunk) {
    std::fprintf(stderr, "quality: chunk %u of %u\n", chunk + 1, options.chunks);
    read_chunk(tokens.data() + std::size_t{chunk} * options.tokens, options, sequences, seen);
  }
  std::vector<Quality> result;
  for (const Seen& one : seen) result.push_back(one.quality());
  return result;
}

}  // namespace rota::eval
