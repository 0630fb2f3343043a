#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "distort/captures.h"
#include "harness/tool_run.h"
#include "rota/dtype.h"

// Which files, shapes and types `rota distort` takes, and what it says of them.

namespace {

using rota::test::contains;
using Output = rota::test::ToolOutput;
using Shape = std::vector<std::uint64_t>;

template <class Number>
std::string bytes_of(const std::vector<Number>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(Number)};
}

std::string npy(const Shape& shape, const std::string& bytes, const std::string& descr = "<f4", char version = 1) {
  std::string sizes;
  for (const std::uint64_t size : shape) sizes += std::to_string(size) + ", ";
  const std::string dictionary = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': (" + sizes + "), }\n";
  std::string text("\x93NUMPY", 6);
  text += version;
  text += '\0';
  for (int at = 0; at < (version == 1 ? 2 : 4); ++at) text += static_cast<char>(dictionary.size() >> (8 * at));
  return text + dictionary + bytes;
}

constexpr std::uint64_t kTokens = 400, kDim = 16;

// [head][token][dim] for each head in turn.
std::vector<float> numbers(std::uint64_t heads, std::uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> made(heads * kTokens * kDim);
  for (float& number : made) number = normal(engine);
  return made;
}

std::vector<float> head_of(const std::vector<float>& all, std::uint64_t head, std::uint64_t heads = 1) {
  const auto begin = all.begin() + static_cast<std::ptrdiff_t>(head * kTokens * kDim);
  return {begin, begin + static_cast<std::ptrdiff_t>(heads * kTokens * kDim)};
}

// [token][head][dim] of [head][token][dim].
std::vector<float> tokens_first(const std::vector<float>& all) {
  const std::uint64_t heads = all.size() / kTokens / kDim;
  std::vector<float> made;
  for (std::uint64_t token = 0; token < kTokens; ++token) {
    for (std::uint64_t head = 0; head < heads; ++head) {
      const auto row = all.begin() + static_cast<std::ptrdiff_t>((head * kTokens + token) * kDim);
      made.insert(made.end(), row, row + kDim);
    }
  }
  return made;
}

