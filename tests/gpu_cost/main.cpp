#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "gpu_cost/bounds.h"
#include "gpu_cost/calls.h"
#include "gpu_cost/card.h"
#include "gpu_cost/sections.h"
#include "harness/source_file.h"
#include "runtime/recorder.h"

// What kernels cost on a GPU that is not here, against the table in docs/gpu.md, which tells how to run this.

namespace rota::test {
namespace {

constexpr const char* kDocument = "docs/gpu.md";

Table cost_head() {
  Table head{.labels = {"kernel", "call"}, .columns = {}};
  for (const Figure& figure : kFigures) head.columns.push_back({std::string(figure.heading)});
  return head;
}

struct Measured {
  Table table = cost_head();
  std::vector<UsedKernel> kernels;
  std::vector<std::string> problems;  // that no table can accept
};

void check_spills(const Call& call, const Row& row, std::vector<std::string>& problems) {
  for (std::size_t i = 0; i < kFigures.size(); ++i) {
    if (!kFigures[i].is_spill || call.spills == Spills::allowed || row.figures[i] == 0) continue;
    problems.push_back(fmt::format("{}, {}: {}; wanted none", name_of(row), kFigures[i].heading, row.figures[i]));
  }
}

// Adds the rows of one call: those of kernels that no call had before.
void measure(Card& card, const Call& call, Measured& measured) {
  Encoder encoder = card.device().encoder();
  call.record(card.device(), encoder);
  encoder.status().value();  // throws what an op refused
  std::vector<Row>& rows = measured.table.rows;
  const std::size_t rows_before = rows.size();
  for (const runtime::Command& command : runtime::Inside::of(encoder)->commands().all()) {
    const auto is_it = [&](const UsedKernel& used) {
      return used.kernel == command.kernel && used.constants == command.constants;
    };
    if (std::ranges::any_of(measured.kernels, is_it)) continue;
    measured.kernels.push_back({command.kernel, command.constants, call.label});
    const Compiled& compiled = card.compiled(*command.kernel, command.constants);
    const Row row{{std::string(command.kernel->name), call.label}, {compiled.cost.begin(), compiled.cost.end()}};
    fmt::print("{}", text_of(measured.table, row));
    if (std::ranges::find(rows, name_of(row), name_of) != rows.end()) {
      throw std::runtime_error(fmt::format("a second variant of {} with this label; give it its own", row.labels[0]));
    }
    check_spills(call, row, measured.problems);
    rows.push_back(row);
  }
  if (rows.size() == rows_before) throw std::runtime_error("runs nothing that earlier calls do not; remove it");
}

Measured measure_all(Card& card) {
  Measured measured;
  for (const Call& call : calls()) {
    try {
      measure(card, call, measured);
    } catch (const std::exception& error) {
      measured.problems.push_back(fmt::format("the call \"{}\": {}", call.label, error.what()));
    }
  }
  return measured;
}

// What does not depend on the chip, or stands for others, is written once.
constexpr std::string_view kChipForAll = "RADV GFX1100";

std::vector<Section> sections_of(Card& card, Measured& measured) {
  Models models(card);
  std::vector<Section> sections{{.name = card.chip(), .words = {}, .table = measured.table}};
  sections.push_back(waits_section(card, models, measured.kernels, measured.problems));
  for (Section& section : sections) section.words = fmt::format("{}, {}:\n\n", card.chip(), card.driver());
  if (card.chip() != kChipForAll) return sections;
  sections.push_back(launches_section(card));
  sections.push_back(workgroups_section(card));
  sections.push_back(gpus_section());
  sections.push_back(estimates_section(card, models));
  return sections;
}

void write(const std::string& document) {
  std::ofstream file(std::string(ROTA_SOURCE_FOLDER) + "/" + kDocument, std::ios::binary);
  file << document;
  file.close();
  if (!file) throw std::runtime_error(fmt::format("cannot write {}", kDocument));
}

enum class Mode { check, write };

bool is_refused(const Card& card, const std::vector<std::string>& problems) {
  if (!problems.empty()) fmt::print(stderr, "{}:\n{}\n", card.chip(), fmt::join(problems, "\n"));
  return !problems.empty();
}

int run(Mode mode) {
  Card card;
  Measured measured = measure_all(card);
  const std::vector<Section> sections = sections_of(card, measured);
  std::vector<Table> tables;
  for (const Section& section : sections) {
    fmt::print("\n{}:\n{}", section.name, text_of(section.table));
    tables.push_back(section.table);
  }
  const std::vector<std::string> broken = broken_bounds(tables);
  measured.problems.insert(measured.problems.end(), broken.begin(), broken.end());
  if (is_refused(card, measured.problems)) return 1;
  std::string document = read_text(kDocument);
  bool is_accepted = true;
  for (const auto& [name, words, table] : sections) {
    if (mode == Mode::write) {
      document = with_section(document, name, fmt::format("{}{}", words, text_of(table)));
      continue;
    }
    const std::string section = section_of(document, name);
    const std::vector<std::string> found = differences(rows_of(table, section), table);
    if (found.empty()) continue;
    is_accepted = false;
    fmt::print(stderr, "{}, against the table \"{}\" in {}:\n{}\n", card.chip(), name, kDocument,
               fmt::join(found, "\n"));
  }
  if (mode == Mode::write) write(document);
  if (is_accepted) return 0;
  if (section_of(document, card.chip()).find(card.driver()) == std::string::npos) {
    fmt::print(stderr, "The tables are of another driver than this one, {}, and drivers differ.\n", card.driver());
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
