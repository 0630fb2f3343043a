#include <random>

#include "world.h"

// llama_state_*: what is restored goes on with the same bits, and what is damaged is refused.

namespace rota_llama {
namespace {

std::vector<uint8_t> saved(const Context& context, llama_seq_id seq_id) {
  std::vector<uint8_t> bytes(llama_state_seq_get_size(context.get(), seq_id));
  bytes.resize(llama_state_seq_get_data(context.get(), bytes.data(), bytes.size(), seq_id));
  return bytes;
}

std::vector<float> next_logits(Context& context, llama_seq_id seq_id, llama_pos pos) {
  EXPECT_EQ(context.decode(seq_id, pos, {100, 200, 300}, 1), 0);
  return context.logits();
}

void expect_the_same_bits(llama_model* model, const char* rota, size_t length) {
  Options options;
  options.rota = rota;
  options.n_seq_max = 2;
  Context first(model, options), second(model, options);
  EXPECT_EQ(first.decode(0, 0, text_tokens(model, length)), 0);
  const std::vector<uint8_t> bytes = saved(first, 0);
  ASSERT_GT(bytes.size(), 0U);
  const std::vector<float> wanted = next_logits(first, 0, llama_pos(length));
  EXPECT_EQ(second.decode(1, 0, {1, 2, 3}), 0) << "what is there is replaced";
  ASSERT_EQ(llama_state_seq_set_data(second.get(), bytes.data(), bytes.size(), 1), bytes.size());
  EXPECT_EQ(llama_memory_seq_pos_max(second.memory(), 1), llama_pos(length) - 1);
  EXPECT_EQ(next_logits(second, 1, llama_pos(length)), wanted) << "in another context";
  ASSERT_EQ(llama_state_seq_set_data(first.get(), bytes.data(), bytes.size(), 0), bytes.size());
  EXPECT_EQ(next_logits(first, 0, llama_pos(length)), wanted) << "where it came from";
}

TEST(State, ARestoredSequenceGoesOnWithTheSameBits) {
  for (const char* rota : {"f16", "turbo4"}) expect_the_same_bits(smollm2(), rota, 700);
  expect_the_same_bits(gemma(), "turbo4", 1100);
}

TEST(State, OfARestoredWindowTwoTokensCanBeTakenBackWithoutATail) {
  Options options;
  options.rota = "turbo4,tail=0";
  options.n_ctx = 3072;
  options.n_seq_max = 2;
  Context context(gemma(), options);
  const std::vector<llama_token> tokens = text_tokens(gemma(), 1149);
  EXPECT_EQ(context.decode(0, 0, tokens, 256), 0);
  // Windows are of 512, and at one of these lengths begin with a page.
  for (llama_pos length = 1150; length <= 1154; ++length) {
    EXPECT_EQ(context.decode(0, length - 1, {tokens[0]}), 0);
    const std::vector<uint8_t> bytes = saved(context, 0);
    ASSERT_EQ(llama_state_seq_set_data(context.get(), bytes.data(), bytes.size(), 1), bytes.size());
    EXPECT_TRUE(llama_memory_seq_rm(context.memory(), 1, length - 2, -1)) << length;
    EXPECT_EQ(context.decode(1, length - 2, {1, 2}), 0);
  }
}

TEST(State, AWholeContextHasItsSequencesAndTheirForks) {
  Options options;
  options.n_ctx = 1024;
  options.n_seq_max = 3;
  Context first(smollm2(), options), second(smollm2(), options);
  EXPECT_EQ(first.decode(0, 0, text_tokens(smollm2(), 600)), 0);
  EXPECT_EQ(first.decode(2, 0, text_tokens(smollm2(), 100)), 0);
  llama_memory_seq_cp(first.memory(), 0, 1, -1, -1);
  std::vector<uint8_t> bytes(llama_state_get_size(first.get()));
  bytes.resize(llama_state_get_data(first.get(), bytes.data(), bytes.size()));
  ASSERT_EQ(llama_state_set_data(second.get(), bytes.data(), bytes.size()), bytes.size())
      << "600 tokens twice do not fit, but they are the same";
  for (const llama_seq_id s : {0, 1, 2}) {
    EXPECT_EQ(next_logits(second, s, s == 2 ? 100 : 600), next_logits(first, s, s == 2 ? 100 : 600)) << s;
  }
}

TEST(State, WhatIsDamagedOrAnothersIsRefusedAndLeavesAContextThatWorks) {
  Context context(smollm2(), {});
  EXPECT_EQ(context.decode(0, 0, text_tokens(smollm2(), 300)), 0);
  const std::vector<uint8_t> bytes = saved(context, 0);
  std::mt19937 random(1);
  const auto restore = [&](const std::vector<uint8_t>& from) {
    return llama_state_seq_set_data(context.get(), from.data(), from.size(), 0);
  };
  for (const size_t size : {size_t{0}, size_t{3}, size_t{20}, bytes.size() / 2, bytes.size() - 1}) {
    EXPECT_EQ(restore({bytes.begin(), bytes.begin() + std::ptrdiff_t(size)}), 0U) << size;
  }
  for (int i = 0; i < 200; ++i) {
    std::vector<uint8_t> damaged = bytes;
    // The header's first bytes are few and say most.
    const size_t at = i < 100 ? random() % 400 : random() % bytes.size();
    damaged[at] = uint8_t(damaged[at] ^ (1U << random() % 8));
    const size_t read = restore(damaged);
    // The number of the sequence, its first position and the session's own header say nothing about the bytes.
    EXPECT_TRUE(read == 0 || at < 24) << at;
  }
  EXPECT_EQ(restore(bytes), bytes.size());
  EXPECT_EQ(llama_memory_seq_pos_max(context.memory(), 0), 299);

  Options own;
  own.rota = nullptr;
  Context other(smollm2(), own);
  EXPECT_EQ(other.decode(0, 0, text_tokens(smollm2(), 300)), 0);
  EXPECT_EQ(restore(saved(other, 0)), 0U) << "of llama.cpp's own cache";
  EXPECT_EQ(llama_state_seq_set_data(other.get(), bytes.data(), bytes.size(), 0), 0U) << "and the other way round";
  own.rota = "turbo8";
  Context eight(smollm2(), own);
  EXPECT_EQ(llama_state_seq_set_data(eight.get(), bytes.data(), bytes.size(), 0), 0U) << "of another codec";
  own.rota = "turbo4";
  own.n_ctx = 256;
  Context small(smollm2(), own);
  EXPECT_EQ(llama_state_seq_set_data(small.get(), bytes.data(), bytes.size(), 0), 0U) << "more than fits";
  EXPECT_EQ(small.decode(0, 0, {1, 2, 3}), 0);
}

}  // namespace
}  // namespace rota_llama
