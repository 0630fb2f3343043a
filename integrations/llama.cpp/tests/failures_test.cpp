#include <atomic>
#include <cstdio>

#include "world.h"

// What cannot be is said, and leaves the sequences as they were.

namespace rota_llama {
namespace {

TEST(Failure, AnAbortedGraphLeavesTheSequenceAsItWas) {
  std::atomic<int> nodes_left{-1};
  Options options;
  options.abort = [](void* left) { return static_cast<std::atomic<int>*>(left)->fetch_sub(1) == 0; };
  options.abort_user = &nodes_left;
  Context context(smollm2(), options);
  const std::vector<llama_token> tokens = text_tokens(smollm2(), 420);
  const auto run = [&](llama_pos from, llama_pos to) {
    return context.decode(0, from, {tokens.begin() + from, tokens.begin() + to});
  };
  EXPECT_EQ(run(0, 400), 0);
  constexpr int kMany = 1'000'000;
  nodes_left = kMany;
  EXPECT_EQ(run(400, 420), 0);
  const int all = kMany - nodes_left;
  const std::vector<float> wanted = context.logits();
  // Before the first attention, between two layers, and behind the last; then in a prompt that seals pages.
  for (const int nodes : {0, all / 3, all - 2}) {
    EXPECT_TRUE(llama_memory_seq_rm(context.memory(), 0, 400, -1));
    nodes_left = nodes;
    EXPECT_EQ(run(400, 420), 2) << nodes;
    nodes_left = -1;
    EXPECT_EQ(llama_memory_seq_pos_max(context.memory(), 0), 399) << nodes;
    EXPECT_EQ(run(400, 420), 0) << nodes;
    EXPECT_EQ(context.logits(), wanted) << nodes;
  }
  llama_memory_clear(context.memory(), true);
  nodes_left = all / 2;
  EXPECT_EQ(run(0, 400), 2);
  nodes_left = -1;
  EXPECT_EQ(llama_memory_seq_pos_max(context.memory(), 0), -1);
  EXPECT_EQ(run(0, 400), 0);
  EXPECT_EQ(run(400, 420), 0);
  EXPECT_EQ(context.logits(), wanted);
}

TEST(Failure, WhatAnOpCannotComputeIsAnErrorOfDecode) {
  Context context(gemma(), {});
  const std::vector<llama_token> tokens = text_tokens(gemma(), 50);
  EXPECT_EQ(context.decode(0, 0, tokens), 0);
  llama_set_causal_attn(context.get(), false);
  logged().clear();
  EXPECT_EQ(context.decode(0, 50, tokens), -3);
  EXPECT_NE(logged().find("without a causal mask in a layer with a window"), std::string::npos) << logged();
  EXPECT_EQ(llama_memory_seq_pos_max(context.memory(), 0), 49);
  llama_set_causal_attn(context.get(), true);
  EXPECT_EQ(context.decode(0, 50, tokens), 0);
}

TEST(Failure, OptionsAreCheckedAndTheSentenceSaysWhatIsPossible) {
  const std::pair<const char*, const char*> refused[] = {{"turbo9", "'turbo9' is no codec; there are"},
                                                         {"", "'' is no codec"},
                                                         {"k=", "'' is no codec"},
                                                         {"k=turbo4,", "'' is no codec"},
                                                         {"tail=x", "tail='x' is not"},
                                                         {"tail=99999999999", "is not a number"},
                                                         {"tail=-1", "is not a number"},
                                                         {"size=4", "'size' is unknown"},
                                                         {"turbo4,page=100", "page"}};
  for (const auto& [spec, sentence] : refused) {
    logged().clear();
    Options options;
    options.rota = spec;
    EXPECT_FALSE(Context(smollm2(), options).made()) << spec;
    EXPECT_NE(logged().find(sentence), std::string::npos) << spec << "\n" << logged();
  }
  for (const char* spec : {"k=turbo8,v=turbo4,tail=64,sinks=0,page=64,seal_within=0", "turbo4,tail=0", "bf16", "f32"}) {
    Options options;
    options.rota = spec;
    EXPECT_TRUE(Context(smollm2(), options).made()) << spec << "\n" << logged();
  }
}

TEST(Failure, AnotherTypeBesideRotaIsRefused) {
  logged().clear();
  Options options;
  options.type = GGML_TYPE_Q8_0;
  EXPECT_FALSE(Context(smollm2(), options).made());
  EXPECT_NE(logged().find("stands instead of --cache-type-k"), std::string::npos) << logged();
}

TEST(Failure, TheCacheIsNamedAndAtEightThousandCellsItIsSmall) {
  logged().clear();
  Options options;
  options.n_ctx = 8448;
  ASSERT_TRUE(Context(smollm2(), options).made());
  const size_t line = logged().find("llama_kv_rota: size =");
  ASSERT_NE(line, std::string::npos) << logged();
  double mib = 0;
  ASSERT_EQ(std::sscanf(logged().c_str() + line, "llama_kv_rota: size = %lf MiB", &mib), 1);
  EXPECT_LE(mib, 56) << "f16 has 186, q4_0 52";
  EXPECT_NE(logged().find("K (turbo4), V (turbo4)", line), std::string::npos);
}

TEST(Threads, MoreOfThemGiveTheSameBits) {
  std::vector<float> wanted;
  for (const int threads : {1, 2, 3}) {
    Options options;
    options.threads = threads;
    Context context(smollm2(), options);
    EXPECT_EQ(context.decode(0, 0, text_tokens(smollm2(), 500)), 0);
    EXPECT_EQ(context.decode(0, 500, {1, 2, 3}, 1), 0);
    if (threads == 1) wanted = context.logits();
    EXPECT_EQ(context.logits(), wanted) << threads;
  }
}

}  // namespace
}  // namespace rota_llama
