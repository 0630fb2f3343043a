#include "bench/fields.h"

#include <algorithm>

namespace rota::tool {
namespace {

using Row = BenchRow;
using enum BenchValue;

constexpr Reading kNeeded = Reading::needed, kOptional = Reading::optional, kIgnored = Reading::ignored;

const BenchField kFields[] = {
    {"op", &Row::op, op, kNeeded, {"op"}, {"op"}},
    {"model", &Row::model, name_or_null, kOptional, {"model"}, {"model"}},
    {"scope", &Row::scope, scope, kOptional, {"scope"}, {"scope"}},
    {"layers", &Row::layers, count_or_null, kOptional, {"layers"}, {"layers"}},
    {"k", &Row::k, codec, kNeeded, {"k"}, {"K"}},
    {"v", &Row::v, codec, kOptional, {"v"}, {"V"}},
    {"head_dim", &Row::head_dim, count_of_layer, kOptional, {"head"}, {"head_dim"}},
    {"value_dim", &Row::value_dim, count_of_layer, kOptional, {"value head"}, {"value_dim"}},
    {"kv_heads", &Row::kv_heads, count_of_layer, kOptional, {"kv heads"}, {"KV heads"}},
    {"group", &Row::group, count_of_layer, kOptional, {"group"}, {"group"}},
    {"keys", &Row::keys, count, kNeeded, {"keys"}, {"keys"}},
    {"window", &Row::window, count_or_null, kOptional, {"window"}, {"window"}},
    {"rows", &Row::rows, count, kOptional, {"rows"}, {"rows"}},
    {"sequences", &Row::sequences, count, kOptional, {"seqs"}, {"sequences"}},
    {"threads", &Row::threads, count_or_null, kOptional, {"threads"}, {"threads"}},
    {"device", &Row::device, device, kOptional, {"device"}, {"device"}},
    {"samples", &Row::samples, samples, kOptional, {}, {"samples"}},
    {"calls_per_sample", &Row::calls_per_sample, count_of_layer, kIgnored},
    {"median_ms", &Row::median_ms, positive, kNeeded, {"ms", ".3f"}, {"median", "ms"}},
    {"min_ms", &Row::min_ms, positive, kOptional, {}, {"min", "ms"}},
    {"p25_ms", &Row::p25_ms, positive, kNeeded, {}, {"p25", "ms"}},
    {"p75_ms", &Row::p75_ms, positive, kNeeded, {}, {"p75", "ms"}},
    {"spread", &Row::spread, share, kOptional, {"spread", "percent"}, {"spread"}},
    {"bytes", &Row::bytes, bytes, kOptional, {"bytes", "bytes"}, {"bytes"}},
    {"gbps", &Row::gbps, positive, kOptional, {"GB/s", ".2f"}, {"", "GB/s"}},
    {"read_gbps", &Row::read_gbps, positive, kOptional, {"read GB/s", ".2f"}, {"read", "GB/s"}},
    {"fraction_of_read", &Row::fraction_of_read, positive, kOptional, {"of read", ".2f"}, {"of read"}},
    {"speedup_vs_f16", &Row::speedup_vs_f16, positive_or_null, kOptional, {"vs f16", ".2f"}, {"× f16"}},
    {"tokens_per_second", &Row::tokens_per_second, positive_or_null, kOptional, {"tok/s", ".1f"}, {"", "tok/s"}},
    {"noisy", &Row::noisy, flag, kOptional, {}, {"noisy"}},
};

Json json_of(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }
Json json_of(std::uint64_t number) { return number; }
Json json_of(double number) { return number; }
Json json_of(bool flag_value) { return flag_value; }
template <class T>
Json json_of(const std::optional<T>& number) {
  return number ? Json(*number) : Json(nullptr);
}

}  // namespace

std::string BenchField::OnPage::title() const {
  return std::string(name) + (name.empty() || unit.empty() ? "" : ", ") + std::string(unit);
}

std::span<const BenchField> bench_fields() { return kFields; }

const BenchField& bench_field(std::string_view key) { return *std::ranges::find(kFields, key, &BenchField::key); }

std::vector<Column> bench_columns() {
  std::vector<Column> columns;
  for (const BenchField& field : kFields) {
    if (field.table.title.empty()) continue;
    columns.push_back({std::string(field.key), std::string(field.table.title), std::string(field.table.format)});
  }
  return columns;
}

Json bench_json(const BenchRow& row) {
  Json json;
  for (const BenchField& field : kFields) {
    json[std::string(field.key)] = std::visit([&](const auto member) { return json_of(row.*member); }, field.member);
  }
  return json;
}

}  // namespace rota::tool
