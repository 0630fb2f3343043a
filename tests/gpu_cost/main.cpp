#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <fstream>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpu_cost/calls.h"
#include "gpu_cost/card.h"
#include "harness/source_file.h"
#include "runtime/recorder.h"

// What kernels cost on a GPU that is not here, against the table in docs/gpu.md, which tells how to run this.

namespace rota::test {
namespace {

constexpr const char* kDocument = "docs/gpu.md";

using Pipelines = std::set<std::pair<const runtime::Kernel*, runtime::Constants>>;

struct Measured {
  std::vector<Row> rows;
  std::vector<std::string> problems;  // that no table can accept
};

void check_spills(const Call& call, const Row& row, std::vector<std::string>& problems) {
  for (std::size_t i = 0; i < kFigures.size(); ++i) {
    if (!kFigures[i].is_spill || call.spills == Spills::allowed || row.cost[i] == 0) continue;
    problems.push_back(fmt::format("{}, {}: {}; wanted none", name_of(row), kFigures[i].heading, row.cost[i]));
  }
}

// Adds the rows of one call: those of pipelines that no call had before.
void measure(Card& card, const Call& call, Pipelines& known, Measured& measured) {
  Encoder encoder = card.device().encoder();
  call.record(card.device(), encoder);
  encoder.status().value();  // throws what an op refused
  const std::size_t rows_before = measured.rows.size();
  for (const runtime::Command& command : runtime::Inside::of(encoder)->commands().all()) {
    if (!known.emplace(command.kernel, command.constants).second) continue;
    const Row row{std::string(command.kernel->name), call.label, card.cost_of(*command.kernel, command.constants)};
    fmt::print("{}", text_of(row));
    if (std::ranges::find(measured.rows, name_of(row), name_of) != measured.rows.end()) {
      throw std::runtime_error(fmt::format("a second variant of {} with this label; give it its own", row.kernel));
    }
    check_spills(call, row, measured.problems);
    measured.rows.push_back(row);
  }
  if (measured.rows.size() == rows_before)
    throw std::runtime_error("runs nothing that earlier calls do not; remove it");
}

Measured measure_all(Card& card) {
  Measured measured;
  Pipelines known;
  for (const Call& call : calls()) {
    try {
      measure(card, call, known, measured);
    } catch (const std::exception& error) {
      measured.problems.push_back(fmt::format("the call \"{}\": {}", call.label, error.what()));
    }
  }
  return measured;
}

void write(const std::string& document) {
  std::ofstream file(std::string(ROTA_SOURCE_FOLDER) + "/" + kDocument, std::ios::binary);
  file << document;
  file.close();
  if (!file) throw std::runtime_error(fmt::format("cannot write {}", kDocument));
}

enum class Mode { check, write };

int run(Mode mode) {
  Card card;
  const auto [rows, problems] = measure_all(card);
  if (!problems.empty()) {
    fmt::print(stderr, "{}:\n{}\n", card.chip(), fmt::join(problems, "\n"));
    return 1;
  }
  const std::string document = read_text(kDocument);
  if (mode == Mode::write) {
    write(with_section(document, card.chip(), fmt::format("{}, {}:\n\n{}", card.chip(), card.driver(), text_of(rows))));
    return 0;
  }
  const std::string section = section_of(document, card.chip());
  const std::vector<std::string> found = differences(rows_of(section), rows);
  if (found.empty()) return 0;
  fmt::print(stderr, "{}, against the table in {}:\n{}\n", card.chip(), kDocument, fmt::join(found, "\n"));
  if (section.find(card.driver()) == std::string::npos) {
    fmt::print(stderr, "The table is of another driver than this one, {}, and drivers differ.\n", card.driver());
  }
  fmt::print(stderr, "To accept the new figures: cmake --build --preset dev --target write_gpu_cost\n");
  return 1;
}

}  // namespace
}  // namespace rota::test

int main(int count, char** arguments) {
  using rota::test::Mode;
  const std::string_view option = count > 1 ? arguments[1] : "";
  if (count > 2 || (count == 2 && option != "--write")) {
    fmt::print(stderr, "usage: {} [--write]\n", arguments[0]);
    return 2;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // a compiler that crashes leaves what was before
  try {
    return rota::test::run(option.empty() ? Mode::check : Mode::write);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
