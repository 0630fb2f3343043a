#include "options.h"

#include <algorithm>
#include <functional>
#include <map>

#include "failure.h"

namespace rota::eval {
namespace {

constexpr std::uint32_t kMost = 1U << 24U;  // no model has more tokens
constexpr std::uint32_t kLeastTokens = 8;   // of which some are scored

[[noreturn]] void refuse(const std::string& sentence) { throw Failure(Exit::usage, sentence); }

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::uint32_t number_from(const std::string& name, const std::string& text, std::uint32_t least) {
  const bool digits = !text.empty() && text.size() <= 8 && text.find_first_not_of("0123456789") == std::string::npos;
  const auto number = digits ? static_cast<std::uint32_t>(std::stoul(text)) : 0;
  if (digits && number >= least && number <= kMost) return number;
  refuse(name + " is '" + text + "'; wanted a whole number from " + std::to_string(least) + " to " +
         std::to_string(kMost));
}

// A list has commas, and so have the items of a SPEC: what has an "=" belongs to the SPEC before it.
std::vector<Cache> caches_from(const std::string& text) {
  std::vector<std::string> names;
  for (const std::string& part : split(text, ',')) {
    const bool is_item = part.find('=') != std::string::npos && part.find(':') == std::string::npos;
    if (is_item && !names.empty()) {
      names.back() += "," + part;
    } else {
      names.push_back(part);
    }
  }
  std::vector<Cache> caches;
  for (const std::string& name : names) caches.push_back(cache_from(name));
  return caches;
}

// The base first, and each once.
std::vector<Cache> with_base(const std::vector<Cache>& given) {
  std::vector<Cache> caches{base_cache()};
  for (const Cache& cache : given) {
    const auto is_same = [&](const Cache& one) { return one.name == cache.name; };
    if (std::none_of(caches.begin(), caches.end(), is_same)) caches.push_back(cache);
  }
  return caches;
}

Options::Steps steps_from(const std::string& name, const std::string& text) {
  const std::vector<std::string> ends = split(text, ':');
  if (ends.size() != 2) refuse(name + " is '" + text + "'; wanted FROM:TO, two depths");
  const Options::Steps steps{number_from(name, ends[0], 0), number_from(name, ends[1], 1)};
  if (steps.from >= steps.to) refuse(name + " is '" + text + "'; wanted a FROM below TO");
  return steps;
}

std::vector<std::uint32_t> depths_from(const std::string& name, const std::string& text) {
  std::vector<std::uint32_t> depths;
  for (const std::string& part : split(text, ',')) depths.push_back(number_from(name, part, 0));
  std::sort(depths.begin(), depths.end());
  depths.erase(std::unique(depths.begin(), depths.end()), depths.end());
  return depths;
}

using Takes = std::function<void(const std::string& name, const std::string& value)>;

std::map<std::string, Takes> options_with_value(Options& options) {
  const auto number = [](std::uint32_t& member, std::uint32_t least) {
    return [&member, least](const std::string& name, const std::string& value) {
      member = number_from(name, value, least);
    };
  };
  const auto text = [](std::string& member) {
    return [&member](const std::string&, const std::string& value) { member = value; };
  };
  return {
      {"-m", text(options.model)},
      {"-f", text(options.text)},
      {"--to", text(options.to)},
      {"--caches", [&](const std::string&, const std::string& value) { options.caches = caches_from(value); }},
      {"--tokens", number(options.tokens, kLeastTokens)},
      {"--chunks", number(options.chunks, 1)},
      {"--chunk", number(options.ubatch, 1)},
      {"--ubatch", number(options.ubatch, 1)},
      {"--rounds", number(options.rounds, 1)},
      {"--repeats", number(options.repeats, 1)},
      {"--threads", number(options.threads, 1)},
      {"--depths",
       [&](const std::string& name, const std::string& value) { options.depths = depths_from(name, value); }},
      {"--pause", [&](const std::string& name, const std::string& value) { options.pause = steps_from(name, value); }},
      {"-o", [&](const std::string&, const std::string& value) {
         if (value != "table" && value != "json") refuse("-o is '" + value + "'; wanted table or json");
         options.json = value == "json";
       }}};
}

void check(const Options& options) {
  if (options.model.empty()) refuse("no model is given; wanted -m MODEL.gguf");
  if (options.text.empty()) refuse("no text is given; wanted -f FILE");
  if (!options.quality && !options.speed) refuse("--no-quality and --no-speed leave nothing to measure");
  if (options.pause && options.json) refuse("--pause prints a table only; wanted no -o json");
}

}  // namespace

std::optional<Options> read_options(int count, char** arguments) {
  Options options;
  options.caches = caches_from("f16,q8_0,q4_0,rota:f16,turbo8,turbo4,turbo3");
  const auto with_value = options_with_value(options);
  options.command = "rota-eval";
  for (int i = 1; i < count; ++i) options.command += std::string(" ") + arguments[i];
  for (int i = 1; i < count; ++i) {
    const std::string name = arguments[i];
    if (name == "-h" || name == "--help") return {};
    if (name == "--no-quality" || name == "--no-speed" || name == "--as-is") {
      (name == "--as-is" ? options.as_is : name == "--no-speed" ? options.speed : options.quality) = name == "--as-is";
      continue;
    }
    const auto found = with_value.find(name);
    if (found == with_value.end()) refuse("'" + name + "' is no option of rota-eval");
    if (++i == count) refuse(name + " has no value");
    found->second(name, arguments[i]);
  }
  if (!options.pause) options.caches = with_base(options.caches);
  check(options);
  return options;
}

const char* help() {
  return R"(rota-eval -m MODEL.gguf -f TEXT [OPTION...]

Measures what caches of keys and values do to a model's predictions, speed and memory, in llama.cpp itself.

  -m FILE            the model
  -f FILE            a text; repeated where speed wants more tokens than it has
  --caches LIST      llama.cpp's types (q8_0), Rota's codecs (turbo4) and rota:SPEC with what --rota takes as SPEC.
                     All are compared with llama.cpp's f16. Default: f16,q8_0,q4_0,rota:f16,turbo8,turbo4,turbo3
  --threads N        that decode tokens, default 1; prompts take all that the machine has
  -o table|json      table, or what `rota report` draws
  --to FILE          writes there instead of to stdout; of JSON, stdout then has the table

Quality: the model reads the text with each cache, and the second half of each chunk is scored.
  --tokens N         of a chunk, default 2048
  --chunks N         default 3
  --chunk N          tokens of a step, default 64; --ubatch is the same
  --as-is            weights as they are. Otherwise they become f32 in a temporary file, since arithmetic on quantized
                     weights rounds activations, and that alone moves predictions further than good caches do
  --no-quality

Speed: tokens are decoded one by one behind each depth, by all caches in turn.
  --depths LIST      tokens in the cache, default 0,2048,8192; memory is that of the largest and 256
  --rounds N         of 8 tokens, default 10
  --no-speed

Pauses, instead of all that:
  --pause FROM:TO    decodes from one depth to another, and prints the longest step
  --repeats N        of which each step's fastest counts, default 3

Exit codes: 1 failure, 2 wrong usage, 4 Rota refuses the model.
)";
}

}  // namespace rota::eval
