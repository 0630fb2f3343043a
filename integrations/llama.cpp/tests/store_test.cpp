#include <fstream>

#include "store_world.h"

// llama_rota_restore(): what one context stored another loads, and nothing that is not what the text says.

namespace rota_llama {
namespace {

constexpr size_t kPage = 64, kTail = 16;

// What is stored of so many tokens. The last step seals what is older than the tail before it.
constexpr size_t stored_of(size_t tokens, size_t tail = kTail) { return (tokens - 1 - tail) / kPage * kPage; }

Options options_of(const std::string& spec, uint32_t n_seq_max = 1) {
  Options options;
  options.rota = spec.c_str();
  options.n_ctx = 1024;
  options.n_seq_max = n_seq_max;
  return options;
}

// A text that parts from `text` at a place.
Text parted(const Text& text, size_t at) {
  Text result = text;
  std::reverse(result.begin() + std::ptrdiff_t(at), result.end());
  return result;
}

// All but the last token, and then this.
void decode(Context& context, llama_seq_id seq_id, size_t from, const Text& tokens) {
  EXPECT_EQ(context.decode(seq_id, llama_pos(from), part(tokens, from, tokens.size() - 1)), 0);
  EXPECT_EQ(context.decode(seq_id, llama_pos(tokens.size()) - 1, {tokens.back()}), 0);
}

void compute(llama_model* model, const std::string& spec, const Text& tokens) {
  Context context(model, options_of(spec));
  ASSERT_TRUE(context.made()) << logged();
  decode(context, 0, 0, tokens);
}

size_t restored(llama_model* model, const std::string& spec, const Text& tokens) {
  Context context(model, options_of(spec));
  EXPECT_TRUE(context.made()) << logged();
  return context.made() ? restore(context, 0, tokens) : 0;
}

// How far predictions are from those without a store. What is wrong by a page is wrong by far.
void expect_near(llama_model* model, Context& context, llama_seq_id seq_id, size_t from, const Text& tokens,
                 double most) {
  Context plain(model, options_of("f16"));
  EXPECT_EQ(plain.decode(0, 0, part(tokens, 0, from)), 0);
  const auto wanted = all_logits(plain, 0, from, tokens), found = all_logits(context, seq_id, from, tokens);
  EXPECT_LT(divergence(wanted, found), most);
}

// Products with quantized weights alone make 4e-3 of another order of additions; another text makes more than 1.
constexpr double kNear = 2e-2;

class Restored : public testing::TestWithParam<bool> {};

TEST_P(Restored, GoesOnWithTheBitsOfEveryOtherAndNearThoseOfTheOriginal) {
  const bool is_gemma = GetParam();
  llama_model* const model = in_f16(is_gemma ? given.gemma : given.smollm2);
  const size_t length = is_gemma ? 700 : 230, tail = 64, stored = stored_of(length, tail);
  const Text tokens = text_tokens(model, length);
  const Store store;
  const std::string spec = store.spec(",tail=64");
  logged().clear();
  std::vector<std::vector<float>> original;
  {
    Context context(model, options_of(spec));
    EXPECT_EQ(context.decode(0, 0, part(tokens, 0, stored)), 0);
    original = all_logits(context, 0, stored, part(tokens, 0, length - 1));
    EXPECT_EQ(context.decode(0, llama_pos(length) - 1, {tokens.back()}), 0);
  }
  EXPECT_NE(logged().find("stored " + std::to_string(stored / kPage) + " ("), std::string::npos) << logged();
  std::vector<std::vector<float>> first;
  for (const size_t there : {size_t{0}, size_t{100}}) {
    Context context(model, options_of(spec));
    EXPECT_EQ(context.decode(0, 0, part(tokens, 0, there)), 0) << "it is replaced";
    ASSERT_EQ(restore(context, 0, tokens, there), stored);
    EXPECT_EQ(llama_memory_seq_pos_max(context.memory(), 0), llama_pos(stored) - 1);
    const auto found = all_logits(context, 0, stored, part(tokens, 0, length - 1));
    EXPECT_LT(divergence(original, found), is_gemma ? 1e-4 : 2e-5) << "turbo8 in tests/test_quality.py: 2e-5";
    if (there == 0) first = found;
    EXPECT_EQ(found, first);
    EXPECT_EQ(restore(context, 0, tokens, length - 1), length - 1) << "it has more than is stored";
  }
}

INSTANTIATE_TEST_SUITE_P(All, Restored, testing::Values(false, true),
                         [](const auto& info) { return info.param ? "gemma" : "smollm2"; });

TEST(Stored, AfterARollbackAnotherTextIsThatTextAndForksAreTheirs) {
  llama_model* const model = smollm2();
  constexpr size_t kLength = 150;
  const Text text = text_tokens(model, kLength), second = parted(text, 70), third = parted(text, 100);
  const Store store;
  const std::string spec = store.spec();
  {
    Context context(model, options_of(spec, 2));
    decode(context, 0, 0, part(text, 0, 130));
    llama_memory_seq_cp(context.memory(), 0, 1, -1, -1);
    EXPECT_TRUE(llama_memory_seq_rm(context.memory(), 0, 70, -1));
    EXPECT_TRUE(llama_memory_seq_rm(context.memory(), 1, 100, -1));
    EXPECT_EQ(context.decode(0, 70, part(second, 70, 110)), 0);
    decode(context, 0, 110, second);
    decode(context, 1, 100, third);
    // The first text goes on behind what was stored of it, in the sequence of another.
    EXPECT_EQ(restore(context, 0, text), kPage);
    decode(context, 0, kPage, text);
  }
  Context context(model, options_of(spec));
  for (const Text& one : {text, second, third}) {
    EXPECT_EQ(restore(context, 0, one), stored_of(kLength));
    expect_near(model, context, 0, stored_of(kLength), one, kNear);
    llama_memory_clear(context.memory(), true);
  }
  EXPECT_EQ(restore(context, 0, parted(text, 65)), kPage) << "one page has the same tokens";
}

TEST(Stored, NothingIsFoundByOtherWeightsRopeSaltsOrCodecs) {
  llama_model* const model = smollm2();
  const Text text = text_tokens(model, 150);
  const Store store;
  const std::string salt = ",salt_file=" + store.file("salt", "0123456789abcdef");
  const std::string other_salt = ",salt_file=" + store.file("other", "0123456789abcdeg");
  compute(model, store.spec(), text);
  compute(model, store.spec(salt), text);
  EXPECT_EQ(restored(model, store.spec(), text), stored_of(150));
  EXPECT_EQ(restored(model, store.spec(salt), text), stored_of(150));
  EXPECT_EQ(restored(model, store.spec(",tail=128"), text), stored_of(150)) << "tails may differ";
  EXPECT_EQ(restored(model, store.spec(other_salt), text), 0U);
  EXPECT_EQ(restored(model, store.spec(",weights=smollm2%2C q4_1"), text), 0U);
  EXPECT_EQ(restored(model, store.spec(",k=turbo4"), text), 0U);
  EXPECT_EQ(restored(in_f16(given.smollm2), store.spec(), text), 0U);

  Options scaled = options_of("");
  const std::string spec = store.spec();
  scaled.rota = spec.c_str();
  scaled.rope_freq_scale = 0.5F;
  Context context(model, scaled);
  EXPECT_EQ(restore(context, 0, text), 0U) << "a scaled rope";

  // One bit of the last tensor's last byte.
  const std::string changed = store.file("changed.gguf", "");
  std::filesystem::copy_file(given.smollm2, changed, std::filesystem::copy_options::overwrite_existing);
  std::fstream file(changed, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(-1, std::ios::end);
  const char last = char(file.get());
  file.seekp(-1, std::ios::end);
  file.put(char(last ^ 1));
  file.close();
  const llama_model_ptr another(load(changed));
  EXPECT_EQ(restored(another.get(), store.spec(), text), 0U);
}

TEST(Stored, WithAnAdapterNothingIsStoredAndNothingIsRestored) {
  llama_model* const model = smollm2();
  const Text text = text_tokens(model, 150);
  const Store store;
  const std::string spec = store.spec();
  const std::string path = store.file("lora.gguf", "");
  write_lora(model, path);
  llama_adapter_lora* lora = llama_adapter_lora_init(model, path.c_str());
  ASSERT_NE(lora, nullptr) << logged();
  const auto n_embd = size_t(llama_model_n_embd(model));
  const std::vector<float> directions(n_embd * size_t(llama_model_n_layer(model)), 0.1F);
  float scale = 1;
  const auto set = [&](Context& context, bool by_lora, bool on) {
    if (by_lora) {
      llama_set_adapters_lora(context.get(), &lora, on ? 1 : 0, &scale);
    } else {
      llama_set_adapter_cvec(context.get(), on ? directions.data() : nullptr, directions.size(), int(n_embd), 1, 9);
    }
  };
  for (const bool by_lora : {true, false}) {
    Context context(model, options_of(spec));
    // The second step is the first's graph, but for the adapter, and so is the third.
    EXPECT_EQ(context.decode(0, 0, part(text, 0, 40)), 0);
    set(context, by_lora, true);
    EXPECT_EQ(context.decode(0, 40, part(text, 40, 80)), 0);
    set(context, by_lora, false);
    EXPECT_EQ(context.decode(0, 80, part(text, 80, 150), 40), 0);
  }
  EXPECT_EQ(store.objects().size(), 0U);
  compute(model, spec, text);
  EXPECT_EQ(store.objects().size(), stored_of(150) / kPage);
  for (const bool by_lora : {true, false}) {
    Context context(model, options_of(spec));
    set(context, by_lora, true);
    EXPECT_EQ(restore(context, 0, text), 0U);
    set(context, by_lora, false);
    EXPECT_EQ(restore(context, 0, text), stored_of(150));
  }
  llama_adapter_lora_free(lora);
}

TEST(Stored, WhatHasNoTokensOrNoBeginningOrNoCausalMaskIsNotStored) {
  llama_model* const model = smollm2();
  const Text text = text_tokens(model, 150);
  const Store store;
  const std::string spec = store.spec();
  Context context(model, options_of(spec, 2));
  EXPECT_EQ(context.decode(0, 7, text, 75), 0) << "it begins with another position";
  llama_batch batch = llama_batch_init(100, llama_model_n_embd(model), 1);
  for (batch.n_tokens = 0; batch.n_tokens < 100; ++batch.n_tokens) {
    batch.pos[batch.n_tokens] = batch.n_tokens;
    batch.n_seq_id[batch.n_tokens] = 1;
    batch.seq_id[batch.n_tokens][0] = 1;
    batch.logits[batch.n_tokens] = 0;
  }
  std::fill(batch.embd, batch.embd + 100 * llama_model_n_embd(model), 0.1F);
  batch.logits[99] = 1;
  EXPECT_EQ(llama_decode(context.get(), batch), 0);
  llama_batch_free(batch);
  EXPECT_EQ(context.decode(1, 100, part(text, 100, 150), 25), 0) << "behind what has no tokens";
  EXPECT_TRUE(llama_memory_seq_rm(context.memory(), 0, -1, -1));
  llama_set_causal_attn(context.get(), false);
  EXPECT_EQ(context.decode(0, 0, part(text, 0, 100)), 0);
  llama_set_causal_attn(context.get(), true);
  EXPECT_EQ(context.decode(0, 100, part(text, 100, 150), 25), 0);
  llama_memory_clear(context.memory(), true);
  EXPECT_EQ(restore(context, 0, text), 0U);
  compute(model, spec, text);
  EXPECT_EQ(store.objects().size(), stored_of(150) / kPage) << "nothing else was stored";
}

TEST(Stored, AStateTakesItsTokensAlong) {
  llama_model* const model = smollm2();
  const Text text = text_tokens(model, 150);
  const Store from, to;
  const std::string spec = from.spec(), other = to.spec(), renamed = to.spec(",weights=other");
  std::vector<uint8_t> bytes;
  {
    Context context(model, options_of(spec));
    EXPECT_EQ(context.decode(0, 0, part(text, 0, 100)), 0);
    bytes.resize(llama_state_seq_get_size(context.get(), 0));
    ASSERT_EQ(llama_state_seq_get_data(context.get(), bytes.data(), bytes.size(), 0), bytes.size());
  }
  for (const std::string& with : {renamed, other}) {
    Context context(model, options_of(with));
    ASSERT_EQ(llama_state_seq_set_data(context.get(), bytes.data(), bytes.size(), 0), bytes.size());
    decode(context, 0, 100, text);
  }
  EXPECT_EQ(restored(model, renamed, text), 0U) << "the state is of other weights";
  Context context(model, options_of(other));
  EXPECT_EQ(restore(context, 0, text), stored_of(150));
  expect_near(model, context, 0, stored_of(150), text, kNear);
}

TEST(Stored, OnlyWhatFitsIsLoaded) {
  llama_model* const model = smollm2();
  const Text text = text_tokens(model, 250);
  const Store store;
  const std::string spec = store.spec();
  compute(model, spec, text);
  Options small = options_of(spec, 2);
  small.n_ctx = 256;
  Context context(model, small);
  EXPECT_EQ(context.decode(1, 0, part(text, 0, 100)), 0);
  EXPECT_EQ(restore(context, 0, text), 128U) << "156 of 256 cells are free";
  EXPECT_EQ(restore(context, 1, text, 100), 128U) << "28 more, and its own";
  EXPECT_EQ(context.decode({{{0}, 128, 1}}), 1) << "all cells are taken";
  EXPECT_EQ(restore(context, 7, text), 0U) << "there is no such sequence";
  EXPECT_EQ(llama_rota_restore(context.get(), 0, text.data(), 0, 0), 0U);
}

TEST(Stored, WhatIsDamagedIsComputedAnewAndTheLogSaysSo) {
  llama_model* const model = smollm2();
  const Text text = text_tokens(model, 150);
  const Store store;
  const std::string spec = store.spec();
  compute(model, spec, text);
  const auto objects = store.objects();
  ASSERT_EQ(objects.size(), stored_of(150) / kPage);
  for (const auto& object : objects) {
    std::fstream file(object, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(2000);
    file.write("damaged!", 8);
  }
  logged().clear();
  {
    Context context(model, options_of(spec));
    const size_t found = restore(context, 0, text);
    EXPECT_EQ(found, 0U);
    EXPECT_NE(logged().find("the store fails, and prompts are computed: "), std::string::npos) << logged();
    expect_near(model, context, 0, found, text, kNear);
  }
  compute(model, spec, text);
  EXPECT_EQ(restored(model, spec, text), stored_of(150)) << "damaged pages make room for good ones";
}

TEST(Stored, WhatCannotBeIsRefusedInASentenceWithoutPasswords) {
  const Store store;
  const std::string empty = store.file("empty", "");
  const std::pair<std::string, const char*> refused[] = {
      {"turbo4,store=", "store= wants a text"},
      {"turbo4,store=ftp://host/x", "wanted file:PATH, valkey://HOST"},
      {"turbo4,store=file:" + store.pages() + "/no/parent", "parent"},
      {"turbo4,store=valkey://:secret@127.0.0.1:1", "127.0.0.1"},
      {"turbo4,valkey://:secret@127.0.0.1:1", "an address is given as store=valkey://"},
      {store.spec(",salt_file=" + empty), "empty is empty"},
      {store.spec(",salt_file=/no/such"), "/no/such cannot be read"},
      {store.spec(",deadline=soon"), "deadline='soon' is not a number of milliseconds"},
      {store.spec(",deadline=0"), "deadline is 0; wanted 1 or more milliseconds"},
      {store.spec(",flush=-1"), "flush='-1' is not a number of milliseconds"},
      {"turbo4,salt_file=/x", "there is no store="},
      {"turbo4,weights=x", "there is no store="},
      {"turbo4,deadline=1000", "there is no store="},
      {"turbo4,flush=1000", "there is no store="}};
  for (const auto& [spec, sentence] : refused) {
    logged().clear();
    EXPECT_FALSE(Context(smollm2(), options_of(spec)).made()) << spec;
    EXPECT_NE(logged().find(sentence), std::string::npos) << spec << "\n" << logged();
    EXPECT_EQ(logged().find("secret"), std::string::npos) << logged();
  }
  llama_model_params params = llama_model_default_params();
  llama_model_kv_override overrides[2] = {};
  overrides[0].tag = LLAMA_KV_OVERRIDE_TYPE_FLOAT;
  std::string("llama.rope.freq_base").copy(overrides[0].key, sizeof(overrides[0].key) - 1);
  overrides[0].val_f64 = 5000;
  params.kv_overrides = overrides;
  const llama_model_ptr model(llama_model_load_from_file(given.smollm2.c_str(), params));
  const std::string spec = store.spec(), named = store.spec(",weights=mine");
  EXPECT_FALSE(Context(model.get(), options_of(spec)).made());
  EXPECT_NE(logged().find("name them by weights=NAME"), std::string::npos) << logged();
  EXPECT_TRUE(Context(model.get(), options_of(named)).made()) << logged();
}

}  // namespace
}  // namespace rota_llama
