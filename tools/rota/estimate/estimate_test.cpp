#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "harness/gguf_writer.h"
#include "harness/tool_run.h"
#include "model/model.h"
#include "rota/codec.h"
#include "rota/device.h"
#include "rota/kv_cache.h"

// `rota estimate`, as a user meets it, against numbers that are worked out here and against real caches.

namespace {

using nlohmann::json;
using rota::test::contains;
using rota::test::GgufWriter;
using Output = rota::test::ToolOutput;

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
constexpr std::uint64_t kCounters = 2 * 2 * 8;  // of one group: for keys and values two counts of 64 bits

Output estimate(const std::string& arguments) { return rota::test::run_tool("estimate " + arguments); }

json rows(const std::string& arguments) {
  const Output output = estimate(arguments + " -o json");
  EXPECT_EQ(output.exit_code, 0) << output.text;
  return json::parse(output.text).at("rows");
}

void expect_failure(const std::string& arguments, int exit_code, const std::string& what,
                    const std::string& next = "try: ") {
  const Output output = estimate(arguments);
  EXPECT_EQ(output.exit_code, exit_code) << arguments << "\n" << output.text;
  EXPECT_TRUE(contains(output, "rota estimate: ")) << output.text;
  EXPECT_TRUE(contains(output, what)) << output.text;
  EXPECT_TRUE(contains(output, next)) << output.text;
}

TEST(Estimate, LlamaOf8BillionTakes16GiBInF16) {
  const auto found = rows("-m llama-3.1-8b -ctk f16 -ctv f16");
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].at("context"), 131072);
  // 2 sides, 32 layers, 8 heads, 128 numbers of 2 bytes; pages are whole, so beside it only the counters.
  EXPECT_EQ(found[0].at("bytes"), std::uint64_t{131072} * 2 * 32 * 8 * 128 * 2 + kCounters);
  EXPECT_EQ(found[0].at("bytes"), 16 * kGiB + kCounters);
  EXPECT_NEAR(found[0].at("bits_per_value").get<double>(), 16, 1e-6);
  EXPECT_EQ(found[0].at("of_f16"), 1);
}

TEST(Estimate, SealedPagesStandBesideATailAndSinks) {
  const auto found = rows("-m llama-3.1-8b -c 131072 -ctk turbo4 -ctv turbo4");
  constexpr std::uint64_t kLayerHeads = 32 * 8, kSlot = kLayerHeads * 128 * 2;
  std::uint64_t bytes = kCounters;
  for (const rota::KvSide side : {rota::KvSide::keys, rota::KvSide::values}) {
    bytes += 1024 * kLayerHeads * rota::page_bytes({.codec = rota::turbo(4), .side = side, .head_dim = 128});
    // Dense: the tail's page, and one that is not full. In one layer: a page for two tokens of a step, three for the
    // other 510.
    bytes += 2 * 128 * kSlot + 4 * 128 * kSlot / 32 + 4 * kSlot;
  }
  EXPECT_EQ(found.at(0).at("bytes"), bytes);
  EXPECT_LT(found.at(0).at("of_f16"), 0.30);
}

TEST(Estimate, KindsOfLayersAddUpToTheTotal) {
  const auto found = rows("-m gemma-3-1b -c 32768 -ctk f16 -ctv f16");
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0].at("kind"), "window 512, 1 x 256");
  // 512 tokens and a tail of 128 that may be taken back, in 6 pages, and 4 pages of steps of 512 in one layer.
  EXPECT_EQ(found[0].at("bytes"), std::uint64_t{6 * 22 + 4} * 128 * 256 * 2 * 2);
  EXPECT_EQ(found[1].at("kind"), "full attention, 1 x 256");
  EXPECT_EQ(found[1].at("bytes"), std::uint64_t{32768} * 4 * 256 * 2 * 2);
  EXPECT_EQ(found[2].at("kind"), "total");
  EXPECT_EQ(found[2].at("layers"), 26);
  EXPECT_EQ(found[2].at("bytes"),
            found[0].at("bytes").get<std::uint64_t>() + found[1].at("bytes").get<std::uint64_t>() + 2 * kCounters);
}