class Captures : public testing::Test {
 protected:
  Captures() : folder_((std::filesystem::temp_directory_path() / "rota_captures_XXXXXX").string()) {
    if (mkdtemp(folder_.data()) == nullptr) ADD_FAILURE() << folder_;
  }
  ~Captures() override { std::filesystem::remove_all(folder_); }
  Captures(const Captures&) = delete;
  Captures& operator=(const Captures&) = delete;

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
    std::ofstream(path(name), std::ios::binary) << text;
  }
  std::string read(const std::string& name) const {
    std::ifstream file(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void write_floats(const std::string& name, const Shape& shape, const std::vector<float>& values) const {
    write(name + ".npy", npy(shape, bytes_of(values)));
  }
  // All .npy files of a folder, as numpy.savez and numpy.savez_compressed keep them.
  void zip(const std::string& folder, const std::string& to, const std::string& method) const {
    const Output made = rota::test::run_shell(
        "/usr/bin/python3 -c 'import zipfile, pathlib, sys\nwith zipfile.ZipFile(sys.argv[2], \"w\", zipfile." +
        method +
        ") as z:\n  for p in sorted(pathlib.Path(sys.argv[1]).iterdir()):\n    with z.open(p.name, \"w\", "
        "force_zip64=True) as f: f.write(p.read_bytes())' " +
        path(folder) + " " + path(to));
    ASSERT_EQ(made.exit_code, 0) << made.text;
  }

  static Output distort(const std::string& arguments) { return rota::test::run_tool("distort " + arguments); }
  nlohmann::json json(const std::string& name, const std::string& options = {}) const {
    const Output output = distort(path(name) + " -o json --codecs turbo4,f16 " + options);
    EXPECT_EQ(output.exit_code, 0) << output.text;
    return nlohmann::json::parse(output.text, nullptr, false);
  }
  // Without what depends on the source's and the heads' names.
  nlohmann::json measured(const std::string& name, const std::string& options = {}) const {
    nlohmann::json all = json(name, options), kept;
    for (const char* list : {"rows", "attention", "options", "heads"}) {
      for (auto row : all.at(list)) {
        for (const char* key : {"source", "name", "layer", "head"}) row.erase(key);
        kept[list].push_back(row);
      }
    }
    return kept;
  }
  void expect_refused(const std::string& name, const std::string& text) const {
    const Output output = distort(path(name));
    EXPECT_EQ(output.exit_code, 1) << output.text;
    EXPECT_TRUE(output.text.starts_with("rota distort: " + path(name))) << output.text;
    EXPECT_TRUE(contains(output, text)) << text << "\n" << output.text;
  }

  std::string folder_;
};

TEST_F(Captures, HeadsOfALayerAreThoseOfSingleFiles) {
  const auto q = numbers(4, 1), k = numbers(2, 2), v = numbers(2, 3);
  for (std::uint64_t head = 0; head < 2; ++head) {
    const std::string name = "one/L03_g" + std::to_string(head);
    write_floats(name + "_q", {kTokens, 2, kDim}, tokens_first(head_of(q, 2 * head, 2)));
    write_floats(name + "_k", {kTokens, kDim}, head_of(k, head));
    write_floats(name + "_v", {kTokens, kDim}, head_of(v, head));
  }
  const auto wanted = measured("one");
  ASSERT_EQ(wanted.at("heads").size(), 4U);
  write_floats("hf/layer3_q", {1, 4, kTokens, kDim}, q);
  write_floats("hf/layer3_k", {1, 2, kTokens, kDim}, k);
  write_floats("hf/layer3_v", {1, 2, kTokens, kDim}, v);
  EXPECT_EQ(measured("hf"), wanted);
  write_floats("three/layer3_q", {4, kTokens, kDim}, q);
  write_floats("three/layer3_k", {2, kTokens, kDim}, k);
  write_floats("three/layer3_v", {1, 2, kTokens, kDim}, v);
  EXPECT_EQ(measured("three"), wanted);
  write_floats("three/layer3_q", {kTokens, 4, kDim}, tokens_first(q));
  EXPECT_EQ(measured("three"), wanted);
  // One head alone, each of its shapes.
  write_floats("alone/q", {2, kTokens, kDim}, head_of(q, 0, 2));
  write_floats("alone/k", {kTokens, kDim}, head_of(k, 0));
  write_floats("alone/v", {kTokens, kDim}, head_of(v, 0));
  const auto alone = measured("alone");
  EXPECT_EQ(alone.at("heads").at(1), wanted.at("heads").at(1));
  EXPECT_EQ(measured("alone/k.npy"), alone);
  write_floats("alone/q", {kTokens, kDim}, head_of(q, 0));
  EXPECT_EQ(json("alone").at("sources").at(0).at("queries"), kTokens - 256);

  const auto heads = json("hf").at("heads");
  EXPECT_EQ(heads.at(2).at("name"), "layer3 head 1");
  EXPECT_EQ(heads.at(2).at("layer"), 3);
  EXPECT_EQ(heads.at(2).at("head"), 1);
  EXPECT_EQ(json("one").at("heads").at(2).at("head"), 1);
  write_floats("hf/layer3_q", {1, 3, kTokens, kDim}, numbers(3, 1));
  const Output odd = distort(path("hf"));
  EXPECT_TRUE(contains(odd, "layer3_q.npy: the shape is (1, 3, 400, 16); wanted")) << odd.text;
  EXPECT_TRUE(contains(odd, "2 query heads or a multiple")) << odd.text;
}

TEST_F(Captures, LayersAndHeadsAreShownAndTheWorstIsNamed) {
  for (const char* layer : {"layer2", "layer10"}) {
    const auto seed = static_cast<std::uint32_t>(layer[5]);
    write_floats(std::string("a/") + layer + "_q", {2, kTokens, kDim}, numbers(2, seed));
    write_floats(std::string("a/") + layer + "_k", {2, kTokens, kDim}, numbers(2, seed + 10));
    write_floats(std::string("a/") + layer + "_v", {2, kTokens, kDim}, numbers(2, seed + 20));
  }
  const auto found = json("a");
  ASSERT_EQ(found.at("heads").size(), 8U);
  ASSERT_EQ(found.at("layers").size(), 4U);
  EXPECT_EQ(found.at("layers").at(0).at("layer"), 2) << "by number";
  double worst = 0, sum = 0;
  std::string name;
  for (const auto& row : found.at("heads")) {
    if (row.at("codec") != "turbo4") continue;
    sum += row.at("kl").get<double>();
    if (row.at("output_error") > worst) {
      worst = row.at("output_error");
      name = row.at("name");
    }
  }
  EXPECT_NEAR(found.at("attention").at(1).at("kl").get<double>(), sum / 4, 1e-12);
  const Output text = distort(path("a"));
  EXPECT_TRUE(contains(text, "Worst head at turbo4: " + name + ", output error ")) << text.text;
  EXPECT_FALSE(contains(text, "Each head")) << text.text;
  EXPECT_TRUE(contains(distort(path("a") + " --per head"), "layer10 head 1  turbo4"));
  const Output layers = distort(path("a") + " --per layer -o md");
  EXPECT_TRUE(contains(layers, "| layer 10 | turbo4 |")) << layers.text;
}

TEST_F(Captures, CodecsThatAreNamedAreAllThatIsShown) {
  write_floats("a/x_q", {kTokens, 1, kDim}, numbers(1, 1));
  write_floats("a/x_k", {kTokens, kDim}, numbers(1, 2));
  write_floats("a/x_v", {kTokens, kDim}, numbers(1, 3));
  const Output text = distort(path("a") + " --codecs turbo5,turbo2");
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_TRUE(contains(text, "turbo2") && contains(text, "turbo5"));
  for (const char* other : {"f16", "f32", "turbo3", "turbo4", "Options"})
    EXPECT_FALSE(contains(text, other)) << text.text;
  const auto few = nlohmann::json::parse(distort(path("a") + " -o json --codecs turbo4").text);
  const auto all = nlohmann::json::parse(distort(path("a") + " -o json").text);
  EXPECT_EQ(few.at("rows").size(), 2U);
  EXPECT_EQ(few.at("attention").size(), 1U);
  EXPECT_EQ(few.at("options"), all.at("options"));
  EXPECT_TRUE(contains(distort(path("a") + " --codecs turbo9"), "turbo9"));
}

TEST_F(Captures, LongTextsAreSampled) {
  constexpr std::uint64_t kLong = 1100;
  std::vector<float> made;
  for (std::uint32_t seed = 0; seed < 3; ++seed) {
    const auto more = numbers(1, seed);
    made.insert(made.end(), more.begin(), more.end());
  }
  made.resize(kLong * kDim);
  for (const char* part : {"q", "k", "v"}) write_floats(std::string("a/x_") + part, {1, 1, kLong, kDim}, made);
  const Output text = distort(path("a"));
  EXPECT_TRUE(contains(text, "64 of 844 queries per head, 95 % interval\n")) << text.text;
  EXPECT_TRUE(contains(text, "+-")) << text.text;
  const auto some = json("a"), all = json("a", "--sample all");
  EXPECT_FALSE(all.at("attention").at(0).contains("kl_interval"));
  const auto &row = some.at("attention").at(1), &whole = all.at("attention").at(1);
  for (const std::string key : {"logit_error", "kl", "output_error"}) {
    EXPECT_NEAR(row.at(key).get<double>(), whole.at(key).get<double>(), row.at(key + "_interval").get<double>()) << key;
    EXPECT_GT(row.at(key + "_interval"), 0);
    EXPECT_TRUE(some.at("heads").at(1).contains(key + "_interval"));
  }
  EXPECT_EQ(some.at("rows"), all.at("rows"));
  EXPECT_EQ(some.at("sources").at(0).at("queries"), 64);
  EXPECT_EQ(measured("a", "-t 1"), measured("a", "-t 2"));
}

TEST_F(Captures, WithoutQueriesOnlyStorageIsReported) {
  write_floats("a/x_q", {kTokens, 1, kDim}, numbers(1, 1));
  for (const char* name : {"a/x", "a/y"}) {
    write_floats(std::string(name) + "_k", {kTokens, kDim}, numbers(1, 2));
    write_floats(std::string(name) + "_v", {kTokens, kDim}, numbers(1, 3));
  }
  const auto with = json("a");
  EXPECT_EQ(with.at("sources").at(0).at("captures"), 2);
  EXPECT_EQ(with.at("sources").at(0).at("queries"), kTokens - 256);
  EXPECT_TRUE(contains(distort(path("a")), "1 of 2 captures have no queries: attention is that of the others.\n"));
  std::filesystem::remove(path("a/x_q.npy"));
  const Output text = distort(path("a"));
  EXPECT_EQ(text.exit_code, 0) << text.text;
  EXPECT_TRUE(contains(text, "Attention needs NAME_q.\n")) << text.text;
  EXPECT_TRUE(contains(text, "error of keys")) << text.text;
  EXPECT_FALSE(contains(text, "Attention over")) << text.text;
  const auto without = json("a");
  EXPECT_EQ(without.at("rows"), with.at("rows"));
  EXPECT_TRUE(without.at("attention").empty() && without.at("options").empty());
  write("distort.json", distort(path("a") + " -o json").text);
  const Output report = rota::test::run_tool("report " + path("distort.json") + " -O " + path("report.html"));
  EXPECT_EQ(report.exit_code, 0) << report.text;
}

TEST_F(Captures, NpzFilesAreReadAsTheirArraysAre) {
  for (const char* part : {"q", "k", "v"}) {
    write_floats(std::string("a/layer0_") + part, {2, kTokens, kDim}, numbers(2, static_cast<std::uint32_t>(part[0])));
  }
  write("a/tokens.npy", npy({3}, bytes_of<std::int64_t>({1, 2, 3}), "<i8"));
  const auto wanted = measured("a");
  zip("a", "stored.npz", "ZIP_STORED");
  zip("a", "deflated.npz", "ZIP_DEFLATED");
  EXPECT_EQ(measured("stored.npz"), wanted);
  EXPECT_EQ(measured("deflated.npz"), wanted);
  EXPECT_EQ(json("stored.npz").at("heads").at(2).at("name"), "layer0 head 1");
  EXPECT_EQ(json("stored.npz").at("sources").at(0).at("source"), "stored");
  // A folder of them has all.
  write("both/one.npz", read("stored.npz"));
  write("both/two.npz", read("deflated.npz"));
  EXPECT_EQ(json("both").at("sources").at(0).at("captures"), 4);
  EXPECT_EQ(json("both").at("heads").at(0).at("name"), "one layer0 head 0");
  for (const char* part : {"q", "k", "v"}) {
    std::filesystem::create_directories(path("b"));
    std::filesystem::copy(path(std::string("a/layer0_") + part + ".npy"), path(std::string("b/") + part + ".npy"));
  }
  zip("b", "bare.npz", "ZIP_DEFLATED");
  EXPECT_EQ(measured("bare.npz"), wanted);
  zip("a", "lzma.npz", "ZIP_LZMA");
  expect_refused("lzma.npz", "is compressed by method 14; wanted a file of numpy.savez");
}

TEST_F(Captures, WhatDoesNotFitIntoMemoryIsRefused) {
  // Files with nothing in them but their size.
  for (const char* part : {"a/x_k", "a/x_v"}) {
    write(std::string(part) + ".json", R"({"dtype": "f16", "shape": [17179869184, 16]})");
    write(std::string(part) + ".raw", "");
    std::filesystem::resize_file(path(std::string(part) + ".raw"), std::uintmax_t{1} << 39U);
  }
  expect_refused("a/x_k.raw", "are needed for one of its heads, and rota takes ");
}

TEST_F(Captures, ArraysOfOneNameAreRefused) {
  for (const char* part : {"q", "k", "v"}) write_floats(std::string("a/x_") + part, {kTokens, kDim}, numbers(1, 5));
  write_floats("a/x.k", {kTokens, kDim}, numbers(1, 6));
  const Output files = distort(path("a"));
  EXPECT_EQ(files.exit_code, 1);
  EXPECT_TRUE(contains(files, "is the same part of a capture as ")) << files.text;
  EXPECT_TRUE(contains(files, path("a/x.k.npy")) && contains(files, path("a/x_k.npy"))) << files.text;
  zip("a", "a.npz", "ZIP_STORED");
  expect_refused("a.npz", ": x.k: is the same part of a capture as " + path("a.npz") + ": x_k; wanted one");
}

TEST_F(Captures, TheEndingThatIsNamedIsRead) {
  for (const char* part : {"q", "k", "v"}) {
    const std::string name = std::string("a/x_") + part;
    write_floats(name, {kTokens, kDim}, numbers(1, 5));
    write(name + ".raw", bytes_of(numbers(1, 6)));
    write(name + ".json", R"({"dtype": "f32", "shape": [400, 16]})");
    write_floats(std::string("b/x_") + part, {kTokens, kDim}, numbers(1, 6));
  }
  EXPECT_EQ(measured("a/x_k.raw"), measured("b"));
  EXPECT_EQ(measured("a/x_k.npy"), measured("a"));
  EXPECT_NE(measured("a"), measured("b"));
}

TEST_F(Captures, WhatHasNothingToShowIsLeftOut) {
  for (const char* part : {"q", "k", "v"}) write_floats(std::string("a/x_") + part, {kTokens, kDim}, numbers(1, 5));
  const auto options = json("a", "--page 64 --tail 300").at("options");
  ASSERT_EQ(options.size(), 4U);
  for (const auto& row : options) EXPECT_EQ(row.at("page"), 64) << "no page of 128 is sealed";
  constexpr const char* kNothing = "--per layer has nothing to show: no name of a capture says its layer.\n";
  EXPECT_TRUE(contains(distort(path("a") + " --per layer"), kNothing));
  EXPECT_FALSE(contains(distort(path("a") + " --per head"), "nothing to show"));
  EXPECT_TRUE(contains(distort("--random gaussian --codecs turbo4 --per head"),
                       "--per head has nothing to show: random numbers are of no model.\n"));
}

TEST_F(Captures, NpzFilesThatLieAreRefused) {
  for (const char* part : {"q", "k", "v"}) write_floats(std::string("a/") + part, {kTokens, kDim}, numbers(1, 5));
  zip("a", "stored.npz", "ZIP_STORED");
  zip("a", "deflated.npz", "ZIP_DEFLATED");
  for (const char* name : {"stored.npz", "deflated.npz"}) {
    const std::string whole = read(name);
    const auto spoiled = [&](std::size_t at, char by) {
      std::string bytes = whole;
      bytes[at] = static_cast<char>(bytes[at] ^ by);
      return bytes;
    };
    const std::size_t directory = whole.find("PK\x01\x02"), end = whole.rfind("PK\x05\x06");
    write("x.npz", spoiled(10000, 1));
    expect_refused("x.npz", name[0] == 's' ? "is not what its checksum says" : "; wanted a file of numpy.savez");
    write("x.npz", spoiled(directory + 16, 1));
    expect_refused("x.npz", "is not what its checksum says");
    write("x.npz", spoiled(directory + 8, 1));
    expect_refused("x.npz", "is encrypted");
    write("x.npz", spoiled(directory + 45, 0x40));
    expect_refused("x.npz", "does not begin where the directory says");
    write("x.npz", spoiled(directory + 27, 0x7f));
    expect_refused("x.npz", "bytes in ");
    write("x.npz", spoiled(end + 19, 0x40));
    expect_refused("x.npz", "the zip directory does not lie within the file");
    write("x.npz", spoiled(end + 10, 0x40));
    expect_refused("x.npz", "the zip directory ");
    write("x.npz", whole.substr(0, whole.size() - 1));
    expect_refused("x.npz", "is no zip file");
    std::string twice = whole;
    for (std::size_t at = twice.find("v.npy"); at != std::string::npos; at = twice.find("v.npy")) twice[at] = 'k';
    write("x.npz", twice);
    expect_refused("x.npz", "k.npy is there twice");
    std::string control = whole;
    control[control.find("k.npy", directory)] = '\x1b';
    write("x.npz", control);
    expect_refused("x.npz", "control characters");
  }
  write("x.npz", "");
  expect_refused("x.npz", "is no zip file; wanted a file of numpy.savez");
  write("x.npz", read("a/k.npy"));
  expect_refused("x.npz", "is no zip file");
}

TEST_F(Captures, EveryTypeAndVersionGivesTheSame) {
  std::vector<float> simple = numbers(1, 1);
  for (float& number : simple) number = static_cast<float>(static_cast<int>(number * 4)) / 4;
  for (const char* part : {"q", "k", "v"}) write_floats(std::string("a/x_") + part, {kTokens, kDim}, simple);
  const auto wanted = measured("a");
  const std::vector<double> wide(simple.begin(), simple.end());
  std::vector<std::uint16_t> brain;
  for (const float number : simple) brain.push_back(rota::bf16_from_f32(number));
  for (const char version : {'\1', '\2', '\3'}) {
    write("a/x_k.npy", npy({kTokens, kDim}, bytes_of(wide), "<f8", version));
    EXPECT_EQ(measured("a"), wanted);
    EXPECT_FALSE(contains(distort(path("a")), "rounded"));
    for (const char* descr : {"<V2", "|V2", "bfloat16"}) {
      write("a/x_k.npy", npy({kTokens, kDim}, bytes_of(brain), descr, version));
      EXPECT_EQ(measured("a"), wanted) << descr;
    }
  }
  auto finer = wide;
  finer[17] += 1e-12;
  finer[19] += 1e-12;
  write("a/x_k.npy", npy({kTokens, kDim}, bytes_of(finer), "<f8"));
  EXPECT_TRUE(contains(distort(path("a")), "f64: 2 numbers were rounded to f32.\n"));
  finer[18] = 1e39;
  write("a/x_k.npy", npy({kTokens, kDim}, bytes_of(finer), "<f8"));
  const Output large = distort(path("a"));
  EXPECT_EQ(large.exit_code, 1);
  EXPECT_TRUE(contains(large, "x_k.npy: value 18 is 1e+39; wanted numbers that f32 holds")) << large.text;
}

TEST(CaptureNames, TellLayersAndHeads) {
  const auto expect = [](const std::string& name, std::optional<std::uint64_t> layer,
                         std::optional<std::uint64_t> head) {
    const rota::tool::HeadName found = rota::tool::head_name(name);
    EXPECT_EQ(found.layer, layer) << name;
    EXPECT_EQ(found.head, head) << name;
  };
  expect("L00_g2", 0, 2);
  expect("layer12", 12, {});
  expect("model.layers.3.self_attn", 3, {});
  expect("Layer-7 head 5", 7, 5);
  expect("blk.4", 4, {});
  expect("31", 31, {});
  expect("SmolLM2-layer3", 3, {});
  expect("capture", {}, {});
  expect("", {}, {});
}

}  // namespace
