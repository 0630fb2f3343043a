#include <gtest/gtest.h>

#include <string>

#include "bench/fields.h"
#include "harness/reported.h"

// Rows of one layer and rows of all layers of a model, in one file.

namespace {

using rota::test::count;
using rota::test::Json;
using rota::test::kBench;
using rota::test::read;
using rota::test::Reported;

Json with_models() {
  Json json = Json::parse(read(kBench));
  Json rows = Json::array();
  for (const char* scope : {"layer", "model"}) {
    for (const std::size_t at : {0U, 1U, 2U, 6U, 7U, 8U}) {  // f16 and turbo4, at three lengths
      Json row = json["rows"][at];
      row["scope"] = scope;
      row["model"] = "some model";
      row["layers"] = std::string(scope) == "layer" ? 5 : 32;
      rows.push_back(row);
    }
  }
  json["rows"] = rows;
  return json;
}

TEST_F(Reported, ModelsAndTheirLayersShareNoChart) {
  Json json = with_models();
  const std::string page = report(write("bench.json", json));
  EXPECT_EQ(count(page, "<figure>"), 6U) << "of time, share and speed, one for each";
  EXPECT_EQ(count(page, "<figcaption>all layers</figcaption>"), 3U);
  EXPECT_EQ(count(page, ">model</td>"), 6U);

  for (Json& row : json["rows"]) row["scope"] = "layer";
  EXPECT_EQ(count(report(write("bench.json", json)), "<figure>"), 3U);
  for (Json& row : json["rows"]) row.erase("scope");
  EXPECT_EQ(count(report(write("bench.json", json)), "<figure>"), 3U) << "as files were before there were models";
}

TEST_F(Reported, AnInterruptedBenchIsCalledSo) {
  Json json = Json::parse(read(kBench));
  const std::string text = "The measurement was interrupted: rows have fewer samples than were asked for.";
  for (const bool interrupted : {true, false}) {
    json["interrupted"] = interrupted;
    EXPECT_EQ(count(report(write("bench.json", json)), text), interrupted ? 1U : 0U);
  }
  json["interrupted"] = 1;
  expect_refused(write("bad.json", json), "\"interrupted\" is 1; wanted true or false");
}

TEST_F(Reported, OnlyAModelMayHaveSeveralHeadSizes) {
  Json json = with_models();
  json["rows"][7]["head_dim"] = nullptr;
  report(write("bench.json", json));
  json["rows"][1]["head_dim"] = nullptr;
  expect_refused(write("bad.json", json), "row 2: \"head_dim\" is ");
  expect_row_refused("scope", "token", "is \"token\"; wanted layer or model");
}

}  // namespace
