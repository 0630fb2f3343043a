#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/options.h"
#include "cli/show.h"
#include "cli/table.h"
#include "cli/written.h"
#include "estimate/breakdown.h"
#include "estimate/request.h"
#include "model/model.h"

// What a cache takes, before there is one: every number is rota::estimate()'s.

namespace rota::tool {
namespace {

constexpr auto kLargest = std::numeric_limits<std::uint64_t>::max();

// One line of the table's origin: a context with one pair of codecs.
struct Case {
  std::optional<std::uint64_t> context;  // of each sequence; nothing: as long as fits
  CodecPair codecs;
};

class Estimator {
 public:
  Estimator(const EstimateOptions& options, Model model, MemoryBudget memory)
      : options_(options), model_(std::move(model)), memory_(std::move(memory)) {}

  const Model& model() const noexcept { return model_; }
  const MemoryBudget& memory() const noexcept { return memory_; }
  bool any_fits() const noexcept { return any_fits_; }

  // Of a pair that the codec cannot serve, if it was not asked for by name.
  const std::vector<std::string>& left_out() const noexcept { return left_out_; }

  // Why the case that is furthest above its codec's bits is there; empty if none is far.
  const std::string& why() const noexcept { return why_; }

  std::vector<Json> rows() {
    std::vector<Json> rows;
    for (const Case& entry : cases()) {
      const auto memory = taken(entry);
      if (memory) {
        add_rows(rows, entry, *memory);
      } else {
        rows.push_back(row_of(entry, {.kind = "total", .layers = model_.layers(), .bytes = std::nullopt}));
      }
    }
    return rows;
  }

 private:
  struct Found {
    std::uint64_t context;
    bool capped;  // more would fit than the model was made for
    KvMemory memory;
    std::optional<std::uint64_t> as_f16;  // bytes, for the same context
    std::vector<std::uint64_t> group_as_f16;
  };

  struct Line {
    std::string kind;
    std::uint64_t layers;
    std::optional<std::uint64_t> bytes;
    std::uint64_t values = 0;
    std::optional<std::uint64_t> as_f16 = {};
    std::uint64_t context = 0;
    bool capped = false;
  };

  std::vector<CodecPair> pairs() const {
    CodecLists lists = options_.codecs;
    if (lists.k.empty() && lists.v.empty()) lists.k = lists.v = {"f16", "turbo8", "turbo4", "turbo3"};
    if (lists.k.empty()) lists.k = {"f16"};
    if (lists.v.empty()) lists.v = {"f16"};
    return lists.pairs();
  }

  std::vector<Case> cases() {
    std::vector<std::optional<std::uint64_t>> contexts;
    for (const std::uint64_t context : options_.contexts) {
      if (model_.context && context > *model_.context) {
        left_out_.push_back(
            fmt::format("{} tokens are more than the model's own context of {}", context, *model_.context));
      }
      contexts.emplace_back(context == 0 ? model_context("-c 0 stands for the model's own context, which") : context);
    }
    if (options_.fit) contexts = {std::nullopt};
    if (contexts.empty()) contexts = {model_context("the model's context")};
    std::vector<Case> made;
    for (const auto& context : contexts) {
      for (const CodecPair& pair : pairs()) {
        if (can_serve(pair)) made.push_back({context, pair});
      }
    }
    return made;
  }

  std::uint64_t model_context(std::string_view what) const {
    if (!model_.context) {
      fail_usage(fmt::format("{} is not known; wanted -c", what), "rota estimate ... -c 8192");
    }
    return *model_.context;
  }

  bool named_codecs() const { return !options_.codecs.k.empty() || !options_.codecs.v.empty(); }

  // Head sizes and windows that sealed pages do not have. What was asked for by name is refused instead.
  bool can_serve(const CodecPair& pair) {
    if (named_codecs()) return true;
    const auto tried = estimate(spec_of(pair, 1));
    if (tried || !estimate(spec_of({DType::f16, DType::f16}, 1))) return true;
    left_out_.push_back(fmt::format("{} is left out: {}", name(pair.k), tried.error().message));
    return false;
  }

  KvCacheSpec spec_of(const CodecPair& pair, std::uint64_t tokens) const {
    return {.groups = groups_of(model_, {.k = pair.k,
                                         .v = pair.v,
                                         .page = narrowed("--page", options_.page),
                                         .tail = options_.tail,
                                         .sinks = options_.sinks}),
            .max_tokens = tokens,
            .max_sequences = narrowed("-np", options_.sequences),
            .max_step_tokens = options_.step_tokens};
  }