TEST(Estimate, EveryKnownModelTakesWhatARealCacheSays) {
  rota::Device device = rota::Device::open({.device = "cpu", .threads = 1}).value();
  ASSERT_EQ(rota::tool::known_models().size(), 64U);
  for (const char* name : {"llama-3.2-1b", "gemma-3-4b", "gpt-oss-20b", "qwen3.5-9b", "deepseek-v3", "phi-2"}) {
    SCOPED_TRACE(name);
    const auto model = rota::tool::find_model(name);
    const rota::KvCacheSpec spec{.groups = rota::tool::groups_of(model, {.k = rota::turbo(4), .v = rota::DType::f16}),
                                 .max_tokens = 3 * 1000,
                                 .max_sequences = 3,
                                 .max_step_tokens = 64};
    const auto cache = rota::KvCache::create(device, spec).value();
    const auto found = rows(std::string("-m ") + name + " -c 1000 -np 3 -ub 64 -ctk turbo4");
    EXPECT_EQ(found.back().at("bytes"), cache.memory().bytes());
  }
}

TEST(Estimate, ValuesThatAreInTheKeysAreCountedOnce) {
  const auto dense = rows("-m deepseek-v3 -c 131072 -ctk f16 -ctv f16");
  EXPECT_EQ(dense[0].at("bytes"), std::uint64_t{131072} * 61 * 576 * 2 + kCounters);
  EXPECT_NEAR(dense[0].at("bits_per_value").get<double>(), 16, 1e-6);
  const auto sealed = rows("-m deepseek-v3 -c 131072 -ctk turbo4 -ctv turbo4");
  EXPECT_NEAR(sealed[0].at("bits_per_value").get<double>(), 4.2, 0.1) << "of keys and values, which are both kept";
  EXPECT_GT(sealed[0].at("of_f16"), 0.45);
}

TEST(Estimate, OptionsReachTheCache) {
  const std::string model = "-m llama-3.2-1b -c 4096 -ctk turbo4 -ctv turbo4";
  const auto bytes = [](const json& found) { return found.back().at("bytes").get<std::uint64_t>(); };
  const std::uint64_t usual = bytes(rows(model));
  EXPECT_NE(bytes(rows(model + " --page 64")), usual);
  EXPECT_GT(bytes(rows(model + " --tail 1024")), usual);
  EXPECT_GT(bytes(rows(model + " --sinks 128")), usual);
  EXPECT_GT(bytes(rows(model + " -ub 2048")), usual);
  EXPECT_GT(bytes(rows(model + " --parallel 2")), usual);
  EXPECT_EQ(bytes(rows(model + " --page 128 --tail 128 --sinks 4 --ubatch-size 512 -np 1")), usual);
  EXPECT_EQ(bytes(rows("--layers 16 --kv-heads 8 --head-dim 64 -c 4096 -ctk turbo4 -ctv turbo4")), usual);
  EXPECT_EQ(
      bytes(rows("--layers 15 --kv-heads 8 --head-dim 64 --group layers=1,kv-heads=8,head-dim=64 -c 4096 -ctk turbo4 "
                 "-ctv turbo4")),
      usual + kCounters + std::uint64_t{4} * 128 * 8 * 64 * 2 * 2);  // pages of steps are a group's own
  const auto windowed =
      rows("--layers 16 --kv-heads 8 --head-dim 64 --value-dim 32 --window 512 -c 65536 -ctk f16 -ctv f16");
  EXPECT_EQ(bytes(windowed), std::uint64_t{6 * 16 + 4} * 128 * 8 * (64 + 32) * 2 + kCounters);
}

