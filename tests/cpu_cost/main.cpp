#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/isa.h"
#include "cpu_cost/steps.h"
#include "harness/source_file.h"
#include "harness/worker_scratch.h"
#include "rota/rota.h"
#include "runtime/recorder.h"

// Instructions that attention takes for each number of the cache. What changes by more than a twentieth fails until it
// is accepted with --write.

namespace rota::test {
namespace {

#if defined(__aarch64__)
constexpr const char* kFile = "tests/cpu_cost/counts_aarch64.txt";
#else
constexpr const char* kFile = "tests/cpu_cost/counts.txt";
#endif
constexpr double kTolerance = 0.05;
constexpr std::uint64_t kKeys = 256;  // of one KV head: one key block

struct Case {
  KvCodec codec;  // of keys and values
  std::uint32_t dim, group;

  std::string name() const { return fmt::format("{} D={} G={}", rota::name(codec), dim, group); }
};

Buffer filled(Device& device, std::uint64_t bytes, std::mt19937& random) {
  Buffer buffer = device.allocate(bytes).value();
  std::vector<std::uint8_t> numbers(bytes);
  for (std::uint8_t& number : numbers) number = static_cast<std::uint8_t>(random() & 0x37U);  // small f16 numbers
  buffer.write(std::as_bytes(std::span(numbers))).value();
  return buffer;
}

KvSideView side_of(Device& device, const Case& what, KvSide side, std::mt19937& random) {
  constexpr std::uint64_t kPageTokens = 128, kPages = kKeys / kPageTokens;
  const Turbo* const turbo = std::get_if<Turbo>(&what.codec);
  const DType* const dtype = std::get_if<DType>(&what.codec);
  const auto pages = std::make_shared<KvPages>();
  for (std::uint32_t page = 0; page < kPages; ++page) pages->page_table.push_back(page);
  pages->sealed_pages = turbo == nullptr ? 0 : kPages;
  const SlotShape shape{.pages = kPages, .page_slots = kPageTokens, .heads = 1, .dim = what.dim};
  KvSideView view{.dense = SlotView::head_major(filled(device, kKeys * what.dim * 4, random),
                                                dtype == nullptr ? DType::f16 : *dtype, shape),
                  .sequences = {pages}};
  if (turbo != nullptr) {
    const PageFormat format{.codec = *turbo, .side = side, .head_dim = what.dim};
    view.sealed =
        SealedView::packed(filled(device, kPages * page_bytes(format), random), format, {.pages = kPages, .heads = 1});
  }
  return view;
}

// Of the kernel that reads keys and values, by number of the cache.
double instructions(const Case& what) {
  std::mt19937 random(1);
  Device device = Device::open({.device = "cpu", .threads = 1}).value();
  const KvView kv{.k = side_of(device, what, KvSide::keys, random),
                  .v = side_of(device, what, KvSide::values, random),
                  .lengths = {kKeys}};
  const Shape shape{1, what.group, what.dim};
  Encoder encoder = device.encoder();
  attend(encoder, {.q = View::token_major(filled(device, 4ULL * what.group * what.dim, random), DType::f16, shape),
                   .kv = kv,
                   .out = MutView::token_major(filled(device, 4ULL * what.group * what.dim, random), DType::f16, shape),
                   .scale = 0.01});
  encoder.status().value();
  std::uint64_t steps = 0;
  for (const runtime::Command& command : runtime::Inside::of(encoder)->commands().all()) {
    runtime::CpuCall call = command.cpu_call();
    call.scratch = worker_scratch();
    if (command.kernel->name == "attend_split") {
      steps += count_steps([&] { command.kernel->cpu(call); });
    } else {
      command.kernel->cpu(call);
    }
  }
  return static_cast<double>(steps) / (2.0 * kKeys * what.dim);
}

// All of them where they are fast: a trap takes microseconds.
std::vector<Case> cases(core::Isa isa) {
  using enum core::Isa;
#if defined(__x86_64__)
  if (isa == amx) return {{turbo(4), 128, 16}, {turbo(8), 128, 8}, {turbo(8), 128, 16}};  // else as the set before it
  std::vector<Case> all{{turbo(4), 128, 4}};
  if (isa == baseline) return all;
  all.push_back({turbo(8), 128, 4});
  all.push_back({DType::f16, 128, 4});
  if (isa == avx2 || isa == avx512) return all;
  if (isa == avxvnni) {
    for (const std::uint32_t bits : {2U, 3U, 5U, 6U}) all.push_back({turbo(bits), 128, 4});
    return all;
  }
#else
  std::vector<Case> all{{turbo(4), 128, 4}};
  if (isa == baseline) return all;
  all.push_back({turbo(8), 128, 4});
  all.push_back({DType::f16, 128, 4});
#endif
  for (const std::uint32_t group : {1U, 8U}) {
    all.push_back({turbo(4), 128, group});
    all.push_back({turbo(8), 128, group});
    all.push_back({DType::f16, 128, group});
  }
  for (const std::uint32_t bits : {2U, 3U, 5U, 6U}) all.push_back({turbo(bits), 128, 4});
  for (const std::uint32_t dim : {64U, 80U, 256U}) all.push_back({turbo(4), dim, 4});
  all.push_back({DType::bf16, 128, 4});
  return all;
}

using Counts = std::map<std::string, double>;

Counts read_counts() {
  Counts counts;
  std::istringstream lines(read_text(kFile));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t end = line.rfind(' ');
    if (end != std::string::npos) counts[line.substr(0, end)] = std::stod(line.substr(end + 1));
  }
  return counts;
}

void write_counts(const Counts& counts) {
  std::ofstream file(std::string(ROTA_SOURCE_FOLDER) + "/" + kFile);
  for (const auto& [name, count] : counts) file << fmt::format("{} {:.4f}\n", name, count);
  file.close();
  if (!file) throw std::runtime_error(fmt::format("cannot write {}", kFile));
}

int run(bool writes) {
  if (!core::runs_here(core::kIsas[1])) {
    throw std::runtime_error(fmt::format("this CPU has no {}: nothing to compare with", core::name_of(core::kIsas[1])));
  }
  Counts counts = read_counts();
  int failed = 0;
  for (const core::Isa isa : core::kIsas) {
    if (!core::runs_here(isa)) {
      fmt::print("{} does not run here: not counted\n", core::name_of(isa));
      continue;
    }
    core::limit_isa(isa);
    for (const Case& what : cases(isa)) {
      const std::string name = fmt::format("{} {}", core::name_of(isa), what.name());
      const double found = instructions(what);
      const auto known = counts.find(name);
      const bool differs = known == counts.end() || std::abs(found / known->second - 1) > kTolerance;
      fmt::print("{} {:.4f}{}\n", name, found, differs ? " differs" : "");
      if (!differs && !writes) continue;
      if (!writes) {
        fmt::print(stderr, "{}: {:.4f} instructions per number of the cache; {}\n", name, found,
                   known == counts.end() ? "never counted before" : fmt::format("it was {:.4f}", known->second));
        ++failed;
      }
      counts[name] = found;
    }
  }
  if (writes) write_counts(counts);
  if (failed != 0) fmt::print(stderr, "To accept the new counts: rota_cpu_cost --write\n");
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace rota::test

int main(int count, char** arguments) {
  const std::string_view option = count > 1 ? arguments[1] : "";
  if (count > 2 || (count == 2 && option != "--write")) {
    fmt::print(stderr, "usage: {} [--write]\n", arguments[0]);
    return 2;
  }
  try {
    return rota::test::run(option == "--write");
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
