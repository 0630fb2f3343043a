#include "report/data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>

#include "cli/command.h"
#include "cli/show.h"
#include "report/words.h"

namespace rota::tool {
namespace {

using Json = nlohmann::json;

// Far more than a person reads, and little to a browser.
constexpr std::size_t kLargestFile = std::size_t{16} << 20U;
constexpr std::size_t kMostRows = 10000, kMostDevices = 64, kDeepest = 16;
constexpr std::size_t kLongestName = 256, kLongestText = 4096, kLongestQuote = 40;
// Beyond them nothing was measured, and logarithms, ratios and ticks stay far from what a double cannot hold.
constexpr double kSmallest = 1e-30, kLargest = 1e30;
constexpr std::uint64_t kLargestCount = std::uint64_t{1} << 53U;

[[noreturn]] void fail(const std::string& path, const std::string& what, const std::string& wanted) {
  throw Failure(Exit::failed_check, fmt::format("{}: {}; wanted {}", path, what, wanted));
}

std::string quoted(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array";
  const std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  return text.size() <= kLongestQuote ? text : text.substr(0, kLongestQuote) + "...";
}

// One object of a file. Keys that nobody asks for are none of our business: newer files have more.
class Object {
 public:
  Object(const Json& json, const std::string& path, std::string where)
      : json_(json), path_(path), where_(std::move(where)) {
    if (!json.is_object())
      fail(path, where_.empty() ? "is no JSON object" : where_ + " is " + quoted(json), "an object");
  }

  [[noreturn]] void refuse(const std::string& key, const std::string& wanted) const {
    const auto found = json_.find(key);
    const std::string what = found == json_.end() ? "is missing" : "is " + quoted(*found);
    fail(path_, fmt::format("{}{}\"{}\" {}", where_, where_.empty() ? "" : ": ", key, what), wanted);
  }

  // Null is as good as not there.
  const Json* find(const std::string& key) const {
    const auto found = json_.find(key);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }

  std::optional<std::string> optional_text(const std::string& key, std::size_t longest = kLongestName) const {
    const Json* const value = find(key);
    if (value == nullptr) return {};
    const auto* const text = value->get_ptr<const std::string*>();
    if (text == nullptr || text->size() > longest) refuse(key, fmt::format("a text of at most {} bytes", longest));
    return *text;
  }
  std::string text(const std::string& key) const {
    const auto value = optional_text(key);
    if (!value || value->empty()) refuse(key, "a name");
    return *value;
  }

  std::optional<std::uint64_t> optional_count(const std::string& key, std::uint64_t smallest = 1) const {
    const Json* const value = find(key);
    if (value == nullptr) return {};
    const auto* const count = value->get_ptr<const Json::number_unsigned_t*>();
    if (count == nullptr || *count < smallest || *count > kLargestCount) {
      refuse(key, fmt::format("a whole number from {} to 2^53", smallest));
    }
    return *count;
  }
  std::uint64_t count(const std::string& key) const {
    const auto value = optional_count(key);
    if (!value) refuse(key, "a whole number from 1 to 2^53");
    return *value;
  }

  std::optional<double> optional_number(const std::string& key) const {
    return number_if(
        key, [](double number) { return std::abs(number) <= kLargest; },
        fmt::format("a number from -{0:g} to {0:g}", kLargest));
  }
  std::optional<double> optional_size(const std::string& key) const {
    return number_if(key, [](double number) { return number == 0 || is_positive(number); }, size_text());
  }
  double size(const std::string& key) const {
    const auto number = optional_size(key);
    if (!number) refuse(key, size_text());
    return *number;
  }
  double positive(const std::string& key) const {
    const std::string wanted = fmt::format("a number from {:g} to {:g}", kSmallest, kLargest);
    const auto number = number_if(key, is_positive, wanted);
    if (!number) refuse(key, wanted);
    return *number;
  }

  bool flag(const std::string& key) const {
    const Json* const value = find(key);
    if (value != nullptr && !value->is_boolean()) refuse(key, "true or false");
    return value != nullptr && value->get<bool>();
  }

  const Json& list(const std::string& key, std::size_t longest) const {
    static const Json empty = Json::array();
    const Json* const value = find(key);
    if (value == nullptr) return empty;
    if (!value->is_array()) refuse(key, "an array");
    if (value->size() > longest) {
      fail(path_, fmt::format("\"{}\" has {} entries", key, value->size()), fmt::format("at most {}", longest));
    }
    return *value;
  }