TEST(Estimate, ListsOfContextsAndCodecsGiveOneRowEach) {
  const auto found = rows("-m llama-3.1-8b -c 4096,16384 -ctk turbo4,f16 -ctv turbo3");
  ASSERT_EQ(found.size(), 4U);
  EXPECT_EQ(found[1].at("k"), "f16");
  EXPECT_EQ(found[1].at("v"), "turbo3");
  EXPECT_EQ(found[3].at("context"), 16384);
  EXPECT_EQ(rows("-m llama-3.1-8b").size(), 4U) << "f16, turbo8, turbo4, turbo3";
  EXPECT_EQ(rows("-m llama-3.1-8b -c 0").at(0).at("context"), 131072);
  EXPECT_EQ(rows("-m llama-3.1-8b -ctk turbo4").at(0).at("v"), "f16") << "as llama.cpp's users expect";
}

TEST(Estimate, FitFindsTheLongestContext) {
  const std::string model = "-m llama-3.1-8b --memory 8GiB -ctk f16,turbo4 -ctv f16,turbo4 --fit --beyond";
  const auto found = rows(model);
  ASSERT_EQ(found.size(), 2U);
  // 8 GiB less the counters' 32 bytes: one page less than the half of 131072.
  EXPECT_EQ(found[0].at("context"), 65536 - 128);
  for (const json& row : found) {
    EXPECT_TRUE(row.at("fits").get<bool>());
    EXPECT_LE(row.at("bytes"), 8 * kGiB);
    const auto next =
        rows("-m llama-3.1-8b --memory 8GiB -ctk " + row.at("k").get<std::string>() + " -ctv " +
             row.at("v").get<std::string>() + " -c " + std::to_string(row.at("context").get<std::uint64_t>() + 1));
    EXPECT_GT(next.at(0).at("bytes"), 8 * kGiB) << "one token more";
    EXPECT_FALSE(next.at(0).at("fits").get<bool>());
  }
  const auto shared = rows(model + " -np 4");
  // 511 pages, of which each of 4 texts may fill its last one with a single token.
  EXPECT_EQ(shared[0].at("context"), (4 + 507 * 128 + 127) / 4) << "of each sequence";
  const auto less = rows(model + " --weights 4GiB --reserve 2GiB");
  EXPECT_EQ(less[0].at("context"), 16384 - 128);
}

TEST(Estimate, FitEndsAtTheModelsOwnContext) {
  const std::string model = "-m llama-3-8b --memory 8GiB -ctk turbo4 -ctv turbo4 --fit";
  const auto found = rows(model);
  EXPECT_EQ(found.at(0).at("context"), 8192);
  EXPECT_EQ(found.at(0).at("of_model_context"), 1);
  EXPECT_EQ(found.at(0).at("limit"), "the model's own");
  EXPECT_TRUE(contains(estimate(model), "the model's own\n")) << estimate(model).text;
  const auto beyond = rows(model + " --beyond");
  EXPECT_GT(beyond.at(0).at("context"), 200000);
  EXPECT_EQ(beyond.at(0).at("limit"), "memory");
  const auto less = rows("-m llama-3-8b --memory 64MiB -ctk turbo4 -ctv turbo4 --fit");
  EXPECT_LT(less.at(0).at("context"), 8192);
  EXPECT_EQ(less.at(0).at("limit"), "memory");
  expect_failure("-m llama-3-8b --beyond", 2, "--beyond is about --fit", "--fit --beyond");
  EXPECT_GT(rows("--layers 1 --kv-heads 1 --head-dim 64 --memory 1GiB --fit -ctk f16").at(0).at("context"), 1000000)
      << "layers by options have no context of their own";
}

TEST(Estimate, SaysWhatIsAboutLengthsAndWhatIsNot) {
  EXPECT_EQ(rows("-m mistral-7b-v0.1 --fit --beyond --memory 8GiB").back().at("limit"), "none")
      << "all its layers have a window";
  EXPECT_TRUE(
      contains(estimate("-m llama-3.1-8b -c 1m"), "1048576 tokens are more than the model's own context of 131072"));
  EXPECT_FALSE(contains(estimate("-m llama-3.1-8b -c 128k"), "more than the model's own"));
}

