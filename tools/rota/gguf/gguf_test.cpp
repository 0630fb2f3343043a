#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gguf/gguf.h"
#include "harness/gguf_writer.h"
#include "harness/memory_bytes.h"
#include "model/model.h"

// GGUF files, from their bytes to the shape of a cache.

namespace {

using rota::Errc;
using rota::Result;
using rota::test::GgufWriter;
using rota::tool::GgufHeader;
using rota::tool::LayerGroup;
using rota::tool::Model;

Result<GgufHeader> read(const std::string& bytes) {
  rota::test::MemoryBytes source(std::as_bytes(std::span(bytes)));
  return rota::tool::read_gguf(source);
}

Result<Model> model(const GgufWriter& writer) {
  const auto header = read(writer.file());
  if (!header) return header.error();
  return rota::tool::model_of(*header);
}

template <class T>
void expect_refused(const Result<T>& result, const std::string& text) {
  ASSERT_FALSE(result.ok()) << "wanted: " << text;
  EXPECT_EQ(result.error().code, Errc::io);
  EXPECT_NE(result.error().message.find(text), std::string::npos) << result.error().message;
}

// Four layers, 8 query heads and 2 KV heads of 64.
GgufWriter small(const std::string& architecture = "llama") {
  GgufWriter writer;
  writer.word("general.architecture", architecture)
      .number(architecture + ".block_count", 4)
      .number(architecture + ".context_length", 4096)
      .number(architecture + ".embedding_length", 512)
      .number(architecture + ".attention.head_count", 8)
      .number(architecture + ".attention.head_count_kv", 2);
  return writer;
}

std::vector<std::uint32_t> layers_with_window(const Model& found, std::optional<std::uint64_t> window) {
  for (const LayerGroup& group : found.groups) {
    if (group.window == window) return group.layers;
  }
  return {};
}

bool has_note(const Model& found, const std::string& text) {
  for (const std::string& note : found.notes) {
    if (note.find(text) != std::string::npos) return true;
  }
  return false;
}

using Layers = std::vector<std::uint32_t>;

TEST(Gguf, SaysTheShapeOfAModel) {
  const Model found = model(small().word("general.name", "Small One")).value();
  EXPECT_EQ(found.title, "Small One");
  EXPECT_EQ(found.context, 4096U);
  ASSERT_EQ(found.groups.size(), 1U);
  const LayerGroup& group = found.groups[0];
  EXPECT_EQ(group.layers, (Layers{0, 1, 2, 3}));
  EXPECT_EQ(group.query_heads, 8U);
  EXPECT_EQ(group.kv_heads, 2U);
  EXPECT_EQ(group.head_dim, 64U) << "512 / 8, as the file has no key_length";
  EXPECT_EQ(group.value_dim, 64U);
  EXPECT_TRUE(found.notes.empty()) << found.notes.front();
}

TEST(Gguf, TakesIntegersOfEveryType) {
  GgufWriter writer;
  writer.word("general.architecture", "llama")
      .raw("llama.block_count", GgufWriter::u8, GgufWriter::bytes_of(std::uint8_t{4}))
      .raw("llama.attention.head_count", GgufWriter::i64, GgufWriter::bytes_of(std::int64_t{8}))
      .raw("llama.attention.key_length", GgufWriter::u16, GgufWriter::bytes_of(std::uint16_t{64}))
      .raw("llama.attention.value_length", GgufWriter::i32, GgufWriter::bytes_of(std::int32_t{32}));
  const Model found = model(writer).value();
  EXPECT_EQ(found.groups.at(0).kv_heads, 8U) << "without head_count_kv, as many as query heads";
  EXPECT_EQ(found.groups.at(0).value_dim, 32U);
  EXPECT_FALSE(found.context.has_value());
}

TEST(Gguf, EveryVersionThatIsNotReadIsNamed) {
  GgufWriter writer = small();
  writer.version = 2;
  EXPECT_TRUE(read(writer.file()).ok());
  writer.version = 1;
  expect_refused(read(writer.file()), "is of GGUF version 1; wanted 2 or 3");
  writer.version = 4;
  expect_refused(read(writer.file()), "is of GGUF version 4; wanted 2 or 3");
  writer.version = 0x03000000;
  expect_refused(read(writer.file()), "is a big-endian file; wanted a little-endian one");
  writer.magic = "GGML";
  expect_refused(read(writer.file()), "does not begin with \"GGUF\"");
}

TEST(Gguf, EveryPrefixOfASoundFileIsRefused) {
  GgufWriter writer = small();
  writer.numbers("llama.attention.sliding_window_pattern", {1, 0, 1, 0})
      .raw("tokens", GgufWriter::array,
           GgufWriter::array_head(GgufWriter::string, 2) + GgufWriter::text("a") + GgufWriter::text(""))
      .raw("nested", GgufWriter::array,
           GgufWriter::array_head(GgufWriter::array, 1) + GgufWriter::array_head(GgufWriter::f64, 2) +
               std::string(16, 'x'));
  const std::string whole = writer.metadata();
  ASSERT_TRUE(read(whole).ok());
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    SCOPED_TRACE(bytes);
    // A copy of its own, so that a sanitizer sees a byte read beyond it.
    expect_refused(read(std::string(whole.data(), bytes)), "; wanted");
  }
}

