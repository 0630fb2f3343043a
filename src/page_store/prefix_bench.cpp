#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "page_store/raw_server_bench.h"
#include "rota/rota.h"
#include "rota/store.h"

// How fast a prefix comes from a store, beside the raw speed of the same medium, and what putting costs a decode.
//
//   rota_store_bench URL [TOKENS [loads]]     the shape of Llama 8B at 4 bits; the store must be empty or have this
//   prefix;
//                                             `loads`: nothing is decoded
//
// For a folder the raw speed is that of two threads that read its files into memory that was used before, from the page
// cache and, for root, from the disk. For a server without a password, by its address and port, raw_server_bench.h says
// what it is.

namespace {

using namespace rota;
using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kLayers = 32, kHeads = 8, kDim = 128, kStep = 512;
constexpr std::uint32_t kThreads = 2;
constexpr int kTurns = 7;
constexpr std::size_t kPlaceBytes = std::size_t{8} << 20;  // for a file: more than a page has
constexpr auto kLong = std::chrono::minutes(5);

double seconds_of(const std::function<void()>& run) {
  const auto begin = Clock::now();
  run();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

struct Spread {
  double median = 0, low = 0, high = 0;
};

Spread spread_of(std::vector<double> values) {
  std::ranges::sort(values);
  return {values[values.size() / 2], values.front(), values.back()};
}

// An engine's activations, the same for all layers.
struct Engine {
  explicit Engine(std::uint64_t tokens)
      : device(Device::open({.device = "cpu", .threads = kThreads}).value()),
        cache(KvCache::create(device, {.groups = {{.layers = first_layers(kLayers),
                                                   .kv_heads = kHeads,
                                                   .head_dim = kDim,
                                                   .k = turbo(4),
                                                   .v = turbo(4)}},
                                       .max_tokens = 3 * tokens + 8192,
                                       .max_sequences = 4})
                  .value()),
        heads(random_heads(kStep, kHeads)),
        queries(random_heads(1, 4 * kHeads)),
        out(MutView::token_major(device.allocate(4 * kHeads * kDim * sizeof(float)).value(), DType::f32,
                                 {1, 4 * kHeads, kDim})) {}

  View random_heads(std::uint64_t tokens, std::uint64_t count) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<float> values(tokens * count * kDim);
    std::ranges::generate(values, [&] { return normal(random); });
    Buffer buffer = device.allocate(values.size() * sizeof(float)).value();
    buffer.write(std::as_bytes(std::span(values))).value();
    return View::token_major(buffer, DType::f32, {tokens, count, kDim});
  }

  void prompt(Sequence sequence, std::uint64_t tokens) {
    for (std::uint64_t length = 0; length < tokens; length += kStep) {
      Encoder encoder = device.encoder();
      KvStep step = cache.extend(encoder, sequence, kStep).value();
      for (std::uint32_t layer = 0; layer < kLayers; ++layer) step.append(encoder, layer, heads, heads);
      std::move(encoder).submit().value().wait().value();
    }
  }

  void decode(Sequence sequence) {
    Encoder encoder = device.encoder();
    KvStep step = cache.extend(encoder, sequence, 1).value();
    const View one = heads.slice(0, 1);
    for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
      step.append(encoder, layer, one, one);
      attend(encoder, {.q = queries,
                       .kv = step.view(layer).value(),
                       .out = out,
                       .scale = 1 / std::sqrt(static_cast<double>(kDim))});
    }
    std::move(encoder).submit().value().wait().value();
  }

  Device device;
  KvCache cache;
  View heads, queries;
  MutView out;
};

// Two threads, a file after the other, each byte once, to a place of its own, as it must be kept.
void read_files(const std::vector<std::string>& paths, std::span<std::byte> to) {
  std::atomic<std::size_t> next = 0;
  const std::size_t room = to.size() / paths.size();
  const auto take_some = [&] {
    for (std::size_t i = next++; i < paths.size(); i = next++) {
      const int file = open(paths[i].c_str(), O_RDONLY | O_CLOEXEC);
      while (read(file, to.data() + i * room, room) > 0) {
      }
      close(file);
    }
  };
  std::thread other(take_some);
  take_some();
  other.join();
}

void drop_page_cache() {
  sync();
  const int file = open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);
  if (file < 0 || write(file, "1", 1) != 1) fmt::print("(the page cache could not be dropped)\n");
  if (file >= 0) close(file);
}

class Bench {
 public:
  Bench(std::string url, std::uint64_t tokens)
      : url_(std::move(url)),
        tokens_(tokens),
        engine_(tokens),
        pages_(PageStore::open(url_).value()),
        store_(PrefixStore::create(pages_, engine_.cache, {.model = {.weights = "bench"}, .deadline = kLong}).value()),
        prompt_(tokens + 8192, 17) {}

