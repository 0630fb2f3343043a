#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "harness/gguf_writer.h"
#include "harness/tool_run.h"
#include "rota/codec.h"

// `rota bench`, as a user meets it: what it measures, not how fast that is.

namespace {

using nlohmann::json;
using rota::test::contains;
using rota::test::run_tool;
using Output = rota::test::ToolOutput;

const std::string kShort = " --rotate 1 --seconds 0.1";
const std::string kSmall = " --kv-heads 2 --group 2 --head-dim 64 -t 1" + kShort;

// All that it prints is JSON: in a pipe, progress would spoil it.
json bench(const std::string& arguments) {
  const Output output = run_tool("bench " + arguments + " -o json");
  EXPECT_EQ(output.exit_code, 0) << output.text;
  return json::parse(output.text);
}

json rows(const std::string& arguments) { return bench(arguments).at("rows"); }

void expect_failure(const std::string& arguments, int exit_code, const std::string& what) {
  const Output output = run_tool("bench " + arguments);
  EXPECT_EQ(output.exit_code, exit_code) << arguments << "\n" << output.text;
  EXPECT_TRUE(output.text.starts_with("rota bench: ")) << output.text;
  EXPECT_TRUE(contains(output, what)) << what << "\n" << output.text;
  EXPECT_TRUE(contains(output, "\ntry: ")) << output.text;
}

std::vector<std::string> pairs_in(const json& found) {
  std::vector<std::string> pairs;
  for (const json& row : found) pairs.push_back(row.at("k").get<std::string>() + " " + row.at("v").get<std::string>());
  return pairs;
}

TEST(Bench, CodecsGoInPairs) {
  using Pairs = std::vector<std::string>;
  const auto pairs = [](const std::string& codecs) { return pairs_in(rows("attend -c 256 " + codecs + kSmall)); };
  EXPECT_EQ(pairs("-ctk f16,turbo4 -ctv turbo3,turbo8"), (Pairs{"f16 f16", "f16 turbo3", "turbo4 turbo8"}));
  EXPECT_EQ(pairs("-ctk turbo4 -ctv bf16,turbo3"), (Pairs{"f16 f16", "turbo4 bf16", "turbo4 turbo3"}));
  EXPECT_EQ(pairs("-ctv turbo5"), (Pairs{"f16 f16", "turbo5 turbo5"})) << "one list is taken for both";
  EXPECT_EQ(pairs(""), (Pairs{"f16 f16", "turbo8 turbo8", "turbo4 turbo4"}));
  expect_failure("attend -ctk f16,turbo4 -ctv f16,turbo4,turbo3", 2, "-ctk names 2 codecs and -ctv 3");
}

TEST(Bench, ATraceHasEveryCommandWithItsCallAndTime) {
  const std::string path = testing::TempDir() + "rota_bench.trace.json";
  rows("attend -c 300 -ctk turbo4 --trace " + path + kSmall);
  std::ifstream file(path);
  const json trace = json::parse(file);
  std::map<std::string, int> names;
  double recorded = 0;
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") == "M") continue;
    const auto name = event.at("name").get<std::string>();
    ++names[name];
    EXPECT_GE(event.at("dur").get<double>(), 0) << event;
    if (name == "record attend_query") recorded += event.at("dur").get<double>();
    if (name != "attend_split") continue;
    EXPECT_EQ(event.at("args").at("heads"), 4) << event;
    EXPECT_EQ(event.at("args").at("keys"), 300) << event;
    EXPECT_GT(event.at("args").at("bytes").get<int>(), 0) << event;
  }
  EXPECT_GT(names["attend_merge"], 10);
  EXPECT_EQ(names["attend_query"], names["attend_merge"]);
  EXPECT_EQ(names["record attend_query"], names["attend_query"]) << "a call is recorded once";
  EXPECT_GT(recorded, 0);
  EXPECT_EQ(trace.at("otherData").at("commands_left_out"), 0);
  expect_failure("attend -c 256 --trace /nowhere/trace.json" + kSmall, 1, "/nowhere/trace.json: No such file");
  const Output full = run_tool("bench attend -c 256 --trace /dev/full" + kSmall);
  EXPECT_EQ(full.exit_code, 1);
  EXPECT_TRUE(contains(full, "/dev/full: No space left on device")) << full.text;
  EXPECT_TRUE(contains(full, "spread: between the quarters")) << "the table is not lost\n" << full.text;
}

