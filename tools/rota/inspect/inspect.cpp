#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/options.h"
#include "cli/show.h"
#include "cli/table.h"
#include "rota/kv_saved.h"

// What a saved sequence is, and whether it is whole: docs/saved-sequences.md has the bytes.

namespace rota::tool {
namespace {

struct InspectOptions {
  std::string file;
  bool header = false;
  Output output = Output::text;
};

[[noreturn]] void fail(const InspectOptions& options, const std::string& what) {
  throw Failure(Exit::failed_check, fmt::format("{}: {}", options.file, what), "rota inspect --help");
}

class File {
 public:
  explicit File(const InspectOptions& options) : stream_(options.file, std::ios::binary) {
    std::error_code error;
    if (!std::filesystem::is_regular_file(options.file, error)) {
      fail(options, error ? error.message() : "is no file; wanted what KvCache::save() wrote");
    }
    size_bytes_ = std::filesystem::file_size(options.file, error);
    if (error || !stream_.is_open()) fail(options, "cannot be opened; wanted a file that may be read");
  }

  std::uint64_t size_bytes() const noexcept { return size_bytes_; }

  rota::ByteSource source() {
    return [this](std::span<std::byte> to) -> Status {
      stream_.read(reinterpret_cast<char*>(to.data()), static_cast<std::streamsize>(to.size()));
      const auto found = static_cast<std::size_t>(stream_.gcount());
      if (found == to.size()) return {};
      return Error{Errc::io, fmt::format("the file is truncated: it has {} bytes, and at least {} more are wanted",
                                         size_bytes_, to.size() - found)};
    };
  }

 private:
  std::ifstream stream_;
  std::uint64_t size_bytes_ = 0;
};

// "0-2, 5"
std::string ranges_text(const std::vector<std::uint32_t>& numbers) {
  std::vector<std::string> ranges;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    ranges.push_back(end - i == 1 ? fmt::format("{}", numbers[i]) : fmt::format("{}-{}", numbers[i], numbers[end - 1]));
    i = end;
  }
  constexpr std::size_t kShown = 8;
  const std::string more = ranges.size() > kShown ? fmt::format(", {} more", ranges.size() - kShown) : "";
  ranges.resize(std::min(ranges.size(), kShown));
  return fmt::format("{}{}", fmt::join(ranges, ", "), more);
}

Json row_of(const KvGroup& group, KvSide side, const KvSavedSide& pages) {
  const bool keys = side == KvSide::keys;
  Json row{{"layers", ranges_text(group.layers)},
           {"layer_count", group.layers.size()},
           {"kv_heads", std::uint32_t{group.kv_heads}},
           {"side", keys ? "K" : "V"},
           {"dim", keys ? std::uint32_t{group.head_dim} : group.value_dim.value_or(group.head_dim)},
           {"codec", name(keys ? group.k : group.v)},
           {"page", group.page},
           {"first_page", pages.first_page},
           {"sealed", std::max(pages.sealed_pages, pages.first_page) - pages.first_page},
           {"dense", pages.end_page - std::max(pages.sealed_pages, pages.first_page)},
           {"sinks", pages.has_sinks ? group.sinks : 0},
           {"tail", group.tail},
           {"window", nullptr},
           {"bytes", pages.bytes}};
  if (group.window) row["window"] = *group.window;
  if (const auto codec = sealed_codec(keys ? group.k : group.v)) {
    row["dense_type"] = info(group.dense).name;
    std::visit(
        [&](const auto& one) {
          if constexpr (requires { one.seed; }) row["seed"] = one.seed;
        },
        *codec);
  }
  return row;
}

Report report_of(const InspectOptions& options, const KvSaved& saved, const Invocation& invocation) {
  Report report{.head = report_head("inspect", invocation),
                .table = {{{"layers", "layers"},
                           {"side", "side"},
                           {"kv_heads", "KV heads"},
                           {"dim", "dim"},
                           {"codec", "codec"},
                           {"page", "page"},
                           {"first_page", "first"},
                           {"sealed", "sealed"},
                           {"dense", "dense"},
                           {"sinks", "sinks"},
                           {"window", "window"},
                           {"bytes", "size", "bytes"}}}};
  for (const KvSavedGroup& group : saved.groups) {
    report.table.rows.push_back(row_of(group.group, KvSide::keys, group.k));
    report.table.rows.push_back(row_of(group.group, KvSide::values, group.v));
  }
  report.head["saved"] = {{"version", saved.version},           {"begin", saved.begin}, {"end", saved.end},
                          {"header_bytes", saved.header_bytes}, {"bytes", saved.bytes}, {"verified", !options.header}};
  report.head["notes"] = Json::array();
  report.before = fmt::format("{}: a saved sequence, version {}, positions {} to {}, {}\n{}\n\n",
                              one_line(options.file), saved.version, saved.begin, saved.end, bytes_text(saved.bytes),
                              options.header ? "the header is sound; pages were not read" : "every checksum is right");
  for (const KvSavedNote& note : saved.notes) {
    report.head["notes"].push_back({{"position", note.position}, {"bytes", note.bytes}});
    report.after += fmt::format("Note of {} at position {}\n", bytes_text(note.bytes), note.position);
  }
  if (!report.after.empty()) report.after.insert(0, "\n");
  return report;
}

void run(const InspectOptions& options, const Invocation& invocation) {
  File file(options);
  auto saved = read_saved_header(file.source());
  if (saved && saved->bytes > file.size_bytes()) {
    fail(options, fmt::format("is truncated: it has {} bytes; wanted {}", file.size_bytes(), saved->bytes));
  }
  if (saved && !options.header) saved = verify_saved(File(options).source());
  if (!saved) fail(options, saved.error().message);
  if (saved->bytes != file.size_bytes()) {
    fail(options, fmt::format("is {} bytes long; the saved sequence has {}", file.size_bytes(), saved->bytes));
  }
  print(report_of(options, *saved, invocation), options.output);
}

}  // namespace

void add_inspect(CLI::App& app, Invocation& invocation) {
  const auto options = std::make_shared<InspectOptions>();
  CLI::App& command = add_command(app, {.name = "inspect",
                                        .description = "Say what a saved sequence is, and whether it is whole",
                                        .footer = "Examples:\n"
                                                  "  rota inspect prompt.rota\n"
                                                  "  rota inspect prompt.rota --header -o json",
                                        .run = [options, &invocation] { run(*options, invocation); }});
  require(add_text(command, "FILE", options->file, {"What KvCache::save() wrote", "FILE"}));
  add_flag(command, "--header", options->header, "Read the header alone: checksums of pages are not verified");
  add_output(command, options->output);
}

}  // namespace rota::tool
