#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "cli/command.h"
#include "cli/options.h"
#include "cli/written.h"
#include "report/data.h"
#include "report/page.h"

namespace rota::tool {
namespace {

struct Options {
  std::vector<std::string> files{};
  std::string out = "report.html";
  std::string title = "Rota report";
};

// A slip of the hand must not cost an hour's measurement.
void check_out(const Options& options) {
  for (const std::string& file : options.files) {
    std::error_code none;
    if (file == options.out || std::filesystem::equivalent(file, options.out, none)) {
      throw Failure(Exit::usage, fmt::format("--out {} is also read; wanted another file to write", options.out));
    }
  }
}

void run(const Options& options) {
  const bool to_stdout = options.out == "-";
  if (!to_stdout) check_out(options);
  const Page page = page_of(read_reports(options.files), options.title);
  if (to_stdout) {
    write_out(page.html);
    return;
  }
  write_file(options.out, page.html);
  write_out(fmt::format("{}: {}, {}\n", options.out, counted(page.charts, "chart"), counted(page.rows, "row")));
}

}  // namespace

void add_report(CLI::App& app, Invocation&) {
  const auto options = std::make_shared<Options>();
  CLI::App& command = add_command(
      app, {.name = "report",
            .description = "Make one HTML page with charts and tables from what bench, distort and eval measured",
            .footer = "Examples:\n"
                      "  rota bench attend -o json > bench.json && rota report bench.json\n"
                      "  rota report before.json after.json distort.json -O report.html\n"
                      "  python -m rota eval MODEL --text FILE --json eval.json && rota report eval.json\n"
                      "  rota report eval.json engine.json",
            .run = [options] { run(*options); }});
  require(add_texts(
      command, "FILES", options->files,
      {Several::as_words, {"JSON of rota bench, distort and eval; series of several are told apart by name", "FILE"}}));
  add_text(command, "-O,--out", options->out, {"File to write; - is stdout", "FILE"});
  add_text(command, "--title", options->title, {"Title of the page", "TEXT"});
}

}  // namespace rota::tool
