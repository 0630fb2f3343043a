#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "cli/command.h"
#include "cli/options.h"
#include "cli/show.h"
#include "cli/table.h"
#include "store/actions.h"
#include "store/opened.h"

// `rota store`: what is in a page store, and whether it is whole.

namespace rota::tool {
namespace {

using Missing = OpenedStore::Missing;

struct Action {
  std::string_view name;
  Report (*run)(const StoreOptions&, Invocation&);
};

constexpr std::array<Action, 6> kActions{{{"stat", stat_report},
                                          {"ls", ls_report},
                                          {"verify", verify_report},
                                          {"gc", gc_report},
                                          {"copy", copy_report},
                                          {"bench", speed_report}}};

// What one action takes, and no other.
void check_options(const StoreOptions& options) {
  struct Own {
    std::string_view name, action;
    bool given;
  };
  for (const Own& own : {Own{"TO", "copy", !options.to.empty()}, Own{"--limit", "ls", options.limit.has_value()},
                         Own{"--max-bytes", "gc", options.max_bytes.has_value()},
                         Own{"--page-bytes", "bench", options.page_bytes.has_value()},
                         Own{"--pages", "bench", options.pages.has_value()}}) {
    if (!own.given || own.action == options.action) continue;
    throw Failure(Exit::usage, fmt::format("{} is given to rota store {}; wanted it with rota store {} alone", own.name,
                                           options.action, own.action));
  }
  if (options.action == "copy" && options.to.empty()) {
    throw Failure(Exit::usage, "TO is missing; wanted rota store copy URL TO [OPTIONS]");
  }
}

void run(const StoreOptions& options, Invocation& invocation) {
  check_options(options);
  const auto action = std::ranges::find(kActions, options.action, &Action::name);  // checked before
  print(action->run(options, invocation), options.output);
}

Json used_json(const StoredPage& page) {
  if (page.used == std::chrono::system_clock::time_point{}) return nullptr;
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::chrono::system_clock::to_time_t(page.used)));
}

Json page_json(const StoredPage& page) {
  Json row{{"key", hex(page.key)}, {"parent", hex(page.parent)}, {"index", page.index}};
  for (const StoredPart part : kStoredParts) {
    const std::string key = fmt::format("{}_bytes", name(part));
    row[key] = nullptr;
    if (page.has(part)) row[key] = page.part_bytes[static_cast<std::size_t>(part)];
  }
  row["used"] = used_json(page);
  return row;
}

}  // namespace

Report stat_report(const StoreOptions& options, Invocation& invocation) {
  const OpenedStore opened(options.url, options, Missing::is_refused);
  const StoreStat stat = answered(opened.store().stat(opened.list_deadline()));
  Report report{
      .head = report_head("store stat", invocation),
      .table = {
          {{"medium", "medium"}, {"pages", "pages"}, {"bytes", "size", "bytes"}, {"max_bytes", "limit", "bytes"}}}};
  Json row{{"medium", stat.medium}, {"pages", stat.pages}, {"bytes", stat.bytes}, {"max_bytes", nullptr}};
  if (stat.max_bytes) row["max_bytes"] = *stat.max_bytes;
  report.table.rows.push_back(row);
  return report;
}

// The newest use first.
Report ls_report(const StoreOptions& options, Invocation& invocation) {
  const OpenedStore opened(options.url, options, Missing::is_refused);
  std::vector<StoredPage> pages = opened.pages();
  std::ranges::sort(pages, {}, [](const StoredPage& page) {
    const auto used = std::chrono::floor<std::chrono::seconds>(page.used);  // as it is shown
    return std::tuple(-used.time_since_epoch().count(), page.index, page.key);
  });
  Report report{.head = report_head("store ls", invocation),
                .table = {{{"key", "key"},
                           {"index", "index"},
                           {"pages_bytes", "pages", "bytes"},
                           {"window_bytes", "window", "bytes"},
                           {"state_bytes", "state", "bytes"},
                           {"used", "last use"}}}};
  const std::size_t all = pages.size(), shown = std::min<std::uint64_t>(options.limit.value_or(all), all);
  report.head["pages"] = all;
  const bool is_whole = options.output != Output::text && options.output != Output::md;
  constexpr std::size_t kShownDigits = 16;
  for (const StoredPage& page : std::span(pages).first(shown)) {
    Json row = page_json(page);
    if (!is_whole) row["key"] = hex(page.key).substr(0, kShownDigits);
    report.table.rows.push_back(std::move(row));
  }
  report.after = shown < all ? fmt::format("\n{} of {} pages, the last used first\n", shown, all) : "";
  return report;
}