  template <class Row, class Read>
  std::vector<Row> rows(const std::string& key, std::string_view name, Read read) const {
    std::vector<Row> result;
    for (const Json& row : list(key, kMostRows)) {
      result.push_back(read(Object(row, path_, fmt::format("{} {}", name, result.size() + 1))));
    }
    return result;
  }

  // All numbers of a list; none if there is no list.
  std::vector<double> sizes(const std::string& key) const {
    std::vector<double> result;
    for (const Json& number : list(key, kMostRows)) {
      const bool good = number.is_number() && (number.get<double>() == 0 || is_positive(number.get<double>()));
      if (!good) fail(path_, fmt::format("{}: \"{}\" has {}", where_, key, quoted(number)), size_text());
      result.push_back(number.get<double>());
    }
    return result;
  }

  const std::string& path() const { return path_; }
  const std::string& where() const { return where_; }

 private:
  static bool is_positive(double number) { return number >= kSmallest && number <= kLargest; }
  static std::string size_text() { return fmt::format("0, or a number from {:g} to {:g}", kSmallest, kLargest); }

  template <class Good>
  std::optional<double> number_if(const std::string& key, Good good, const std::string& wanted) const {
    const Json* const value = find(key);
    if (value == nullptr) return {};
    if (!value->is_number() || !good(value->get<double>())) refuse(key, wanted);
    return value->get<double>();
  }

  const Json& json_;
  const std::string& path_;
  std::string where_;
};

std::string read_file(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  const auto fail_to_read = [&] {
    fail(path, errno == 0 ? "cannot be read" : std::generic_category().message(errno),
         "a file that rota bench or rota distort wrote with -o json, or rota eval with --json");
  };
  if (!file) fail_to_read();
  std::string text(kLargestFile + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad() || (file.gcount() == 0 && errno != 0)) fail_to_read();
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kLargestFile) {
    fail(path, fmt::format("is larger than {}", bytes_text(kLargestFile)), "a report of bench, distort or eval");
  }
  return text;
}

Json parse(const std::string& path) {
  const std::string text = read_file(path);
  const auto check_depth = [&](int depth, Json::parse_event_t, Json&) {
    if (static_cast<std::size_t>(depth) > kDeepest) {
      fail(path, fmt::format("nests more than {} arrays or objects", kDeepest), "a report of bench, distort or eval");
    }
    return true;
  };
  try {
    return Json::parse(text, check_depth);
  } catch (const Json::parse_error& error) {
    const bool ended = error.byte > text.size();  // all that is there could go on
    fail(path,
         ended ? "is truncated after " + counted(text.size(), "byte")
               : fmt::format("is no JSON: byte {} cannot stand where it does", error.byte),
         "what rota bench or rota distort wrote with -o json, or rota eval with --json");
  } catch (const Json::out_of_range&) {
    fail(path, "has a number that no double holds", fmt::format("numbers up to {:g}", kLargest));
  }
}

std::string device_line(const Object& device) {
  std::string line = device.optional_text("id").value_or("");
  const auto add = [&](std::string_view separator, const std::string& part) {
    if (!part.empty()) line += (line.empty() ? "" : std::string(separator)) + part;
  };
  add(": ", device.optional_text("name").value_or(""));
  add(", ", device.optional_text("driver").value_or(""));
  if (const auto threads = device.optional_count("threads")) {
    add(", ", fmt::format("{} thread{}", *threads, *threads == 1 ? "" : "s"));
  }
  if (const auto bytes = device.optional_count("memory_bytes", 0)) add(", ", bytes_text(*bytes));
  return line;
}

Origin read_origin(const Object& file) {
  Origin origin;
  origin.path = file.path();
  origin.version = file.optional_text("version").value_or("");
  origin.commit = file.optional_text("commit").value_or("");
  origin.build = file.optional_text("build").value_or("");
  origin.date = file.optional_text("date").value_or("");
  origin.command = file.optional_text("command", kLongestText).value_or("");
  for (const Json& device : file.list("devices", kMostDevices)) {
    const std::string where = fmt::format("device {}", origin.devices.size() + 1);
    origin.devices.push_back(device_line(Object(device, file.path(), where)));
  }
  if (const Json* const device = file.find("device")) {
    origin.devices.push_back(device_line(Object(*device, file.path(), "device")));
  }
  return origin;
}

// Reads one field of a row, by what the row has for it.
class FieldReader {
 public:
  FieldReader(const Object& json, const BenchField& field) : json_(json), field_(field), key_(field.key) {}