TEST(Estimate, TokensMayBeCountedInThousandsAndMillions) {
  const auto contexts = [](const std::string& given) {
    std::vector<std::uint64_t> found;
    for (const json& row : rows("-m llama-3.1-8b -ctk f16 -c " + given)) found.push_back(row.at("context"));
    return found;
  };
  EXPECT_EQ(contexts("128k,1m,2K,1M,500"), (std::vector<std::uint64_t>{131072, 1048576, 2048, 1048576, 500}));
  for (const char* wrong :
       {"k", "1kk", "1.5k", "12x", "-1k", "1 k", "18014398509481984k", "18446744073709551616", "''"}) {
    expect_failure(std::string("-m llama-3.1-8b -c ") + (wrong[1] == ' ' ? "'1 k'" : wrong), 2,
                   "; wanted a whole number of tokens below 2^64, such as 8192, 128k or 1m");
  }
  expect_failure("-m llama-3.1-8b -c 8192 -np 2k", 2, "-np is \"2k\"; wanted a whole number below 2^64");
}

// Of 8192 tokens: two dense pages of 128, four sinks, and four pages of a step in one of 32 layers.
TEST(Estimate, SaysWhyFourBitsAreMore) {
  const std::string model = "-m llama-3.1-8b -ctk turbo4 -ctv turbo4 -c ";
  const auto row = rows(model + "8192").at(0);
  const json& parts = row.at("made_of");
  constexpr std::uint64_t kSlot = std::uint64_t{2} * 32 * 8 * 128 * 2;  // bytes of a dense token, keys and values
  EXPECT_EQ(parts.at("tail_and_sinks_bytes"), (2 * 128 + 4) * kSlot);
  EXPECT_EQ(parts.at("steps_bytes").get<std::uint64_t>() + parts.at("unfilled_bytes").get<std::uint64_t>(),
            4 * 128 * kSlot / 32 + kCounters);
  EXPECT_EQ(parts.at("pages_bytes").get<std::uint64_t>() + parts.at("unfilled_bytes").get<std::uint64_t>() +
                parts.at("tail_and_sinks_bytes").get<std::uint64_t>() + parts.at("steps_bytes").get<std::uint64_t>(),
            row.at("bytes"));
  EXPECT_TRUE(contains(estimate(model + "8192"),
                       "\nturbo4 at 8192: 4.73 bits/value = 4.19 in pages + 0.51 tail and sinks (dense, f16) + 0.03 "
                       "room for steps of 512 tokens (-ub)\n"))
      << estimate(model + "8192").text;
  EXPECT_FALSE(contains(estimate(model + "128k"), "in pages")) << "within a tenth";
  EXPECT_TRUE(contains(estimate("-m gemma-3-4b -ctk turbo4 -ctv turbo4 -c 8192"), "in pages that are not full"));
}

TEST(Estimate, FitFailsIfNothingFits) {
  expect_failure("-m llama-3.1-8b --memory 1MiB --fit", 1, "nothing fits: 1 MiB of 1 MiB are left");
  expect_failure("-m llama-3.1-8b --memory 8GiB --weights 9GiB --fit", 1, "nothing fits: 0 bytes of 8 GiB are left",
                 "the weights take all of it");
  EXPECT_EQ(estimate("-m llama-3.1-8b --memory 1MiB").exit_code, 0) << "only --fit is a check";
}

TEST(Estimate, EveryOutputHasTheSameNumbers) {
  const std::string model = "-m gemma-3-1b -c 4096 -ctk turbo4 -ctv turbo4 --memory 1GiB";
  const std::uint64_t bytes = rows(model).back().at("bytes").get<std::uint64_t>();
  const Output text = estimate(model), md = estimate(model + " -o md"), csv = estimate(model + " -o csv"),
               jsonl = estimate(model + " -o jsonl");
  EXPECT_TRUE(contains(text, "Gemma 3 1B, context 32768, 26 layers: 22 of window 512, 1 x 256; 4 of full"))
      << text.text;
  EXPECT_TRUE(contains(text, "Memory of --memory: 1 GiB, weights not counted (--weights)\n")) << text.text;
  EXPECT_TRUE(contains(md, "| context | K ")) << md.text;
  EXPECT_TRUE(csv.text.starts_with("context,k,v,kind,layers,bytes,")) << csv.text;
  EXPECT_TRUE(contains(csv, "4096,turbo4,turbo4,total,26," + std::to_string(bytes) + ",")) << csv.text;
  const json last = json::parse(jsonl.text.substr(jsonl.text.rfind('\n', jsonl.text.size() - 2) + 1));
  EXPECT_EQ(last.at("bytes"), bytes);
}

