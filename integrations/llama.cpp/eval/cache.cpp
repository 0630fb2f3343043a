#include "cache.h"

#include <rota/c.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "failure.h"

namespace rota::eval {
namespace {

constexpr std::string_view kRotaPrefix = "rota:";

// Those that llama.cpp's own tools take for keys and values.
constexpr ggml_type kTypes[] = {GGML_TYPE_F32,  GGML_TYPE_F16,  GGML_TYPE_BF16, GGML_TYPE_Q8_0,  GGML_TYPE_Q5_1,
                                GGML_TYPE_Q5_0, GGML_TYPE_Q4_1, GGML_TYPE_Q4_0, GGML_TYPE_IQ4_NL};

const ggml_type* type_named(const std::string& name) {
  const auto* const found =
      std::find_if(std::begin(kTypes), std::end(kTypes), [&](ggml_type type) { return name == ggml_type_name(type); });
  return found == std::end(kTypes) ? nullptr : found;
}

bool is_codec(const std::string& name) {
  for (std::size_t i = 0; i < rota_codec_count(); ++i) {
    if (name == rota_codec_name(i)) return true;
  }
  return false;
}

[[noreturn]] void refuse(const std::string& text) {
  std::string types, codecs;
  for (const ggml_type type : kTypes) types += std::string(types.empty() ? "" : ", ") + ggml_type_name(type);
  for (std::size_t i = 0; i < rota_codec_count(); ++i) {
    const std::string name = rota_codec_name(i);
    if (type_named(name) == nullptr) codecs += (codecs.empty() ? "" : ", ") + name;
  }
  throw Failure(Exit::usage, "'" + text + "' is no cache; llama.cpp has " + types + ", and Rota " + codecs +
                                 " and rota:SPEC, with what --rota takes as SPEC");
}

// The items of "turbo4" or "k=turbo8,v=turbo4,page=64" by key; that of a bare codec is "".
std::map<std::string, std::string> items_of(const std::string& spec) {
  std::map<std::string, std::string> items;
  for (std::size_t begin = 0; begin <= spec.size();) {
    const std::size_t end = std::min(spec.find(',', begin), spec.size());
    const std::string item = spec.substr(begin, end - begin);
    const std::size_t equals = item.find('=');
    if (equals == std::string::npos) {
      items["k"] = items["v"] = item;
    } else {
      items[item.substr(0, equals)] = item.substr(equals + 1);
    }
    begin = end + 1;
  }
  return items;
}

double codec_bits(rota_page_format format, const std::string& codec) {
  if (const ggml_type* const dense = type_named(codec)) return 8.0 * static_cast<double>(ggml_type_size(*dense));
  format.codec = codec.c_str();
  std::uint64_t bytes = 0;
  if (rota_page_format_bytes(&format, &bytes) != ROTA_OK) throw Failure(Exit::failed, rota_last_message());
  return 8.0 * static_cast<double>(bytes) / format.head_dim / format.tokens;
}

}  // namespace

Cache cache_from(const std::string& text) {
  if (text.compare(0, kRotaPrefix.size(), kRotaPrefix) == 0 && text.size() > kRotaPrefix.size()) {
    const std::string spec = text.substr(kRotaPrefix.size());
    return {type_named(spec) == nullptr ? spec : "rota " + spec, GGML_TYPE_F16, spec};
  }
  if (const ggml_type* const type = type_named(text)) return {text, *type};
  if (is_codec(text)) return {text, GGML_TYPE_F16, text};
  refuse(text);
}

Cache base_cache() { return {ggml_type_name(GGML_TYPE_F16), GGML_TYPE_F16}; }

Stored stored_by(const Cache& cache, std::uint32_t head_dim) {
  if (!cache.is_rota()) {
    const auto bytes = static_cast<double>(ggml_type_size(cache.type));
    return {cache.name, cache.name, 8.0 * bytes / static_cast<double>(ggml_blck_size(cache.type))};
  }
  auto items = items_of(cache.rota);
  const auto codec_of = [&](const char* side) { return items.count(side) != 0 ? items[side] : "turbo4"; };
  const Stored stored{codec_of("k"), codec_of("v")};
  rota_page_format format = ROTA_PAGE_FORMAT_INIT;
  format.head_dim = head_dim;
  format.tokens = 64;  // --rota's default
  if (items.count("page") != 0) format.tokens = static_cast<std::uint32_t>(std::stoul(items["page"]));
  const double keys = codec_bits(format, stored.k);
  format.side = ROTA_VALUES;
  return {stored.k, stored.v, (keys + codec_bits(format, stored.v)) / 2};
}

}  // namespace rota::eval
