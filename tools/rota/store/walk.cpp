#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/interrupt.h"
#include "cli/progress.h"
#include "cli/show.h"
#include "store/actions.h"

// What reads every object: verify, and copy.

namespace rota::tool {
namespace {

using Missing = OpenedStore::Missing;

struct Found {
  enum class State : std::uint8_t { right, wrong, missing };
  State state = State::right;
  std::vector<std::byte> bytes = {};
  std::string why = {};
};

// The store's error does not say whether the object or the whole store is what fails: it is asked again.
Found found_of(const OpenedStore& opened, const StoredPage& page, StoredPart part) {
  auto bytes = opened.store().get(page.key, part, opened.deadline());
  if (bytes) return {.bytes = std::move(bytes).value()};
  const std::string why = bytes.error().message;
  if (why.starts_with("stored object:")) return {.state = Found::State::wrong, .why = why};
  const auto pages = answered(opened.store().find({&page.key, 1}, opened.deadline()));
  return {.state = pages.front().has(part) ? Found::State::wrong : Found::State::missing, .why = why};
}

// Objects that were read, by what they were.
class Counted {
 public:
  void add(const StoredPage& page, StoredPart part, const Found& found) {
    ++objects_;
    if (found.state == Found::State::right) {
      ++right_;
      bytes_ += found.bytes.size();
      return;
    }
    const bool is_wrong = found.state == Found::State::wrong;
    ++(is_wrong ? wrong_ : missing_);
    if (bad_.size() >= kMostBad) return;
    bad_.push_back({{"key", hex(page.key)},
                    {"part", name(part)},
                    {"state", is_wrong ? "wrong" : "missing"},
                    {"message", one_line(found.why)}});
  }

  std::uint64_t objects() const noexcept { return objects_; }
  std::uint64_t right() const noexcept { return right_; }
  std::uint64_t wrong() const noexcept { return wrong_; }
  std::uint64_t missing() const noexcept { return missing_; }
  std::uint64_t bytes() const noexcept { return bytes_; }  // of right ones, headers not counted

  void describe(Report& report) const {
    report.head["bad"] = bad_;
    for (const Json& bad : bad_) {
      report.after +=
          fmt::format("{} {}.{}: {}\n", bad.at("state").get<std::string>(), bad.at("key").get<std::string>(),
                      bad.at("part").get<std::string>(), bad.at("message").get<std::string>());
    }
    if (wrong_ + missing_ > bad_.size()) report.after += fmt::format("and {} more\n", wrong_ + missing_ - bad_.size());
    if (!report.after.empty()) report.after.insert(0, "\n");
  }

 private:
  static constexpr std::size_t kMostBad = 100;  // named

  std::uint64_t objects_ = 0, right_ = 0, wrong_ = 0, missing_ = 0, bytes_ = 0;
  std::vector<Json> bad_;
};

// How far a walk through all pages is.
class Walk {
 public:
  Walk() : progress_(std::in_place, "listing pages") {}

  void begin(std::span<const StoredPage> pages) {
    for (const StoredPage& page : pages) all_bytes_ += page.bytes();
  }
  // False: Ctrl-C asked for an end.
  bool goes_on(std::string_view what) {
    if (interrupt_.asked()) return false;
    const double share = static_cast<double>(done_bytes_) / static_cast<double>(std::max<std::uint64_t>(all_bytes_, 1));
    if (progress_) progress_->show(share, fmt::format("{} {}", what, bytes_text(done_bytes_)));
    return true;
  }
  void did(std::uint64_t bytes) { done_bytes_ += bytes; }

  void end(Report& report, Invocation& invocation, const Counted& counted) {
    progress_.reset();
    counted.describe(report);
    report.head["interrupted"] = interrupt_.asked();
    if (interrupt_.asked()) report.after += "\ninterrupted: what was done by then\n";
    invocation.exit = interrupt_.asked() ? Exit::interrupted : counted.wrong() > 0 ? Exit::failed_check : Exit::ok;
  }