TEST(Bench, CallsAreTimedAloneAndTogetherBesideEmptyLoops) {
  const json report = bench("call -c 1,200 --kv-heads 2 --group 2 --head-dim 64 -t 1,2 --seconds 0.1");
  EXPECT_EQ(report.at("report"), "bench call");
  std::vector<std::string> found;
  for (const json& row : report.at("rows")) {
    found.push_back(row.at("submitted").get<std::string>() + " " + row.at("threads").dump() + " " +
                    row.at("keys").dump());
    EXPECT_GT(row.at("median_us").get<double>(), 0) << row;
    EXPECT_LE(row.at("min_us").get<double>(), row.at("median_us").get<double>()) << row;
  }
  EXPECT_EQ(found, (std::vector<std::string>{"alone 1 1", "with 32 1 1", "alone 1 200", "with 32 1 200",
                                             "5 empty loops, spinning 1 null", "5 empty loops, sleeping 1 null",
                                             "alone 2 1", "with 32 2 1", "alone 2 200", "with 32 2 200",
                                             "5 empty loops, spinning 2 null", "5 empty loops, sleeping 2 null"}));
  expect_failure("call --model llama-3.1-8b", 2, "neither --model nor --rotate");
  expect_failure("call --rotate 1", 2, "neither --model nor --rotate");
}

TEST(Bench, F16HasItsRowsWhetherItIsNamedOrNot) {
  const json found = rows("attend -c 256,384 -ctk turbo4" + kSmall);
  ASSERT_EQ(pairs_in(found), (std::vector<std::string>{"f16 f16", "turbo4 turbo4", "f16 f16", "turbo4 turbo4"}));
  for (const std::size_t first : {0U, 2U}) {
    EXPECT_EQ(found[first].at("keys"), first == 0 ? 256 : 384);
    EXPECT_EQ(found[first].at("speedup_vs_f16"), 1) << "of itself";
    EXPECT_GT(found[first + 1].at("speedup_vs_f16"), 0);
  }
  const json both = rows("store -c 256 -ctk f32,f16" + kSmall);
  ASSERT_EQ(pairs_in(both), (std::vector<std::string>{"f32 f32", "f16 f16"})) << "in the order that was asked for";
  EXPECT_EQ(both[1].at("speedup_vs_f16"), 1) << "of itself";
  const json sealed = rows("seal -c 256 -ctk turbo4" + kSmall);
  ASSERT_EQ(sealed.size(), 1U);
  EXPECT_TRUE(sealed[0].at("speedup_vs_f16").is_null()) << "f16 is not sealed";
}

TEST(Bench, AttendReadsAllThatIsStored) {
  const std::string shape = "--kv-heads 3 --head-dim 64 --value-dim 32";
  const auto bytes = [&](const std::string& options) {
    return rows("attend --group 2 " + shape + " " + options + " -t 1" + kShort).back().at("bytes").get<std::uint64_t>();
  };
  constexpr std::uint64_t kHeads = 3, kDense = (64 + 32) * 2;  // bytes of a head's token in f16
  EXPECT_EQ(bytes("-c 512 -ctk f16"), 512 * kHeads * kDense);
  EXPECT_EQ(bytes("-c 500 -ctk f16 --sequences 2"), 2 * 500 * kHeads * kDense);
  EXPECT_EQ(bytes("-c 512 -ctk f16 --window 200"), 200 * kHeads * kDense);
  EXPECT_EQ(bytes("-c 512 -ctk f32 -ctv bf16"), 512 * kHeads * (64 * 4 + 32 * 2));

  const std::uint64_t page = rota::page_bytes({.codec = rota::turbo(4), .side = rota::KvSide::keys, .head_dim = 64}) +
                             rota::page_bytes({.codec = rota::turbo(4), .side = rota::KvSide::values, .head_dim = 32});
  EXPECT_EQ(bytes("-c 512 -ctk turbo4"), kHeads * (3 * page + 128 * kDense)) << "pages of 128, the last is the tail";
  EXPECT_EQ(bytes("-c 512 -ctk turbo4 --tail 0"), kHeads * 4 * page);
  EXPECT_EQ(bytes("-c 512 -ctk turbo4 --window 200"), kHeads * (page + 128 * kDense)) << "of two pages, one is sealed";

  constexpr std::uint64_t kCounters = 2 * 2 * 8;  // that a cache has beside its pages
  const Output estimate = run_tool("estimate --layers 1 " + shape + " -c 512 -ctk f16 -ctv f16 -o json");
  EXPECT_EQ(json::parse(estimate.text).at("rows").at(0).at("bytes"), 512 * kHeads * kDense + kCounters);
}

