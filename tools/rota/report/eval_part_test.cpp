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
  for (const char* text :
       {">bits stored per value<", ">KL divergence, nats<", ">relative error of the output<", ">MiB<", ">layer<",
        ">turbo<", ">ggml&#39;s formats<", ">ggml&#39;s formats, rotated<", ">turbo4<", ">MiB at 32,768<",
        ">MiB at 32,768 tokens<", ">Context of 8,192 tokens<", "turbo4, layer 18: "}) {
    EXPECT_GE(count(page, text), 1U) << text;
  }
  // Three charts of bits, three of memory, one of layers; 11 rows and a head, twice.
  EXPECT_EQ(count(page, "<figure>"), 7U);
  EXPECT_EQ(count(page, "<tr>") + count(page, "<tr class=\"best\">"), 2U * (11 + 1));
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
       {"M read 2,048 tokens of T in chunks of 128; bold: the smallest that stays within 0.01 nats.",
        "turbo4 has the fewest bits that keep predictions within 0.01 nats: 4.25 bits per value, divergence 0.004, the "
        "same best token at 97.5% of positions.",
        "turbo8 has the fewest bits that keep predictions within 0.001 nats: 8.25 bits per value, divergence 2.5×10⁻⁴.",
        "turbo4 with 4.25 bits per value diverges by 0.004 nats, 5% of what q4_0 does with 4.5 bits."}) {
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
  // Two charts of bits, one of memory, one of times; 7 rows and a head, twice.
  EXPECT_EQ(count(page, "<figure>"), 4U);
  EXPECT_EQ(count(page, "<tr>") + count(page, "<tr class=\"best\">"), 2U * (7 + 1));
  EXPECT_EQ(count(page, " of what q4_0 does with 4.5 bits."), 1U) << "an engine's formats are rivals, too";
}

// What a reader came for is on the first screen: nothing but warnings and a sentence stands before the table.
TEST_F(Reported, TheAnswerComesFirst) {
  const std::string page = report(kEngine);
  std::size_t last = 0;
  for (const char* part :
       {"<h1>",
        "Times are noisy at 2,048 tokens: for all 7 caches, p90 is more than 1.5 times p10.",
        "turbo4 keeps 97.8% of top-1 at 4.31 bits: 39% of f16&#39;s memory at 2,304 tokens; KL divergence 0.0017 "
        "where q4_0 (4.5 bits, 28% of f16&#39;s memory) costs 0.053.",
        "<table class=\"main\">",
        ">bits<",
        ">KL, nats<",
        ">top-1<",
        ">ms per token at 2,048 tokens<",
        ">times f16&#39;s speed<",
        ">MiB at 2,304 tokens<",
        "<tr class=\"best\"><td>turbo4</td>",
        "<div class=\"two\">",
        ">KL divergence, nats<",
        ">ms per token<",
        "<nav ",
        "<section id=\"eval\">",
        "<h2>Tables</h2>",
        "<section id=\"measured\">",
        "2026-11-18T07:17:49Z",
        "rota-eval -m"}) {
    const std::size_t at = page.find(part, last);
    ASSERT_NE(at, std::string::npos) << part;
    last = at;
  }
}

// The engine's times beside divergences of `python -m rota eval`, which has the same weights.
TEST_F(Reported, FilesOfOneModelAreJoined) {
  Json times = Json::parse(read(kEngine));
  for (Json& row : times["rows"]) {
    for (const char* key : {"kld_mean", "kld_p99", "kld_max", "top1", "perplexity"}) row.erase(key);
  }
  for (const std::string& engine : {kEngine, write("times.json", times)}) {
    const std::string page = report(kEval + " " + engine);
    EXPECT_EQ(count(page, "<table class=\"main\">"), 1U);
    EXPECT_EQ(count(page,
                    "turbo4 keeps 97.9% of top-1 at 4.31 bits: 40% of f16&#39;s memory at 2,048 tokens; KL "
                    "divergence 0.002 where q4_0+rot (4.5 bits, 28% of f16&#39;s memory) costs 0.044."),
              1U);
    // Rotated in the engine, so that is whose time it is.
    EXPECT_EQ(count(page,
                    "<td>q4_0+rot</td><td class=\"r wide\">4.5</td><td class=\"r\">0.044</td><td "
                    "class=\"r\">85.8%</td><td class=\"r\">107</td><td class=\"r\">0.64</td>"),
              1U);
    EXPECT_EQ(count(page, "all else from eval.json"), 1U);
  }
  times["model"] = "another";
  EXPECT_EQ(count(report(kEval + " " + write("times.json", times)), "<table class=\"main\">"), 2U);
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