  // Of all sequences together, as a cache counts them.
  std::uint64_t all_tokens(std::uint64_t context) const {
    if (options_.sequences != 0 && context > kLargest / options_.sequences) {
      fail_usage(fmt::format("{} sequences of {} tokens are more than 2^64 tokens", options_.sequences, context));
    }
    return context * options_.sequences;
  }

  KvMemory memory_of(const CodecPair& pair, std::uint64_t context) const {
    return estimate(spec_of(pair, all_tokens(context))).value();
  }

  std::optional<std::uint64_t> longest(const CodecPair& pair) const {
    KvCacheSpec spec = spec_of(pair, 1);
    estimate(spec).value();  // is it sound at all?
    spec.max_tokens.reset();
    spec.max_bytes = memory_.left();
    const auto most = estimate(spec);
    if (!most || most->max_tokens < options_.sequences) return std::nullopt;
    return most->max_tokens / options_.sequences;
  }

  std::optional<Found> taken(const Case& entry) {
    auto context = entry.context ? entry.context : longest(entry.codecs);
    if (!context) return std::nullopt;
    const bool capped = options_.fit && !options_.beyond && model_.context && *context > *model_.context;
    if (capped) context = model_.context;
    Found found{.context = *context, .capped = capped, .memory = memory_of(entry.codecs, *context)};
    // Where f16 would be beyond all bounds, there is nothing to compare with.
    const auto dense = estimate(spec_of({DType::f16, DType::f16}, all_tokens(*context)));
    if (!dense) return found;
    found.as_f16 = dense->bytes();
    for (const KvGroupMemory& group : dense->groups) found.group_as_f16.push_back(group.bytes());
    return found;
  }

  static std::optional<std::uint64_t> group_as_f16(const Found& found, std::size_t index) {
    return found.as_f16 ? std::optional(found.group_as_f16.at(index)) : std::nullopt;
  }

  void add_rows(std::vector<Json>& rows, const Case& entry, const Found& found) {
    std::uint64_t values = 0;
    const KvCacheSpec spec = spec_of(entry.codecs, all_tokens(found.context));
    for (std::size_t index = 0; index < model_.groups.size(); ++index) {
      const LayerGroup& group = model_.groups[index];
      const std::uint64_t group_values = values_of(spec.groups[index], found.context) * options_.sequences;
      values += group_values;
      if (model_.groups.size() == 1) continue;
      rows.push_back(row_of(entry, {group.kind(), group.layers.size(), found.memory.groups[index].bytes(), group_values,
                                    group_as_f16(found, index), found.context}));
    }
    rows.push_back(row_of(
        entry, {"total", model_.layers(), found.memory.bytes(), values, found.as_f16, found.context, found.capped}));
    rows.back()["host_bytes"] = found.memory.host_bytes;
    rows.back()["made_of"] = made_of(spec, found.context);
  }

  Json made_of(const KvCacheSpec& spec, std::uint64_t context) {
    const Breakdown parts = breakdown_of(spec, context);
    const double above =
        static_cast<double>(parts.bytes()) / static_cast<double>(std::max<std::uint64_t>(parts.own, 1));
    if (const std::string text = breakdown_text(parts, spec, context); !text.empty() && above > most_above_) {
      most_above_ = above;
      why_ = text;
    }
    return {{"pages_bytes", parts.own},
            {"unfilled_bytes", parts.unfilled},
            {"tail_and_sinks_bytes", parts.dense},
            {"steps_bytes", parts.steps},
            {"codec_bits", parts.codec_bits}};
  }

  Json row_of(const Case& entry, const Line& line) {
    const bool is_total = line.kind == "total";
    const bool fits = line.bytes && *line.bytes <= memory_.left();
    any_fits_ = any_fits_ || (is_total && fits);
    const auto or_null = [](const auto& value) { return value ? Json(*value) : Json(nullptr); };
    Json row{{"context", line.context},
             {"sequences", options_.sequences},
             {"k", name(entry.codecs.k)},
             {"v", name(entry.codecs.v)},
             {"kind", line.kind},
             {"layers", line.layers},
             {"bytes", or_null(line.bytes)},
             {"bits_per_value", nullptr},
             {"of_f16", nullptr},
             {"fits", nullptr}};
    if (line.bytes && line.values > 0) {
      row["bits_per_value"] = 8 * static_cast<double>(*line.bytes) / static_cast<double>(line.values);
    }
    if (line.bytes && line.as_f16) row["of_f16"] = static_cast<double>(*line.bytes) / static_cast<double>(*line.as_f16);
    if (is_total) row["fits"] = fits;
    if (options_.fit && is_total && model_.context) {
      row["of_model_context"] = static_cast<double>(line.context) / static_cast<double>(*model_.context);
      // Windows alone take the same memory however long the text is.
      const bool grows = line.bytes && *line.bytes >= memory_.left() / 2;
      row["limit"] = line.bytes ? Json(line.capped ? "the model's own" : grows ? "memory" : "none") : Json(nullptr);
    }
    return row;
  }