TEST(Bench, OtherOpsReadAndWrite) {
  const auto bytes = [](const std::string& options) {
    return rows(options + " -c 256" + kSmall).back().at("bytes").get<std::uint64_t>();
  };
  constexpr std::uint64_t kNumbers = 256 * 2 * 64;  // of keys, and of values
  EXPECT_EQ(bytes("store -ctk f16 -ctv f32"), kNumbers * (2 + 2) + kNumbers * (2 + 4)) << "from f16";
  EXPECT_EQ(bytes("rope"), 2 * 2 * (kNumbers + 2 * kNumbers)) << "keys, and two query heads for each";
  std::uint64_t sealed = 0;
  for (const rota::KvSide side : {rota::KvSide::keys, rota::KvSide::values}) {
    sealed += 2 * 2 * rota::page_bytes({.codec = rota::turbo(3), .side = side, .head_dim = 64});
  }
  EXPECT_EQ(bytes("seal -ctk turbo3"), 2 * kNumbers * 2 + sealed) << "two pages of two heads";
}

TEST(Bench, EachNumberOfThreadsIsMeasured) {
  const json report = bench("attend -c 256 -ctk f16,turbo4 --kv-heads 2 --head-dim 64 -t 1,2" + kShort);
  std::vector<std::uint64_t> threads;
  for (const json& row : report.at("rows")) threads.push_back(row.at("threads").get<std::uint64_t>());
  EXPECT_EQ(threads, (std::vector<std::uint64_t>{1, 1, 2, 2}));
  ASSERT_EQ(report.at("devices").size(), 2U);
  EXPECT_EQ(report.at("devices").at(1).at("threads"), 2);
  EXPECT_EQ(report.at("rows").at(2).at("speedup_vs_f16"), 1) << "f16 with as many threads";
}

TEST(Bench, ListsMultiply) {
  const json found = rows("attend -ctk f16 -c 128,256 --rows 1,3 --sequences 1,2" + kSmall);
  ASSERT_EQ(found.size(), 8U);
  EXPECT_EQ(found[7].at("sequences"), 2);
  EXPECT_EQ(found[7].at("rows"), 3);
  EXPECT_EQ(found[7].at("keys"), 256);
}

TEST(Bench, AModelIsMeasuredOnceForEachShapeOfItsLayersAndSummedUp) {
  const std::string model = " -m gemma-3-1b -c 768 -t 1" + kShort;
  const json found = rows("attend --rows 2 -ctk turbo4" + model);
  ASSERT_EQ(pairs_in(found), (std::vector<std::string>{"f16 f16", "turbo4 turbo4", "f16 f16", "turbo4 turbo4",
                                                       "f16 f16", "turbo4 turbo4"}));
  for (const json& row : found) {
    EXPECT_EQ(row.at("model"), "gemma-3-1b");
    EXPECT_EQ(row.at("kv_heads"), 1);
    EXPECT_EQ(row.at("group"), 4);
    EXPECT_EQ(row.at("head_dim"), 256);
    EXPECT_EQ(row.at("value_dim"), 256);
    EXPECT_GT(row.at("speedup_vs_f16"), 0);
  }
  const json &windowed = found[1], &full = found[3], &whole = found[5];
  EXPECT_EQ(windowed.at("scope"), "layer");
  EXPECT_EQ(windowed.at("layers"), 22);
  EXPECT_EQ(windowed.at("window"), 512);
  EXPECT_EQ(full.at("layers"), 4);
  EXPECT_TRUE(full.at("window").is_null());
  EXPECT_TRUE(full.at("tokens_per_second").is_null());
  EXPECT_LT(windowed.at("bytes"), full.at("bytes"));

  EXPECT_EQ(whole.at("scope"), "model");
  EXPECT_EQ(whole.at("layers"), 26);
  EXPECT_EQ(whole.at("samples"), full.at("samples"));
  EXPECT_EQ(whole.at("bytes").get<std::uint64_t>(),
            22 * windowed.at("bytes").get<std::uint64_t>() + 4 * full.at("bytes").get<std::uint64_t>());
  const double ms = whole.at("median_ms").get<double>();
  EXPECT_GE(ms, 22 * windowed.at("min_ms").get<double>() + 4 * full.at("min_ms").get<double>());
  EXPECT_DOUBLE_EQ(whole.at("tokens_per_second").get<double>(), 2 / (ms / 1e3)) << "two rows of one sequence";
}

