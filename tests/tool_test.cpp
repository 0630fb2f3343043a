#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "harness/tool_run.h"

// The rota command, as a user meets it. ROTA_SOURCE_FOLDER is set by the build.

namespace {

using rota::test::contains;
using Output = rota::test::ToolOutput;

Output run(const std::string& arguments) { return rota::test::run_tool(arguments); }

TEST(Tool, WithoutACommandIsWrongUsage) {
  EXPECT_EQ(run("").exit_code, 2);
  EXPECT_EQ(run("frobnicate").exit_code, 2);
  EXPECT_EQ(run("doctor --frobnicate").exit_code, 2);
}

TEST(Tool, HelpNamesCommandsAndExitCodes) {
  const Output help = run("--help");
  EXPECT_EQ(help.exit_code, 0);
  for (const char* text : {"devices", "distort", "doctor", "Exit codes:"}) {
    EXPECT_TRUE(contains(help, text)) << help.text;
  }
  EXPECT_TRUE(contains(run("doctor --help"), "--selftest"));
  EXPECT_TRUE(contains(run("--version"), "rota 0."));
}

TEST(Tool, DevicesListsTheCpuFirst) {
  const Output text = run("devices");
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_EQ(text.text.rfind("cpu ", 0), 0U) << text.text;
  const auto json = nlohmann::json::parse(run("devices -o json").text).at("rows");
  EXPECT_EQ(json.at(0).at("id"), "cpu");
  EXPECT_GE(json.at(0).at("threads"), 1);
  EXPECT_GT(json.at(0).at("memory_bytes"), 0);
}

TEST(Tool, DoctorRunsTheSelfTestOfEveryDevice) {
  const Output output = run("doctor --selftest -o json");
  EXPECT_EQ(output.exit_code, 0) << output.text;
  const auto json = nlohmann::json::parse(output.text);
  EXPECT_TRUE(json.at("healthy"));
  std::size_t tests = 0;
  for (const auto& finding : json.at("rows")) {
    EXPECT_EQ(finding.at("verdict"), "works") << finding;
    tests += finding.value("op", "") == "store" ? 1U : 0U;
  }
  EXPECT_GE(tests, 18U) << "nine pairs of types on the CPU and on a Vulkan device";
}

TEST(Tool, DoctorOfAMissingDeviceSaysSo) {
  const Output output = run("doctor --device vulkan:77");
  EXPECT_EQ(output.exit_code, 3);
  EXPECT_TRUE(contains(output, "there is no device \"vulkan:77\"")) << output.text;
}

TEST(Tool, DoctorWithoutAVulkanDriverSaysWhatToInstall) {
  setenv("VK_ICD_FILENAMES", "/nonexistent.json", 1);
  const Output without = run("doctor -o json");
  unsetenv("VK_ICD_FILENAMES");
  EXPECT_EQ(without.exit_code, 0);
  const auto json = nlohmann::json::parse(without.text);
  const auto& finding = json.at("rows").back();
  EXPECT_EQ(finding.at("device"), "vulkan");
  EXPECT_EQ(finding.at("verdict"), "missing");
  EXPECT_NE(finding.at("advice").get<std::string>().find("mesa-vulkan-drivers"), std::string::npos);
}

const std::string kCaptures = ROTA_SOURCE_FOLDER "/tests/captures";

// The numbers of every table row that begins with `label`.
std::vector<double> numbers_of(const Output& output, const std::string& label) {
  std::vector<double> numbers;
  std::istringstream lines(output.text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| " + label + " |")) continue;
    std::istringstream cells(line.substr(label.size() + 4));
    for (std::string cell; std::getline(cells, cell, '|');) numbers.push_back(std::stod(cell));
  }
  return numbers;
}

void expect_close(double shown, const nlohmann::json& exact) {
  EXPECT_NEAR(shown, exact.get<double>(), 1e-5 + 1e-3 * shown);
}

TEST(Tool, DistortShowsThatErrorsFallWithBits) {
  const Output output = run("distort " + kCaptures);
  ASSERT_EQ(output.exit_code, 0) << output.text;
  EXPECT_TRUE(output.text.starts_with("`rota distort " + kCaptures)) << output.text;
  for (const char* text : {"8 captures, 512 tokens, dim 64, device cpu", "--scale 0.125", "\nA. ", "\nB. ", "\nC. "}) {
    EXPECT_TRUE(contains(output, text)) << text << output.text;
  }
  EXPECT_FALSE(contains(output, "Not finite"));
  // Where the other side errs most, one more bit of this one hardly shows: a little noise is allowed there.
  constexpr double kNoise = 1.01;
  std::vector<double> before(6, 1);
  std::size_t row = 0;
  for (const char* keys : {"K2", "K3", "K4", "K5", "K6", "K8"}) {
    const std::vector<double> errors = numbers_of(output, keys);
    ASSERT_EQ(errors.size(), 6U) << output.text;
    for (std::size_t values = 0; values < errors.size(); ++values) {
      EXPECT_LT(errors[values], kNoise * before[values]) << keys;
      EXPECT_LT(errors[values], kNoise * (values == 0 ? 1 : errors[values - 1])) << keys;
    }
    EXPECT_LT(errors[row], row == 0 ? 1 : before[row - 1]) << keys << " with values of as many bits";
    before = errors;
    ++row;
  }
  EXPECT_LT(numbers_of(output, "K4").at(2), 0.05);
  EXPECT_GT(numbers_of(output, "K4").at(2), 0.001);
  for (const std::size_t column : {2U, 3U, 4U, 5U, 6U}) {
    EXPECT_LT(numbers_of(output, "4").at(column), numbers_of(output, "3").at(column)) << "column " << column;
  }
}

TEST(Tool, DistortPrintsTheSameNumbersAsJson) {
  const Output text = run("distort --page 64 --tail 64 " + kCaptures);
  const Output output = run("distort --page 64 --tail 64 -o json " + kCaptures);
  ASSERT_EQ(output.exit_code, 0) << output.text;
  const auto json = nlohmann::json::parse(output.text);
  EXPECT_EQ(json.at("captures"), 8);
  EXPECT_EQ(json.at("queries"), 8 * 3 * 256);
  EXPECT_EQ(json.at("non_finite").at("keys"), 0);
  for (const auto& row : json.at("widths")) {
    const std::vector<double> shown = numbers_of(text, row.at("bits").dump());
    ASSERT_EQ(shown.size(), 7U) << text.text;
    expect_close(shown[0], row.at("key_bits_stored"));
    expect_close(shown[2], row.at("key_error"));
    expect_close(shown[6], row.at("kl"));
  }
  for (std::size_t at = 0; at < 36; ++at) {
    const auto& row = json.at("output_errors").at(at);
    expect_close(numbers_of(text, "K" + row.at("key_bits").dump()).at(at % 6), row.at("output_error"));
  }
  for (const auto& row : json.at("options")) {
    const std::vector<double> shown = numbers_of(text, row.at("options"));
    ASSERT_EQ(shown.size(), 4U) << text.text;
    expect_close(shown[2], row.at("output_error"));
  }
}

TEST(Tool, DistortTellsWrongUsageFromAMissingDevice) {
  EXPECT_EQ(run("distort").exit_code, 2);
  for (const char* option :
       {"-o xml", "--page 100", "--tail -1", "--sinks x", "--scale 0", "--scale nan", "--scale inf"}) {
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

  // One line, which names the file.
  void expect_refused(const std::string& name, const std::string& text) const {
    const Output output = distort();
    EXPECT_EQ(output.exit_code, 1) << output.text;
    EXPECT_TRUE(output.text.starts_with("rota distort: " + path(name) + ": ")) << output.text;
    EXPECT_TRUE(contains(output, text)) << text << "\n" << output.text;
    EXPECT_EQ(output.text.find('\n'), output.text.size() - 1) << output.text;
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
  EXPECT_TRUE(contains(output, "--scale 0.25`")) << output.text;
  EXPECT_EQ(numbers_of(output, "K2"), std::vector<double>(6)) << output.text;
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

TEST_F(Distorted, FolderWithoutCapturesIsRefused) {
  std::filesystem::remove(path("a_v.npy"));
  const Output none = distort();
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_TRUE(contains(none, folder_ + ": no captures; wanted NAME_q.npy")) << none.text;
  const Output missing = run("distort " + path("missing"));
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_TRUE(contains(missing, path("missing") + ": No such file or directory; wanted")) << missing.text;
}

TEST_F(Distorted, TruncatedFilesAreRefused) {
  const std::string whole = read("a_v.npy");
  for (const std::size_t bytes : {0U, 5U, 9U}) {
    write("a_v.npy", whole.substr(0, bytes));
    expect_refused("a_v.npy", "does not begin as a NumPy array of version 1.0 does; wanted");
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
  version[6] = 2;
  write("a_k.npy", version);
  expect_refused("a_k.npy", "version 1.0");
  expect_header_refused("{'descr': '<f4', 'fortran_order': False, 'shape': (300, 16), }",
                        "descr is '<f4'; wanted '<f2'");
  expect_header_refused("{'descr': '>f2', 'fortran_order': False, 'shape': (300, 16), }",
                        "descr is '>f2'; wanted '<f2'");
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
  refused("a_k.npy", {256, 16}, "the shape is (256, 16); wanted (tokens, dim), more than 256 tokens");
  refused("a_k.npy", {300, 24}, "head_dim is 24; wanted m * 2^k");
  refused("a_k.npy", {300, 0}, "head_dim is 0; wanted m * 2^k");
  refused("a_v.npy", {299, 16}, "the shape is (299, 16); wanted the keys' (300, 16)");
  refused("a_q.npy", {300, 16}, "the shape is (300, 16); wanted (300, query heads, 16)");
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
  EXPECT_TRUE(contains(output, "Not finite: 1 numbers in keys, 0 in values.")) << output.text;
  EXPECT_FALSE(contains(output, "nan")) << output.text;
  std::string queries = read("a_q.npy");
  queries.back() = '\x7e';
  write("a_q.npy", queries);
  expect_refused("a_q.npy", "value 9599 is not finite; wanted finite queries");
}

TEST_F(Distorted, SoftmaxScaleIsTakenFromTheIndex) {
  write("index.json", R"({"softmax_scale": 0.5})");
  EXPECT_TRUE(contains(distort(), "--scale 0.5`"));
  EXPECT_TRUE(contains(distort("--scale 2"), "--scale 2`"));
  write("index.json", R"({"softmax": 0.5})");
  EXPECT_TRUE(contains(distort(), "--scale 0.25`"));
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