TEST(Estimate, ModelsAreFoundByNameOrNearly) {
  EXPECT_EQ(rows("-m Llama-3.1-8B -ctk f16").at(0).at("layers"), 32);
  expect_failure("-m lama-3.1-8b", 2, "there is no model \"lama-3.1-8b\"", "did you mean llama-3.1-8b");
  expect_failure("-m gemma-3", 2, "gemma-3-27b", "try: rota estimate -m gemma-3-12b");
  // As people and hubs write them.
  expect_failure("-m llama-3.1-8b-instruct", 2, "try: rota estimate -m llama-3.1-8b\n");
  expect_failure("-m gemma3", 2, "try: rota estimate -m gemma-3-12b\n");
  expect_failure("-m Qwen/Qwen3-8B-FP8", 2, "there is no model \"Qwen3-8B-FP8\"", "try: rota estimate -m qwen3-8b\n");
  expect_failure("-m zzzzzzzzz", 2, "there is no model \"zzzzzzzzz\", and no such file\n",
                 "try: rota estimate --list-models");
  const Output list = estimate("--list-models -o csv");
  EXPECT_TRUE(contains(list, "gpt-oss-20b,gpt-oss 20B,131072,24,"));
  EXPECT_EQ(std::ranges::count(list.text, '\n'), 65);
}

TEST(Estimate, WrongUsageSaysWhatToTry) {
  expect_failure("", 2, "which model?", "try: rota estimate --list-models");
  expect_failure("--layers 32", 2, "needs layers, KV heads and the size of a head");
  expect_failure("-m llama-3.1-8b --layers 32", 2, "--model has its own layers");
  expect_failure("-m llama-3.1-8b -c 4096 --fit", 2, "-c and --fit exclude each other");
  expect_failure("-m llama-3.1-8b -c x", 2, "-c is \"x\"; wanted a whole number");
  expect_failure("-m llama-3.1-8b -c 4096,-1", 2, "-c is \"-1\"; wanted a whole number");
  expect_failure("-m llama-3.1-8b -ctk q8_0", 2, "turbo8 has as many bits");
  expect_failure("-m llama-3.1-8b -ctk f16,f16 -ctv f16,f16,f16", 2, "-ctk names 2 codecs and -ctv 3",
                 "try: the same with -ctk f16,f16 -ctv f16,f16");
  expect_failure("--layers 4 --kv-heads 1 --head-dim 64", 2, "context is not known; wanted -c");
  for (const char* bytes : {"x", "-1", "1e400", "9EiB", "8XiB", "16777216TiB", "nan", "inf", "''"}) {
    expect_failure(std::string("-m llama-3.1-8b --fit --memory=") + bytes, 2, "--memory");
  }
  for (const char* group : {"layers", "layers=", "layers=x", "layers=-1", "depth=3", "layers=1,,head-dim=2",
                            "layers=18446744073709551616"}) {
    expect_failure(std::string("-c 1 --group ") + group, 2, "--group has");
  }
  expect_failure("-m llama-3.1-8b --device vulkan:77", 3, "there is no device \"vulkan:77\"", "try: rota devices");
}

