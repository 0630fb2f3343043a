#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "cli/show.h"

namespace rota::tool {
namespace {

constexpr int kCells = 30, kWords = 24;  // with brackets and blanks, less than a line of 80

}  // namespace

Progress::Progress(std::string_view what) : shown_(isatty(STDERR_FILENO) == 1) { show(0, what); }

Progress::~Progress() {
  if (!shown_) return;
  fmt::print(stderr, "\r{:{}}\r", "", kCells + kWords + 4);
  std::fflush(stderr);
}

void Progress::show(double share, std::string_view what) {
  if (!shown_) return;
  const Clock::time_point now = Clock::now();
  if (now - drawn_ < std::chrono::milliseconds(100)) return;
  drawn_ = now;
  const int full = static_cast<int>(std::clamp(share, 0.0, 1.0) * kCells);
  fmt::print(stderr, "\r[{:#<{}}{:<{}}] {:<{}.{}}", "", full, "", kCells - full, one_line(what), kWords, kWords);
  std::fflush(stderr);
}

}  // namespace rota::tool
