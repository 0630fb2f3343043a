#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/interrupt.h"
#include "cli/progress.h"
#include "cli/show.h"
#include "store/actions.h"
#include "store/raw_files.h"

// How fast a store is, one page after the other, beside plain files where it is of files. Pages and plain files take
// turns, so that whatever else the machine does slows down both.

namespace rota::tool {
namespace {

using Missing = OpenedStore::Missing;

constexpr std::uint64_t kPages = 64, kMostPages = 1'000'000;
constexpr std::uint64_t kPageBytes = 1U << 20, kMostPageBytes = 256U << 20;

std::uint64_t in_range(std::string_view option, std::uint64_t number, std::uint64_t most) {
  if (number >= 1 && number <= most) return number;
  throw Failure(Exit::usage, fmt::format("{} is {}; wanted 1 to {}", option, number, most));
}

PageKey random_key() {
  std::random_device random;
  PageKey key;
  for (std::byte& one : key.bytes) one = static_cast<std::byte>(random());
  return key;
}

// Pages of random bytes under keys that nobody else has, which are removed whatever ends the measurement.
class OwnPages {
 public:
  OwnPages(const OpenedStore& opened, std::uint64_t page_bytes) : opened_(opened), bytes_(page_bytes) {
    std::mt19937_64 random(std::random_device{}());
    for (std::byte& one : bytes_) one = static_cast<std::byte>(random());
    parent_ = random_key();
  }
  ~OwnPages() { static_cast<void>(remove()); }
  OwnPages(const OwnPages&) = delete;
  OwnPages& operator=(const OwnPages&) = delete;

  // Of the next page. No two are alike.
  std::span<const std::byte> add() {
    pages_.push_back({.key = random_key(), .parent = pages_.empty() ? parent_ : last().key, .index = pages_.size()});
    return bytes_of(pages_.size() - 1);
  }
  const StoredPage& last() const { return pages_.back(); }
  const std::vector<StoredPage>& all() const noexcept { return pages_; }

  std::span<const std::byte> bytes_of(std::uint64_t number) {
    std::memcpy(bytes_.data(), &number, std::min(sizeof(number), bytes_.size()));
    return bytes_;
  }

  // The first error ends it: a store that is gone would make each page wait.
  Status remove() {
    for (; !pages_.empty(); pages_.pop_back()) {
      if (Status status = opened_.store().remove(last().key, opened_.deadline()); !status) {
        pages_.clear();
        return status;
      }
    }
    return {};
  }

 private:
  const OpenedStore& opened_;
  std::vector<std::byte> bytes_;
  PageKey parent_;
  std::vector<StoredPage> pages_;
};

// Times of one kind of call.
class Timed {
 public:
  template <class Call>
  auto operator()(const Call& call) {
    const Clock::time_point begin = Clock::now();
    struct Stop {
      std::vector<double>& seconds;
      Clock::time_point begin;
      ~Stop() { seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count()); }
    } const stop{seconds_, begin};
    return call();
  }

  bool is_empty() const noexcept { return seconds_.empty(); }
  std::size_t calls() const noexcept { return seconds_.size(); }
  double median() const {
    std::vector<double> sorted = seconds_;
    const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
    std::ranges::nth_element(sorted, middle);
    return *middle;
  }

 private:
  using Clock = std::chrono::steady_clock;
  std::vector<double> seconds_;
};

class Speed {
 public:
  explicit Speed(const StoreOptions& options)
      : count_(in_range("--pages", options.pages.value_or(kPages), kMostPages)),
        page_bytes_(in_range("--page-bytes", options.page_bytes.value_or(kPageBytes), kMostPageBytes)),
        opened_(options.url, options, Missing::is_made) {
    stat_ = answered(opened_.store().stat(opened_.list_deadline()));
    check_room();
    if (const auto folder = folder_of(options.url)) raw_.emplace(*folder);
  }

  void run() {
    OwnPages pages(opened_, page_bytes_);
    Progress progress("writing");
    for (std::uint64_t i = 0; i < count_ && !interrupt_.asked(); ++i) {
      progress.show(share(i) / 2, fmt::format("writing {} of {}", i + 1, count_));
      write(pages);
    }
    std::vector<std::byte> to(page_bytes_);
    for (std::uint64_t i = 0; i < count_ && !interrupt_.asked(); ++i) {
      progress.show((1 + share(i)) / 2, fmt::format("reading {} of {}", i + 1, count_));
      read(pages, i, to);
    }
    progress.show(1, "removing its pages");
    answered(pages.remove());
  }

