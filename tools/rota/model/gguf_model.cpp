#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "model/model.h"
#include "model/unsound.h"

// From what a GGUF file says to the shape of a cache, as llama.cpp reads the same keys.

namespace rota::tool {
namespace {

// Architectures of which only some layers have the window: every `period`-th layer sees all tokens.
struct SlidingRule {
  std::string_view architecture;
  std::uint64_t period;
  bool full_first = false;   // the first layer of each period is the full one, not the last
  std::uint64_t window = 0;  // if the file has none
};

constexpr auto kSliding = std::to_array<SlidingRule>({{"afmoe", 4},
                                                      {"cohere2", 4},
                                                      {"exaone4", 4},
                                                      {"gemma2", 2, false, 4096},
                                                      {"gemma3", 6},
                                                      {"gemma3n", 5},
                                                      {"gpt-oss", 2},
                                                      {"gptoss", 2},
                                                      {"laguna", 4, true},
                                                      {"llama4", 4, false, 8192},
                                                      {"olmo2", 4},
                                                      {"plamo3", 8},
                                                      {"smallthinker", 4, true}});

// Every layer that has heads for keys sees all tokens, or the file says which do not.
constexpr auto kPlain = std::to_array<std::string_view>(
    {"apertus",     "arcee",      "arctic",         "baichuan",   "bailingmoe",   "bailingmoe2", "bitnet",
     "bloom",       "chameleon",  "chatglm",        "codeshell",  "command-r",    "dbrx",        "deci",
     "deepseek",    "deepseek2",  "dots1",          "ernie4_5",   "ernie4_5-moe", "exaone",      "falcon",
     "falcon-h1",   "gemma",      "gemma4",         "glm4",       "glm4moe",      "gpt2",        "gptj",
     "gptneox",     "granite",    "granitehybrid",  "granitemoe", "grok",         "grovemoe",    "hunyuan-dense",
     "hunyuan-moe", "internlm2",  "jais",           "jamba",      "kimi-linear",  "lfm2",        "lfm2moe",
     "llama",       "mimo2",      "minicpm",        "minicpm3",   "minimax-m2",   "mistral3",    "mpt",
     "nemotron",    "nemotron_h", "nemotron_h_moe", "olmo",       "olmoe",        "openelm",     "orion",
     "phi2",        "phi3",       "phimoe",         "plamo",      "plamo2",       "plm",         "qwen",
     "qwen2",       "qwen2moe",   "qwen2vl",        "qwen3",      "qwen35",       "qwen35moe",   "qwen3moe",
     "qwen3next",   "qwen3vl",    "qwen3vlmoe",     "refact",     "seed_oss",     "smollm3",     "stablelm",
     "starcoder",   "starcoder2", "step35",         "xverse"});
static_assert(std::ranges::is_sorted(kPlain));

// Of these, all but every fourth layer keep a recurrent state, unless the file says otherwise.
constexpr auto kHybrid = std::to_array<std::string_view>({"qwen35", "qwen35moe", "qwen3next"});
constexpr std::uint64_t kHybridInterval = 4;

constexpr auto kWithoutCache = std::to_array<std::string_view>(
    {"arwkv7", "bert", "clip", "eurobert", "gemma-embedding", "jina-bert-v2", "jina-bert-v3", "mamba", "mamba2",
     "modern-bert", "neo-bert", "nomic-bert", "nomic-bert-moe", "rwkv6", "rwkv6qwen2", "rwkv7", "t5", "t5encoder",
     "wavtokenizer-dec"});
static_assert(std::ranges::is_sorted(kWithoutCache));

constexpr std::uint64_t kGemma3nOwnLayers = 20;  // the others use theirs

class ShapeReader {
 public:
  explicit ShapeReader(const GgufHeader& header) : header_(header) {}

  Model read() {
    const std::string& architecture = header_.architecture;
    if (architecture.empty()) refuse("general.architecture", "missing", "the name of one");
    if (std::ranges::binary_search(kWithoutCache, architecture)) {
      refuse("general.architecture", architecture, "one that keeps keys and values of what it has read");
    }
    layers_ = needed("block_count", kMostModelLayers);
    read_heads();
    read_lengths();
    find_own_layers();
    find_recurrent_layers();
    find_windows();
    add_groups();
    note_the_rest();
    model_.title = header_.name;
    model_.context = header_.number("context_length");
    if (model_.context == 0U) model_.context.reset();
    return std::move(model_);
  }

 private:
  void note(std::string text) { model_.notes.push_back(std::move(text)); }

  std::optional<std::uint64_t> number(std::string_view key, std::uint64_t least, std::uint64_t most) const {
    if (header_.arrays.contains(key)) refuse(key, "an array", "a number");
    const auto found = header_.number(key);
    if (found && (*found < least || *found > most)) {
      refuse(key, std::to_string(*found), fmt::format("{} to {}", least, most));
    }
    return found;
  }

