#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "harness/on_device.h"
#include "harness/source_file.h"
#include "ops/rope/rope_reference.h"

// What the models' own code makes of the same input; see scripts/make_rope_vectors.py.

namespace rota::test {
namespace {

using nlohmann::json;

constexpr const char* kFolder = "src/ops/rope/vectors";

template <class Enum>
Enum named(const std::string& name, std::initializer_list<std::pair<const char*, Enum>> names) {
  for (const auto& [known, value] : names) {
    if (name == known) return value;
  }
  throw std::runtime_error("unknown name " + name);
}

// A key that nobody reads would be a case that tests something else.
void expect_keys(const json& object, std::initializer_list<const char*> known) {
  for (const auto& item : object.items()) {
    EXPECT_TRUE(std::ranges::find(known, item.key()) != known.end()) << item.key();
  }
}

template <class T>
std::optional<T> maybe(const json& object, const char* key) {
  return object.contains(key) ? std::optional(object[key].get<T>()) : std::nullopt;
}

Rotary rotary_of(const json& asked) {
  expect_keys(asked, {"pairing", "theta", "rope_dim", "turning_pairs", "factors", "interpolation", "yarn", "magnitude",
                      "sections"});
  Rotary rotary{.pairing = named<Pairing>(asked.at("pairing"), {{"halves", Pairing::halves},
                                                                {"interleaved", Pairing::interleaved},
                                                                {"section_halves", Pairing::section_halves}}),
                .theta = asked.at("theta").get<double>(),
                .rope_dim = maybe<std::uint64_t>(asked, "rope_dim"),
                .turning_pairs = maybe<std::uint64_t>(asked, "turning_pairs"),
                .factors = asked.value("factors", std::vector<float>()),
                .interpolation = asked.value("interpolation", 1.0),
                .magnitude = maybe<double>(asked, "magnitude")};
  if (asked.contains("yarn")) {
    const json& yarn = asked["yarn"];
    expect_keys(yarn, {"factor", "original_context", "beta_fast", "beta_slow", "ramp"});
    rotary.yarn = Yarn{.factor = yarn.at("factor").get<double>(),
                       .original_context = yarn.at("original_context").get<std::uint64_t>(),
                       .beta_fast = yarn.value("beta_fast", 32.0),
                       .beta_slow = yarn.value("beta_slow", 1.0),
                       .ramp = named<YarnRamp>(yarn.value("ramp", "whole_pairs"),
                                               {{"whole_pairs", YarnRamp::whole_pairs}, {"exact", YarnRamp::exact}})};
  }
  if (asked.contains("sections")) {
    const json& sections = asked["sections"];
    expect_keys(sections, {"pairs", "order", "frequencies"});
    rotary.sections = RopeSections{
        .pairs = sections.at("pairs").get<std::vector<std::uint32_t>>(),
        .order = named<SectionOrder>(sections.at("order"), {{"contiguous", SectionOrder::contiguous},
                                                            {"interleaved", SectionOrder::interleaved}}),
        .frequencies = named<SectionFrequencies>(
            sections.at("frequencies"), {{"shared", SectionFrequencies::shared}, {"own", SectionFrequencies::own}})};
  }
  return rotary;
}

class RopeVectors : public OnDevice {};

TEST_F(RopeVectors, OfTransformersAreReproduced) {
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(ROTA_SOURCE_FOLDER) + "/" + kFolder)) {
    const std::string name = entry.path().filename();
    SCOPED_TRACE(name);
    const json document = read_json(std::string(kFolder) + "/" + name);
    expect_keys(document, {"made_by", "source", "rotary", "norm", "positions", "x", "y"});
    const Rotary rotary = rotary_of(document.at("rotary"));
    std::vector<std::int64_t> positions;
    for (const json& axis : document.at("positions")) {
      for (const json& position : axis) positions.push_back(position.get<std::int64_t>());
    }
    const auto x = document.at("x").get<std::vector<std::vector<float>>>();
    const auto y = document.at("y").get<std::vector<std::vector<double>>>();
    const std::uint64_t tokens = x.size();
    const std::uint64_t dim = x[0].size();
    std::mt19937_64 random(1);
    TensorUnderTest tensor(device, random, {.shape = {.tokens = tokens, .heads = 1, .dim = dim}});
    for (std::uint64_t i = 0; i < tokens * dim; ++i) {
      save_bits(tensor.source, DType::f32, i, std::bit_cast<std::uint32_t>(x[i / dim][i % dim]));
    }
    tensor.write_source();
    double norm_error = 0;
    if (document.contains("norm")) {
      const json& norm = document["norm"];
      const auto weight = norm.at("weight").get<std::vector<float>>();
      Buffer buffer = device.allocate(dim * sizeof(float)).value();
      ASSERT_OK(buffer.write(std::as_bytes(std::span(weight))));
      tensor.tensor.norm =
          HeadNorm{.epsilon = norm.at("epsilon").get<double>(),
                   .weight = View::token_major(buffer, DType::f32, {.tokens = 1, .heads = 1, .dim = dim}),
                   .weight_offset = norm.value("weight_offset", 0.0)};
      norm_error = 2 * norm_bound(dim);
    }
    ASSERT_OK(run_rope(device, {.tensors = {&tensor.tensor, 1}, .positions = positions, .rotary = rotary}));

    // transformers has f32 all the way: up to six roundings of an angle (power, quotient, factors, product), and a
    // rotation that loses as much as ours may.
    constexpr double kAngleRoundings = 6;
    constexpr double kBothRotations = 2e-6;
    const std::uint64_t rope_dim = rotary.rope_dim.value_or(dim);
    std::vector<double> angle_error(tokens * dim);
    std::vector<double> length(tokens * dim);
    for (std::uint64_t token = 0; token < tokens; ++token) {
      for (std::uint64_t pair = 0; pair < rope_dim / 2; ++pair) {
        const auto [first, second] = coordinates_by_definition(rotary, rope_dim, pair);
        const auto axis = axis_by_definition(rotary, pair);
        const auto angle = static_cast<double>(positions[axis * tokens + token]) *
                           static_cast<double>(frequency_by_definition(rotary, rope_dim, pair));
        for (const std::uint64_t d : {first, second}) {
          angle_error[token * dim + d] = kAngleRoundings * 0x1p-24 * angle;
          length[token * dim + d] = std::hypot(y[token][first], y[token][second]);
        }
      }
      const auto found = tensor.head_after(token, 0);
      for (std::uint64_t d = 0; d < dim; ++d) {
        const std::uint64_t i = token * dim + d;
        const double reach = std::max(length[i], std::fabs(y[token][d]));
        EXPECT_NEAR(found[d], y[token][d], (angle_error[i] + norm_error + kBothRotations) * reach)
            << "token " << token << ", coordinate " << d;
      }
    }
    ++files;
  }
  EXPECT_EQ(files, 20U);
}

}  // namespace
}  // namespace rota::test