TEST(Gguf, CountsThatTheFileHasNoRoomForAreRefused) {
  constexpr std::uint64_t kHuge = ~std::uint64_t{0};
  for (const std::uint64_t count : {kHuge, kHuge / 2 + 1, kHuge / 13, std::uint64_t{1} << 32, std::uint64_t{1000}}) {
    SCOPED_TRACE(count);
    GgufWriter keys = small();
    keys.key_count = count;
    expect_refused(read(keys.file()), "the count of keys is " + std::to_string(count));
    GgufWriter tensors = small();
    tensors.tensor_count = count;
    expect_refused(read(tensors.file()), "the count of tensors is " + std::to_string(count));
    const auto with_array = [&](GgufWriter::Type type) {
      return read(small().raw("some", GgufWriter::array, GgufWriter::array_head(type, count)).file());
    };
    for (const auto type : {GgufWriter::u8, GgufWriter::u64, GgufWriter::f32, GgufWriter::string, GgufWriter::array}) {
      expect_refused(with_array(type), "the count of \"some\" is " + std::to_string(count));
    }
    expect_refused(read(small().raw("some", GgufWriter::string, GgufWriter::bytes_of(count)).file()),
                   "the length of \"some\" is " + std::to_string(count));
    expect_refused(read(small().metadata().substr(0, 24) + GgufWriter::bytes_of(count) + std::string(200, ' ')),
                   "the length of key 0 is");
    expect_refused(
        read(small()
                 .raw("llama.attention.key_length", GgufWriter::array, GgufWriter::array_head(GgufWriter::u32, count))
                 .file()),
        "the count of attention.key_length is " + std::to_string(count));
  }
}

TEST(Gguf, ArraysInArraysGoOnlySoDeep) {
  const auto nested = [](int depth) {
    std::string value;
    for (int level = 0; level < depth; ++level) value += GgufWriter::array_head(GgufWriter::array, 1);
    return read(small().raw("deep", GgufWriter::array, value + GgufWriter::array_head(GgufWriter::u8, 0)).file());
  };
  EXPECT_TRUE(nested(7).ok());
  expect_refused(nested(8), "\"deep\" has arrays in arrays; wanted at most 8 deep");
  expect_refused(nested(1000), "wanted at most 8 deep");
}