  std::uint64_t needed(std::string_view key, std::uint64_t most) const {
    const auto found = number(key, 1, most);
    if (!found) refuse(key, "missing", "a number");
    return *found;
  }

  // One for each layer: an array of as many, which may leave out layers that predict further tokens, or one for all.
  std::optional<std::vector<std::uint64_t>> per_layer(std::string_view key, std::uint64_t most) const {
    const auto found = header_.arrays.find(key);
    if (found == header_.arrays.end()) {
      const auto one = number(key, 0, most);
      return one ? std::optional(std::vector<std::uint64_t>(layers_, *one)) : std::nullopt;
    }
    std::vector<std::uint64_t> values = found->second;
    const std::uint64_t without_nextn = layers_ - std::min(layers_, header_.number("nextn_predict_layers").value_or(0));
    if (values.size() != layers_ && values.size() != without_nextn) {
      refuse(key, fmt::format("an array of {}", values.size()), fmt::format("{}, one for each layer", layers_));
    }
    for (const std::uint64_t value : values) {
      if (value > most) refuse(key, fmt::format("{} for a layer", value), fmt::format("at most {}", most));
    }
    values.resize(layers_);
    return values;
  }

  void read_heads() {
    auto heads = per_layer("attention.head_count", kMostHeads);
    if (!heads) refuse("attention.head_count", "missing", "a number, or one for each layer");
    query_heads_ = *std::move(heads);
    // As the format has it: without this key, each query head has a key head of its own.
    kv_heads_ = per_layer("attention.head_count_kv", kMostHeads).value_or(query_heads_);
    for (std::uint64_t layer = 0; layer < layers_; ++layer) {
      const std::uint64_t queries = query_heads_[layer], keys = kv_heads_[layer];
      if (keys == 0 || (queries >= keys && queries % keys == 0)) continue;
      refuse("attention.head_count_kv", fmt::format("{} in layer {}", keys, layer),
             fmt::format("0 or a divisor of the {} query heads there", queries));
    }
  }

  // The format's own default: the embedding, divided among the heads.
  std::uint64_t even_share() const {
    const std::uint64_t embedding = needed("embedding_length", kMostHeads * kMostDim);
    const std::uint64_t heads = *std::ranges::max_element(query_heads_);
    if (heads == 0) refuse("attention.head_count", "0", "at least 1, or attention.key_length and value_length");
    if (embedding % heads != 0 || embedding / heads > kMostDim) {
      refuse("embedding_length", std::to_string(embedding),
             fmt::format("a multiple of the {} heads, at most {} times as much, or attention.key_length", heads,
                         kMostDim));
    }
    return embedding / heads;
  }

  void read_lengths() {
    const auto length = [&](std::string_view key) { return number(key, 1, kMostDim); };
    const auto keys = length("attention.key_length"), values = length("attention.value_length");
    key_length_ = keys ? *keys : even_share();
    value_length_ = values ? *values : even_share();
    key_length_swa_ = length("attention.key_length_swa").value_or(key_length_);
    value_length_swa_ = length("attention.value_length_swa").value_or(value_length_);
  }

  // Layers at the end may use the keys of others, or predict further tokens and stand idle.
  void find_own_layers() {
    const std::uint64_t nextn = number("nextn_predict_layers", 0, layers_).value_or(0);
    if (nextn > 0) {
      note(fmt::format("the last {} layers, which predict further tokens, are not counted", nextn));
    }
    auto shared = number("attention.shared_kv_layers", 0, layers_);
    if (!shared && header_.architecture == "gemma3n" && layers_ > kGemma3nOwnLayers) {
      shared = layers_ - kGemma3nOwnLayers;
      note(fmt::format(
          "how many layers use the keys of others is not in the file: taken as the last {}, as gemma3n has it",
          *shared));
    }
    const std::uint64_t without = nextn + shared.value_or(0);
    own_layers_ = layers_ - std::min(layers_, without);
    main_layers_ = layers_ - nextn;
  }

  void find_recurrent_layers() {
    recurrent_.assign(layers_, false);
    const auto listed = per_layer("attention.recurrent_layers", 1);
    const bool hybrid = std::ranges::find(kHybrid, header_.architecture) != kHybrid.end();
    const auto interval = number("full_attention_interval", 1, layers_);
    const bool heads_tell = std::ranges::find(kv_heads_, 0U) != kv_heads_.end();
    for (std::uint64_t layer = 0; layer < main_layers_; ++layer) {
      if (listed) {
        recurrent_[layer] = (*listed)[layer] != 0;
      } else if (!heads_tell && (hybrid || interval)) {
        recurrent_[layer] = (layer + 1) % interval.value_or(kHybridInterval) != 0;
      }
    }
    if (hybrid && !listed && !heads_tell && !interval) {
      note(fmt::format("which layers have attention is not in the file: taken as the last of every {}, as {} has it",
                       kHybridInterval, header_.architecture));
    }
  }

