#include <gtest/gtest.h>

#include <string>

#include "harness/reported.h"

// Files of `rota eval`, and of what measures it in an engine.

namespace {

using rota::test::count;
using rota::test::Json;
using rota::test::kEngine;
using rota::test::kEval;
using rota::test::read;
using rota::test::Reported;

TEST_F(Reported, EvaluationsAreDrawn) {
  const std::string page = report(kEval);
  for (const char* text : {">bits stored per value<", ">KL divergence, nats<", ">relative error of the output<",
                           ">MiB<", ">layer<", ">turbo<", ">ggml&#39;s formats<", ">ggml&#39;s formats, rotated<",
                           ">turbo4<", ">MiB at 32,768<", ">Context of 8,192 tokens<", "turbo4, layer 18: "}) {
    EXPECT_GE(count(page, text), 1U) << text;
  }
  // Three charts of bits, three of memory, one of layers; 11 rows and a head.
  EXPECT_EQ(count(page, "<figure>"), 7U);
  EXPECT_EQ(count(page, "<tr>"), 11U + 1);
  EXPECT_EQ(count(page, ">1 row more in the table.<"), 2U) << "f16, in charts of bits and of memory";
}

TEST_F(Reported, FindingsOfEvaluationsAreComputed) {
  const std::string page = report(write("eval.json", std::string(R"({"report": "eval", "format": 1, "model": "M",
    "text": "T", "tokens": 2048, "chunk": 128, "rows": [
    {"codec": "reference", "kind": "reference", "bits_stored": 32, "kld_mean": 0, "perplexity": 9},
    {"codec": "q4_0", "kind": "simulated", "bits_stored": 4.5, "kld_mean": 0.08, "perplexity": 9.5},
    {"codec": "turbo8", "kind": "rota", "bits_stored": 8.25, "kld_mean": 0.00025, "perplexity": 9},
    {"codec": "turbo4", "kind": "rota", "bits_stored": 4.25, "kld_mean": 0.004, "perplexity": 9.1, "top1": 0.975}]})")));
  for (const char* text :
       {"M read 2,048 tokens of T in chunks of 128.",
        "Predictions stay within 0.01 nats from 4.25 bits per value on: turbo4 diverges by 0.004, its best token is "
        "the "
        "same at 97.5%.",
        "Predictions stay within 0.001 nats from 8.25 bits per value on: turbo8 diverges by 2.5×10⁻⁴.",
        "turbo4 with 4.25 bits per value diverges by 0.004 nats, 0.05 of what q4_0 does with 4.5 bits."}) {
    EXPECT_EQ(count(page, text), 1U) << text;
  }
}

TEST_F(Reported, WrongKeysOfEvaluationsAreNamed) {
  const auto refused = [&](const char* key, const Json& value, const std::string& text) {
    SCOPED_TRACE(key);
    Json json = Json::parse(read(kEval));
    json["rows"][1][key] = value;
    expect_refused(write("bad.json", json), "row 2: " + text);
  };
  refused("kind", "dream", "\"kind\" is \"dream\"; wanted reference, rota, simulated or engine");
  refused("kld_mean", -1, "\"kld_mean\" is -1; wanted 0, or a number");
  refused("perplexity", nullptr, "\"perplexity\" is null; wanted a number");
  refused("attention_errors", {0.1, "x"}, "\"attention_errors\" has \"x\"; wanted 0, or a number");
  refused("bytes", {{"many", 1}}, "\"bytes\" is an object; wanted an object of bytes by tokens");
  refused("bytes", {{"2048", "all"}}, "bytes: \"2048\" is \"all\"; wanted a number");
  refused("ms_per_token", {{"-1", 1}}, "\"ms_per_token\" is an object; wanted an object of ms by tokens");
  refused("ms_per_token", {{"0", 0}}, "ms_per_token: \"0\" is 0; wanted a number");
  refused("ms_per_token_p10", {{"0", 1}}, "\"ms_per_token_p10\" is an object; wanted numbers on that side of");
}

TEST_F(Reported, CachesOfAnEngineAreDrawn) {
  const std::string page = report(kEngine);
  for (const char* text :
       {">ms per token<", ">tokens in the cache<", ">the engine&#39;s formats<", ">rota f16<", ">ms at 0<",
        ">ms at 2,048<", ">MiB at 2,304<", "q4_0, behind 2,048 tokens: ", "f16, behind 0 tokens: "}) {
    EXPECT_GE(count(page, text), 1U) << text;
  }
  // Two charts of bits, one of memory, one of times; 7 rows and a head.
  EXPECT_EQ(count(page, "<figure>"), 4U);
  EXPECT_EQ(count(page, "<tr>"), 7U + 1);
  EXPECT_EQ(count(page, " of what q4_0 does with 4.5 bits."), 1U) << "an engine's formats are rivals, too";
}

TEST_F(Reported, SpreadsOfTimesAreTheirEnds) {
  const auto refused = [&](const char* key, double ms) {
    Json json = Json::parse(read(kEngine));
    json["rows"][1][key]["0"] = ms;
    expect_refused(write("bad.json", json), std::string("row 2: \"") + key + "\" is an object; wanted numbers on");
  };
  refused("ms_per_token_p10", 1e6);
  refused("ms_per_token_p90", 1e-6);
}

TEST_F(Reported, TimesAloneAreEnough) {
  Json json = Json::parse(read(kEngine));
  for (Json& row : json["rows"]) {
    for (const char* key : {"kld_mean", "kld_p99", "kld_max", "top1", "perplexity"}) row.erase(key);
  }
  EXPECT_EQ(count(report(write("times.json", json)), "<figure>"), 1U);
  for (Json& row : json["rows"]) row.erase("ms_per_token_p10");
  EXPECT_EQ(count(report(write("times.json", json)), "<figure>"), 1U) << "without whiskers";
  json["rows"][2].erase("ms_per_token");
  json["rows"][2].erase("ms_per_token_p90");
  expect_refused(write("bad.json", json), "row 3: \"kld_mean\" is missing; wanted 0, or a number");
}

}  // namespace
