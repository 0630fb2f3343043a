#pragma once

#include <chrono>
#include <string_view>

namespace rota::tool {

// A bar on stderr where that is a terminal, and nothing where it is not. It is there from the beginning, drawn at most
// ten times a second, and wiped when it ends.
class Progress {
 public:
  explicit Progress(std::string_view what);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(double share, std::string_view what);  // share is 0 to 1 of all there is to do

 private:
  using Clock = std::chrono::steady_clock;

  bool shown_;
  Clock::time_point drawn_{};
};

}  // namespace rota::tool
