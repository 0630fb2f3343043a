#include "bench/schema.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "bench/fields.h"
#include "bench/sampler.h"
#include "rota/kv_spec.h"

namespace rota::tool {
namespace {

Json ref(const std::string& name) { return {{"$ref", "#/$defs/" + name}}; }

// Of exactly these keys, if `required` names all of them.
Json object_of(Json required, Json properties) {
  return {{"type", "object"},
          {"additionalProperties", false},
          {"required", std::move(required)},
          {"properties", std::move(properties)}};
}

Json keys_of(const Json& properties) {
  Json keys = Json::array();
  for (const auto& [key, value] : properties.items()) keys.push_back(key);
  return keys;
}

Json object_of(const Json& properties) { return object_of(keys_of(properties), properties); }

Json array_of(const Json& items) { return {{"type", "array"}, {"minItems", 1}, {"items", items}}; }

Json text_like(const std::string& pattern) { return {{"type", "string"}, {"pattern", pattern}}; }

Json whole_from(std::uint64_t least) { return {{"type", "integer"}, {"minimum", least}}; }

const Json kText{{"type", "string"}, {"minLength", 1}};
const Json kFlag{{"type", "boolean"}};
const Json kShare{{"type", "number"}, {"minimum", 0}};
const Json kPositive{{"type", "number"}, {"exclusiveMinimum", 0}};

Json or_null(Json schema) {
  schema["type"] = {schema.at("type"), "null"};
  return schema;
}

Json value_schema(BenchValue value) {
  switch (value) {
    case BenchValue::op: return {{"enum", kBenchOps}};
    case BenchValue::codec: return ref("codec");
    case BenchValue::device: return ref("device_id");
    case BenchValue::name_or_null: return or_null(kText);
    case BenchValue::count:
    case BenchValue::bytes: return ref("count");
    case BenchValue::count_of_layer:
    case BenchValue::count_or_null: return ref("count_or_null");
    case BenchValue::samples: return whole_from(kFewestRounds);
    case BenchValue::scope: return {{"enum", {kLayerScope, kModelScope}}};
    case BenchValue::positive: return ref("positive");
    case BenchValue::positive_or_null: return or_null(kPositive);
    case BenchValue::share: return kShare;
    case BenchValue::flag: return kFlag;
  }
  return {};
}

Json row_schema() {
  Json properties, of_layers;
  for (const BenchField& field : bench_fields()) {
    properties[std::string(field.key)] = value_schema(field.value);
    if (field.value == BenchValue::count_of_layer) of_layers[std::string(field.key)] = ref("count");
  }
  Json row = object_of(properties);
  row["if"] = {{"properties", {{"scope", {{"const", kLayerScope}}}}}};
  row["then"] = {{"properties", of_layers}};
  return row;
}

// A CPU has threads, and any other device has limits.
Json device_schema() {
  Json limits;
  for (const char* key : {"max_buffer_bytes", "max_binding_bytes", "max_workgroup_size", "shared_memory_bytes",
                          "subgroup_size", "lane_registers"}) {
    limits[key] = ref("count");
  }
  limits["cores"] = ref("count_or_null");
  Json device{{"type", "object"},
              {"additionalProperties", false},
              {"required", {"id", "name", "kind", "driver", "memory_bytes", "features"}},
              {"oneOf", {{{"required", {"threads"}}}, {{"required", {"limits"}}}}}};
  device["properties"] = {{"id", ref("device_id")},
                          {"name", kText},
                          {"kind", kText},
                          {"driver", {{"type", "string"}}},
                          {"memory_bytes", ref("count")},
                          {"features", {{"type", "array"}, {"items", {{"type", "string"}}}}},
                          {"threads", ref("count")},
                          {"limits", object_of(limits)}};
  return device;
}

Json definitions() {
  Json codecs = Json::array();
  for (const NamedCodec& codec : kCodecs) codecs.push_back(codec.name);
  return {{"count", whole_from(1)},      {"count_or_null", or_null(whole_from(1))},         {"positive", kPositive},
          {"codec", {{"enum", codecs}}}, {"device_id", text_like("^(cpu|vulkan:[0-9]+)$")}, {"device", device_schema()},
          {"row", row_schema()}};
}

Json schema() {
  const Json properties{
      {"report", {{"const", "bench"}}},
      {"format", {{"const", 1}}},
      {"version", text_like("^[0-9]+\\.[0-9]+\\.[0-9]+$")},
      {"commit", kText},
      {"build", kText},
      {"date", text_like("^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$")},
      {"command", text_like("^rota .*bench")},
      {"devices", array_of(ref("device"))},
      {"interrupted", kFlag},
      {"seconds", object_of({{"asked", kPositive}, {"taken", kPositive}})},
      {"noise", object_of({{"read_spread", kShare}, {"noisy_rows", whole_from(0)}, {"noisy", kFlag}})},
      {"rows", array_of(ref("row"))}};
  Json whole{{"$schema", "https://json-schema.org/draft/2020-12/schema"},
             {"title", "What rota bench -o json prints"},
             {"description", "docs/bench.md says what each key means"}};
  whole.update(object_of(properties));
  whole["$defs"] = definitions();
  return whole;
}

// As a person would lay it out: what fits into a line stands in one, and lists of words fill theirs.
class Layout {
 public:
  explicit Layout(const Json& json) { add(json, 0, 0); }
  std::string text() && { return std::move(text_) + "\n"; }

 private:
  static constexpr std::size_t kWidth = 120;

  static std::string in_line(const Json& json) {
    std::vector<std::string> parts;
    if (json.is_object()) {
      for (const auto& [key, value] : json.items()) parts.push_back(Json(key).dump() + ": " + in_line(value));
      return fmt::format("{{{}}}", fmt::join(parts, ", "));
    }
    if (!json.is_array()) return json.dump();
    for (const Json& value : json) parts.push_back(in_line(value));
    return fmt::format("[{}]", fmt::join(parts, ", "));
  }

  // `used`: of the line that it begins in.
  void add(const Json& json, std::size_t indent, std::size_t used) {
    const std::string line = in_line(json);
    if (used + line.size() < kWidth || !json.is_structured()) {
      text_ += line;
      return;
    }
    text_ += json.is_object() ? "{" : "[";
    json.is_object() ? add_members(json, indent + 2) : add_words(json, indent + 2);
    text_ += "\n" + std::string(indent, ' ') + (json.is_object() ? "}" : "]");
  }

  void add_members(const Json& json, std::size_t indent) {
    const char* before = "\n";
    for (const auto& [key, value] : json.items()) {
      const std::string name = Json(key).dump() + ": ";
      text_ += before + std::string(indent, ' ') + name;
      add(value, indent, indent + name.size());
      before = ",\n";
    }
  }

  void add_words(const Json& json, std::size_t indent) {
    std::size_t used = kWidth;
    for (std::size_t at = 0; at < json.size(); ++at) {
      const std::string word = in_line(json[at]) + (at + 1 < json.size() ? "," : "");
      const bool fits = used + 1 + word.size() <= kWidth;
      text_ += fits ? " " : "\n" + std::string(indent, ' ');
      used = (fits ? used + 1 : indent) + word.size();
      text_ += word;
    }
  }

  std::string text_{};
};

}  // namespace

std::string bench_schema() { return Layout(schema()).text(); }

}  // namespace rota::tool