  const EstimateOptions& options_;
  Model model_;
  MemoryBudget memory_;
  std::vector<std::string> left_out_{};
  std::string why_{};
  double most_above_ = 0;
  bool any_fits_ = false;
};

std::string shape_text(const Model& model) {
  std::vector<std::string> parts;
  for (const LayerGroup& group : model.groups)
    parts.push_back(fmt::format("{} of {}", group.layers.size(), group.kind()));
  constexpr std::size_t kShown = 6;
  const std::string more = parts.size() > kShown ? fmt::format("; {} kinds more", parts.size() - kShown) : "";
  parts.resize(std::min(parts.size(), kShown));
  return fmt::format("{} layers: {}{}", model.layers(), fmt::join(parts, "; "), more);
}

std::string memory_text(const MemoryBudget& memory) {
  std::string text = fmt::format("Memory of {}: {}", memory.of, bytes_text(memory.all));
  text += memory.weights > 0 ? fmt::format(", less {} of weights", bytes_text(memory.weights))
                             : ", weights not counted (--weights)";
  if (memory.reserved > 0) text += fmt::format(", less {} of --reserve", bytes_text(memory.reserved));
  return text + (memory.weights + memory.reserved > 0 ? fmt::format(": {} left", bytes_text(memory.left())) : "");
}

std::string before_text(const EstimateOptions& options, const Estimator& estimator) {
  const Model& model = estimator.model();
  std::string text = fmt::format("{}{}, {}\n", one_line(model.title),
                                 model.context ? fmt::format(", context {}", *model.context) : "", shape_text(model));
  text +=
      fmt::format("{} sequence{}, pages of {}, tail {}, sinks {}, steps of {} tokens\n", options.sequences,
                  options.sequences == 1 ? "" : "s", options.page, options.tail, options.sinks, options.step_tokens);
  return text + memory_text(estimator.memory()) + "\n\n";
}

std::vector<std::string> notes_of(const Estimator& estimator) {
  std::vector<std::string> notes = estimator.model().notes;
  notes.insert(notes.end(), estimator.left_out().begin(), estimator.left_out().end());
  for (std::string& note : notes) note = one_line(note);
  return notes;
}

void list_models(const EstimateOptions& options, const Invocation& invocation) {
  Report report{.head = report_head("models", invocation),
                .table = {{{"name", "name"},
                           {"title", "title"},
                           {"context", "context"},
                           {"layers", "layers"},
                           {"kinds", "kinds of layers"}}}};
  for (const Model& model : known_models()) {
    std::vector<std::string> kinds;
    for (const LayerGroup& group : model.groups)
      kinds.push_back(fmt::format("{} of {}", group.layers.size(), group.kind()));
    Json context;
    if (const auto& tokens = model.context) context = *tokens;
    report.table.rows.push_back({{"name", model.name},
                                 {"title", model.title},
                                 {"context", context},
                                 {"layers", model.layers()},
                                 {"kinds", fmt::format("{}", fmt::join(kinds, "; "))}});
  }
  print(report, options.output);
}

void run(const EstimateOptions& options, Invocation& invocation) {
  if (options.list_models) {
    list_models(options, invocation);
    return;
  }
  check(options);
  const Model model = chosen_model(options);
  Estimator estimator(options, model, chosen_memory(options, model));
  Report report{.head = report_head("estimate", invocation),
                .table = {{{"context", "context"},
                           {"k", "K"},
                           {"v", "V"},
                           {"kind", "layers"},
                           {"layers", "count"},
                           {"bytes", "memory", "bytes"},
                           {"bits_per_value", "bits/value", ".2f"},
                           {"of_f16", "of f16", "percent"},
                           {"fits", "fits"}}}};
  if (options.fit && model.context) {
    report.table.columns.push_back({"of_model_context", "of the model's", "percent"});
    report.table.columns.push_back({"limit", "limit"});
  }
  report.table.rows = estimator.rows();
  const auto notes = notes_of(estimator);
  report.head["model"] = {{"name", model.name}, {"title", model.title}, {"layers", model.layers()}};
  if (model.context) report.head["model"]["context"] = *model.context;
  const MemoryBudget& memory = estimator.memory();
  report.head["memory"] = {{"of", memory.of},
                           {"bytes", memory.all},
                           {"weights_bytes", memory.weights},
                           {"reserved_bytes", memory.reserved},
                           {"left_bytes", memory.left()}};
  report.head["notes"] = notes;
  report.before = before_text(options, estimator);
  if (!estimator.why().empty()) report.after = estimator.why() + "\n";
  for (const std::string& note : notes) {
    report.after += "Note: " + note + "\n";
    // Where a table is all that is printed, what was assumed must not be lost.
    if (options.output == Output::csv || options.output == Output::jsonl) write_error(fmt::format("note: {}\n", note));
  }
  if (!report.after.empty()) report.after.insert(0, "\n");
  print(report, options.output);
  if (!options.fit || estimator.any_fits()) return;
  throw Failure(
      Exit::failed_check,
      fmt::format("nothing fits: {} of {} {} left", bytes_text(memory.left()), bytes_text(memory.all),
                  memory.left() == 1 ? "is" : "are"),
      memory.left() == 0
          ? "rota estimate --fit with more --memory: the weights take all of it"
          : "rota estimate --fit with fewer bits (-ctk turbo3 -ctv turbo3), fewer sequences or more --memory");
}

void add_shape(CLI::App& command, EstimateOptions& options) {
  add_model(command, options.model);
  add_flag(command, "--list-models", options.list_models, "List the models that are known by name");
  add_number(command, "--layers", options.layers, "Layers, of a model that has no name");
  add_number(command, "--kv-heads", options.kv_heads, "Heads of keys and of values in each of them");
  add_number(command, "--head-dim", options.head_dim, "Numbers in a key");
  add_number(command, "--value-dim", options.value_dim, "Numbers in a value, if not as many");
  add_number(command, "--window", options.window, "Newest tokens that these layers see, if not all");
  add_texts(
      command, "--group", options.groups,
      {Several::given_again,
       {"More layers, of another kind: layers=22,kv-heads=1,head-dim=256,window=512; may be given again", "GROUP"}});
}

}  // namespace

void add_estimate(CLI::App& app, Invocation& invocation) {
  const auto options = std::make_shared<EstimateOptions>();
  CLI::App& command =
      add_command(app, {.name = "estimate",
                        .description = "Say what memory a cache takes, and which context fits",
                        .footer = "Examples:\n"
                                  "  rota estimate -m llama-3.1-8b -c 8k,128k\n"
                                  "  rota estimate -m model.gguf --device vulkan:0 --fit\n"
                                  "  rota estimate -m folder/config.json -c 32k\n"
                                  "  rota estimate -m gemma-3-27b -ctk turbo4,f16 -ctv turbo3,turbo4 -np 4 -o md\n"
                                  "  rota estimate --layers 32 --kv-heads 8 --head-dim 128 -c 32768 --memory 8GiB",
                        .run = [options, &invocation] { run(*options, invocation); }});
  add_shape(command, *options);
  CLI::Option& contexts = add_tokens(command, "-c,--ctx-size", options->contexts,
                                     "Tokens of each sequence, also as 128k or 1m; 0 is the model's context");
  add_codecs(command, options->codecs);
  add_number(command, "--parallel", options->sequences, "Sequences, each with a context of its own");
  add_number(command, "--ubatch-size", options->step_tokens, "Tokens of all sequences in one step");
  add_number(command, "--page", options->page, "Tokens of a page: 64 or 128");
  add_number(command, "--tail", options->tail, "Newest tokens that are never sealed");
  add_number(command, "--sinks", options->sinks, "First tokens that are never sealed");
  add_device(command, options->device, "Device whose memory it is held against");
  add_text(command, "--memory", options->memory, {"Memory in place of a device's: 24GiB", "BYTES"});
  add_text(command, "--weights", options->weights,
           {"Memory that weights take; of a model's files, else their size", "BYTES"});
  add_text(command, "--reserve", options->reserve, {"Memory to leave free beside weights and cache", "BYTES"});
  exclude(add_flag(command, "--fit", options->fit,
                   "Find the longest context that fits, up to the model's own; exits 1 if none does"),
          contexts);
  add_flag(command, "--beyond", options->beyond, "With --fit: also contexts that are longer than the model's own");
  add_output(command, options->output);
}

}  // namespace rota::tool
