#include "model/config_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <utility>

#include "model/config_json.h"
#include "model/config_rules.h"
#include "model/unsound.h"

namespace rota::tool {
namespace {

using Json = nlohmann::json;
using Keys = std::initializer_list<const char*>;

constexpr std::uint64_t kMostContext = std::uint64_t{1} << 40;
constexpr std::uint64_t kMostWindow = std::numeric_limits<std::uint32_t>::max();
constexpr Keys kLayerKeys{"num_hidden_layers", "n_layer", "num_layers", "n_layers"};

// Null is as good as nothing.
const Json* find(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

struct Found {
  const char* key;
  const Json* value = nullptr;

  explicit operator bool() const noexcept { return value != nullptr; }
};

// The first of several names for the same.
Found find(const Json& object, Keys keys) {
  for (const char* const key : keys) {
    if (const Json* const value = find(object, key)) return {key, value};
  }
  return {*keys.begin()};
}

std::uint64_t whole(const Found& found, std::uint64_t least, std::uint64_t most) {
  const bool is_whole = found.value->is_number_unsigned();
  const std::uint64_t number = is_whole ? found.value->get<std::uint64_t>() : 0;
  if (!is_whole || number < least || number > most) {
    refuse(found.key, value_text(*found.value), fmt::format("a whole number from {} to {}", least, most));
  }
  return number;
}

bool flag(const Json& object, const char* key, bool otherwise) {
  const Json* const found = find(object, key);
  if (found == nullptr) return otherwise;
  if (!found->is_boolean()) refuse(key, value_text(*found), "true or false");
  return found->get<bool>();
}

std::string word(const Json& object, const char* key) {
  const Json* const found = find(object, key);
  return found != nullptr && found->is_string() ? found->get<std::string>() : std::string();
}

class ConfigReader {
 public:
  explicit ConfigReader(const Json& whole) : config_(&whole) {
    find_text_model();
    type_ = type_.empty() ? word(*config_, "model_type") : type_;
    const auto rule = std::ranges::find(kConfigRules, type_, &ConfigRule::type);
    if (rule != kConfigRules.end()) rule_ = *rule;
  }

  Model read() {
    check_type();
    layers_ = needed(kLayerKeys, kMostModelLayers);
    heads_ = per_layer({"num_attention_heads", "n_head", "n_heads", "num_query_heads"}, rule_.heads, "query heads");
    read_context();
    read_kinds();
    if (find(*config_, "kv_lora_rank") != nullptr) {
      read_latent();
    } else {
      read_kv_heads();
      read_dims();
    }
    find_window();
    leave_out_shared();
    add_groups();
    note_the_rest();
    model_.title = type_.substr(0, 64);
    return std::move(model_);
  }

 private:
  void note(std::string text) { model_.notes.push_back(std::move(text)); }
  Found find_key(Keys keys) const { return find(*config_, keys); }

  std::optional<std::uint64_t> number(Keys keys, std::uint64_t least, std::uint64_t most) const {
    const Found found = find_key(keys);
    return found ? std::optional(whole(found, least, most)) : std::nullopt;
  }

  std::uint64_t needed(Keys keys, std::uint64_t most) const {
    const auto found = number(keys, 1, most);
    if (!found) refuse(*keys.begin(), "missing", "a number");
    return *found;
  }

  // Models that see and hear have one for text within.
  void find_text_model() {
    for (const char* const key : {"thinker_config", "text_config", "llm_config", "language_config"}) {
      const Json* const inner = find(*config_, key);
      if (inner == nullptr || !inner->is_object()) continue;
      const bool is_further = find(*inner, "text_config") != nullptr;
      if (!find(*inner, kLayerKeys) && !is_further) continue;
      type_ = word(*inner, "model_type");
      if (type_.empty()) type_ = word(*config_, "model_type") + "_text";
      config_ = inner;
      nested_ = true;
    }
  }

  void check_type() {
    if (std::ranges::binary_search(kTypesWithoutCache, type_) || flag(*config_, "is_encoder_decoder", false)) {
      refuse("model_type", in_quotes(type_), "one that keeps keys and values of what it has read, and nothing else");
    }
    for (const char* const key : {"block_configs", "block_types", "hybrid_layer_pattern"}) {
      if (find(*config_, key) != nullptr) refuse(key, "there", "layers that other keys describe: it is not understood");
    }
    const bool known = !rule_.type.empty() || std::ranges::binary_search(kPlainTypes, type_);
    if (known) return;
    note(type_.empty()
             ? "model_type is not in the file: taken as what its keys say in others"
             : fmt::format("model_type {} is not known here: taken as what its keys say in others", in_quotes(type_)));
  }

  void note_default(std::string_view key, std::uint64_t taken) {
    note(fmt::format("{} is not in the file: taken as {}, the default of {}", key, taken, type_));
  }

  // One for each layer: an array of as many, or one for all.
  std::vector<std::uint64_t> per_layer(Keys keys, std::uint64_t otherwise, std::string_view what) {
    const Found found = find_key(keys);
    if (!found) {
      if (otherwise == 0) refuse(*keys.begin(), "missing", fmt::format("the number of {}", what));
      note_default(*keys.begin(), otherwise);
      return std::vector<std::uint64_t>(layers_, otherwise);
    }
    if (!found.value->is_array()) return std::vector<std::uint64_t>(layers_, whole(found, 1, kMostHeads));
    check_length(found);
    std::vector<std::uint64_t> values;
    for (const Json& value : *found.value) values.push_back(whole({found.key, &value}, 0, kMostHeads));
    return values;
  }

  void check_length(const Found& found) const {
    if (found.value->is_array() && found.value->size() == layers_) return;
    refuse(found.key, value_text(*found.value), fmt::format("an array of {}, one for each layer", layers_));
  }

  void read_context() {
    const auto context =
        number({"max_position_embeddings", "n_positions", "n_ctx", "max_sequence_length", "seq_length", "max_seq_len"},
               0, kMostContext);
    if (context && *context > 0) model_.context = context;
    if (!model_.context && rule_.context > 0) {
      model_.context = rule_.context;
      note_default("max_position_embeddings", rule_.context);
    }
  }

  // Which layers keep keys and values at all, and which of them by name have a window.
  void read_kinds() {
    kinds_.assign(layers_, LayerKind::full);
    if (const Found types = find_key({"layer_types", "layers_block_type"})) {
      read_layer_types(types);
    } else if (const Found pattern = find_key({"hybrid_override_pattern"})) {
      read_letters(pattern, "*", "M-E");
    } else if (const Found indices = find_key({"attn_layer_indices", "full_attn_idxs"})) {
      keep_only(indices, 0);
    } else if (const auto period = number({"attn_layer_period"}, 1, layers_)) {
      const std::uint64_t offset = number({"attn_layer_offset"}, 0, layers_).value_or(0);
      for (std::uint64_t i = 0; i < layers_; ++i)
        kinds_[i] = i % *period == offset ? LayerKind::full : LayerKind::recurrent;
    } else if (const Found list = find_key({"attn_type_list"})) {
      check_length(list);
      for (std::uint64_t i = 0; i < layers_; ++i) {
        if (whole({list.key, &(*list.value)[i]}, 0, 1) == 0) kinds_[i] = LayerKind::recurrent;
      }
    } else if (const Json* const linear = find(*config_, "linear_attn_config"); linear && linear->is_object()) {
      keep_only(find(*linear, {"full_attn_layers"}), 1);
    } else {
      read_interval();
    }
    if (const Found crossed = find_key({"cross_attention_layers"})) {
      each_index(crossed, 0, [&](std::uint64_t layer) { kinds_[layer] = LayerKind::none; });
      note("layers that attend to images keep those alone: they are not counted");
    }
  }

  void read_layer_types(const Found& types) {
    check_length(types);
    for (std::uint64_t i = 0; i < layers_; ++i) {
      const Json& type = (*types.value)[i];
      const auto known = std::ranges::find(kLayerKinds, type.is_string() ? type.get_ref<const std::string&>() : "",
                                           &NamedLayerKind::name);
      if (known == kLayerKinds.end()) {
        refuse(fmt::format("{} of layer {}", types.key, i), value_text(type),
               "full_attention, sliding_attention, linear_attention or another that is known here");
      }
      kinds_[i] = known->kind;
    }
    kinds_said_ = true;
  }

  // A letter for each layer.
  void read_letters(const Found& pattern, std::string_view full, std::string_view others) {
    const std::string letters = pattern.value->is_string() ? pattern.value->get<std::string>() : std::string();
    if (letters.size() != layers_ ||
        letters.find_first_not_of(std::string(full) + std::string(others)) != std::string::npos) {
      refuse(pattern.key, value_text(*pattern.value), fmt::format("{} letters of {}{}", layers_, full, others));
    }
    for (std::uint64_t i = 0; i < layers_; ++i) {
      if (full.find(letters[i]) != std::string_view::npos) continue;
      kinds_[i] = letters[i] == 'M' ? LayerKind::recurrent : LayerKind::none;
    }
  }

  template <class Use>
  void each_index(const Found& indices, std::uint64_t first, Use&& use) const {
    if (!indices || !indices.value->is_array()) {
      refuse(indices.key, indices ? value_text(*indices.value) : "missing", "an array of layers");
    }
    for (const Json& index : *indices.value) use(whole({indices.key, &index}, first, layers_ - 1 + first) - first);
  }

  void keep_only(const Found& indices, std::uint64_t first) {
    kinds_.assign(layers_, LayerKind::recurrent);
    each_index(indices, first, [&](std::uint64_t layer) { kinds_[layer] = LayerKind::full; });
  }

  void read_interval() {
    const bool hybrid = type_ == "qwen3_next" || type_.starts_with("qwen3_5");
    auto interval = number({"full_attention_interval"}, 1, layers_);
    if (!interval && hybrid) {
      interval = std::min<std::uint64_t>(4, layers_);
      note_default("full_attention_interval", *interval);
    }
    if (!interval) return;
    for (std::uint64_t i = 0; i < layers_; ++i) {
      if ((i + 1) % *interval != 0) kinds_[i] = LayerKind::recurrent;
    }
  }

  // MLA: one head, whose values are the first numbers of its keys.
  void read_latent() {
    value_dim_ = needed({"kv_lora_rank"}, kMostDim / 2);
    head_dim_ = value_dim_ + needed({"qk_rope_head_dim"}, kMostDim / 2);
    kv_heads_.assign(layers_, 1);
    latent_ = true;
    note("MLA: the keys hold the values, too; sealed, both are kept");
  }

  void read_kv_heads() {
    const Json* const attention = find(*config_, "attn_config");
    const bool grouped = flag(*config_, "new_decoder_architecture", false) || find_key({"multi_query_group_num"});
    const bool falcon = type_ == "falcon" || type_ == "gpt_bigcode";
    const Found keys = find_key({"num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num"});
    if (!grouped && flag(*config_, "multi_query", falcon)) {
      kv_heads_.assign(layers_, 1);
      if (find(*config_, "multi_query") == nullptr) note_default("multi_query", 1);
    } else if (attention != nullptr && attention->is_object() && find(*attention, "kv_n_heads") != nullptr) {
      kv_heads_.assign(layers_, whole(find(*attention, {"kv_n_heads"}), 1, kMostHeads));
    } else if (keys || (rule_.kv_heads > 0 && !config_->contains("num_key_value_heads"))) {
      kv_heads_ = per_layer({"num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num"},
                            rule_.kv_heads, "heads of keys");
    } else {
      kv_heads_ = heads_;
      note(fmt::format("num_key_value_heads is not in the file: taken as the {} query heads", heads_.front()));
    }
    check_heads(kv_heads_, "num_key_value_heads");
    full_kv_heads_ = kv_heads_;
    if (const auto full = number({"num_global_key_value_heads"}, 1, kMostHeads)) {
      full_kv_heads_.assign(layers_, *full);
      check_heads(full_kv_heads_, "num_global_key_value_heads");
    }
  }

  void check_heads(const std::vector<std::uint64_t>& kv_heads, std::string_view key) const {
    for (std::uint64_t i = 0; i < layers_; ++i) {
      if (kv_heads[i] == 0 || (heads_[i] >= kv_heads[i] && heads_[i] % kv_heads[i] == 0)) continue;
      refuse(key, fmt::format("{} in layer {}", kv_heads[i], i),
             fmt::format("a divisor of the {} query heads there", heads_[i]));
    }
  }

  void read_dims() {
    if (const auto dim = number({"head_dim", "kv_channels", "attention_head_dim"}, 1, kMostDim)) {
      head_dim_ = *dim;
    } else if (rule_.head_dim > 0) {
      head_dim_ = rule_.head_dim;
      note_default("head_dim", head_dim_);
    } else {
      const std::uint64_t hidden = needed({"hidden_size", "n_embd", "n_embed", "d_model"}, kMostHeads * kMostDim);
      const std::uint64_t heads = *std::ranges::max_element(heads_);
      if (heads == 0 || hidden % heads != 0 || hidden / heads > kMostDim) {
        refuse("hidden_size", std::to_string(hidden), fmt::format("a multiple of the {} heads, or head_dim", heads));
      }
      head_dim_ = hidden / heads;
    }
    value_dim_ = number({"v_head_dim"}, 1, kMostDim).value_or(head_dim_);
    full_head_dim_ = number({"global_head_dim"}, 1, kMostDim).value_or(0);
  }

  void find_window() {
    const bool chunked = rule_.windows == Windows::chunked;
    const Found said = chunked ? find_key({"attention_chunk_size"})
                               : find_key({"sliding_window", "sliding_window_size", "attention_window_size"});
    const bool off = find(*config_, "use_sliding_window") != nullptr && !flag(*config_, "use_sliding_window", false);
    const bool switched_on = rule_.windows != Windows::switched || find(*config_, "use_sliding_window") != nullptr;
    if (said && !off && switched_on) {
      window_ = whole(said, 0, kMostWindow);
    }
    const auto slides = [](LayerKind kind) { return kind == LayerKind::sliding; };
    const bool any = std::ranges::any_of(kinds_, slides);
    const bool silent = config_->find(said.key) == config_->end();
    if (window_ == 0 && silent && !off && rule_.window > 0 && (any || !kinds_said_)) {
      window_ = rule_.window;
      note_default(said.key, window_);
    }
    if (window_ == 0) {
      if (any) note("some layers have a window, but how long it is is not in the file: none is counted");
      return;
    }
    if (!kinds_said_) find_sliding_layers();
    if (chunked)
      note(fmt::format("layers with a window see chunks of {} tokens: counted as a window of as many", window_));
    if (model_.context && window_ >= *model_.context && std::ranges::any_of(kinds_, slides)) {
      note(fmt::format("the window of {} is at least as long as the context: not counted as one", window_));
      window_ = 0;
    }
  }

  void slide(auto&& slides) {
    for (std::uint64_t i = 0; i < layers_; ++i) {
      if (kinds_[i] == LayerKind::full && slides(i)) kinds_[i] = LayerKind::sliding;
    }
  }

  void find_sliding_layers() {
    const Found pattern = find_key({"sliding_window_pattern", "_sliding_window_pattern"});
    if (pattern && pattern.value->is_string()) {
      const std::string letters = pattern.value->get<std::string>();
      if (letters.empty() || letters.find_first_not_of("LG") != std::string::npos) {
        refuse(pattern.key, in_quotes(letters), "L for layers with the window, G for others, such as LLLG");
      }
      slide([&](std::uint64_t i) { return letters[i % letters.size()] == 'L'; });
    } else if (pattern || rule_.windows == Windows::periodic || rule_.windows == Windows::chunked) {
      const auto rope = number({"no_rope_layer_interval"}, 1, kMostModelLayers);
      const std::uint64_t period = pattern ? whole(pattern, 1, kMostModelLayers) : rope.value_or(rule_.period);
      slide([&](std::uint64_t i) { return (i + 1) % period != 0; });
      if (!pattern && !rope) {
        note(
            fmt::format("which layers have the window of {} is not in the file: taken as all but the last of every {}, "
                        "as {} has it",
                        window_, period, type_));
      }
    } else if (rule_.windows == Windows::in_all) {
      slide([](std::uint64_t) { return true; });
    } else if (find(*config_, "use_sliding_window") != nullptr) {
      constexpr std::uint64_t kUsualFirst = 28;
      const auto said = number({"max_window_layers"}, 0, kMostHeads);
      const std::uint64_t first = said.value_or(kUsualFirst);
      if (!said) note_default("max_window_layers", first);
      slide([&](std::uint64_t i) { return i >= first; });
    } else {
      note(
          fmt::format("a window of {} is in the file, but not which layers have it: all are counted as full attention, "
                      "which takes more",
                      window_));
    }
  }

  void leave_out_shared() {
    auto shared = number({"num_kv_shared_layers"}, 0, layers_);
    constexpr std::uint64_t kGemma3nShared = 15;
    if (!shared && type_ == "gemma3n_text" && layers_ > kGemma3nShared) {
      shared = kGemma3nShared;
      note_default("num_kv_shared_layers", *shared);
    }
    for (std::uint64_t i = layers_ - shared.value_or(0); i < layers_; ++i) kinds_[i] = LayerKind::none;
    if (shared && *shared > 0)
      note(fmt::format("the last {} layers use the keys of others: they are not counted", *shared));
  }

  void add_groups() {
    for (std::uint64_t i = 0; i < layers_; ++i) {
      if (kinds_[i] == LayerKind::recurrent || kinds_[i] == LayerKind::none) continue;
      const bool slides = kinds_[i] == LayerKind::sliding && window_ > 0;
      const bool other = !slides && full_head_dim_ > 0 && !latent_;
      const auto narrow = [](std::uint64_t number) { return static_cast<std::uint32_t>(number); };  // all are small
      const std::uint64_t kv_heads = slides || latent_ ? kv_heads_[i] : full_kv_heads_[i];
      if (kv_heads == 0) continue;
      LayerGroup group{.layers = {},
                       .query_heads = narrow(heads_[i]),
                       .kv_heads = narrow(kv_heads),
                       .head_dim = narrow(other ? full_head_dim_ : head_dim_),
                       .value_dim = narrow(other ? full_head_dim_ : value_dim_)};
      if (slides) group.window = window_;
      group.v_in_k = latent_;
      add_layer(model_, std::move(group), narrow(i));
    }
    if (model_.groups.empty()) refuse("layer_types", "without attention", "a layer that keeps keys and values");
  }

  void note_the_rest() {
    const auto recurrent = std::ranges::count(kinds_, LayerKind::recurrent);
    if (recurrent > 0) {
      note(fmt::format("{} layers keep a recurrent state in place of keys and values: it is not counted", recurrent));
    } else if (find_key({"mamba_d_state", "ssm_state_size"})) {
      note("layers with a recurrent state keep it beside the cache: it is not counted");
    }
    if (find(*config_, "index_head_dim") != nullptr) note("the keys of its sparse attention's indexer are not counted");
    if (nested_) note("of a model that takes more than text, its text model is counted");
  }

  const Json* config_;
  ConfigRule rule_{};
  std::string type_{};
  Model model_{};
  bool nested_ = false, latent_ = false, kinds_said_ = false;
  std::uint64_t layers_ = 0, window_ = 0, head_dim_ = 0, value_dim_ = 0, full_head_dim_ = 0;
  std::vector<std::uint64_t> heads_{}, kv_heads_{}, full_kv_heads_{};
  std::vector<LayerKind> kinds_{};
};

}  // namespace

Result<Model> model_of_config(std::string_view text) {
  const auto json = parse_config_json(text);
  if (!json) return json.error();
  try {
    return ConfigReader(*json).read();
  } catch (const Unsound& unsound) {
    return Error{Errc::io, unsound.message};
  }
}

}  // namespace rota::tool
