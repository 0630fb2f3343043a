#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "bench/fields.h"
#include "harness/reported.h"

namespace {

using rota::test::contains;
using rota::test::count;
using rota::test::Json;
using rota::test::kBench;
using rota::test::kDistort;
using rota::test::kEval;
using rota::test::kRandom;
using rota::test::read;
using rota::test::Reported;
using rota::test::run_tool;
using rota::test::ToolOutput;

// A row of which every field is another than in the row of any other number.
rota::tool::BenchRow row_with(std::uint64_t number) {
  const std::string text = std::to_string(number);
  const auto real = static_cast<double>(number);
  return {.op = std::string(rota::tool::kBenchOps.at(number)),
          .k = "turbo" + text,
          .v = "turbo" + text + text,
          .device = "vulkan:" + text,
          .model = "model " + text,
          .scope = std::string(number == 1 ? rota::tool::kLayerScope : rota::tool::kModelScope),
          .keys = number,
          .head_dim = number,
          .value_dim = number,
          .kv_heads = number,
          .group = number,
          .window = number,
          .layers = number,
          .rows = number,
          .sequences = number,
          .threads = number,
          .samples = number,
          .calls_per_sample = number,
          .bytes = number,
          .median_ms = real,
          .p25_ms = real,
          .p75_ms = real,
          .min_ms = real,
          .spread = real,
          .gbps = real,
          .read_gbps = real,
          .fraction_of_read = real,
          .speedup_vs_f16 = real,
          .tokens_per_second = real,
          .noisy = number == 1};
}

TEST_F(Reported, EveryFieldThatBenchWritesAndReportReadsIsInTheTable) {
  Json json = Json::parse(read(kBench));
  json["rows"] = {rota::tool::bench_json(row_with(1)), rota::tool::bench_json(row_with(2))};
  const std::string page = report(write("bench.json", json));
  for (const rota::tool::BenchField& field : rota::tool::bench_fields()) {
    const bool is_read = field.reading != rota::tool::Reading::ignored;
    EXPECT_EQ(count(page, ">" + field.page.title() + "</th>"), is_read ? 1U : 0U) << field.key;
  }
}

TEST_F(Reported, ShowsWhatWasMeasuredAndWhere) {
  const std::string page = report(kBench + " " + kDistort, "--title 'Night run'");
  for (const char* text : {"<title>Night run</title>",
                           "<h1>Night run</h1>",
                           "commit 35b9f52",
                           "g++ 12.2.0, Release",
                           "2026-11-16T01:02:03Z",
                           "AMD EPYC 7B13",
                           "rota bench -ctk f16",
                           ">median time per call, ms<",
                           ">fraction of read speed<",
                           ">times the speed of f16<",
                           ">the memory&#39;s read speed, 16.1 GB/s<",
                           ">as fast as f16<",
                           "times as fast as f16 with 16,384 keys",
                           ">bits stored per value<",
                           ">Shannon&#39;s bound<",
                           ">theory<",
                           ">KL divergence, nats<",
                           "class=\"heat\"",
                           "3 of 26 rows are noisy",
                           "class=\"whisker\"",
                           ">turbo4 / turbo2<"}) {
    EXPECT_GE(count(page, text), 1U) << text;
  }
  // Every row is in a table: 26 of bench, 52 and 36 of distort, 6 of heat, 6 of most keys, 6 of one codec and 6 heads.
  EXPECT_EQ(count(page, "<tr>"), 26U + 52 + 36 + 6 + 6 + 6 + 6);
  EXPECT_LT(page.find("class=\"main\""), page.find("<svg"));
  EXPECT_LT(page.rfind("<h2>"), page.find("commit 35b9f52")) << "where it was measured comes last";
}

// The numbers of the sentence are those of the row: a reader takes them on.
TEST_F(Reported, FindingsAreComputed) {
  Json json = Json::parse(read(kBench));
  for (Json& row : json["rows"]) {
    if (row["op"] == "attend" && row["k"] != "f16") row["speedup_vs_f16"] = row["keys"] == 16384 ? 2 : 0.5;
  }
  json["rows"][8]["speedup_vs_f16"] = 3.9;
  json["rows"][8]["fraction_of_read"] = 0.87;
  json["noise"] = {{"read_spread", 0.25}, {"noisy", true}};
  const std::string page = report(write("bench.json", json));
  EXPECT_EQ(count(page,
                  "turbo4 attends 3.9 times as fast as f16 with 16,384 keys and moves bytes at 87% of the memory&#39;s "
                  "read speed; its 3 rows have 0.5 to 3.9 times f16&#39;s speed, median 0.5."),
            1U);
  EXPECT_EQ(count(page, "10 of 15 rows of attend are slower than f16, the slowest"), 1U);
  EXPECT_EQ(
      count(page, "The machine was not quiet (plain reading of memory varied by 25%): small differences mean nothing."),
      1U);
}

TEST_F(Reported, FilesOfOneKindAreToldApart) {
  Json json = Json::parse(read(kBench));
  for (Json& row : json["rows"]) {
    for (const char* key : {"median_ms", "min_ms", "p25_ms", "p75_ms"}) row[key] = row[key].get<double>() / 2;
  }
  const std::string page = report(kBench + " " + write("after.json", json));
  EXPECT_EQ(count(page, "after.json takes 50% of the time of bench.json (the same in 26 shared rows)."), 1U);
  EXPECT_GE(count(page, ">turbo3 · after.json<"), 1U);
  EXPECT_GE(count(page, ">turbo3 · bench.json<"), 1U);
  std::filesystem::create_directory(path("b"));
  const std::string same_name = report(kBench + " " + write("b/bench.json", json) + " " + kBench);
  EXPECT_GE(count(same_name, kBench + ", " + path("b/bench.json") + ", " + kBench + " (2): turbo"), 1U);
  EXPECT_GE(count(same_name, kBench + " (2)"), 1U);
}

TEST_F(Reported, NamesCannotBecomeMarkup) {
  const std::string evil = "</title><script>alert(\"1\")</script><img src=x onload='x'>&amp;\x01\xe2\x80\xae";
  Json json = Json::parse(read(kBench));
  for (const char* key : {"version", "commit", "build", "date", "command"}) json[key] = evil;
  json["devices"][0]["name"] = evil;
  for (Json& row : json["rows"]) {
    for (const char* key : {"k", "v", "device", "model"}) row[key] = evil;
  }
  Json distort = Json::parse(read(kDistort));
  for (Json& row : distort["rows"]) {
    for (const char* key : {"source", "codec"}) row[key] = evil;
  }
  for (Json& row : distort["attention"]) row["source"] = evil;
  Json eval = Json::parse(read(kEval));
  for (const char* key : {"model", "gguf", "text"}) eval[key] = evil;
  for (Json& row : eval["rows"]) row["codec"] = evil;
  const std::string files = write("<b>'.json", json);
  const ToolOutput output =
      run_tool("report \"" + files + "\" " + write("d.json", distort) + " " + write("e.json", eval) +
               " --title '<script>\xff</script>' -O " + path("report.html"));
  ASSERT_EQ(output.exit_code, 0) << output.text;
  const std::string page = read(path("report.html"));
  EXPECT_GE(count(page, "&lt;/title&gt;&lt;script&gt;alert(&quot;1&quot;)"), 10U);
  EXPECT_EQ(count(page, "<script"), 0U);
  EXPECT_EQ(count(page, "<img"), 0U);
  EXPECT_EQ(count(page, "<b>"), 0U);
  EXPECT_EQ(count(page, "\x01"), 0U);
  EXPECT_EQ(std::system(("python3 -c 'import sys, xml.etree.ElementTree as tree; tree.parse(sys.argv[1])' " +
                         path("report.html"))
                            .c_str()),
            0);
}

TEST_F(Reported, OneRowIsEnough) {
  Json json = Json::parse(read(kBench));
  json["rows"] = Json::array({json["rows"][3]});
  const std::string page = report(write("one.json", json));
  EXPECT_EQ(count(page, "<figure>"), 3U);
  EXPECT_EQ(count(page, ">16,384 keys<") + count(page, ">1,024 keys<"), 3U);
  EXPECT_EQ(count(page, "more in the table"), 0U);
  Json distort = Json::parse(read(kDistort));
  distort["rows"] = Json::array({distort["rows"][0]});
  distort.erase("attention");
  EXPECT_EQ(count(report(write("one.json", distort)), "<figure>"), 1U);
}

TEST_F(Reported, ManyRowsStayReadable) {
  Json json = Json::parse(read(kBench));
  const Json row = json["rows"][3];
  json["rows"] = Json::array();
  for (const int dim : {64, 128, 256}) {
    for (const int group : {1, 2, 4, 8}) {
      for (const char* codec : {"f16", "turbo2", "turbo3", "turbo4", "turbo5", "turbo6", "turbo8"}) {
        for (const int keys : {512, 1024, 2048, 4096, 8192, 16384}) {
          Json next = row;
          next["k"] = next["v"] = codec;
          next["head_dim"] = dim;
          next["group"] = group;
          next["keys"] = keys;
          json["rows"].push_back(next);
        }
      }
    }
  }
  ASSERT_EQ(json["rows"].size(), 504U);
  const std::string page = report(write("many.json", json));
  EXPECT_EQ(count(page, "<figure>"), 3U * 8);
  EXPECT_EQ(count(page, "<tr>"), 505U + 13) << "and 12 of those with the most keys";
  EXPECT_EQ(count(page, "72 rows more below"), 1U);
  // Of 12 settings of 42 rows, 8 have a chart; lines show 42 rows, whole groups of bars up to 24, and f16 has no bar of
  // its own speed.
  EXPECT_EQ(count(page, ">168 rows more in the table.<"), 1U);
  EXPECT_EQ(count(page, ">336 rows more in the table.<"), 1U);
  EXPECT_EQ(count(page, ">240 rows more in the table.<"), 1U);
}

TEST_F(Reported, ThreadsAreNamedWhereTheyDiffer) {
  Json json = Json::parse(read(kBench));
  Json rows = Json::array();
  for (const int threads : {1, 2}) {
    for (const std::size_t at : {0U, 1U, 2U, 3U, 4U, 5U}) {
      rows.push_back(json["rows"][at]);
      rows.back()["threads"] = threads;
    }
  }
  json["rows"] = rows;
  const std::string page = report(write("threads.json", json));
  EXPECT_EQ(count(page, "<figure>"), 3U);
  EXPECT_GE(count(page, ">f16, 1 thread<"), 1U);
  EXPECT_GE(count(page, ">f16, 2 threads<"), 1U);
}

TEST_F(Reported, UnknownAndMissingThingsAreLeftOut) {
  Json json = Json::parse(read(kBench));
  for (const char* key : {"version", "commit", "build", "date", "command", "devices", "noise"}) json.erase(key);
  for (Json& row : json["rows"]) {
    for (const char* key :
         {"value_dim", "kv_heads", "group", "rows", "sequences", "threads", "samples", "bytes", "gbps", "read_gbps",
          "fraction_of_read", "speedup_vs_f16", "min_ms", "spread", "noisy", "model"}) {
      row.erase(key);
    }
    row["device"] = nullptr;
    row["news"] = {1, 2};
  }
  json["news"] = "more";
  EXPECT_EQ(count(report(write("bare.json", json)), "<figure>"), 4U) << "time of four ops";
}

TEST_F(Reported, EmptyFilesSaySo) {
  const std::string page = report(write("a.json", std::string(R"({"report":"bench","format":1,"rows":[]})")) + " " +
                                  write("b.json", std::string(R"({"report":"distort","format":1,"rows":[]})")) + " " +
                                  write("c.json", std::string(R"({"report":"eval","format":1,"rows":[]})")));
  EXPECT_EQ(count(page, "a.json has no rows: nothing was measured."), 1U);
  EXPECT_EQ(count(page, "b.json has no rows: nothing was measured."), 1U);
  EXPECT_EQ(count(page, "c.json has no rows: nothing was measured."), 1U);
  EXPECT_EQ(count(page, "<svg"), 0U);
}

TEST_F(Reported, ErrorsOfZeroHaveNoPlaceOnALogarithm) {
  Json json = Json::parse(read(kDistort));
  for (Json& row : json["rows"]) row["mse"] = 0;
  for (Json& row : json["attention"]) {
    for (const char* key : {"logit_error", "kl", "output_error"}) row[key] = 0;
  }
  const std::string page = report(write("exact.json", json));
  EXPECT_EQ(count(page, "<svg"), 0U);
  EXPECT_EQ(count(page, "class=\"heat\""), 1U);
}

// Sealed codecs are measured with each other, dense ones with themselves: the square has what has all pairs.
TEST_F(Reported, PairsOfCodecsAreATable) {
  Json json = Json::parse(read(kRandom));
  ASSERT_EQ(json["attention"].size(), 39U);
  const std::string page = report(kRandom);
  ASSERT_EQ(count(page, "class=\"heat\""), 1U);
  const std::size_t from = page.find("class=\"heat\""), to = page.find("</table>", from);
  const std::string table = page.substr(from, to - from);
  EXPECT_EQ(count(table, "<td "), 36U);
  EXPECT_EQ(count(table, "turbo"), 12U);
  EXPECT_EQ(count(table, "f16"), 0U);
  // One pair less is one codec less.
  auto& rows = json["attention"];
  for (std::size_t at = 0; at < rows.size(); ++at) {
    if (rows[at]["k"] != "turbo3" || rows[at]["v"] != "turbo5") continue;
    rows.erase(at);
    break;
  }
  EXPECT_EQ(count(report(write("less.json", json)), "<td class=\"h"), 30U);
}

// What newer tools add is none of the page's business.
TEST_F(Reported, NewListsOfDistortAreLeftOut) {
  Json json = Json::parse(read(kRandom));
  const std::string page = report(write("same.json", json));
  json["heads"] = {{{"capture", "L00_g0"}, {"codec", "turbo4"}, {"output_error", 0.1}, {"deep", {{"er", {1, 2}}}}}};
  for (const char* list : {"rows", "attention"}) {
    for (Json& row : json[list]) row["interval"] = {{"low", 0.1}, {"high", "?"}};
  }
  EXPECT_EQ(report(write("same.json", json)), page);
  Json bench = Json::parse(read(kBench));
  const std::string before = report(write("bench.json", bench));
  for (Json& row : bench["rows"]) row["news"] = "layer";
  bench["scope"] = Json::array();
  EXPECT_EQ(report(write("bench.json", bench)), before);
}

TEST_F(Reported, WhatIsNoReportIsRefused) {
  expect_refused(path("missing.json"), "No such file or directory; wanted a file that rota bench");
  expect_refused(folder_, "Is a directory; wanted a file that rota bench");
  expect_refused(write("bad.json", std::string()), "is truncated after 0 bytes; wanted what rota bench");
  expect_refused(write("bad.json", std::string("{")), "is truncated after 1 byte; wanted");
  for (const std::size_t bytes : {100U, 101U, 500U, 503U, 507U}) {
    expect_refused(write("bad.json", read(kBench).substr(0, bytes)),
                   "is truncated after " + std::to_string(bytes) + " bytes; wanted");
  }
  for (const char* text : {"rota", "{\"report\":\"bench\",}", "{\"report\":\"bench\"}}", "{\"a\":NaN}", "\xff"}) {
    expect_refused(write("bad.json", std::string(text)), "is no JSON: byte ");
  }
  expect_refused(write("bad.json", std::string("[]")), "is no JSON object; wanted an object");
  expect_refused(write("bad.json", std::string("{}")), "\"report\" is missing; wanted a name");
  expect_refused(write("bad.json", std::string(R"({"report":"poem"})")),
                 "\"report\" is \"poem\"; wanted \"bench\", \"distort\" or \"eval\"");
  expect_refused(write("bad.json", std::string(R"({"report":"bench"})")), "\"format\" is missing");
  expect_refused(write("bad.json", std::string(R"({"report":"bench","format":2})")), "\"format\" is 2; wanted 1");
  expect_refused(write("bad.json", std::string(R"({"report":"bench","format":1})")),
                 "\"rows\" is missing; wanted an array");
  expect_refused(write("bad.json", std::string(R"({"report":"bench","format":1,"rows":{}})")),
                 "\"rows\" is an object; wanted an array");
  expect_refused(write("bad.json", std::string(R"({"report":"bench","format":1,"rows":[1]})")),
                 "row 1 is 1; wanted an object");
  expect_refused(write("bad.json", std::string(R"({"a":1e999})")), "has a number that no double holds");
  expect_refused(write("bad.json", std::string(R"({"report":"bench","format":1,"rows":[],"devices":[{"name":7}]})")),
                 "device 1: \"name\" is 7; wanted a text");
}

TEST_F(Reported, FilesThatAreTooLargeAreRefused) {
  expect_refused(write("bad.json", std::string((16U << 20U) + 1, ' ')), "is larger than 16 MiB");
  expect_refused(write("bad.json", std::string(1U << 20U, '[')), "nests more than 16 arrays or objects");
  Json json = Json::parse(read(kBench));
  json["rows"] = Json::array();
  for (int row = 0; row < 10001; ++row) json["rows"].push_back(0);
  expect_refused(write("bad.json", json), "\"rows\" has 10001 entries; wanted at most 10000");
}

TEST_F(Reported, WrongKeysOfARowAreNamed) {
  expect_row_refused("op", "dance", "is \"dance\"; wanted attend, store, seal or rope");
  expect_row_refused("k", "", "is \"\"; wanted a name");
  expect_row_refused("k", std::string(257, 'k'), "is \"kkkkkkkk");
  expect_row_refused("v", 4, "is 4; wanted a text of at most 256 bytes");
  expect_row_refused("device", Json::array(), "is an array; wanted a text");
  for (const Json& bad : {Json(0), Json(-1), Json(1.5), Json("128"), Json(true), Json(std::uint64_t{1} << 54U)}) {
    expect_row_refused("keys", bad, "is " + bad.dump() + "; wanted a whole number from 1 to 2^53");
  }
  expect_row_refused("keys", nullptr, "is null; wanted a whole number");
  for (const Json& bad : {Json(0), Json(-1.5), Json("fast"), Json(1e31), Json(1e-31), Json(nullptr)}) {
    expect_row_refused("median_ms", bad, "is " + bad.dump() + "; wanted a number from 1e-30 to 1e+30");
  }
  expect_row_refused("gbps", -1, "is -1; wanted 0, or a number from 1e-30 to 1e+30");
  expect_row_refused("p25_ms", 1e9, "is 1000000000.0; wanted at most median_ms");
  expect_row_refused("p75_ms", 1e-9, "is 1e-09; wanted at least median_ms");
  expect_row_refused("noisy", 1, "is 1; wanted true or false");
  Json json = Json::parse(read(kBench));
  json["rows"][0].erase("median_ms");
  expect_refused(write("bad.json", json), "row 1: \"median_ms\" is missing; wanted a number");
}

TEST_F(Reported, WrongKeysOfDistortAreNamed) {
  const auto refused = [&](const char* list, const char* key, const Json& value, const std::string& text) {
    SCOPED_TRACE(key);
    Json json = Json::parse(read(kDistort));
    json[list][1][key] = value;
    expect_refused(write("bad.json", json), text);
  };
  refused("rows", "side", "q", "row 2: \"side\" is \"q\"; wanted k or v");
  refused("rows", "mse", -0.5, "row 2: \"mse\" is -0.5; wanted 0, or a number");
  refused("rows", "bits_stored", 0, "row 2: \"bits_stored\" is 0; wanted a number");
  refused("rows", "theory_mse", "none", "row 2: \"theory_mse\" is \"none\"; wanted 0, or a number");
  refused("attention", "k", nullptr, "attention row 2: \"k\" is null; wanted a name");
  refused("attention", "kl", 1e40, "attention row 2: \"kl\" is 1e+40; wanted a number");
}

// Numbers at both ends of what is read: every chart is drawn, and no place in it is not a number.
TEST_F(Reported, ExtremeNumbersAreDrawn) {
  Json json = Json::parse(read(kBench));
  double size = 1e-30;
  for (Json& row : json["rows"]) {
    for (const char* key : {"median_ms", "min_ms", "p25_ms", "p75_ms", "gbps", "fraction_of_read", "speedup_vs_f16"})
      row[key] = size;
    row["keys"] = std::uint64_t{1} << (size < 1 ? 0U : 53U);
    size = size < 1 ? 1e30 : 1e-30;
  }
  report(write("extreme.json", json));
}

TEST_F(Reported, WrongUsageIsNoBadFile) {
  EXPECT_EQ(run_tool("report").exit_code, 2);
  EXPECT_EQ(run_tool("report " + kBench + " --frobnicate").exit_code, 2);
  const std::string copy = write("bench.json", read(kBench));
  const ToolOutput over = run_tool("report " + copy + " -O " + folder_ + "/./bench.json");
  EXPECT_EQ(over.exit_code, 2);
  EXPECT_TRUE(contains(over, "is also read; wanted another file to write")) << over.text;
  EXPECT_EQ(read(copy), read(kBench));
  const ToolOutput nowhere = run_tool("report " + kBench + " -O " + path("none/report.html"));
  EXPECT_EQ(nowhere.exit_code, 1);
  EXPECT_TRUE(contains(nowhere, "none/report.html: No such file or directory; wanted a file to write")) << nowhere.text;
}

TEST_F(Reported, StdoutGetsTheSamePage) {
  const std::string page = report(kBench);
  EXPECT_EQ(run_tool("report " + kBench + " -O -").text, page);
}

}  // namespace
