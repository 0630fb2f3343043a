#include "model/config_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

// Configurations with the public numbers of known models (tests/configs), against data/models.json, and those that are
// not sound.

namespace {

using nlohmann::json;
using namespace rota::tool;

Model read(const json& config) {
  auto model = model_of_config(config.dump());
  EXPECT_TRUE(model.ok()) << (model ? "" : model.error().message);
  return model ? *model : Model{};
}

bool notes_say(const Model& model, const std::string& text) {
  return std::ranges::any_of(model.notes,
                             [&](const std::string& note) { return note.find(text) != std::string::npos; });
}

bool same(const LayerGroup& a, const LayerGroup& b) {
  return a.layers == b.layers && a.query_heads == b.query_heads && a.kv_heads == b.kv_heads &&
         a.head_dim == b.head_dim && a.value_dim == b.value_dim && a.window == b.window && a.v_in_k == b.v_in_k;
}

// What config.json says of a known model, with nothing that a cache does not depend on.
std::string path_of(const std::string& name) { return ROTA_SOURCE_FOLDER "/tests/configs/" + name + ".json"; }

TEST(ConfigModel, IsTheModelOfThatName) {
  int count = 0;
  for (const auto& file : std::filesystem::directory_iterator(ROTA_SOURCE_FOLDER "/tests/configs")) {
    const std::string name = file.path().stem().string();
    SCOPED_TRACE(name);
    ++count;
    const Model found = find_model(file.path().string()), wanted = find_model(name);
    EXPECT_TRUE(std::ranges::equal(found.groups, wanted.groups, same))
        << found.groups.size() << " groups, the first of " << (found.groups.empty() ? "" : found.groups[0].kind());
    const bool other = name == "deepseek-v3" || name == "falcon-7b";  // in one it differs, the other has none
    EXPECT_TRUE(other || found.context == wanted.context);
    EXPECT_FALSE(notes_say(found, "is not known here"));
  }
  EXPECT_EQ(count, 18);
}

const json kPlain{{"model_type", "llama"},          {"num_hidden_layers", 8}, {"num_attention_heads", 8},
                  {"num_key_value_heads", 2},       {"head_dim", 64},         {"hidden_size", 512},
                  {"max_position_embeddings", 2048}};

json with(json config, const std::string& key, json value) {
  config[key] = std::move(value);
  return config;
}

TEST(ConfigModel, SaysWhatIsAssumed) {
  EXPECT_TRUE(read(kPlain).notes.empty());
  EXPECT_TRUE(notes_say(read(with(kPlain, "model_type", "wonder")), "model_type \"wonder\" is not known here"));
  EXPECT_TRUE(notes_say(read(with(kPlain, "num_key_value_heads", nullptr)), "taken as the 8 query heads"));
  const Model windowed = read(with(kPlain, "sliding_window", 512));
  EXPECT_TRUE(notes_say(windowed, "a window of 512 is in the file, but not which layers have it"));
  EXPECT_FALSE(windowed.groups.at(0).window);
  EXPECT_TRUE(notes_say(find_model(path_of("gemma-3-4b")), "num_attention_heads is not in the file: taken as 8"));
  EXPECT_TRUE(notes_say(find_model(path_of("qwen3-next-80b-a3b")), "36 layers keep a recurrent state"));
}

TEST(ConfigModel, AFileThatIsSilentIsWhatTransformersMakesOfIt) {
  json config = kPlain;
  config["model_type"] = "mistral";
  config["num_attention_heads"] = 32;
  config["max_position_embeddings"] = 32768;
  config.erase("num_key_value_heads");
  Model model = read(config);
  EXPECT_EQ(model.groups.at(0).kv_heads, 8U);
  EXPECT_EQ(model.groups.at(0).window, 4096U);
  config["num_key_value_heads"] = nullptr;
  config["sliding_window"] = nullptr;
  model = read(config);
  EXPECT_EQ(model.groups.at(0).kv_heads, 32U) << "null is as many as query heads";
  EXPECT_FALSE(model.groups.at(0).window);

  config = with(with(kPlain, "model_type", "qwen2"), "use_sliding_window", true);
  config["num_hidden_layers"] = 36;
  config["sliding_window"] = 256;
  model = read(config);
  ASSERT_EQ(model.groups.size(), 2U);
  EXPECT_EQ(model.groups[1].layers.front(), 28U);
  EXPECT_TRUE(notes_say(model, "max_window_layers is not in the file: taken as 28"));
}

TEST(ConfigModel, LayersDifferAsTheFileSays) {
  json config = with(with(kPlain, "model_type", "qwen2"), "use_sliding_window", true);
  config["sliding_window"] = 256;
  config["max_window_layers"] = 6;
  Model model = read(config);
  ASSERT_EQ(model.groups.size(), 2U);
  EXPECT_EQ(model.groups[1].layers, (std::vector<std::uint32_t>{6, 7}));
  EXPECT_EQ(model.groups[1].window, 256U);
  model = read(with(with(kPlain, "model_type", "jamba"), "attn_layer_period", 4));
  EXPECT_EQ(model.groups.at(0).layers, (std::vector<std::uint32_t>{0, 4}));
  model = read(with(with(kPlain, "model_type", "nemotron_h"), "hybrid_override_pattern", "M-M*M-E*"));
  EXPECT_EQ(model.groups.at(0).layers, (std::vector<std::uint32_t>{3, 7}));
  model = read(with(with(kPlain, "model_type", "lfm2"), "full_attn_idxs", {2, 5}));
  EXPECT_EQ(model.groups.at(0).layers, (std::vector<std::uint32_t>{2, 5}));
  config = with(kPlain, "model_type", "llama4_text");
  config["attention_chunk_size"] = 1024;
  model = read(config);
  EXPECT_EQ(model.groups.at(1).layers, (std::vector<std::uint32_t>{3, 7}));
  EXPECT_EQ(model.groups.at(0).window, 1024U);
  EXPECT_TRUE(notes_say(model, "see chunks of 1024 tokens"));
  model = read(with(kPlain, "num_key_value_heads", {1, 1, 2, 2, 2, 2, 4, 8}));
  EXPECT_EQ(model.groups.size(), 4U);
  model = read(with(kPlain, "num_kv_shared_layers", 3));
  EXPECT_EQ(model.layers(), 5U);
}

void expect_refused(const std::string& text, const std::string& what) {
  const auto model = model_of_config(text);
  ASSERT_FALSE(model.ok()) << text.substr(0, 200);
  EXPECT_EQ(model.error().code, rota::Errc::io);
  EXPECT_NE(model.error().message.find(what), std::string::npos) << model.error().message;
}

TEST(ConfigModel, NumbersThatPythonWritesAndJsonDoesNotKnowArePassedOver) {
  const std::string layers =
      R"("num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64)";
  const auto model = model_of_config(
      R"({"model_type": "falcon_h1", "layer_types": ["hybrid", "hybrid"], "time_step_limit": [-Infinity, Infinity, NaN],
          "who": "\" and Infinity", )" +
      layers + "}");
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(model->layers(), 2U);
  const auto wrong =
      model_of_config(R"({"model_type": "llama", "max_position_embeddings": "Infinity", )" + layers + "}");
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(wrong.error().message.find("\"Infinity\""), std::string::npos) << wrong.error().message;
}