TEST(Gguf, WrongTypesAreRefused) {
  expect_refused(read(small().raw("odd", 13, "").file() + std::string(32, ' ')), "\"odd\" has type 13; wanted 0 to 12");
  expect_refused(read(small().raw("odd", 0xffffffff, "").file() + std::string(32, ' ')), "has type 4294967295");
  GgufWriter number;
  number.number("general.architecture", 1);
  expect_refused(read(number.file()), "general.architecture is of type u32; wanted a string");
  expect_refused(read(small().word("llama.attention.key_length", "64").file()),
                 "attention.key_length is of type string; wanted an integer");
  expect_refused(read(small().raw("llama.attention.key_length", GgufWriter::f32, GgufWriter::bytes_of(64.0F)).file()),
                 "is of type f32; wanted an integer");
  expect_refused(read(small().raw("llama.attention.key_length", GgufWriter::i32, GgufWriter::bytes_of(-1)).file()),
                 "attention.key_length is negative");
  expect_refused(read(small()
                          .raw("llama.attention.sliding_window_pattern", GgufWriter::array,
                               GgufWriter::array_head(GgufWriter::boolean, 1) + "\2")
                          .file()),
                 "is 2; wanted a bool, 0 or 1");
  expect_refused(read(small()
                          .raw("llama.attention.sliding_window_pattern", GgufWriter::array,
                               GgufWriter::array_head(GgufWriter::string, 1) + GgufWriter::text("x"))
                          .file()),
                 "wanted an array of integers or bools");
  expect_refused(model(small().numbers("llama.attention.key_length", {64, 64, 64, 64})),
                 "attention.key_length is an array; wanted a number");
}

TEST(Gguf, KeysThatAreThereTwiceAreRefused) {
  expect_refused(read(small().number("llama.block_count", 4).file()), "block_count is there again");
  expect_refused(read(small().numbers("llama.block_count", {4}).file()), "block_count is there again");
  expect_refused(read(small().word("general.architecture", "llama").file()), "general.architecture is there again");
}

TEST(Gguf, LongNamesAreRefusedOrCut) {
  GgufWriter writer;
  writer.word("general.architecture", std::string(65, 'a'));
  expect_refused(read(writer.file()), "general.architecture is 65 bytes long; wanted at most 64");
  expect_refused(read(small().word(std::string(65536, 'k'), "").file()), "is 65536 bytes long; wanted at most 65535");
  EXPECT_TRUE(read(small().word(std::string(65535, 'k'), "").file()).ok());
  EXPECT_EQ(read(small().word("general.name", std::string(300000, 'n')).file())->name, std::string(256, 'n'));
  GgufWriter empty;
  empty.word("general.architecture", "");
  expect_refused(read(empty.file()), "general.architecture is empty");
}

TEST(Gguf, TheArchitectureMayComeLast) {
  GgufWriter writer;
  writer.number("x.block_count", 2)
      .number("x.attention.head_count", 2)
      .number("y.attention.head_count", 99)
      .number("x.embedding_length", 32)
      .word("general.architecture", "x");
  const Model found = model(writer).value();
  EXPECT_EQ(found.groups.at(0).query_heads, 2U);
  EXPECT_TRUE(has_note(found, "architecture \"x\" is not known here"));
}