TEST(Estimate, NumbersBeyondAllBoundsAreRefused) {
  const std::string huge = "18446744073709551615";
  expect_failure("-m llama-3.1-8b -c " + huge, 2, "-c is " + huge + "; wanted");
  expect_failure("-m llama-3.1-8b -np 2 -c " + huge, 2, "more than 2^64 tokens");
  expect_failure("-m llama-3.1-8b -np " + huge, 2, "-np is " + huge);
  expect_failure("-m llama-3.1-8b -np 0", 2, "-np is 0; wanted 1 or more");
  expect_failure("-m llama-3.1-8b -np 3 -c 1000000m", 2, "-c times -np is 3145728000000; wanted");
  expect_failure("-m llama-3.1-8b --page 4294967424", 2, "--page is 4294967424");
  expect_failure("-m llama-3.1-8b --page 100 -ctk f16", 2, ": --page is 100; wanted 64 or 128");
  expect_failure("-m llama-3.1-8b --tail " + huge + " -ctk f16", 2, ": --tail is " + huge);
  expect_failure("-m llama-3.1-8b -ub " + huge + " -ctk f16", 2, ": -ub is " + huge);
  expect_failure("-m llama-3.1-8b --sinks 200 -ctk f16", 2,
                 ": --sinks is 200; wanted at most the 128 tokens of a page");
  expect_failure("-m gemma-3-1b --tail 1k", 2, "--tail is \"1k\"");
  expect_failure("-m gemma-3-1b --tail 1024 -ctk turbo4", 2, ": window is 512; wanted at least the tail of 1024");
  expect_failure("--layers " + huge + " --kv-heads 1 --head-dim 64 -c 1", 2, "--layers is " + huge);
  expect_failure("--layers 1 --kv-heads " + huge + " --head-dim 64 -c 1", 2, "--kv-heads is " + huge);
  expect_failure("--layers 1 --kv-heads 1 --head-dim " + huge + " -c 1", 2, "--head-dim is " + huge);
  expect_failure("--layers 60000 --kv-heads 1 --head-dim 64 --group layers=60000,kv-heads=1,head-dim=64 -c 1", 2,
                 "in all");
}

TEST(Estimate, CodecsThatCannotServeAreLeftOutOrRefused) {
  const std::string odd = "--layers 1 --kv-heads 1 --head-dim 72 -c 1024";
  const Output output = estimate(odd);
  EXPECT_EQ(output.exit_code, 0) << output.text;
  EXPECT_TRUE(contains(output, "Note: turbo4 is left out: ")) << output.text;
  EXPECT_EQ(rows(odd).size(), 1U);
  expect_failure(odd + " -ctk turbo4", 2, ": --head-dim is 72; wanted");
}

class EstimateOfFiles : public testing::Test {
 protected:
  void SetUp() override {
    path_ =
        testing::TempDir() + "rota_estimate_" + testing::UnitTest::GetInstance()->current_test_info()->name() + ".gguf";
  }
  void TearDown() override { std::filesystem::remove(path_); }
  void write(const std::string& bytes) const { std::ofstream(path_, std::ios::binary) << bytes; }

  static GgufWriter llama(std::string_view name = "Meta \x1b[2JLlama") {
    GgufWriter writer;
    writer.word("general.architecture", "llama")
        .word("general.name", name)
        .number("llama.block_count", 32)
        .number("llama.context_length", 131072)
        .number("llama.embedding_length", 4096)
        .number("llama.attention.head_count", 32)
        .number("llama.attention.head_count_kv", 8);
    return writer;
  }

  std::string path_;
};

// As UTF-8 and as a byte of its own, C1's introducer, a change of direction, and letters that are just foreign.
TEST_F(EstimateOfFiles, NoNameCommandsATerminal) {
  write(llama("\xc2\x9b"
              "31mA \xe2\x80\xae"
              "B \x9b"
              "C \xc3\xa9\xe6\x97\xa5")
            .file());
  EXPECT_TRUE(estimate("-m " + path_ + " -c 100").text.starts_with("?31mA ?B ?C \xc3\xa9\xe6\x97\xa5, context"))
      << estimate("-m " + path_ + " -c 100").text.substr(0, 60);
}