  void operator()(std::string& text) const {
    text = field_.reading == Reading::needed ? json_.text(key_) : json_.optional_text(key_).value_or("");
    if (field_.value == BenchValue::op && std::ranges::find(kBenchOps, text) == kBenchOps.end()) {
      json_.refuse(key_, "attend, store, seal or rope");
    }
    if (field_.value == BenchValue::scope) {
      if (text.empty()) text = kLayerScope;
      if (text != kLayerScope && text != kModelScope) json_.refuse(key_, "layer or model");
    }
  }
  void operator()(std::uint64_t& count) const { count = json_.count(key_); }
  void operator()(std::optional<std::uint64_t>& count) const {
    count = json_.optional_count(key_, field_.value == BenchValue::bytes ? 0 : 1);
  }
  void operator()(double& number) const { number = json_.positive(key_); }
  void operator()(std::optional<double>& number) const { number = json_.optional_size(key_); }
  void operator()(bool& flag) const { flag = json_.flag(key_); }

 private:
  const Object& json_;
  const BenchField& field_;
  std::string key_;
};

BenchRow read_bench_row(const Object& json) {
  BenchRow row;
  for (const BenchField& field : bench_fields()) {
    if (field.reading == Reading::ignored) continue;
    std::visit([&](const auto member) { FieldReader(json, field)(row.*member); }, field.member);
  }
  if (json.find("v") == nullptr) row.v = row.k;
  if (row.scope == kLayerScope) row.head_dim = json.count("head_dim");  // layers of a model may have several
  if (row.p25_ms > row.median_ms) json.refuse("p25_ms", fmt::format("at most median_ms, {:g}", row.median_ms));
  if (row.p75_ms < row.median_ms) json.refuse("p75_ms", fmt::format("at least median_ms, {:g}", row.median_ms));
  return row;
}

StorageRow read_storage_row(const Object& json) {
  StorageRow row;
  row.source = json.text("source");
  row.side = json.text("side");
  if (row.side != "k" && row.side != "v") json.refuse("side", "k or v");
  row.codec = json.text("codec");
  row.head_dim = json.optional_count("head_dim");
  row.values = json.optional_count("values");
  row.bits_stored = json.positive("bits_stored");
  row.mse = json.size("mse");
  row.theory_mse = json.optional_size("theory_mse");
  row.shannon_mse = json.optional_size("shannon_mse");
  row.max_error = json.optional_size("max_error");
  return row;
}

AttentionRow read_attention_row(const Object& json) {
  AttentionRow row;
  row.source = json.text("source");
  row.k = json.text("k");
  row.v = json.text("v");
  row.bits_stored = json.positive("bits_stored");
  row.logit_error = json.optional_size("logit_error");
  row.kl = json.optional_number("kl");  // may round to just below 0
  row.output_error = json.optional_size("output_error");
  return row;
}

constexpr std::pair<const char*, EvalRow::Kind> kEvalKinds[] = {{"reference", EvalRow::Kind::reference},
                                                                {"rota", EvalRow::Kind::rota},
                                                                {"simulated", EvalRow::Kind::simulated},
                                                                {"engine", EvalRow::Kind::engine}};

// {"2048": 1e6, ...}: numbers by tokens.
std::map<std::uint64_t, double> read_by_tokens(const Object& row, const std::string& name, std::string_view unit) {
  constexpr std::size_t kMostContexts = 16, kMostDigits = 15;
  const std::string wanted = fmt::format("an object of {} by tokens, at most {}", unit, kMostContexts);
  std::map<std::uint64_t, double> numbers;
  const Json* const found = row.find(name);
  if (found == nullptr) return numbers;
  if (!found->is_object() || found->size() > kMostContexts) row.refuse(name, wanted);
  const Object object(*found, row.path(), row.where() + ": " + name);
  for (const auto& [key, value] : found->items()) {
    const bool digits = std::ranges::all_of(key, [](char c) { return c >= '0' && c <= '9'; });
    if (key.empty() || key.size() > kMostDigits || !digits) row.refuse(name, wanted);
    numbers[std::stoull(key)] = object.positive(key);
  }
  return numbers;
}

void read_times(const Object& json, EvalRow& row) {
  row.ms_per_token = read_by_tokens(json, "ms_per_token", "ms");
  row.ms_per_token_p10 = read_by_tokens(json, "ms_per_token_p10", "ms");
  row.ms_per_token_p90 = read_by_tokens(json, "ms_per_token_p90", "ms");
  const auto check = [&](const std::map<std::uint64_t, double>& ends, const char* key, double sign) {
    for (const auto& [depth, ms] : ends) {
      const auto median = row.ms_per_token.find(depth);
      const bool good = median != row.ms_per_token.end() && sign * ms >= sign * median->second;
      if (!good) json.refuse(key, "numbers on that side of ms_per_token's, by the same tokens");
    }
  };
  check(row.ms_per_token_p10, "ms_per_token_p10", -1);
  check(row.ms_per_token_p90, "ms_per_token_p90", 1);
}

EvalRow read_eval_row(const Object& json) {
  EvalRow row;
  row.codec = json.text("codec");
  const std::string kind = json.text("kind");
  const auto* const known = std::ranges::find(kEvalKinds, kind, [](const auto& entry) { return entry.first; });
  if (known == std::end(kEvalKinds)) json.refuse("kind", "reference, rota, simulated or engine");
  row.kind = known->second;
  row.rotated = json.flag("rotated");
  row.bits_stored = json.positive("bits_stored");
  read_times(json, row);
  const bool only_timed = !row.ms_per_token.empty() && json.find("kld_mean") == nullptr;
  if (!only_timed) row.kld_mean = json.size("kld_mean");
  if (!only_timed) row.perplexity = json.positive("perplexity");
  row.kld_p99 = json.optional_size("kld_p99");
  row.kld_max = json.optional_size("kld_max");
  row.top1 = json.optional_size("top1");
  row.attention_error_mean = json.optional_size("attention_error_mean");
  row.attention_error_worst = json.optional_size("attention_error_worst");
  row.sealed_share = json.optional_size("sealed_share");
  row.attention_errors = json.sizes("attention_errors");
  row.bytes = read_by_tokens(json, "bytes", "bytes");
  return row;
}

void read_into(ReportData& data, const std::string& path) {
  const Json json = parse(path);
  const Object file(json, path, "");
  const std::string kind = file.text("report");
  if (kind != "bench" && kind != "distort" && kind != "eval") {
    file.refuse("report", "\"bench\", \"distort\" or \"eval\"");
  }
  if (file.count("format") != 1) file.refuse("format", "1, the only one that this rota knows");
  if (file.find("rows") == nullptr) file.refuse("rows", "an array");
  if (kind == "bench") {
    Bench bench;
    bench.origin = read_origin(file);
    if (const Json* const found = file.find("noise")) {
      const Object noise(*found, path, "noise");
      bench.read_spread = noise.optional_size("read_spread");
      bench.noisy = noise.flag("noisy");
    }
    bench.interrupted = file.flag("interrupted");
    bench.rows = file.rows<BenchRow>("rows", "row", read_bench_row);
    data.bench.push_back(std::move(bench));
  } else if (kind == "eval") {
    Eval eval;
    eval.origin = read_origin(file);
    eval.model = file.optional_text("model", kLongestText).value_or("");
    eval.weights = file.optional_text("gguf", kLongestText).value_or("");
    eval.text = file.optional_text("text", kLongestText).value_or("");
    eval.tokens = file.optional_count("tokens");
    eval.chunk = file.optional_count("chunk");
    eval.rows = file.rows<EvalRow>("rows", "row", read_eval_row);
    data.eval.push_back(std::move(eval));
  } else {
    Distort distort;
    distort.origin = read_origin(file);
    distort.rows = file.rows<StorageRow>("rows", "row", read_storage_row);
    distort.attention = file.rows<AttentionRow>("attention", "attention row", read_attention_row);
    data.distort.push_back(std::move(distort));
  }
}

// The file's name where it is enough to tell files apart, else its path, else that and a number.
template <class File>
void label_files(std::vector<File>& files) {
  std::map<std::string, int> names, paths;
  const auto name_of = [](const Origin& origin) { return std::filesystem::path(origin.path).filename().string(); };
  for (const File& file : files) {
    ++names[name_of(file.origin)];
  }
  for (File& file : files) {
    Origin& origin = file.origin;
    const int seen = ++paths[origin.path];
    origin.label = names[name_of(origin)] == 1 ? name_of(origin) : origin.path;
    if (seen > 1) origin.label += fmt::format(" ({})", seen);
  }
}

}  // namespace

ReportData read_reports(const std::vector<std::string>& paths) {
  ReportData data;
  for (const std::string& path : paths) read_into(data, path);
  label_files(data.bench);
  label_files(data.distort);
  label_files(data.eval);
  return data;
}

}  // namespace rota::tool