  void fill() {
    const Sequence sequence = engine_.cache.open_sequence().value();
    engine_.prompt(sequence, tokens_);
    const double seconds = seconds_of([&] {
      store_.put(sequence, prompt_).value();
      store_.flush(kLong).value();
    });
    engine_.cache.close(sequence).value();
    match_ = store_.match(std::span(prompt_).first(tokens_)).value();
    for (const StoredPage& page : pages_.find(match_.keys, Clock::now() + kLong).value()) bytes_ += page.bytes();
    fmt::print("{} tokens, {:.0f} MB in {} pages; put in {:.2f} s\n", match_.tokens, gigabytes() * 1000,
               match_.keys.size(), seconds);
  }

  void compare(const char* name, const std::function<void()>& before, const std::function<void()>& raw) {
    std::vector<double> raw_speeds, load_speeds, ratios;
    for (int turn = 0; turn < kTurns; ++turn) {
      before();
      raw_speeds.push_back(gigabytes() / seconds_of(raw));
      before();
      PrefixLoaded loaded;
      load_speeds.push_back(gigabytes() / seconds_of([&] { loaded = store_.load(match_).value(); }));
      if (loaded.tokens != match_.tokens) fmt::print("only {} tokens came\n", loaded.tokens);
      engine_.cache.close(loaded.sequence).value();
      ratios.push_back(load_speeds.back() / raw_speeds.back());
    }
    const Spread ratio = spread_of(ratios);
    fmt::print("{}: raw {:.2f} GB/s, load {:.2f} GB/s: {:.0f} % ({:.0f} to {:.0f})\n", name,
               spread_of(raw_speeds).median, spread_of(load_speeds).median, 100 * ratio.median, 100 * ratio.low,
               100 * ratio.high);
  }

  void loads() {
    const auto nothing = [] {};
    if (!url_.starts_with("file:")) {
      std::vector<std::string> keys;
      for (const PageKey& key : match_.keys) keys.push_back("rota:{" + hex(key) + "}.pages");
      const auto wire = url_.starts_with("valkeys:") ? page_store::bench::Wire::tls : page_store::bench::Wire::plain;
      const std::string address = url_.substr(0, url_.find('?'));
      const std::size_t host = address.find("//") + 2, colon = address.rfind(':');
      page_store::bench::RawServer server(wire, address.substr(host, colon - host),
                                          std::stoi(address.substr(colon + 1)), std::size_t{8} << 20);
      compare(url_.substr(0, url_.find(':')).c_str(), nothing, [&] { server.get(keys); });
      return;
    }
    std::vector<std::string> paths;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(url_.substr(5) + "/pages")) {
      if (entry.is_regular_file()) paths.push_back(entry.path().string());
    }
    std::vector<std::byte> to(paths.size() * kPlaceBytes);
    compare("warm files", nothing, [&] { read_files(paths, to); });
    compare("cold files", drop_page_cache, [&] { read_files(paths, to); });
  }

  // Pages of 128 steps with and without a store, in turn.
  void decodes() {
    const Sequence with = engine_.cache.open_sequence().value(), without = engine_.cache.open_sequence().value();
    engine_.prompt(with, 2048);
    engine_.prompt(without, 2048);
    std::mt19937 random(static_cast<std::uint32_t>(Clock::now().time_since_epoch().count()));
    std::ranges::generate(prompt_, [&] { return static_cast<std::int32_t>(random() % 50'000); });
    std::vector<double> ratios;
    for (int turn = 0; turn < 2 * kTurns; ++turn) {
      const double plain = seconds_of([&] {
        for (int i = 0; i < 128; ++i) engine_.decode(without);
      });
      const double stored = seconds_of([&] {
        for (int i = 0; i < 128; ++i) {
          engine_.decode(with);
          store_.put(with, prompt_).value();
        }
      });
      if (turn > 0) ratios.push_back(stored / plain);
    }
    const Spread ratio = spread_of(ratios);
    fmt::print("decoding at 2,048 to 3,840 tokens with puts: {:+.1f} % ({:+.1f} to {:+.1f})\n",
               100 * (ratio.median - 1), 100 * (ratio.low - 1), 100 * (ratio.high - 1));
    store_.flush(kLong).value();
  }

 private:
  double gigabytes() const { return static_cast<double>(bytes_) / 1e9; }

  std::string url_;
  std::uint64_t tokens_;
  Engine engine_;
  PageStore pages_;
  PrefixStore store_;
  std::vector<std::int32_t> prompt_;
  PrefixMatch match_;
  std::uint64_t bytes_ = 0;
};

}  // namespace

int main(int count, char** arguments) {
  try {
    if (count < 2) {
      fmt::print("rota_store_bench URL [TOKENS [loads]]\n");
      return 2;
    }
    Bench bench(arguments[1], count > 2 ? std::stoull(arguments[2]) : 32'768);
    bench.fill();
    bench.loads();
    if (count < 4 || std::string_view(arguments[3]) != "loads") bench.decodes();
  } catch (const std::exception& error) {
    fmt::print("{}\n", error.what());
    return 1;
  }
  return 0;
}