TEST(Gguf, ShapesThatMakeNoSenseAreRefused) {
  const auto with = [](const std::string& key, std::uint32_t value) {
    GgufWriter writer;
    writer.word("general.architecture", "llama");
    for (const auto& [name, usual] :
         std::vector<std::pair<std::string, std::uint32_t>>{{"block_count", 4},
                                                            {"embedding_length", 512},
                                                            {"attention.head_count", 8},
                                                            {"attention.head_count_kv", 2}}) {
      writer.number("llama." + name, name == key ? value : usual);
    }
    if (key.ends_with("length") && key != "embedding_length") writer.number("llama." + key, value);
    return model(writer);
  };
  expect_refused(with("block_count", 0), "block_count is 0; wanted 1 to 1024");
  expect_refused(with("block_count", 1025), "block_count is 1025");
  expect_refused(with("attention.head_count", 0),
                 "attention.head_count_kv is 2 in layer 0; wanted 0 or a divisor of the 0");
  expect_refused(with("attention.head_count_kv", 0), "0 in every layer");
  expect_refused(with("attention.head_count_kv", 16), "attention.head_count_kv is 16 in layer 0");
  expect_refused(with("attention.head_count_kv", 3), "wanted 0 or a divisor of the 8 query heads");
  expect_refused(with("attention.head_count", 0xffffffff), "attention.head_count is 4294967295; wanted 0 to 65536");
  expect_refused(with("attention.key_length", 0), "attention.key_length is 0; wanted 1 to 65536");
  expect_refused(with("attention.value_length", 65537), "attention.value_length is 65537");
  expect_refused(with("embedding_length", 500), "embedding_length is 500; wanted a multiple of the 8 heads");
  GgufWriter nothing;
  expect_refused(model(nothing), "general.architecture is missing");
  nothing.word("general.architecture", "llama");
  expect_refused(model(nothing), "block_count is missing");
  nothing.number("llama.block_count", 1);
  expect_refused(model(nothing), "attention.head_count is missing");
  expect_refused(model(small("mamba")), "general.architecture is mamba; wanted one that keeps keys and values");
}

TEST(Gguf, LayersMayHaveHeadsOfTheirOwn) {
  GgufWriter writer;
  writer.word("general.architecture", "lfm2")
      .number("lfm2.block_count", 4)
      .number("lfm2.embedding_length", 512)
      .number("lfm2.attention.head_count", 8)
      .numbers("lfm2.attention.head_count_kv", {0, 2, 0, 4});
  const Model found = model(writer).value();
  ASSERT_EQ(found.groups.size(), 2U);
  EXPECT_EQ(found.groups[0].layers, Layers{1});
  EXPECT_EQ(found.groups[1].layers, Layers{3});
  EXPECT_EQ(found.groups[1].kv_heads, 4U);
  GgufWriter short_one;
  short_one.word("general.architecture", "lfm2")
      .number("lfm2.block_count", 4)
      .numbers("lfm2.attention.head_count", {8, 8, 8});
  expect_refused(model(short_one), "attention.head_count is an array of 3; wanted 4, one for each layer");
}

TEST(Gguf, WindowsFollowTheFileOrTheArchitecture) {
  const auto with = [](const std::string& architecture, std::uint32_t window) {
    return model(small(architecture).number(architecture + ".attention.sliding_window", window)).value();
  };
  const Model gpt_oss = with("gpt-oss", 128);
  EXPECT_EQ(layers_with_window(gpt_oss, 128), (Layers{0, 2}));
  EXPECT_TRUE(has_note(gpt_oss, "taken as all but the last of every 2, as gpt-oss has it")) << gpt_oss.notes.at(0);
  EXPECT_EQ(layers_with_window(with("cohere2", 4096), 4096), (Layers{0, 1, 2}));
  EXPECT_EQ(layers_with_window(with("gemma3", 512), 512), (Layers{0, 1, 2, 3}))
      << "the sixth would be the first full one";
  EXPECT_EQ(layers_with_window(with("smallthinker", 4096), 4096), (Layers{1, 2, 3}));
  EXPECT_EQ(layers_with_window(with("gemma3", 0), std::nullopt), (Layers{0, 1, 2, 3}));
  const Model gemma2 = model(small("gemma2")).value();
  EXPECT_EQ(layers_with_window(gemma2, 4096), (Layers{0, 2}));
  EXPECT_TRUE(has_note(gemma2, "the window is not in the file: taken as 4096"));
  const Model phi3 = with("phi3", 2047);
  EXPECT_EQ(layers_with_window(phi3, std::nullopt), (Layers{0, 1, 2, 3}));
  EXPECT_TRUE(has_note(phi3, "a window of 2047 is in the file, but not which layers have it"));
}