TEST_F(EstimateOfFiles, NoConfigAndNoFileNameCommandsATerminal) {
  const std::string folder = path_ +
                             "\xc2\x9b"
                             "31m\xe2\x80\xae";
  std::filesystem::create_directory(folder);
  std::ofstream(folder + "/config.json")
      << "{\"model_type\": \"\\u009b31m\\u202e\", \"num_hidden_layers\": 2, \"num_attention_heads\": 2, "
         "\"hidden_size\": 128, \"max_position_embeddings\": 64}";
  std::ofstream(folder + "/broken.json") << "{\"model_type\": \"\\u009b31m\\u202e\", \"layer_types\": 3}";
  std::ofstream(folder + "/broken.gguf") << "GGUF";
  for (const char* const file : {"", "/config.json", "/broken.json", "/broken.gguf", "/none.gguf", "/none"}) {
    for (const char* const output : {"text", "md", "csv", "json", "jsonl"}) {
      const Output found = estimate("-m '" + folder + file + "' -o " + output);
      EXPECT_FALSE(contains(found, "\xc2\x9b") || contains(found, "\xe2\x80\xae")) << file << "\n" << found.text;
      EXPECT_FALSE(found.text.empty());
    }
  }
  EXPECT_TRUE(contains(estimate("-m '" + folder + "' -c 64"), "model_type \"?31m?\" is not known here"));
  std::filesystem::remove_all(folder);
}

TEST_F(EstimateOfFiles, ACutFileIsCalledTruncated) {
  const std::string whole = llama().file();
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{3}, std::size_t{20}, whole.size() / 2, whole.size() - 1}) {
    write(whole.substr(0, bytes));
    expect_failure("-m " + path_, 1, "truncated");
  }
}

TEST_F(EstimateOfFiles, AFileTakesWhatItsModelTakes) {
  GgufWriter writer = llama();
  writer.tensor("a", {4096}, 0).data = std::string(4096, 'w');
  write(writer.file());
  EXPECT_EQ(rows("-m " + path_ + " -c 8192").at(2).at("bytes"), rows("-m llama-3.1-8b -c 8192").at(2).at("bytes"));
  const json report = json::parse(estimate("-m " + path_ + " --memory 1GiB -o json").text);
  EXPECT_EQ(report.at("memory").at("weights_bytes"), writer.file().size());
  EXPECT_EQ(report.at("memory").at("left_bytes"), kGiB - writer.file().size());
  const Output text = estimate("-m " + path_);
  EXPECT_TRUE(contains(text, "Meta ?[2JLlama, context 131072")) << "nothing moves the terminal's cursor";
  EXPECT_TRUE(contains(text, " of weights: "));
}

TEST_F(EstimateOfFiles, WhatWasAssumedIsSaidInEveryOutput) {
  GgufWriter writer = llama();
  writer.number("llama.attention.sliding_window", 4096).tensor_count = 1;
  write(writer.file());
  for (const char* output : {"text", "md", "csv", "json", "jsonl"}) {
    const Output found = estimate("-m " + path_ + " -o " + output);
    EXPECT_EQ(found.exit_code, 0);
    EXPECT_TRUE(contains(found, "a window of 4096 is in the file, but not which layers have it")) << found.text;
    EXPECT_TRUE(contains(found, "how large the weights are is not known; --weights says it")) << found.text;
  }
}

TEST_F(EstimateOfFiles, FilesThatAreNotSoundFail) {
  write("GGUF");
  expect_failure("-m " + path_, 1,
                 path_ + ": at byte 4: the file is truncated: it has 4 bytes; wanted 4 more for the version");
  write("not a model");
  expect_failure("-m " + path_, 1, "does not begin with \"GGUF\"");
  expect_failure("-m /nonexistent/a-00002-of-00003.gguf", 1, "No such file", "-m /nonexistent/a-00001-of-00003.gguf");
  GgufWriter writer;
  write(writer.word("general.architecture", "bert").file());
  expect_failure("-m " + path_, 1, "general.architecture is bert; wanted one that keeps keys and values");
}

}  // namespace