  Report report(Invocation& invocation) const {
    Report made{.head = report_head("store bench", invocation),
                .table = {{{"call", "call"},
                           {"calls", "calls"},
                           {"ms", "ms", ".3f"},
                           {"mb_per_s", "MB/s", ".1f"},
                           {"of_raw", "of raw", "percent"}}}};
    made.head["page_bytes"] = page_bytes_;
    made.head["medium"] = stat_.medium;
    made.head["interrupted"] = interrupt_.asked();
    made.before = fmt::format("{}: pages of {}, one after the other\n\n", stat_.medium, bytes_text(page_bytes_));
    add_row(made, "put", put_, raw_write_);
    add_row(made, "raw write", raw_write_, {});
    add_row(made, "get", get_, raw_read_);
    add_row(made, "raw read", raw_read_, {});
    add_row(made, "find", find_, {});
    made.after = raw_ ? "\nms: median of one call. raw: plain files of the same bytes in the same folder, written with "
                        "fsync, and read\nfrom memory, as those of the store are. find: whether a page is there.\n"
                      : "\nms: median of one call. find: whether a page is there, which is a round trip to its server "
                        "and no more.\n";
    if (interrupt_.asked()) made.after += "interrupted: what was measured by then\n";
    invocation.exit = interrupt_.asked() ? Exit::interrupted : Exit::ok;
    return made;
  }

 private:
  double share(std::uint64_t done) const { return static_cast<double>(done) / static_cast<double>(count_); }

  // Nobody's pages leave to make room for a measurement.
  void check_room() const {
    if (!stat_.max_bytes || stat_.bytes + count_ * (page_bytes_ + 1024) <= *stat_.max_bytes) return;
    throw Failure(
        Exit::usage,
        fmt::format("the store has {} of at most {}, and {} pages of {} would evict others; wanted fewer or smaller",
                    bytes_text(stat_.bytes), bytes_text(*stat_.max_bytes), count_, bytes_text(page_bytes_)),
        "rota store bench with --pages or --page-bytes");
  }

  void write(OwnPages& pages) {
    const std::span<const std::byte> bytes = pages.add();
    const std::size_t number = pages.all().size() - 1;
    const auto raw = [&] {
      if (raw_) raw_write_([&] { raw_->write(number, bytes); });
    };
    if (number % 2 == 0) raw();
    answered(put_([&] { return opened_.store().put(pages.last(), StoredPart::pages, bytes, opened_.deadline()); }));
    if (number % 2 == 1) raw();
  }

  void read(OwnPages& pages, std::uint64_t number, std::span<std::byte> to) {
    const PageKey& key = pages.all()[number].key;
    const auto raw = [&] {
      if (raw_) raw_read_([&] { raw_->read(number, to); });
    };
    answered(find_([&] { return opened_.store().find({&key, 1}, opened_.deadline()); }));
    if (number % 2 == 0) raw();
    const auto found = answered(get_([&] { return opened_.store().get(key, StoredPart::pages, opened_.deadline()); }));
    if (number % 2 == 1) raw();
    if (!std::ranges::equal(found, pages.bytes_of(number))) {
      throw Failure(Exit::failed_check, "a page has other bytes than were stored", "rota store verify");
    }
  }

  // Beside `raw`, if it was measured.
  void add_row(Report& made, std::string_view call, const Timed& timed, const Timed& raw) const {
    if (timed.is_empty()) return;
    Json row{{"call", call},
             {"calls", timed.calls()},
             {"ms", 1000 * timed.median()},
             {"mb_per_s", nullptr},
             {"of_raw", nullptr}};
    if (call != "find") row["mb_per_s"] = static_cast<double>(page_bytes_) / timed.median() / 1e6;
    if (!raw.is_empty()) row["of_raw"] = raw.median() / timed.median();
    made.table.rows.push_back(std::move(row));
  }

  std::uint64_t count_, page_bytes_;
  OpenedStore opened_;
  StoreStat stat_;
  std::optional<RawFiles> raw_;
  Interrupt interrupt_;
  Timed put_, raw_write_, get_, raw_read_, find_;
};

}  // namespace

Report speed_report(const StoreOptions& options, Invocation& invocation) {
  Speed speed(options);
  speed.run();
  return speed.report(invocation);
}

}  // namespace rota::tool