TEST(Gguf, PatternsSayWhichLayersSlide) {
  const auto with = [](auto&& add) {
    GgufWriter writer = small("gemma3");
    writer.number("gemma3.attention.sliding_window", 512);
    add(writer);
    return model(writer);
  };
  const std::string key = "gemma3.attention.sliding_window_pattern";
  EXPECT_EQ(layers_with_window(*with([&](GgufWriter& w) { w.flags(key, {true, false, false, true}); }), 512),
            (Layers{0, 3}));
  EXPECT_EQ(layers_with_window(*with([&](GgufWriter& w) { w.numbers(key, {0, 1, 0, 0}); }), 512), Layers{1});
  EXPECT_EQ(layers_with_window(*with([&](GgufWriter& w) { w.number(key, 2); }), 512), (Layers{0, 2}));
  EXPECT_EQ(layers_with_window(*with([&](GgufWriter& w) { w.number(key, 1); }), 512), Layers{});
  EXPECT_EQ(layers_with_window(*with([&](GgufWriter& w) { w.number(key, 0); }), 512), (Layers{0, 1, 2, 3}));
  EXPECT_TRUE(with([&](GgufWriter& w) { w.number(key, 2); })->notes.empty()) << "the file says it all";
  expect_refused(with([&](GgufWriter& w) { w.numbers(key, {0, 1, 2, 0}); }), "2 for a layer; wanted at most 1");
  expect_refused(with([&](GgufWriter& w) { w.flags(key, {true}); }), "an array of 1; wanted 4");
}

TEST(Gguf, WindowedLayersMayHaveOtherHeads) {
  GgufWriter writer = small("gemma4");
  writer.number("gemma4.attention.sliding_window", 512)
      .flags("gemma4.attention.sliding_window_pattern", {true, false, true, false})
      .number("gemma4.attention.key_length", 512)
      .number("gemma4.attention.value_length", 512)
      .number("gemma4.attention.key_length_swa", 256)
      .number("gemma4.attention.value_length_swa", 256)
      .number("gemma4.attention.shared_kv_layers", 1);
  const Model found = model(writer).value();
  ASSERT_EQ(found.groups.size(), 2U);
  EXPECT_EQ(found.groups[0].head_dim, 256U);
  EXPECT_EQ(found.groups[0].layers, (Layers{0, 2}));
  EXPECT_EQ(found.groups[1].head_dim, 512U);
  EXPECT_EQ(found.groups[1].layers, Layers{1}) << "layer 3 uses another's";
  EXPECT_EQ(found.groups[1].kind(), "full attention, 2 x 512");
}

TEST(Gguf, LayersWithoutACacheAreNotCounted) {
  const Model hybrid = model(small("qwen35")).value();
  EXPECT_EQ(hybrid.groups.at(0).layers, Layers{3});
  EXPECT_TRUE(has_note(hybrid, "which layers have attention is not in the file: taken as the last of every 4"));
  EXPECT_TRUE(has_note(hybrid, "3 layers keep a recurrent state"));
  const Model interval = model(small("qwen35").number("qwen35.full_attention_interval", 2)).value();
  EXPECT_EQ(interval.groups.at(0).layers, (Layers{1, 3}));
  const Model listed =
      model(small("qwen35").flags("qwen35.attention.recurrent_layers", {false, true, true, true})).value();
  EXPECT_EQ(listed.groups.at(0).layers, Layers{0});
  const Model nextn = model(small("glm4moe").number("glm4moe.nextn_predict_layers", 1)).value();
  EXPECT_EQ(nextn.groups.at(0).layers, (Layers{0, 1, 2}));
  EXPECT_TRUE(has_note(nextn, "the last 1 layers, which predict further tokens, are not counted"));
  expect_refused(model(small("glm4moe").number("glm4moe.nextn_predict_layers", 5)), "nextn_predict_layers is 5");
  expect_refused(model(small().number("llama.attention.shared_kv_layers", 4)), "0 in every layer");
}