TEST(Bench, OtherOpsOfAModelHaveNoTokensPerSecond) {
  const json stored = rows("store -m gemma-3-1b -c 768 -t 1" + kShort);
  ASSERT_EQ(stored.size(), 2U) << "nothing but attention sees windows";
  EXPECT_EQ(stored[0].at("layers"), 26);
  EXPECT_EQ(stored[1].at("scope"), "model");
  EXPECT_EQ(stored[1].at("layers"), 26);
  EXPECT_TRUE(stored[1].at("tokens_per_second").is_null());

  const json latent = rows("attend -m DeepSeek-V3 -ctk f16 -c 128 -t 1" + kShort);
  EXPECT_EQ(latent.at(0).at("value_dim"), 512);
  EXPECT_EQ(latent.at(0).at("group"), 128);
  const json without = rows("store -c 128" + kSmall);
  ASSERT_EQ(without.size(), 1U);
  EXPECT_TRUE(without[0].at("model").is_null());
  EXPECT_EQ(without[0].at("scope"), "layer");
}

TEST(Bench, TheTableNamesTheModelAndTellsItsShapesApart) {
  const Output text = run_tool("bench attend -m gemma-3-1b -ctk f16 -c 640 -t 1" + kShort);
  EXPECT_EQ(text.exit_code, 0) << text.text;
  EXPECT_TRUE(contains(text, "op attend, model gemma-3-1b, head 256")) << text.text;
  EXPECT_TRUE(contains(text, "\nscope  layers  k    v    keys  window ")) << text.text;
  EXPECT_TRUE(contains(text, "\nlayer      22  f16  f16   640     512 ")) << text.text;
  EXPECT_TRUE(contains(text, "\nlayer       4  f16  f16   640       - ")) << text.text;
  EXPECT_TRUE(contains(text, "\nmodel      26  f16  f16   640       - ")) << text.text;
  EXPECT_TRUE(contains(text, " tok/s\n")) << text.text;
  EXPECT_TRUE(contains(text, "of attention alone, without the model's other work")) << text.text;
  EXPECT_EQ(text.text.find('\r'), std::string::npos) << "no progress in a pipe";
  const Output alone = run_tool("bench attend -ctk f16 -c 128" + kSmall);
  EXPECT_FALSE(contains(alone, "tok/s") || contains(alone, "scope")) << alone.text;
}

TEST(Bench, AFileIsAModelToo) {
  const std::string path = testing::TempDir() + "rota_bench_model.gguf";
  const auto write = [&](std::uint32_t embedding) {
    rota::test::GgufWriter writer;
    writer.word("general.architecture", "llama")
        .number("llama.block_count", 3)
        .number("llama.context_length", 4096)
        .number("llama.embedding_length", embedding)
        .number("llama.attention.head_count", 4)
        .number("llama.attention.head_count_kv", 2);
    std::ofstream(path, std::ios::binary) << writer.file();
  };
  write(4 * 64);
  const json found = rows("attend -ctk turbo4 -c 256 -t 1 -m " + path + kShort);
  ASSERT_EQ(found.size(), 4U) << "f16 and turbo4, of a layer and of all";
  EXPECT_EQ(found[0].at("model"), "rota_bench_model.gguf");
  EXPECT_EQ(found[0].at("layers"), 3);
  EXPECT_EQ(found[0].at("head_dim"), 64);
  write(4 * 72);
  expect_failure("attend -ctk turbo4 -m " + path, 2, "head_dim is 72; wanted m * 2^k");
  std::ofstream(path, std::ios::binary) << "no model";
  expect_failure("attend -m " + path, 1, "does not begin with \"GGUF\"");
  std::filesystem::remove(path);
}

