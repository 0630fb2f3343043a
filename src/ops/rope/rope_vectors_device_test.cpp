#include <gtest/gtest.h>

#include <filesystem>

#include "harness/on_device.h"
#include "harness/source_file.h"
#include "ops/rope/rope_reference.h"

// What the models' own code makes of the same input; see scripts/make_rope_vectors.py.

namespace rota::test {
namespace {

using nlohmann::json;

constexpr const char* kFolder = "src/ops/rope/vectors";

template <class Enum>
Enum named(const json& from, const char* key, std::initializer_list<std::pair<const char*, Enum>> names) {
  const std::string found = from.value(key, names.begin()->first);
  for (const auto& [name, value] : names) {
    if (found == name) return value;
  }
  throw std::runtime_error("unknown " + std::string(key) + ": " + found);
}

// One file, with the memory that the rotary's spans show.
struct Vector {
  explicit Vector(const std::string& path) : document(read_json(path)) {
    const json& asked = document.at("rotary");
    rotary.pairing = named<Pairing>(asked, "pairing",
                                    {{"halves", Pairing::halves},
                                     {"interleaved", Pairing::interleaved},
                                     {"section_halves", Pairing::section_halves}});
    rotary.theta = asked.at("theta").get<double>();
    if (asked.contains("rope_dim")) rotary.rope_dim = asked["rope_dim"].get<std::uint64_t>();
    if (asked.contains("turning_pairs")) rotary.turning_pairs = asked["turning_pairs"].get<std::uint64_t>();
    factors = asked.value("factors", factors);
    rotary.factors = factors;
    rotary.interpolation = asked.value("interpolation", 1.0);
    if (asked.contains("yarn")) {
      const json& yarn = asked["yarn"];
      rotary.yarn = Yarn{
          .original_context = yarn.at("original_context").get<std::uint64_t>(),
          .ramp = named<YarnRamp>(yarn, "ramp", {{"whole_pairs", YarnRamp::whole_pairs}, {"exact", YarnRamp::exact}})};
    }
    if (asked.contains("magnitude")) rotary.magnitude = asked["magnitude"].get<double>();
    if (asked.contains("sections")) {
      const json& by_axis = asked["sections"];
      sections = by_axis.at("pairs").get<std::vector<std::uint32_t>>();
      rotary.sections = {
          .pairs = sections,
          .order = named<SectionOrder>(
              by_axis, "order", {{"contiguous", SectionOrder::contiguous}, {"interleaved", SectionOrder::interleaved}}),
          .frequencies = named<SectionFrequencies>(
              by_axis, "frequencies", {{"shared", SectionFrequencies::shared}, {"own", SectionFrequencies::own}})};
    }
    for (const json& axis : document.at("positions")) {
      for (const json& position : axis) positions.push_back(position.get<std::int64_t>());
    }
  }

  json document;
  std::vector<float> factors;
  std::vector<std::uint32_t> sections;
  std::vector<std::int64_t> positions;
  Rotary rotary{.pairing = Pairing::halves, .theta = 1.0};
};

class RopeVectors : public OnDevice {};

TEST_F(RopeVectors, OfTransformersAreReproduced) {
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(ROTA_SOURCE_FOLDER) + "/" + kFolder)) {
    const std::string name = entry.path().filename();
    SCOPED_TRACE(name);
    const Vector vector(std::string(kFolder) + "/" + name);
    const auto x = vector.document.at("x").get<std::vector<std::vector<float>>>();
    const auto y = vector.document.at("y").get<std::vector<std::vector<double>>>();
    const std::uint64_t tokens = x.size();
    const std::uint64_t dim = x[0].size();
    std::mt19937_64 random(1);
    TensorUnderTest tensor(device, random, {.shape = {.tokens = tokens, .heads = 1, .dim = dim}});
    for (std::uint64_t i = 0; i < tokens * dim; ++i) {
      save_bits(tensor.source, DType::f32, i, std::bit_cast<std::uint32_t>(x[i / dim][i % dim]));
    }
    tensor.write_source();
    double norm_error = 0;
    if (vector.document.contains("norm")) {
      const json& norm = vector.document["norm"];
      const auto weight = norm.at("weight").get<std::vector<float>>();
      Buffer buffer = device.allocate(dim * sizeof(float)).value();
      ASSERT_OK(buffer.write(std::as_bytes(std::span(weight))));
      tensor.tensor.norm =
          HeadNorm{.epsilon = norm.at("epsilon").get<double>(),
                   .weight = View::token_major(buffer, DType::f32, {.tokens = 1, .heads = 1, .dim = dim}),
                   .weight_offset = norm.value("weight_offset", 0.0)};
      norm_error = 2 * norm_bound(dim);
    }
    ASSERT_OK(
        run_rope(device, {.tensors = {&tensor.tensor, 1}, .positions = vector.positions, .rotary = vector.rotary}));

    // transformers computes a frequency and an angle in f32: a few roundings of the angle, 6e-8 of it each, turn the
    // pair.
    constexpr double kAngleRoundings = 6;
    const std::uint64_t rope_dim = vector.rotary.rope_dim.value_or(dim);
    std::vector<double> angle_error(tokens * dim);
    std::vector<double> length(tokens * dim);
    for (std::uint64_t token = 0; token < tokens; ++token) {
      for (std::uint64_t pair = 0; pair < rope_dim / 2; ++pair) {
        const auto [first, second] = coordinates_by_definition(vector.rotary, rope_dim, pair);
        const auto axis = axis_by_definition(vector.rotary.sections, pair);
        const auto angle = static_cast<double>(vector.positions[axis * tokens + token]) *
                           static_cast<double>(frequency_by_definition(vector.rotary, rope_dim, pair));
        for (const std::uint64_t d : {first, second}) {
          angle_error[token * dim + d] = kAngleRoundings * 0x1p-24 * angle;
          length[token * dim + d] = std::hypot(y[token][first], y[token][second]);
        }
      }
      const auto found = tensor.head_after(token, 0);
      for (std::uint64_t d = 0; d < dim; ++d) {
        const std::uint64_t i = token * dim + d;
        const double reach = std::max(length[i], std::fabs(y[token][d]));
        EXPECT_NEAR(found[d], y[token][d], (angle_error[i] + norm_error + 1.5e-6) * reach)
            << "token " << token << ", coordinate " << d;
      }
    }
    ++files;
  }
  EXPECT_EQ(files, 17U);
}

}  // namespace
}  // namespace rota::test