TEST(ConfigModel, WhatIsNotUnderstoodIsRefused) {
  expect_refused("", "truncated");
  expect_refused(kPlain.dump().substr(0, 60), "is truncated: its JSON does not end after 60 bytes");
  expect_refused("{\"a\": nonsense}", "is no JSON at byte");
  expect_refused("[1]", "is no JSON object");
  expect_refused("{\"a\": 1e999}", "is no JSON at byte");
  expect_refused(std::string(100000, '['), "nests deeper than 64");
  expect_refused("{}", "num_hidden_layers is missing");
  for (const json& number : {json(0), json(-1), json(1.5), json("8"), json(1e300), json(1025), json::array()}) {
    expect_refused(with(kPlain, "num_hidden_layers", number).dump(), "num_hidden_layers is ");
  }
  expect_refused(with(kPlain, "num_hidden_layers", 18446744073709551615U).dump(), "num_hidden_layers is 1844674407");
  expect_refused(with(kPlain, "num_key_value_heads", 3).dump(), "a divisor of the 8 query heads");
  expect_refused(with(kPlain, "num_key_value_heads", {1, 2}).dump(), "one for each layer");
  expect_refused(with(kPlain, "head_dim", 1U << 20U).dump(), "head_dim is 1048576");
  expect_refused(with(with(kPlain, "head_dim", nullptr), "hidden_size", 513).dump(), "hidden_size is 513");
  expect_refused(with(kPlain, "max_position_embeddings", 1e18).dump(), "max_position_embeddings is ");
  expect_refused(with(kPlain, "kv_lora_rank", 512).dump(), "qk_rope_head_dim is missing");
  expect_refused(with(kPlain, "layer_types", json::array({"full_attention"})).dump(), "layer_types is an array of 1");
  expect_refused(with(kPlain, "layer_types", json(8, "telepathy")).dump(), "layer_types of layer 0 is \"telepathy\"");
  expect_refused(with(kPlain, "layer_types", json(8, "linear_attention")).dump(), "without attention");
  expect_refused(with(kPlain, "block_configs", json::array()).dump(), "not understood");
  expect_refused(with(kPlain, "is_encoder_decoder", true).dump(), "model_type is");
  expect_refused(with(kPlain, "model_type", "bert").dump(), "model_type is \"bert\"");
}

class ConfigFiles : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "rota_config_" + testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directory(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << text;
  }

  std::string folder_;
};

TEST_F(ConfigFiles, AreFoundInFoldersWithWeightsBesideThem) {
  write("config.json", kPlain.dump());
  Model model = find_model(folder_);
  EXPECT_EQ(model.title, std::filesystem::path(folder_).filename().string());
  EXPECT_EQ(model.layers(), 8U);
  EXPECT_FALSE(model.weights_bytes);
  EXPECT_TRUE(notes_say(model, "--weights says it"));
  write("model.safetensors.index.json", R"({"metadata": {"total_size": 123456}, "weight_map": {}})");
  model = find_model(folder_ + "/config.json");
  EXPECT_EQ(model.weights_bytes, 123456U);
  write("model.safetensors.index.json", R"({"metadata": {"total_siz)");
  EXPECT_TRUE(notes_say(find_model(folder_), "is truncated"));
}

TEST_F(ConfigFiles, ThatAreNotSoundAreNamed) {
  const auto refused = [&](const std::string& path) {
    const auto model = read_config_file(path);
    return model ? std::string("read") : model.error().message;
  };
  EXPECT_EQ(refused(folder_), folder_ + ": is a folder without a config.json; wanted one with it, or a GGUF file");
  write("config.json", std::string(std::size_t{5} << 20U, ' '));
  EXPECT_EQ(refused(folder_), folder_ + "/config.json: is 5242880 bytes long; wanted a config.json of at most 4194304");
  write("config.json", "{");
  EXPECT_NE(refused(folder_).find("/config.json: is truncated"), std::string::npos) << refused(folder_);
  EXPECT_NE(refused(folder_ + "/none.json").find("none.json: No such file"), std::string::npos);
}

}  // namespace