TEST(Bench, WhatCannotBeMeasuredIsRefused) {
  for (const char* size : {"-c", "--kv-heads", "--group", "--head-dim", "--value-dim", "--rows", "--sequences"}) {
    expect_failure(std::string("attend ") + size + " 0", 2, "a size is 0; wanted 1 or more");
  }
  const std::string huge = "18446744073709551615";
  for (const char* size :
       {"-c", "--kv-heads", "--group", "--head-dim", "--value-dim", "--rows", "--sequences", "--rotate"}) {
    expect_failure(std::string("attend ") + size + " " + huge, 2, "more than any memory holds");
  }
  expect_failure("attend --window 0", 2, "--window is 0; wanted at least 1");
  expect_failure("attend -c 1000000000", 1,
                 "that rota takes of its memory\ntry: fewer cases at a time, or less memory");
  expect_failure("attend -c 1000000000 --rotate 64", 1, "memory\ntry: fewer cases at a time, or smaller ones\n");
  expect_failure("attend -c 4096,-1", 2, "-c is \"-1\"; wanted a whole number");
  expect_failure("attend --seconds 0.01", 2, "--seconds");
  for (const std::string& threads : {std::string("0"), std::string("1025"), huge}) {
    expect_failure("attend -t " + threads, 2, "-t is " + threads + "; wanted 1 to 1024");
  }
  expect_failure("attend -t 1 --device vulkan:0", 2, "-t counts threads of the CPU, and vulkan:0 is none");
  expect_failure("attend --device vulkan:77", 3, "vulkan:77");
  expect_failure("attend --device tpu", 3, "tpu");
  expect_failure("attend -ctk q4_0", 2, "q4_0");
  expect_failure("attend --head-dim 72 -ctk turbo4", 2, "--head-dim is 72; wanted m * 2^k");
  expect_failure("seal -ctk f16", 2, "seal makes pages of turbo2 to turbo8, not of f16");
  expect_failure("store -ctk turbo4", 2, "store writes dense numbers, and turbo4 is none");
  for (const char* option : {"--kv-heads 8", "--group 4", "--head-dim 128", "--value-dim 128", "--window 512"}) {
    expect_failure(std::string("attend -m llama-3.1-8b ") + option, 2, "--model has its own heads and windows");
  }
  expect_failure("attend -m lama-3.1-8b", 2, "did you mean llama-3.1-8b");
}

// Times differ from run to run; all else is the same in every format.
TEST(Bench, CsvHasWhatJsonHas) {
  const std::string arguments = "attend -ctk f16,turbo4 -c 256 --window 200" + kSmall;
  const json found = rows(arguments);
  const Output csv = run_tool("bench " + arguments + " -o csv");
  EXPECT_EQ(csv.exit_code, 0) << csv.text;
  std::istringstream lines(csv.text);
  const auto next = [&] {
    std::string line, cell;
    std::getline(lines, line);
    std::vector<std::string> cells;
    for (std::istringstream parts(line + ","); std::getline(parts, cell, ',');) cells.push_back(cell);
    return cells;
  };
  const std::vector<std::string> keys = next();
  for (const json& row : found) {
    const std::vector<std::string> cells = next();
    ASSERT_EQ(cells.size(), keys.size()) << csv.text;
    for (std::size_t at = 0; at < keys.size(); ++at) {
      ASSERT_TRUE(row.contains(keys[at])) << keys[at];
      const json& value = row.at(keys[at]);
      if (value.is_number_float()) {
        EXPECT_GE(std::stod(cells[at]), 0) << keys[at];
      } else {
        EXPECT_EQ(cells[at], value.is_null() ? "" : value.is_string() ? value.get<std::string>() : value.dump());
      }
    }
  }
  EXPECT_EQ(next(), std::vector<std::string>{""}) << "two rows, and nothing behind them";
}

TEST(Bench, AReportIsMadeOfIt) {
  const std::string path = testing::TempDir() + "rota_bench_report.json";
  std::ofstream(path) << bench("attend -m gemma-3-1b -ctk turbo4 -c 256 -t 1" + kShort);
  const Output page = run_tool("report " + path + " -O -");
  std::filesystem::remove(path);
  EXPECT_EQ(page.exit_code, 0) << page.text;
  EXPECT_TRUE(contains(page, "gemma-3-1b")) << page.text;
  EXPECT_TRUE(contains(page, "window 512")) << page.text;
}

}  // namespace
