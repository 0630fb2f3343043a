#include "world.h"

// Sequences of llama.cpp's in Rota's cache: whatever becomes of them, they say what each would say alone.

namespace rota_llama {
namespace {

using Text = std::vector<llama_token>;

Text part(const Text& from, size_t begin, size_t end) {
  return {from.begin() + std::ptrdiff_t(begin), from.begin() + std::ptrdiff_t(end)};
}

// Three texts with tokens in common, more than Gemma's window has, each then with its own.
constexpr size_t kShared = 600, kOwn = 40, kSaid = 12;

std::vector<Text> three_texts(const llama_model* model) {
  const Text all = text_tokens(model, kShared + 3 * kOwn);
  std::vector<Text> texts;
  for (size_t i = 0; i < 3; ++i) {
    texts.push_back(part(all, 0, kShared));
    const Text own = part(all, kShared + i * kOwn, kShared + (i + 1) * kOwn);
    texts.back().insert(texts.back().end(), own.begin(), own.end());
  }
  return texts;
}

Text alone(llama_model* model, const Options& options, const Text& tokens) {
  Context context(model, options);
  EXPECT_EQ(context.decode(0, 0, part(tokens, 0, kShared)), 0);
  EXPECT_EQ(context.decode(0, kShared, part(tokens, kShared, kShared + kOwn - 1), 1), 0);
  EXPECT_EQ(context.decode(0, kShared + kOwn - 1, {tokens.back()}), 0);
  return context.greedy(0, kShared + kOwn, kSaid);
}

// The prompt once, forks, mixed batches in an order of their own, and a rollback on the way. Gives what each says.
std::vector<Text> together(llama_model* model, Options options, const std::vector<Text>& texts, size_t rollback) {
  options.n_seq_max = 3;
  Context context(model, options);
  EXPECT_EQ(context.decode(0, 0, part(texts[0], 0, kShared)), 0);
  llama_memory_seq_cp(context.memory(), 0, 1, -1, -1);
  llama_memory_seq_cp(context.memory(), 0, 2, -1, -1);
  std::vector<size_t> at(3, kShared);
  std::vector<Text> said(3);
  bool rolled_back = rollback == 0;
  const auto all_said = [&] {
    return std::all_of(said.begin(), said.end(), [](auto& one) { return one.size() == kSaid; });
  };
  while (!all_said()) {
    std::vector<Entry> batch;
    std::vector<int> last(3, -1);
    for (const size_t s : {2, 0, 1, 2}) {
      const bool next_is_said = at[s] >= kShared + kOwn;
      if (said[s].size() == kSaid || (next_is_said && (last[s] >= 0 || said[s].empty()))) continue;
      const llama_token token = next_is_said ? said[s].back() : texts[s][at[s]];
      last[s] = int(batch.size());
      batch.push_back({{llama_seq_id(s)}, llama_pos(at[s]++), token});
    }
    EXPECT_EQ(context.decode(batch), 0);
    if (testing::Test::HasFailure()) return said;
    for (size_t s = 0; s < 3; ++s) {
      if (last[s] >= 0 && at[s] >= kShared + kOwn) said[s].push_back(context.best(last[s]));
    }
    if (!rolled_back && at[1] == kShared + 30) {
      rolled_back = true;
      EXPECT_TRUE(llama_memory_seq_rm(context.memory(), 1, llama_pos(at[1] - rollback), -1));
      at[1] -= rollback;
    }
  }
  return said;
}

struct Setting {
  const char* name;
  const char* rota;
  bool gemma, unified;
};

class Sequences : public testing::TestWithParam<Setting> {
 public:
  static llama_model* model() { return in_f16(GetParam().gemma ? given.gemma : given.smollm2); }
};

TEST_P(Sequences, ForksRollbacksAndMixedBatchesSayWhatSeparateRunsSay) {
  const std::vector<Text> texts = three_texts(model());
  Options options;
  options.rota = GetParam().rota;
  options.unified = GetParam().unified;
  options.n_ctx = options.unified ? 2048 : 3 * 1024;
  const std::vector<Text> said = together(model(), options, texts, 20);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(said[i], alone(model(), options, texts[i])) << i;
}

INSTANTIATE_TEST_SUITE_P(All, Sequences,
                         testing::Values(Setting{"smollm2_f16", "f16", false, true},
                                         Setting{"smollm2_turbo4", "turbo4", false, true},
                                         Setting{"smollm2_turbo8_of_each_stream", "turbo8", false, false},
                                         Setting{"gemma_turbo4", "turbo4", true, true}),
                         [](const auto& info) { return info.param.name; });

TEST(Sequence, TokensOfSeveralSequencesAreTheSameAsTokensOfEach) {
  llama_model* const model = in_f16(given.smollm2);
  const Text tokens = text_tokens(model, 120);
  // 100 tokens in common, and 4 of each sequence's own; or all of each on its own.
  const auto logits_of = [&](bool coupled) {
    Options options;
    options.n_seq_max = 3;
    Context context(model, options);
    std::vector<Entry> batch;
    for (llama_pos pos = 0; coupled && pos < 100; ++pos) batch.push_back({{1, 0, 2}, pos, tokens[size_t(pos)]});
    std::vector<int> last;
    for (llama_seq_id s = 0; s < 3; ++s) {
      for (llama_pos pos = coupled ? 100 : 0; pos < 104; ++pos) {
        batch.push_back({{s}, pos, tokens[size_t(pos < 100 ? pos : pos + 4 * s)]});
      }
      last.push_back(int(batch.size()) - 1);
    }
    EXPECT_EQ(context.decode(batch), 0);
    std::vector<std::vector<float>> found;
    for (const int i : last) found.push_back(context.logits(i));
    for (llama_seq_id s = 0; s < 3; ++s) EXPECT_EQ(llama_memory_seq_pos_max(context.memory(), s), 103);
    return found;
  };
  const auto wanted = logits_of(false), found = logits_of(true);
  // Rounding is 2^-11 of f16 activations, in other places if an f32 sum ends on the other side.
  for (size_t s = 0; s < 3; ++s) EXPECT_LT(normalized_error(found[s], wanted[s]), 1e-6) << s;
  EXPECT_GT(normalized_error(found[0], found[1]), 1e-3) << "each has its own end";
}

TEST(Sequence, SequencesThatDifferCannotShareATokenAndThatIsNoCrash) {
  Options options;
  options.n_seq_max = 2;
  Context context(smollm2(), options);
  EXPECT_EQ(context.decode({{{0}, 0, 1}, {{1}, 0, 2}}), 0);
  logged().clear();
  EXPECT_EQ(context.decode({{{0, 1}, 1, 3}}), 1);
  EXPECT_NE(logged().find("not the same before it"), std::string::npos) << logged();
  EXPECT_EQ(context.decode({{{0}, 1, 3}, {{1}, 1, 3}}), 0);
}

TEST(Sequence, OnlyTheNewestTokensCanBeRemoved) {
  Context context(smollm2(), {});
  const Text tokens = text_tokens(smollm2(), 400);
  EXPECT_EQ(context.decode(0, 0, tokens), 0);
  const llama_memory_t memory = context.memory();
  EXPECT_FALSE(llama_memory_seq_rm(memory, 0, 100, 200)) << "from the middle";
  EXPECT_FALSE(llama_memory_seq_rm(memory, 0, 0, 200)) << "from the front";
  EXPECT_FALSE(llama_memory_seq_rm(memory, -1, 10, 20)) << "of any sequence";
  EXPECT_EQ(llama_memory_seq_pos_max(memory, 0), 399);
  EXPECT_EQ(llama_memory_seq_pos_min(memory, 0), 0);
  EXPECT_TRUE(llama_memory_seq_rm(memory, 0, 400, -1)) << "nothing";
  EXPECT_TRUE(llama_memory_seq_rm(memory, 0, 20, -1)) << "into a sealed page";
  EXPECT_EQ(llama_memory_seq_pos_max(memory, 0), 19);
  EXPECT_EQ(context.decode(0, 20, part(tokens, 20, 30)), 0);
  EXPECT_TRUE(llama_memory_seq_rm(memory, -1, -1, -1));
  EXPECT_EQ(llama_memory_seq_pos_max(memory, 0), -1);
  EXPECT_EQ(context.decode(0, 7, part(tokens, 0, 10)), 0) << "a text may begin anywhere";
  EXPECT_EQ(llama_memory_seq_pos_min(memory, 0), 7);
}

TEST(Sequence, KeepAndCopyFollowLlamaCpp) {
  Options options;
  options.n_seq_max = 4;
  Context context(smollm2(), options);
  const llama_memory_t memory = context.memory();
  const Text tokens = text_tokens(smollm2(), 300);
  EXPECT_EQ(context.decode(2, 0, tokens), 0);
  llama_memory_seq_cp(memory, 2, 0, -1, 150);
  EXPECT_EQ(llama_memory_seq_pos_max(memory, 0), 149);
  llama_memory_seq_cp(memory, 2, 0, -1, -1);
  EXPECT_EQ(llama_memory_seq_pos_max(memory, 0), 299) << "the rest of the same text";
  llama_memory_seq_cp(memory, 2, 0, 0, 200);
  EXPECT_EQ(llama_memory_seq_pos_max(memory, 0), 299) << "a copy of what is there changes nothing";
  llama_memory_seq_keep(memory, 0);
  EXPECT_EQ(llama_memory_seq_pos_max(memory, 2), -1);
  EXPECT_EQ(llama_memory_seq_pos_max(memory, 0), 299);
  llama_memory_seq_cp(memory, 0, 3, 100, -1);
  EXPECT_EQ(context.decode({{{3}, 300, 1}}), 1) << "a copy without its beginning";
  llama_memory_seq_rm(memory, 3, -1, -1);
  EXPECT_EQ(context.decode({{{3}, 0, 1}}), 0);
}

TEST(Sequence, AShiftIsRefusedAtTheNextTokenAndNotBefore) {
  Context context(smollm2(), {});
  EXPECT_FALSE(llama_memory_can_shift(context.memory()));
  EXPECT_EQ(context.decode(0, 0, text_tokens(smollm2(), 20)), 0);
  llama_memory_seq_add(context.memory(), 0, 10, -1, -5);
  EXPECT_EQ(context.decode({{{0}, 20, 1}}), 1);
  llama_memory_clear(context.memory(), true);
  EXPECT_EQ(context.decode({{{0}, 0, 1}}), 0);
}

TEST(Sequence, CellsAreCountedAsLlamaCppCountsThem) {
  Options options;
  options.n_ctx = 512;
  options.n_seq_max = 4;
  Context context(smollm2(), options);
  const Text tokens = text_tokens(smollm2(), 600);
  EXPECT_EQ(context.decode(0, 0, part(tokens, 0, 500)), 0);
  for (llama_seq_id s = 1; s < 4; ++s) llama_memory_seq_cp(context.memory(), 0, s, -1, -1);
  std::vector<Entry> batch;
  for (llama_seq_id s = 0; s < 4; ++s) {
    for (llama_pos pos = 500; pos < 503; ++pos) batch.push_back({{s}, pos, tokens[size_t(pos)]});
  }
  EXPECT_EQ(context.decode(batch), 0) << "500 shared, and 12";
  EXPECT_EQ(context.decode({{{0}, 503, 1}}), 1) << "all 512 are taken";
  EXPECT_TRUE(llama_memory_seq_rm(context.memory(), 3, -1, -1));
  EXPECT_EQ(context.decode({{{0}, 503, 1}, {{0}, 504, 1}, {{0}, 505, 1}}), 0);
  EXPECT_EQ(context.decode({{{0}, 506, 1}}), 1);
  EXPECT_EQ(context.decode({{{0}, 600, 1}}), -1) << "a gap";
}

TEST(Sequence, AWindowSaysWhatItStillHas) {
  Context context(gemma(), {});
  const Text tokens = text_tokens(gemma(), 1600);
  EXPECT_EQ(context.decode(0, 0, tokens), 0);
  const llama_pos first = llama_memory_seq_pos_min(context.memory(), 0);
  EXPECT_GT(first, 0);
  EXPECT_LT(first, 1600 - 512);
  EXPECT_FALSE(llama_memory_seq_rm(context.memory(), 0, first + 511, -1)) << "what it would see is gone";
  EXPECT_EQ(llama_memory_seq_pos_max(context.memory(), 0), 1599);
  EXPECT_TRUE(llama_memory_seq_rm(context.memory(), 0, first + 512, -1));
  EXPECT_EQ(context.decode(0, first + 512, part(tokens, size_t(first) + 512, 1600)), 0);
}

}  // namespace
}  // namespace rota_llama