 private:
  Interrupt interrupt_;
  std::optional<Progress> progress_;
  std::uint64_t all_bytes_ = 0, done_bytes_ = 0;
};

// Pages go to another store in lots: each is asked once for all of a lot.
constexpr std::size_t kLot = 64;

struct Copied {
  Counted read;
  std::uint64_t there = 0;  // objects
};

std::vector<StoredPage> find_all(const OpenedStore& opened, std::span<const StoredPage> pages) {
  std::vector<PageKey> keys;
  for (const StoredPage& page : pages) keys.push_back(page.key);
  return answered(opened.store().find(keys, opened.deadline()));
}

class Copy {
 public:
  explicit Copy(const StoreOptions& options)
      : from_(options.url, options, Missing::is_refused), to_(options.to, options, Missing::is_made) {}

  void run(Walk& walk) {
    const std::vector<StoredPage> pages = from_.pages();
    walk.begin(pages);
    for (std::size_t begin = 0; begin < pages.size(); begin += kLot) {
      const auto lot = std::span(pages).subspan(begin, std::min(kLot, pages.size() - begin));
      const std::vector<StoredPage> there = find_all(to_, lot);
      for (std::size_t i = 0; i < lot.size(); ++i) {
        if (!walk.goes_on("copied")) return;
        for (const StoredPart part : kStoredParts) copy_part(lot[i], there[i], part);
        walk.did(lot[i].bytes());
      }
    }
  }

  const Copied& copied() const noexcept { return copied_; }

 private:
  void copy_part(const StoredPage& page, const StoredPage& there, StoredPart part) {
    const auto at = static_cast<std::size_t>(part);
    if (!page.has(part)) return;
    if (there.part_bytes[at] == page.part_bytes[at]) {
      ++copied_.there;
      return;
    }
    const Found found = found_of(from_, page, part);
    if (found.state == Found::State::right) answered(to_.store().put(page, part, found.bytes, to_.deadline()));
    copied_.read.add(page, part, found);
  }

  OpenedStore from_, to_;
  Copied copied_;
};

}  // namespace

Report verify_report(const StoreOptions& options, Invocation& invocation) {
  const OpenedStore opened(options.url, options, Missing::is_refused);
  Walk walk;
  const std::vector<StoredPage> pages = opened.pages();
  walk.begin(pages);
  Counted counted;
  for (const StoredPage& page : pages) {
    if (!walk.goes_on("verified")) break;
    for (const StoredPart part : kStoredParts) {
      if (page.has(part)) counted.add(page, part, found_of(opened, page, part));
    }
    walk.did(page.bytes());
  }
  Report report{.head = report_head("store verify", invocation),
                .table = {{{"objects", "objects"},
                           {"right", "right"},
                           {"wrong", "wrong"},
                           {"missing", "missing"},
                           {"bytes", "read", "bytes"}}}};
  report.table.rows.push_back({{"objects", counted.objects()},
                               {"right", counted.right()},
                               {"wrong", counted.wrong()},
                               {"missing", counted.missing()},
                               {"bytes", counted.bytes()}});
  walk.end(report, invocation, counted);
  return report;
}

Report copy_report(const StoreOptions& options, Invocation& invocation) {
  if (options.url == options.to) {
    throw Failure(Exit::usage, "URL and TO are the same store; wanted another to copy to");
  }
  Copy copy(options);
  Walk walk;
  copy.run(walk);
  const Copied& copied = copy.copied();
  Report report{.head = report_head("store copy", invocation),
                .table = {{{"copied", "copied"},
                           {"bytes", "size", "bytes"},
                           {"there", "there already"},
                           {"wrong", "wrong"},
                           {"missing", "missing"}}}};
  report.table.rows.push_back({{"copied", copied.read.right()},
                               {"bytes", copied.read.bytes()},
                               {"there", copied.there},
                               {"wrong", copied.read.wrong()},
                               {"missing", copied.read.missing()}});
  walk.end(report, invocation, copied.read);
  return report;
}

}  // namespace rota::tool
