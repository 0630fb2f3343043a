#include "estimate/request.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "cli/command.h"
#include "cli/numbers.h"
#include "rota/device.h"

namespace rota::tool {
namespace {

std::uint64_t bytes_of(const std::string& option, const std::string& text) {
  const auto bytes = parsed_bytes(text);
  if (!bytes) fail_usage(fmt::format("{} is \"{}\"; wanted {}", option, text, kWantedBytes));
  return *bytes;
}

struct Shape {
  std::uint64_t layers = 0, kv_heads = 0, head_dim = 0, value_dim = 0, window = 0;
};

void add_group(Model& model, const Shape& shape) {
  constexpr std::uint64_t kMostLayers = 65536;
  if (shape.layers == 0 || shape.kv_heads == 0 || shape.head_dim == 0) {
    fail_usage("a model without a name needs layers, KV heads and the size of a head, each at least 1",
               "rota estimate --layers 32 --kv-heads 8 --head-dim 128 -c 8192");
  }
  if (shape.layers > kMostLayers - model.layers()) {
    fail_usage(fmt::format("--layers is {}; wanted at most {} in all", shape.layers, kMostLayers));
  }
  LayerGroup& group = model.groups.emplace_back();
  group.kv_heads = group.query_heads = narrowed("--kv-heads", shape.kv_heads);
  group.head_dim = narrowed("--head-dim", shape.head_dim);
  group.value_dim = shape.value_dim == 0 ? group.head_dim : narrowed("--value-dim", shape.value_dim);
  if (shape.window > 0) group.window = shape.window;
  const auto first = static_cast<std::uint32_t>(model.layers());
  for (std::uint32_t layer = 0; layer < shape.layers; ++layer) group.layers.push_back(first + layer);
}

// "layers=22,kv-heads=1,head-dim=256,window=512"
Shape parsed_group(const std::string& text) {
  Shape shape;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    const std::size_t equals = std::min(part.find('='), part.size());
    const std::string name = part.substr(0, equals), value = part.substr(std::min(equals + 1, part.size()));
    std::uint64_t* const field = name == "layers"      ? &shape.layers
                                 : name == "kv-heads"  ? &shape.kv_heads
                                 : name == "head-dim"  ? &shape.head_dim
                                 : name == "value-dim" ? &shape.value_dim
                                 : name == "window"    ? &shape.window
                                                       : nullptr;
    const std::optional<std::uint64_t> number = parsed_whole(value);
    if (field == nullptr || !number) {
      fail_usage(
          fmt::format("--group has \"{}\"; wanted layers, kv-heads, head-dim, value-dim or window, = and a number",
                      part),
          "rota estimate --group layers=22,kv-heads=1,head-dim=256,window=512");
    }
    *field = *number;
    begin = end + 1;
  }
  return shape;
}

}  // namespace

void fail_usage(std::string what, std::string next) { throw Failure(Exit::usage, std::move(what), std::move(next)); }

std::uint32_t narrowed(const std::string& option, std::uint64_t number) {
  if (number > std::numeric_limits<std::uint32_t>::max()) {
    fail_usage(fmt::format("{} is {}; wanted a number below 2^32", option, number));
  }
  return static_cast<std::uint32_t>(number);
}

void check(const EstimateOptions& options) {
  if (options.beyond && !options.fit) {
    fail_usage("--beyond is about --fit, which is not given; wanted both, or -c", "rota estimate ... --fit --beyond");
  }
  if (options.sequences == 0) fail_usage("-np is 0; wanted 1 or more");
}

Model chosen_model(const EstimateOptions& options) {
  const bool one_group = options.layers > 0 || options.kv_heads > 0 || options.head_dim > 0;
  if (!options.model.empty()) {
    if (one_group || !options.groups.empty()) fail_usage("--model has its own layers; wanted it, or layers by options");
    return find_model(options.model);
  }
  if (!one_group && options.groups.empty()) {
    fail_usage(
        "which model? Wanted -m with a name, a GGUF file or a config.json, or --layers, --kv-heads and --head-dim",
        "rota estimate --list-models");
  }
  Model model{.name = "layers by options", .title = "Layers by options"};
  if (one_group) {
    add_group(model, {options.layers, options.kv_heads, options.head_dim, options.value_dim, options.window});
  }
  for (const std::string& group : options.groups) add_group(model, parsed_group(group));
  return model;
}

MemoryBudget chosen_memory(const EstimateOptions& options, const Model& model) {
  MemoryBudget memory{.of = options.device, .weights = model.weights_bytes.value_or(0)};
  if (!options.weights.empty()) memory.weights = bytes_of("--weights", options.weights);
  if (!options.reserve.empty()) memory.reserved = bytes_of("--reserve", options.reserve);
  if (!options.memory.empty()) {
    memory.of = "--memory";
    memory.all = bytes_of("--memory", options.memory);
    return memory;
  }
  for (const BackendReport& backend : list_backends().value()) {
    for (const DeviceInfo& device : backend.devices) {
      if (device.id != options.device) continue;
      memory.all = device.memory_bytes;
      return memory;
    }
  }
  throw Failure(Exit::no_such_device,
                fmt::format("there is no device \"{}\" to hold the cache against", options.device),
                "rota devices, or rota estimate --memory 24GiB for one that is not here");
}

}  // namespace rota::tool