Report gc_report(const StoreOptions& options, Invocation& invocation) {
  const OpenedStore opened(options.url, options, Missing::is_refused);
  const StoreCollected done = answered(opened.store().collect(opened.collect_deadline()));
  const StoreStat stat = answered(opened.store().stat(opened.list_deadline()));
  Report report{.head = report_head("store gc", invocation),
                .table = {{{"evicted_pages", "evicted"},
                           {"evicted_bytes", "size", "bytes"},
                           {"adopted_pages", "adopted"},
                           {"lost_pages", "lost"},
                           {"left_overs", "left-overs"},
                           {"pages", "pages now"},
                           {"bytes", "size", "bytes"}}}};
  report.table.rows.push_back({{"evicted_pages", done.evicted_pages},
                               {"evicted_bytes", done.evicted_bytes},
                               {"adopted_pages", done.adopted_pages},
                               {"lost_pages", done.lost_pages},
                               {"left_overs", done.left_overs},
                               {"pages", stat.pages},
                               {"bytes", stat.bytes}});
  return report;
}

void add_store(CLI::App& app, Invocation& invocation) {
  const auto options = std::make_shared<StoreOptions>();
  CLI::App& command = add_command(
      app,
      {.name = "store",
       .description = "Say what is in a page store, verify, collect, copy or time it",
       .footer = "Actions:\n"
                 "  stat    pages, bytes, the limit and what keeps them\n"
                 "  ls      pages, the last used first\n"
                 "  verify  read every object, and check its checksum; wrong ones end it with exit code 1\n"
                 "  gc      make index and files agree, and evict what is beyond the limit; servers evict\n"
                 "          themselves\n"
                 "  copy    what is not in TO yet, each object verified as it is read\n"
                 "  bench   write and read pages of random bytes, beside plain files; they are removed again\n\n"
                 "URLs are file:PATH, valkey://HOST[:PORT] or valkeys:// with TLS. A password is best in a file:\n"
                 "valkey://USER@HOST?password_file=FILE. Ctrl-C ends verify, copy and bench with what was done.\n\n"
                 "Examples:\n"
                 "  rota store stat file:/var/cache/rota\n"
                 "  rota store ls file:/var/cache/rota --limit 10\n"
                 "  rota store gc file:/var/cache/rota --max-bytes 50GiB\n"
                 "  rota store copy file:/var/cache/rota valkey://cache.example:6379",
       .run = [options, &invocation] { run(*options, invocation); }});
  std::vector<std::string> actions;
  for (const Action& action : kActions) actions.emplace_back(action.name);
  require(add_choice(command, "ACTION", options->action, {actions, "What to do: stat, ls, verify, gc, copy or bench"}));
  require(add_text(command, "URL", options->url, {"Which store", "URL"}));
  add_text(command, "TO", options->to, {"Of copy: where to", "URL"});
  add_number(command, "--limit", options->limit, "Of ls: so many pages (all)");
  add_bytes(command, "--max-bytes", options->max_bytes, "Of gc: the limit of a store of files from now on");
  add_bytes(command, "--page-bytes", options->page_bytes, "Of bench: bytes of a page (1MiB)");
  add_number(command, "--pages", options->pages, "Of bench: how many (64)");
  add_real(command, "--timeout", options->timeout,
           {.least = 0.001,
            .most = 604800,
            .said = {"How long the store may take for a call (60; to list pages 600, for gc 86400)", "S"}});
  add_output(command, options->output);
}

}  // namespace rota::tool
