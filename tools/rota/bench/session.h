#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "bench/sampler.h"
#include "bench_case.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "cli/table.h"

namespace rota::tool {

// One run of `rota bench`, from its first moment on: its time, its bar, and whether Ctrl-C cut it short.
class Session {
 public:
  explicit Session(double seconds);  // that it shall take in all

  // Makes the memory of all, after all of them were made.
  void prepare(std::span<const bench::Work> works);

  // What is interrupted before it has a few rounds fails.
  void sample(std::span<Contender> contenders);

  // What a report must say of it: in its JSON, and below its table.
  void describe(Report& report, std::size_t cases) const;
  Exit exit() const { return interrupted_ ? Exit::interrupted : Exit::ok; }
  std::uint64_t rounds() const { return rounds_; }

 private:
  void end_if_asked() const;

  double begin_ = now(), seconds_, taken_ = 0;
  Interrupt interrupt_{};
  std::unique_ptr<Progress> progress_;
  std::uint64_t rounds_ = 0;
  bool interrupted_ = false;
};

}  // namespace rota::tool
