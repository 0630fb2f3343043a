#include "report/eval_sentence.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "report/eval_answer.h"
#include "report/words.h"

// Which cache the page names, and what it says of it.

namespace rota::tool {
namespace {

using Kind = EvalRow::Kind;
constexpr double kNone = -1;

EvalRow row(const std::string& codec, Kind kind, double bits, double kld, double top1, double ms, double mib) {
  EvalRow made;
  made.codec = codec;
  made.kind = kind;
  made.bits_stored = bits;
  if (kld >= 0) made.kld_mean = kld;
  if (kld >= 0) made.perplexity = 9;
  if (top1 >= 0) made.top1 = top1;
  if (ms > 0) made.ms_per_token = {{0, 1}, {8192, ms}};
  if (mib > 0) made.bytes = {{8192, mib * 1048576}};
  return made;
}

Eval file_of(const std::string& label, std::vector<EvalRow> rows, const std::string& model = "M") {
  Eval file;
  file.origin.label = label;
  file.model = model;
  file.rows = std::move(rows);
  return file;
}

std::string sentence(const std::vector<Eval>& files) {
  const std::vector<EvalTable> tables = joined_tables(files);
  EXPECT_EQ(tables.size(), 1U);
  return sentence_of(tables.front(), choice_of(tables.front()));
}

std::string sentence(const std::vector<EvalRow>& rows) { return sentence(std::vector{file_of("a", rows)}); }

const EvalRow kF16 = row("f16", Kind::reference, 16, 0, 1, 100, 200);
const EvalRow kQ4 = row("q4_0", Kind::engine, 4.5, 0.031, 0.87, 150, 56);
const EvalRow kQ8 = row("q8_0", Kind::engine, 8.5, 0.0003, 0.99, 110, 106);
const EvalRow kTurbo8 = row("turbo8", Kind::rota, 8.3125, 1e-5, 0.998, 47, 110);
const EvalRow kTurbo4 = row("turbo4", Kind::rota, 4.3125, 0.0011, 0.989, 45.5, 54);
const EvalRow kTurbo2 = row("turbo2", Kind::rota, 2.3125, 0.07, 0.86, 44, 30);

TEST(EvalSentence, NamesTheSmallestThatKeepsTheTop) {
  EXPECT_EQ(sentence({kF16, kQ8, kQ4, kTurbo8, kTurbo4, kTurbo2}),
            "turbo4 keeps 98.9% of top-1 at 4.31 bits: 27% of f16's memory and 2.2 times as fast at 8,192 tokens; KL "
            "divergence 0.0011 where q4_0 (4.5 bits, 28% of f16's memory) costs 0.031.");
  EXPECT_EQ(sentence({kF16, kQ8, kTurbo8}),
            "q8_0 keeps 99% of top-1 at 8.5 bits: 53% of f16's memory and at 91% of its speed at 8,192 tokens; KL "
            "divergence 3×10⁻⁴ where turbo8 (8.31 bits, 55% of f16's memory) costs 10⁻⁵.");
}

TEST(EvalSentence, SaysNothingThatWasNotMeasured) {
  const auto bare = [](EvalRow one, bool top1, bool ms, bool bytes) {
    if (!top1) one.top1.reset();
    if (!ms) one.ms_per_token.clear();
    if (!bytes) one.bytes.clear();
    return one;
  };
  const auto all = [&](bool top1, bool ms, bool bytes) {
    return sentence({bare(kF16, top1, ms, bytes), bare(kQ4, top1, ms, bytes), bare(kTurbo4, top1, ms, bytes)});
  };
  const std::string cost = "; KL divergence 0.0011 where q4_0 (4.5 bits) costs 0.031.";
  EXPECT_EQ(all(true, false, false), "turbo4 keeps 98.9% of top-1 at 4.31 bits" + cost);
  EXPECT_EQ(all(true, true, false),
            "turbo4 keeps 98.9% of top-1 at 4.31 bits: 2.2 times as fast as f16 at 8,192 tokens" + cost);
  EXPECT_EQ(all(false, false, true),
            "turbo4 takes 4.31 bits per value: 27% of f16's memory at 8,192 tokens; KL divergence 0.0011 where q4_0 "
            "(4.5 bits, 28% of f16's memory) costs 0.031.");
  EXPECT_EQ(sentence({kTurbo4}), "turbo4 keeps 98.9% of top-1 at 4.31 bits; KL divergence 0.0011 nats.");
  EXPECT_EQ(sentence({kF16}), "") << "nothing to take";
}

TEST(EvalSentence, ReadsWellAtTheEdges) {
  EvalRow same = kTurbo4;
  same.ms_per_token = {{0, 100}};
  same.bytes = kF16.bytes;
  EvalRow f16 = kF16;
  f16.ms_per_token = {{0, 100}};
  EXPECT_EQ(sentence({f16, same}),
            "turbo4 keeps 98.9% of top-1 at 4.31 bits: as much memory as f16 at 8,192 tokens, as fast with an empty "
            "cache; KL "
            "divergence 0.0011 nats.");
  EvalRow exact = kTurbo4;
  exact.top1 = 1;
  exact.kld_mean = 0;
  EXPECT_EQ(sentence({kF16, exact, kQ4}),
            "turbo4 keeps 100% of top-1 at 4.31 bits: 27% of f16's memory and 2.2 times as fast at 8,192 tokens; KL "
            "divergence 0 where q4_0 (4.5 bits, 28% of f16's memory) costs 0.031.");
  EvalRow reference = kF16;
  reference.codec = "reference";
  EXPECT_EQ(sentence({reference, kTurbo4}),
            "turbo4 keeps 98.9% of top-1 at 4.31 bits: 27% of the reference's memory and 2.2 times as fast at 8,192 "
            "tokens; KL divergence 0.0011 nats.");
}

TEST(EvalSentence, SaysWhereNoneIsGoodEnough) {
  EXPECT_EQ(
      sentence({kF16, kQ4, kTurbo2}),
      "No compressed cache keeps 97% of top-1; q4_0 comes closest and keeps 87% of top-1 at 4.5 bits: 28% of f16's "
      "memory and at 67% of its speed at 8,192 tokens; KL divergence 0.031 where turbo2 (2.31 bits, 15% of f16's "
      "memory) costs 0.07.");
  EvalRow far = kTurbo2;
  far.top1.reset();
  EXPECT_EQ(
      sentence({far}),
      "No compressed cache stays within 0.01 nats; turbo2 comes closest and takes 2.31 bits per value; KL divergence "
      "0.07 nats.");
}

// A number reads as on its own side of what the page judges by.
TEST(EvalSentence, RoundsToNoOtherSide) {
  EXPECT_EQ(top1_text(0.97), "97%");
  EXPECT_EQ(top1_text(0.9702), "97%") << "keeps it";
  EXPECT_EQ(top1_text(0.9698), "96.98%");
  EXPECT_EQ(top1_text(0.969999), "96.9999%");
  EXPECT_EQ(top1_text(0.99996), "99.996%");
  EXPECT_EQ(nats_text(0.01), "0.01");
  EXPECT_EQ(nats_text(0.0099999), "0.01") << "stays within it";
  EXPECT_EQ(nats_text(0.01049), "0.0105");
  EXPECT_EQ(nats_text(0.0100049), "0.010005");
  EXPECT_EQ(nats_text(0.001004), "0.001004");
  EXPECT_EQ(nats_text(0.0123), "0.012");
  EvalRow close = kTurbo4;
  close.top1 = 0.96976;
  EXPECT_EQ(sentence({close}),
            "No compressed cache keeps 97% of top-1; turbo4 comes closest and keeps 96.98% of top-1 at 4.31 bits; KL "
            "divergence 0.0011 nats.");
}

EvalRow spread(EvalRow one, double low, double high) {
  one.ms_per_token_p10 = {{8192, low}};
  one.ms_per_token_p90 = {{8192, high}};
  return one;
}

TEST(EvalSentence, NoiseCarriesNoSpeed) {
  const auto said = [](const EvalRow& f16, const EvalRow& turbo4) { return sentence({f16, turbo4}); };
  const std::string begin = "turbo4 keeps 98.9% of top-1 at 4.31 bits: 27% of f16's memory",
                    end = "; KL divergence 0.0011 nats.";
  const EvalRow steady = spread(kF16, 95, 110), turbo4 = spread(kTurbo4, 45, 50);
  EXPECT_EQ(said(steady, turbo4), begin + " and 2.2 times as fast at 8,192 tokens" + end);
  EXPECT_EQ(said(steady, spread(kTurbo4, 45, 70)), begin + " and 2.2 times as fast at 8,192 tokens (noisy)" + end);
  EXPECT_EQ(said(spread(kF16, 60, 110), turbo4), begin + " and 2.2 times as fast at 8,192 tokens (noisy)" + end);
  EXPECT_EQ(said(steady, spread(kTurbo4, 45, 96)), begin + " at 8,192 tokens" + end) << "they overlap";
  EvalRow near = spread(kTurbo4, 85, 96);
  near.ms_per_token[8192] = 90;
  EXPECT_EQ(said(steady, near), begin + " at 8,192 tokens" + end) << "they overlap, though neither is wide";
  near.kld_mean.reset();
  EvalRow f16 = steady;
  f16.kld_mean.reset();
  EXPECT_EQ(said(f16, near),
            "turbo4 is the fastest at 8,192 tokens: 1.1 times as fast as f16 (noisy), 27% of f16's memory. What it "
            "does to predictions was not measured.");
}

TEST(EvalSentence, MemoryNamesItsContext) {
  EvalRow f16 = kF16, turbo4 = kTurbo4, q4 = kQ4;
  for (EvalRow* one : {&f16, &turbo4, &q4}) one->bytes = {{32768, one->bytes.at(8192)}};
  EXPECT_EQ(sentence({f16, turbo4, q4}),
            "turbo4 keeps 98.9% of top-1 at 4.31 bits: 27% of f16's memory at 32,768 tokens, 2.2 times as fast at "
            "8,192 tokens; KL divergence 0.0011 where q4_0 (4.5 bits, 28% of f16's memory) costs 0.031.");
  q4.bytes.clear();
  EXPECT_NE(sentence({f16, turbo4, q4}).find("where q4_0 (4.5 bits) costs"), std::string::npos);
}

TEST(EvalSentence, WideTimesAreCounted) {
  const auto warnings = [](const std::vector<EvalRow>& rows) {
    const std::vector<Eval> files{file_of("a", rows)};
    return joined(answer_of(joined_tables(files).front(), "").warnings, "|");
  };
  const EvalRow steady = spread(kF16, 95, 110), wide = spread(kTurbo4, 40, 70), wider = spread(kQ4, 100, 200);
  EXPECT_EQ(warnings({steady, kTurbo4}), "");
  EXPECT_EQ(warnings({steady, wide, wider}),
            "Times are noisy at 8,192 tokens: for 2 of 3 caches, p90 is more than 1.5 times p10.");
  EXPECT_EQ(warnings({wide, wider, kTurbo2}),
            "Times are noisy at 8,192 tokens: for all 2 caches, p90 is more than 1.5 times p10.");
  EXPECT_EQ(warnings({wide}), "Times are noisy at 8,192 tokens: for 1 cache, p90 is more than 1.5 times p10.");
}

TEST(EvalSentence, TimesAloneNameTheFastest) {
  const auto timed = [](const EvalRow& one) {
    return row(one.codec, one.kind, one.bits_stored, kNone, kNone, one.ms_per_token.at(8192), 0);
  };
  EXPECT_EQ(sentence({timed(kF16), timed(kQ4), timed(kTurbo4)}),
            "turbo4 is the fastest at 8,192 tokens: 2.2 times as fast as f16. What it does to predictions was not "
            "measured.");
  EXPECT_EQ(
      sentence({timed(kF16), timed(kQ4)}),
      "No compressed cache is faster than f16 at 8,192 tokens; q4_0 comes closest: at 67% of f16's speed. What it does "
      "to predictions was not measured.");
  EXPECT_EQ(sentence({timed(kTurbo4)}), "") << "faster than what?";
}

// Divergences of one file beside times and memory of another.
TEST(EvalJoin, CachesOfOneNameAreOneRow) {
  const auto quality = [](const EvalRow& one) {
    return row(one.codec, Kind::simulated, one.bits_stored, one.kld_mean.value_or(0), one.top1.value_or(0), 0, 0);
  };
  const auto speed = [](const EvalRow& one) {
    return row(one.codec, one.kind, one.bits_stored, kNone, kNone, one.ms_per_token.at(8192),
               one.bytes.at(8192) / 1048576);
  };
  EvalRow turbo4 = quality(kTurbo4);
  turbo4.kind = Kind::rota;
  const std::vector<Eval> files{file_of("speed", {speed(kF16), speed(kQ4), speed(kTurbo4)}, "folder/M"),
                                file_of("quality", {quality(kQ4), turbo4, quality(kQ8)}, "M/")};
  EXPECT_EQ(sentence(files),
            "turbo4 keeps 98.9% of top-1 at 4.31 bits: 27% of f16's memory and 2.2 times as fast at 8,192 tokens; KL "
            "divergence 0.0011 where q4_0 (4.5 bits, 28% of f16's memory) costs 0.031.");
  const EvalTable table = joined_tables(files).front();
  ASSERT_EQ(table.caches.size(), 4U);
  EXPECT_EQ(table.caches[0].name, "f16");
  EXPECT_FALSE(table.caches[0].kld.has_value());
  EXPECT_EQ(table.caches[1].name, "q8_0");
  EXPECT_FALSE(table.caches[1].ms.has_value());
  EXPECT_EQ(table.caches[3].kld, 0.0011);
  EXPECT_EQ(table.caches[3].ms, 45.5);
  EXPECT_EQ(table.depth, 8192U);
}

TEST(EvalJoin, OtherModelsAndSecondMeasurementsStandApart) {
  const Eval one = file_of("one", {kF16, kTurbo4}), other = file_of("other", {kF16, kTurbo4}, "N");
  EXPECT_EQ(joined_tables({one, other}).size(), 2U);
  const std::vector<Eval> again{one, file_of("again", {kF16, kTurbo4})};
  const std::vector<EvalTable> twice = joined_tables(again);
  ASSERT_EQ(twice.size(), 2U);
  EXPECT_EQ(twice[0].files, std::vector<std::size_t>{0});
  EXPECT_EQ(twice[1].files, std::vector<std::size_t>{1});
  Eval weights = file_of("weights", {kF16, kTurbo4}, "folder");
  weights.weights = "files/M.gguf";
  EXPECT_EQ(model_name(weights), "M.gguf");
}

// An engine that rotates q4_0 has measured what others call q4_0+rot.
TEST(EvalJoin, RotatedIsNotUnrotated) {
  EvalRow engine = kQ4;
  engine.rotated = true;
  engine.kld_mean.reset();
  engine.top1.reset();
  EvalRow plain = row("q4_0", Kind::simulated, 4.5, 0.09, 0.8, 0, 0),
          rotated = row("q4_0+rot", Kind::simulated, 4.5, 0.04, 0.86, 0, 0);
  rotated.rotated = true;
  const std::vector<Eval> files{file_of("a", {plain, rotated}), file_of("b", {engine})};
  const EvalTable table = joined_tables(files).front();
  ASSERT_EQ(table.caches.size(), 2U);
  EXPECT_EQ(table.caches[0].name, "q4_0");
  EXPECT_FALSE(table.caches[0].ms.has_value());
  EXPECT_EQ(table.caches[1].name, "q4_0+rot");
  EXPECT_EQ(table.caches[1].kld, 0.04);
  EXPECT_EQ(table.caches[1].ms, 150);
  EXPECT_EQ(joined_tables({file_of("b", {engine})}).front().caches[0].name, "q4_0") << "as its file has it";
}

// All caches are compared at one depth: the deepest that all have.
TEST(EvalJoin, DepthIsTheDeepestThatAllHave) {
  EvalRow deep = kTurbo4;
  deep.ms_per_token = {{0, 1}, {2048, 20}, {8192, 45}, {32768, 90}};
  EvalRow f16 = kF16;
  f16.ms_per_token = {{0, 1}, {2048, 30}, {8192, 100}};
  EvalRow shallow = kQ4;
  shallow.ms_per_token = {{0, 1}, {2048, 40}};
  EXPECT_EQ(joined_tables({file_of("a", {f16, deep})}).front().depth, 8192U);
  EXPECT_EQ(joined_tables({file_of("a", {f16, deep, shallow})}).front().depth, 2048U);
  EvalRow sized = deep;
  sized.bytes = {{2048, 1e6}, {8448, 4e6}, {32768, 16e6}};
  EXPECT_EQ(joined_tables({file_of("a", {sized, sized})}).front().context, 32768U) << "nearest to the depth of 32,768";
  sized.ms_per_token = f16.ms_per_token;
  EXPECT_EQ(joined_tables({file_of("a", {sized})}).front().context, 8448U);
}

}  // namespace
}  // namespace rota::tool
