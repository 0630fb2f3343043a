#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/tool_run.h"

// `rota distort`, as a user meets it. ROTA_SOURCE_FOLDER is set by the build.

namespace {

using rota::test::contains;
using Output = rota::test::ToolOutput;

Output run(const std::string& arguments) { return rota::test::run_tool(arguments); }

const std::string kCaptures = ROTA_SOURCE_FOLDER "/tests/captures";

nlohmann::json json_of(const Output& output) {
  EXPECT_EQ(output.exit_code, 0) << output.text;
  return nlohmann::json::parse(output.text);
}

// The rows of a list that have these values.
std::vector<nlohmann::json> rows_with(const nlohmann::json& list, const nlohmann::json& wanted) {
  std::vector<nlohmann::json> rows;
  for (const auto& row : list) {
    bool all = true;
    for (const auto& [key, value] : wanted.items()) all = all && row.at(key) == value;
    if (all) rows.push_back(row);
  }
  return rows;
}

double only(const nlohmann::json& list, const nlohmann::json& wanted, const std::string& key) {
  const auto rows = rows_with(list, wanted);
  EXPECT_EQ(rows.size(), 1U) << wanted;
  return rows.empty() ? std::nan("") : rows.front().at(key).get<double>();
}

const std::vector<std::string> kSealed{"turbo2", "turbo3", "turbo4", "turbo5", "turbo6", "turbo8"};

TEST(Distort, ShowsThatErrorsOfCapturesFallWithBits) {
  const auto json = json_of(run("distort -o json " + kCaptures));
  EXPECT_EQ(json.at("report"), "distort");
  EXPECT_EQ(json.at("command"), "rota distort -o json " + kCaptures);
  const auto& source = json.at("sources").at(0);
  EXPECT_EQ(source.at("source"), "captures");
  EXPECT_EQ(source.at("captures"), 8);
  EXPECT_EQ(source.at("queries"), 8 * 3 * 256);
  EXPECT_EQ(source.at("softmax_scale"), 0.125);
  EXPECT_EQ(source.at("non_finite").at("keys"), 0);
  const auto& attention = json.at("attention");
  const auto output_error = [&](const std::string& k, const std::string& v) {
    return only(attention, {{"k", k}, {"v", v}}, "output_error");
  };
  // Where the other side errs most, one more bit of this one hardly shows: a little noise is allowed there.
  constexpr double kNoise = 1.01;
  for (std::size_t k = 0; k < kSealed.size(); ++k) {
    for (std::size_t v = 0; v < kSealed.size(); ++v) {
      const double error = output_error(kSealed[k], kSealed[v]);
      EXPECT_LT(error, kNoise * (k == 0 ? 1 : output_error(kSealed[k - 1], kSealed[v]))) << kSealed[k] << kSealed[v];
      EXPECT_LT(error, kNoise * (v == 0 ? 1 : output_error(kSealed[k], kSealed[v - 1]))) << kSealed[k] << kSealed[v];
    }
    if (k == 0) continue;
    EXPECT_LT(output_error(kSealed[k], kSealed[k]), output_error(kSealed[k - 1], kSealed[k - 1]));
    for (const char* key : {"logit_error", "kl"}) {
      EXPECT_LT(only(attention, {{"k", kSealed[k]}, {"v", kSealed[k]}}, key),
                only(attention, {{"k", kSealed[k - 1]}, {"v", kSealed[k - 1]}}, key));
    }
    for (const char* side : {"k", "v"}) {
      EXPECT_LT(only(json.at("rows"), {{"side", side}, {"codec", kSealed[k]}}, "mse"),
                only(json.at("rows"), {{"side", side}, {"codec", kSealed[k - 1]}}, "mse"));
    }
  }
  EXPECT_LT(output_error("turbo4", "turbo4"), 0.05);
  EXPECT_GT(output_error("turbo4", "turbo4"), 0.001);
  EXPECT_LT(output_error("f16", "f16"), 1e-14) << "the captures are f16";
  EXPECT_EQ(json.at("options").size(), 5U);
  // Keys of a page have much in common: without their mean they take more of the bits.
  EXPECT_GT(only(json.at("options"), {{"options", "without key mean"}}, "logit_error"),
            1.5 * only(json.at("options"), {{"options", "all on, pages of 128"}}, "logit_error"));
}

TEST(Distort, OfNormalNumbersIsWhatTheorySays) {
  const auto json = json_of(run("distort --random gaussian -o json"));
  for (const char* side : {"k", "v"}) {
    for (const std::string& codec : kSealed) {
      const auto rows = rows_with(json.at("rows"), {{"source", "gaussian"}, {"side", side}, {"codec", codec}});
      ASSERT_EQ(rows.size(), 1U);
      const double mse = rows[0].at("mse"), theory = rows[0].at("theory_mse"), bound = rows[0].at("shannon_mse");
      // A scale of its own for each token, found by search, gains up to a fifth on a quantizer that is fixed.
      EXPECT_LT(mse, 1.01 * theory) << rows[0];
      EXPECT_GT(mse, 0.8 * theory) << rows[0];
      EXPECT_GT(mse, bound) << rows[0];
      EXPECT_NEAR(bound, std::exp2(-2 * rows[0].at("bits_stored").get<double>()), 0.02 * bound) << rows[0];
      EXPECT_GT(rows[0].at("max_error").get<double>(), std::sqrt(mse)) << rows[0];
    }
    // Halves of a last place, evenly spread over each power of two.
    EXPECT_NEAR(only(json.at("rows"), {{"side", side}, {"codec", "f16"}}, "mse"), 4.3e-8, 0.1e-8);
    EXPECT_NEAR(only(json.at("rows"), {{"side", side}, {"codec", "bf16"}}, "mse"), 4.3e-8 * 64, 0.1e-8 * 64);
    EXPECT_EQ(only(json.at("rows"), {{"side", side}, {"codec", "f32"}}, "mse"), 0);
  }
  // The output errs by the values' error and by the weights', which the keys' error makes.
  const double output = only(json.at("attention"), {{"k", "turbo4"}, {"v", "turbo4"}}, "output_error");
  EXPECT_NEAR(output, std::sqrt(0.5 * 0.0081 + 0.5 * 0.0081), 0.03);
}

TEST(Distort, WithoutCapturesTakesEveryDistribution) {
  const auto json = json_of(run("distort --head-dim 64 -o json"));
  ASSERT_EQ(json.at("sources").size(), 3U);
  for (const char* source : {"gaussian", "laplace", "student_t3"}) {
    const double mse = only(json.at("rows"), {{"source", source}, {"side", "v"}, {"codec", "turbo4"}}, "mse");
    // A rotation of 64 numbers makes all of them nearly normal; what is left of heavy tails helps.
    EXPECT_LT(mse, 0.0095) << source;
    EXPECT_GT(mse, 0.006) << source;
    EXPECT_EQ(rows_with(json.at("rows"), {{"source", source}}).size(), 18U);
    EXPECT_EQ(rows_with(json.at("attention"), {{"source", source}}).size(), 3U + 36U);
  }
  const auto both = json_of(run("distort --random laplace -o json " + kCaptures));
  ASSERT_EQ(both.at("sources").size(), 2U);
  EXPECT_EQ(both.at("sources").at(1).at("head_dim"), 128);
}

TEST(Distort, PrintsTheSameNumbersInEveryFormat) {
  const std::string command = "distort --page 64 --tail 64 " + kCaptures + " -o ";
  const auto json = json_of(run(command + "json"));
  const Output text = run(command + "text"), md = run(command + "md"), csv = run(command + "csv");
  const auto scientific = [](double number) {
    std::array<char, 32> shown{};
    std::snprintf(shown.data(), shown.size(), "%.3e", number);
    return std::string(shown.data());
  };
  for (const auto& row : json.at("rows")) {
    for (const Output* output : {&text, &md}) {
      EXPECT_TRUE(contains(*output, scientific(row.at("mse").get<double>()))) << row << output->text;
    }
    EXPECT_TRUE(contains(
        csv, row.at("codec").get<std::string>() + "," + row.at("bits_stored").dump() + "," + row.at("mse").dump()))
        << row << csv.text;
  }
  for (const auto& row : json.at("attention")) {
    for (const Output* output : {&text, &md}) {
      EXPECT_TRUE(contains(*output, scientific(row.at("kl").get<double>()))) << row << output->text;
    }
  }
}

TEST(Distort, TellsWrongUsageFromAMissingDevice) {
  for (const char* option : {"-o xml",          "--page 100",
                             "--tail -1",       "--sinks x",
                             "--scale 0",       "--scale nan",
                             "--scale inf",     "--head-dim 64",
                             "--random cauchy", "--random gaussian --head-dim 24",
                             "--codecs turbo7", "--codecs turbo4,q8_0",
                             "--sample 1",      "--sample 0",
                             "--sample 00",     "--sample 01",
                             "--sample -4",     "--sample some",
                             "--per token",     "-t 0",
                             "-t 1025"}) {
    EXPECT_EQ(run("distort " + kCaptures + " " + option).exit_code, 2) << option;
  }
  const Output missing = run("distort --device vulkan:77 " + kCaptures);
  EXPECT_EQ(missing.exit_code, 3);
  EXPECT_TRUE(contains(missing, "rota distort: ") && contains(missing, "\"vulkan:77\"")) << missing.text;
}

using Shape = std::vector<std::uint64_t>;

std::string header_of(const std::string& dictionary) {
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>((dictionary.size() + 1) % 256);
  header += static_cast<char>((dictionary.size() + 1) / 256);
  return header + dictionary + "\n";
}

// As numpy.save writes zeros of this shape.
std::string npy_of(const Shape& shape) {
  std::uint64_t bytes = 2;
  std::string sizes;
  for (const std::uint64_t size : shape) {
    bytes *= size;
    sizes += std::to_string(size) + ", ";
  }
  return header_of("{'descr': '<f2', 'fortran_order': False, 'shape': (" + sizes + "), }") + std::string(bytes, '\0');
}

// A folder with one capture, for a test to spoil.
class Distorted : public testing::Test {
 protected:
  Distorted() : folder_((std::filesystem::temp_directory_path() / "rota_distort_XXXXXX").string()) {
    if (mkdtemp(folder_.data()) == nullptr) ADD_FAILURE() << folder_;
    write("a_q.npy", npy_of({300, 2, 16}));
    write("a_k.npy", npy_of({300, 16}));
    write("a_v.npy", npy_of({300, 16}));
  }
  ~Distorted() override { std::filesystem::remove_all(folder_); }
  Distorted(const Distorted&) = delete;
  Distorted& operator=(const Distorted&) = delete;

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
  }
  std::string read(const std::string& name) const {
    std::ifstream file(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  Output distort(const std::string& options = {}) const { return run("distort " + folder_ + " " + options); }

  // One line, which names the file, and one with what to try.
  void expect_refused(const std::string& name, const std::string& text) const {
    const Output output = distort();
    EXPECT_EQ(output.exit_code, 1) << output.text;
    EXPECT_TRUE(output.text.starts_with("rota distort: " + path(name) + ": ")) << output.text;
    EXPECT_TRUE(contains(output, text)) << text << "\n" << output.text;
    const std::string next = "\ntry: rota distort --help\n";
    EXPECT_EQ(output.text.find('\n'), output.text.size() - next.size()) << output.text;
    EXPECT_TRUE(output.text.ends_with(next)) << output.text;
  }
  void expect_header_refused(const std::string& dictionary, const std::string& text) const {
    SCOPED_TRACE(dictionary);
    write("a_k.npy", header_of(dictionary) + std::string(std::size_t{300} * 16 * 2, '\0'));
    expect_refused("a_k.npy", text);
  }

  std::string folder_;
};

TEST_F(Distorted, ZerosAreSealedExactly) {
  const Output output = distort();
  ASSERT_EQ(output.exit_code, 0) << output.text;
  EXPECT_TRUE(contains(output, "1 captures, 300 tokens, dim 16")) << output.text;
  EXPECT_TRUE(contains(output, "logits times 0.25\n")) << output.text;
  for (const auto& row : json_of(distort("-o json")).at("rows")) EXPECT_EQ(row.at("mse"), 0) << row;
}

// Every device gives the same bytes; so all but the device's name is the same.
TEST_F(Distorted, TablesAreTheSameOnEveryDevice) {
  for (const char* name : {"_q.npy", "_k.npy", "_v.npy"}) {
    std::filesystem::copy(kCaptures + "/L10_g0" + name, path(std::string("a") + name),
                          std::filesystem::copy_options::overwrite_existing);
  }
  const auto tables = [](const Output& output) { return output.text.substr(output.text.find('\n')); };
  const Output gpu = distort("--device vulkan:0");
  ASSERT_EQ(gpu.exit_code, 0) << gpu.text;
  EXPECT_EQ(tables(distort()), tables(gpu));
}

std::string bytes_of(const std::vector<std::uint32_t>& numbers, std::size_t bytes) {
  std::string text;
  for (const std::uint32_t number : numbers) {
    for (std::size_t at = 0; at < bytes; ++at) text += static_cast<char>(number >> (8 * at));
  }
  return text;
}

// Numbers that each type holds, so that all give the same results.
TEST_F(Distorted, RawFilesAndOtherTypesAreReadAlike) {
  const std::string expected = json_of(distort("-o json")).at("rows").dump();
  const auto numbers = [](const std::vector<std::uint32_t>& three) {
    std::vector<std::uint32_t> all;
    for (std::size_t at = 0; at < std::size_t{300} * 16; ++at) all.push_back(three[at * at % 7 % 3]);
    return all;
  };
  // 1, -0.5 and 0
  const std::string f32 = bytes_of(numbers({0x3f800000, 0xbf000000, 0}), 4);
  const std::string f16 = bytes_of(numbers({0x3c00, 0xb800, 0}), 2);
  const std::string bf16 = bytes_of(numbers({0x3f80, 0xbf00, 0}), 2);
  const std::string header = "', 'fortran_order': False, 'shape': (300, 16), }";
  write("a_k.npy", header_of("{'descr': '<f2" + header) + f16);
  const std::string from_f16 = json_of(distort("-o json")).at("rows").dump();
  EXPECT_NE(from_f16, expected) << "the keys are not zeros any more";
  write("a_k.npy", header_of("{'descr': '<f4" + header) + f32);
  EXPECT_EQ(json_of(distort("-o json")).at("rows").dump(), from_f16);
  std::filesystem::remove(path("a_k.npy"));
  for (const auto& [dtype, bytes] : std::map<std::string, std::string>{{"f32", f32}, {"f16", f16}, {"bf16", bf16}}) {
    write("a_k.raw", bytes);
    write("a_k.json", "{\"dtype\": \"" + dtype + "\", \"shape\": [300, 16], \"layer\": 3}");
    EXPECT_EQ(json_of(distort("-o json")).at("rows").dump(), from_f16) << dtype;
  }
}

TEST_F(Distorted, RawFilesThatLieAreRefused) {
  std::filesystem::remove(path("a_k.npy"));
  write("a_k.raw", std::string(std::size_t{300} * 16 * 2, '\0'));
  expect_refused("a_k.json", "is not there or no file; wanted what the .raw file beside it holds");
  for (const char* json : {"", "[]", "{"}) {
    write("a_k.json", json);
    expect_refused("a_k.json", "is no JSON object; wanted {");
  }
  for (const char* json :
       {R"({"shape": [300, 16]})", R"({"dtype": 16, "shape": [300, 16]})", R"({"dtype": "f8", "shape": [300, 16]})"}) {
    write("a_k.json", json);
    expect_refused("a_k.json", "dtype is not one of f16, bf16, f32 and f64; wanted {");
  }
  for (const char* shape : {"300", "[300, -16]", "[300, 16.5]", "[300, \"16\"]", "[300, 18446744073709551616]"}) {
    write("a_k.json", std::string(R"({"dtype": "f16", "shape": )") + shape + "}");
    expect_refused("a_k.json", "shape is no list");
  }
  write("a_k.json", R"({"dtype": "f16", "shape": [9223372036854775808, 2]})");
  expect_refused("a_k.raw", "9600 bytes are in it; wanted more than 2^64 for its shape");
  write("a_k.json", R"({"dtype": "f32", "shape": [300, 16]})");
  expect_refused("a_k.raw", "9600 bytes are in it; wanted 19200 for its shape (300, 16)");
  write("a_k.json", std::string(std::size_t{2} << 20, ' '));
  expect_refused("a_k.json", "has 2 MiB; wanted {");
}

TEST_F(Distorted, FolderWithoutCapturesIsRefused) {
  std::filesystem::remove(path("a_v.npy"));
  const Output none = distort();
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_TRUE(contains(none, folder_ + ": a: has k, and no v; wanted NAME_q, NAME_k")) << none.text;
  std::filesystem::remove(path("a_k.npy"));
  const Output lone = distort();
  EXPECT_TRUE(contains(lone, folder_ + ": a: has q, and no k and no v; wanted")) << lone.text;
  std::filesystem::remove(path("a_q.npy"));
  const Output empty = distort();
  EXPECT_EQ(empty.exit_code, 1);
  EXPECT_TRUE(contains(empty, folder_ + ": no captures; wanted NAME_q, NAME_k")) << empty.text;
  const Output missing = run("distort " + path("missing"));
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_TRUE(contains(missing, path("missing") + ": No such file or directory; wanted")) << missing.text;
}

TEST_F(Distorted, TruncatedFilesAreRefused) {
  const std::string whole = read("a_v.npy");
  for (const std::size_t bytes : {0U, 5U, 9U}) {
    write("a_v.npy", whole.substr(0, bytes));
    expect_refused("a_v.npy", "does not begin as a NumPy array of version 1.0, 2.0 or 3.0 does; wanted");
  }
  write("a_v.npy", whole.substr(0, 40));
  expect_refused("a_v.npy", "wanted at most the 30 bytes that follow");
  write("a_v.npy", whole.substr(0, whole.size() - 1));
  expect_refused("a_v.npy", "9599 bytes follow the header; wanted 9600 for its shape (300, 16)");
  write("a_v.npy", whole + "x");
  expect_refused("a_v.npy", "9601 bytes follow the header; wanted 9600 for its shape (300, 16)");
}

TEST_F(Distorted, OtherVersionsTypesAndOrdersAreRefused) {
  std::string version = read("a_k.npy");
  version[6] = 4;
  write("a_k.npy", version);
  expect_refused("a_k.npy", "version 1.0");
  expect_header_refused("{'descr': '<i8', 'fortran_order': False, 'shape': (300, 16), }",
                        "descr is '<i8'; wanted '<f2', '<f4' or '<f8'");
  expect_header_refused("{'descr': '>f2', 'fortran_order': False, 'shape': (300, 16), }",
                        "descr is '>f2'; wanted '<f2', '<f4' or '<f8'");
  expect_header_refused("{'descr': '\x1b[2J\n', 'fortran_order': False, 'shape': (300, 16), }",
                        "descr is '?[2J?'; wanted");
  expect_header_refused("{'descr': '<f2', 'fortran_order': True, 'shape': (300, 16), }", "True; wanted False, C order");
}

TEST_F(Distorted, HeadersThatLieAboutTheirLengthAreRefused) {
  const std::string whole = read("a_k.npy");
  for (const int difference : {-40, -2, -1, 1, 40}) {
    SCOPED_TRACE(difference);
    std::string lying = whole;
    lying[8] = static_cast<char>(lying[8] + difference);
    write("a_k.npy", lying);
    expect_refused("a_k.npy", difference < -1 ? "the header is no dictionary" : "the header does not end with");
  }
  std::string long_header = whole;
  long_header[9] = '\xff';
  write("a_k.npy", long_header);
  expect_refused("a_k.npy", "the header's length is 65");
}

TEST_F(Distorted, HeadersThatAreNoDictionaryAreRefused) {
  const std::string begin = "{'descr': '<f2', 'fortran_order': False, 'shape': ";
  for (const std::string& dictionary :
       {std::string{}, std::string("{"), std::string("{}"), std::string("[]"), begin, begin + "(300, 16)", begin + "}",
        begin + "(300, 16), ", begin + "(300 16), }", begin + "(4800), }", begin + "300, 16, }",
        begin + "(300, 16),, }", begin + "(300, 16), 'shape': (300, 16), }", begin + "(300, 16), 'more': (300, 16), }",
        begin + "(300, 16), 'descr': '<f2', }", std::string("{'shape': (300, 16), 'descr': '<f2'}"),
        std::string("{'shape': (300, 16), 'descr': '<f2', 'fortran_order': 0}"),
        std::string("{'shape': (300, 16), 'descr': <f2, 'fortran_order': False}")}) {
    expect_header_refused(dictionary, "the header is no dictionary of descr, fortran_order and shape; wanted {'descr'");
  }
  for (const char* shape : {"(-300, 16)", "(300, 0x10)", "(18446744073709551616, 16)", "(,)", "(300, 16.0)"}) {
    expect_header_refused(begin + shape + ", }", "; wanted");
  }
  expect_header_refused(begin + "(300, 16), } }", "the header does not end with its dictionary");
  expect_header_refused(begin + "(18446744073709551615, 16), }", "wanted more than 2^64");
  expect_header_refused(begin + "(9223372036854775808, 2), }", "wanted more than 2^64");
}

TEST_F(Distorted, WrongShapesAreRefused) {
  const auto refused = [&](const std::string& name, const Shape& shape, const std::string& text) {
    SCOPED_TRACE(name + text);
    const std::string whole = read(name);
    write(name, npy_of(shape));
    expect_refused(name, text);
    write(name, whole);
  };
  refused("a_k.npy", {4800}, "the shape is (4800,); wanted (tokens, dim)");
  refused("a_k.npy", {300, 1, 16}, "the shape is (300, 1, 16); wanted (tokens, dim)");
  refused("a_k.npy", {2, 1, 300, 16}, "the shape is (2, 1, 300, 16); wanted (tokens, dim)");
  refused("a_k.npy", {0, 300, 16}, "the shape is (0, 300, 16); wanted (tokens, dim)");
  refused("a_k.npy", {300, 300, 16}, "the shape is (300, 300, 16): which are heads, and which tokens?");
  refused("a_q.npy", {300, 300, 16}, "the shape is (300, 300, 16): which are heads, and which tokens?");
  refused("a_q.npy", {2, 301, 16}, "the shape is (2, 301, 16); wanted (300, query heads, 16)");
  refused("a_k.npy", {256, 16}, "(1, heads, tokens, dim), more than 256 tokens");
  refused("a_k.npy", {300, 24}, "head_dim is 24; wanted m * 2^k");
  refused("a_k.npy", {300, 0}, "head_dim is 0; wanted m * 2^k");
  refused("a_v.npy", {299, 16}, "the shape is (299, 16); wanted the keys' (300, 16)");
  refused("a_q.npy", {300, 0, 16}, "the shape is (300, 0, 16); wanted (300, query heads, 16)");
  refused("a_q.npy", {300, 2, 32}, "the shape is (300, 2, 32); wanted (300, query heads, 16)");
  for (const char* name : {"b_k.npy", "b_v.npy"}) write(name, npy_of({300, 32}));
  write("b_q.npy", npy_of({300, 2, 32}));
  expect_refused("b_k.npy", "the shape is (300, 32); wanted the other captures' (300, 16)");
}

TEST_F(Distorted, NumbersThatAreNotFiniteAreCounted) {
  std::string keys = read("a_k.npy");
  keys[keys.size() - std::size_t{200} * 16 * 2 + 1] = '\x7c';
  write("a_k.npy", keys);
  const Output output = distort();
  EXPECT_EQ(output.exit_code, 0);
  EXPECT_TRUE(contains(output, "NaN, infinite or beyond f16: 1 numbers in keys, 0 in values.")) << output.text;
  EXPECT_FALSE(contains(output, "nan")) << output.text;
  std::string queries = read("a_q.npy");
  queries.back() = '\x7e';
  write("a_q.npy", queries);
  expect_refused("a_q.npy", "value 9599 is not finite; wanted finite queries");
}

TEST_F(Distorted, SoftmaxScaleIsTakenFromTheIndex) {
  write("index.json", R"({"softmax_scale": 0.5})");
  EXPECT_TRUE(contains(distort(), "logits times 0.5\n"));
  EXPECT_TRUE(contains(distort("--scale 2"), "logits times 2\n"));
  write("index.json", R"({"softmax": 0.5})");
  EXPECT_TRUE(contains(distort(), "logits times 0.25\n"));
  for (const char* text : {"", "{", "[0.5]"}) {
    write("index.json", text);
    expect_refused("index.json", "is no JSON object; wanted");
  }
  for (const char* scale : {"0", "-1", "\"0.5\"", "null"}) {
    write("index.json", "{\"softmax_scale\": " + std::string(scale) + "}");
    expect_refused("index.json", "softmax_scale is no positive number; wanted");
  }
}

TEST_F(Distorted, TextsOfWhichNothingIsSealedAreRefused) {
  for (const char* options :
       {"--tail 200", "--tail 18446744073709551615", "--sinks 300", "--sinks 18446744073709551615"}) {
    const Output output = distort(options);
    EXPECT_EQ(output.exit_code, 1) << options;
    EXPECT_TRUE(contains(output, folder_ + ": none of 300 tokens is sealed for any query; wanted")) << output.text;
  }
  EXPECT_EQ(distort("--tail 0 --sinks 130").exit_code, 0);
}

}  // namespace