TEST(Gguf, LatentAttentionIsCountedAsTheFileHasIt) {
  GgufWriter writer;
  writer.word("general.architecture", "deepseek2")
      .number("deepseek2.block_count", 61)
      .number("deepseek2.attention.head_count", 128)
      .number("deepseek2.attention.head_count_kv", 1)
      .number("deepseek2.attention.key_length", 576)
      .number("deepseek2.attention.value_length", 512)
      .number("deepseek2.attention.key_length_mla", 192);
  const Model found = model(writer).value();
  EXPECT_EQ(found.groups.at(0).kind(), "full attention, 1 x 576/512");
  EXPECT_TRUE(has_note(found, "MLA"));
  EXPECT_TRUE(found.groups.at(0).v_in_k);
}

// Files, and files in parts.
class GgufFiles : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "rota_gguf_" + testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << bytes;
    return folder_ + "/" + name;
  }
  static GgufWriter part(std::uint16_t index, std::uint16_t count) {
    GgufWriter writer = index == 0 ? small() : GgufWriter{};
    writer.raw("split.no", GgufWriter::u16, GgufWriter::bytes_of(index))
        .raw("split.count", GgufWriter::u16, GgufWriter::bytes_of(count));
    return writer;
  }

  std::string folder_;
};

TEST_F(GgufFiles, TheSizeOfTheWeightsIsThatOfTheFile) {
  GgufWriter writer = small();
  writer.tensor("a", {16, 2}, 0).tensor("b", {16}, 128).data = std::string(192, 'w');
  const std::string whole = writer.file();
  EXPECT_EQ(rota::tool::read_gguf_file(write("a.gguf", whole))->weights_bytes, whole.size());
  const auto head = rota::tool::read_gguf_file(write("head.gguf", whole.substr(0, whole.size() - 100)));
  EXPECT_FALSE(head->weights_bytes.has_value()) << "tensor b begins beyond the end";
  EXPECT_EQ(head->incomplete, "the file is truncated: it has " + std::to_string(whole.size() - 100) +
                                  " bytes, and ends before its tensors do");
  EXPECT_EQ(rota::tool::read_gguf_file(write("none.gguf", small().file()))->incomplete, "the file has no tensors");
  EXPECT_FALSE(rota::tool::read_gguf_file(write("list.gguf", writer.metadata() + "abc"))->weights_bytes.has_value());
}

TEST_F(GgufFiles, PartsAreCountedTogether) {
  const std::string first = part(0, 2).file(), second = part(1, 2).file();
  const std::string path = write("m-00001-of-00002.gguf", first);
  const auto one = rota::tool::read_gguf_file(path);
  EXPECT_FALSE(one->weights_bytes.has_value());
  EXPECT_EQ(one->incomplete, "1 of its 2 parts are here");
  const std::string second_path = write("m-00002-of-00002.gguf", second);
  EXPECT_EQ(rota::tool::read_gguf_file(path)->weights_bytes, first.size() + second.size());
  expect_refused(rota::tool::read_gguf_file(second_path), "is part 2 of 2; wanted part 1");
  expect_refused(rota::tool::read_gguf_file(write("odd.gguf", part(3, 2).file())), "is part 3 of 2");
  EXPECT_EQ(rota::tool::read_gguf_file(write("renamed.gguf", first))->incomplete, "1 of its 2 parts are here");
}

TEST_F(GgufFiles, WhatIsNoFileIsRefused) {
  expect_refused(rota::tool::read_gguf_file(folder_ + "/missing.gguf"), folder_ + "/missing.gguf: No such file");
  expect_refused(rota::tool::read_gguf_file(folder_), "is no file");
  expect_refused(rota::tool::read_gguf_file(write("empty.gguf", "")), "the file is truncated: it has 0 bytes");
}

}  // namespace