  void find_windows() {
    slides_.assign(layers_, false);
    const auto rule = std::ranges::find(kSliding, header_.architecture, &SlidingRule::architecture);
    const bool ruled = rule != kSliding.end();
    auto window = number("attention.sliding_window", 0, std::numeric_limits<std::uint32_t>::max());
    if (!window && ruled && rule->window > 0) {
      window = rule->window;
      note(fmt::format("the window is not in the file: taken as {}, as {} has it", rule->window, rule->architecture));
    }
    const bool has_pattern = header_.arrays.contains("attention.sliding_window_pattern");
    const auto period = has_pattern ? std::nullopt : header_.number("attention.sliding_window_pattern");
    if (!window || *window == 0) {
      if (has_pattern || period)
        note("some layers have a window, but how long it is is not in the file: none is counted");
      return;
    }
    window_ = *window;
    if (has_pattern) {
      const auto pattern = per_layer("attention.sliding_window_pattern", 1);
      for (std::uint64_t layer = 0; layer < layers_; ++layer) slides_[layer] = pattern && (*pattern)[layer] != 0;
    } else if (period || ruled) {
      apply_period(period.value_or(ruled ? rule->period : 1), ruled && rule->full_first);
      if (!period) {
        note(fmt::format(
            "which layers have the window of {} is not in the file: taken as all but the {} of every {}, as {} has it",
            window_, rule->full_first ? "first" : "last", rule->period, rule->architecture));
      }
    } else {
      note(
          fmt::format("a window of {} is in the file, but not which layers have it: all are counted as full attention, "
                      "which takes more",
                      window_));
    }
    if (header_.architecture == "llama4") {
      note(fmt::format("layers with a window see chunks of {} tokens: counted as a window of as many", window_));
    }
  }

  // 0: every layer slides; 1: none.
  void apply_period(std::uint64_t period, bool full_first) {
    for (std::uint64_t layer = 0; layer < layers_; ++layer) {
      slides_[layer] = period == 0 || (full_first ? layer % period != 0 : layer % period != period - 1);
    }
  }

  void add_groups() {
    for (std::uint64_t layer = 0; layer < own_layers_; ++layer) {
      if (recurrent_[layer] || kv_heads_[layer] == 0) continue;
      const bool slides = slides_[layer];
      // No number here is above 65536.
      LayerGroup group{.layers = {},
                       .query_heads = static_cast<std::uint32_t>(query_heads_[layer]),
                       .kv_heads = static_cast<std::uint32_t>(kv_heads_[layer]),
                       .head_dim = static_cast<std::uint32_t>(slides ? key_length_swa_ : key_length_),
                       .value_dim = static_cast<std::uint32_t>(slides ? value_length_swa_ : value_length_)};
      if (slides) group.window = window_;
      group.v_in_k = header_.number("attention.key_length_mla") && group.value_dim <= group.head_dim;
      add_layer(model_, std::move(group), static_cast<std::uint32_t>(layer));
    }
    if (model_.groups.empty())
      refuse("attention.head_count_kv", "0 in every layer", "a layer that keeps keys and values");
  }

  void note_the_rest() {
    const std::string& architecture = header_.architecture;
    const bool ruled = std::ranges::find(kSliding, architecture, &SlidingRule::architecture) != kSliding.end();
    if (!ruled && !std::ranges::binary_search(kPlain, architecture)) {
      note(fmt::format("architecture \"{}\" is not known here: taken as what its keys say in other architectures",
                       architecture));
    }
    const auto recurrent = static_cast<std::uint64_t>(std::ranges::count(recurrent_, true));
    if (recurrent > 0) {
      note(fmt::format("{} layers keep a recurrent state in place of keys and values: it is not counted", recurrent));
    } else if (header_.number("ssm.state_size")) {
      note("layers with a recurrent state keep it beside the cache: it is not counted");
    }
    if (header_.number("attention.key_length_mla")) {
      note("MLA: the keys hold the values, too; sealed, both are kept");
    } else if (header_.number("attention.kv_lora_rank")) {
      note("MLA without attention.key_length_mla: heads are counted expanded, as this file has them");
    }
    if (header_.number("attention.indexer.key_length"))
      note("the keys of its sparse attention's indexer are not counted");
  }

  const GgufHeader& header_;
  Model model_{};
  std::uint64_t layers_ = 0, own_layers_ = 0, main_layers_ = 0, window_ = 0;
  std::uint64_t key_length_ = 0, value_length_ = 0, key_length_swa_ = 0, value_length_swa_ = 0;
  std::vector<std::uint64_t> query_heads_{}, kv_heads_{};
  std::vector<bool> recurrent_{}, slides_{};
};

}  // namespace

Result<Model> model_of(const GgufHeader& header) {
  try {
    return ShapeReader(header).read();
  } catch (const Unsound& unsound) {
    return Error{Errc::io, unsound.message};
  }
}

}  // namespace rota::tool
