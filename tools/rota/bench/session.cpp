#include "bench/session.h"

#include <fmt/format.h>

#include <algorithm>

namespace rota::tool {
namespace {

constexpr double kPreparing = 0.2;  // of the bar
constexpr double kLate = 1.2;       // times the seconds that were asked for

}  // namespace

Session::Session(double seconds) : seconds_(seconds), progress_(std::make_unique<Progress>("preparing")) {}

void Session::prepare(std::span<const bench::Work> works) {
  const auto count = static_cast<double>(works.size());
  for (std::size_t at = 0; at < works.size(); ++at) {
    end_if_asked();
    progress_->show(kPreparing * static_cast<double>(at) / count,
                    fmt::format("preparing {} of {}", at + 1, works.size()));
    works[at].prepare();
  }
}

void Session::sample(std::span<Contender> contenders) {
  const auto show = [&](double share, std::string_view what) {
    progress_->show(kPreparing + (1 - kPreparing) * share, what);
  };
  interrupted_ = !tool::sample(
      contenders, {.seconds = seconds_ - (now() - begin_), .show = show, .stop = [&] { return interrupt_.asked(); }});
  rounds_ = contenders.front().seconds.size();
  taken_ = now() - begin_;
  if (rounds_ < kFewestRounds) end_if_asked();
  progress_.reset();
}

void Session::describe(Report& report, std::size_t cases) const {
  report.head["interrupted"] = interrupted_;
  report.head["seconds"] = {{"asked", seconds_}, {"taken", taken_}};
  if (interrupted_) {
    report.after += fmt::format("interrupted after {} rounds\n", rounds_);
  } else if (rounds_ == SamplerOptions{}.least_rounds && taken_ > kLate * seconds_) {
    report.after += fmt::format("--seconds {:g} was too short for {} rounds of {} {}: it took {:.{}f} s\n", seconds_,
                                rounds_, cases, cases == 1 ? "case" : "cases", taken_, taken_ < 10 ? 1 : 0);
  }
}

void Session::end_if_asked() const {
  if (!interrupt_.asked()) return;
  throw Failure(Exit::interrupted,
                fmt::format("interrupted before there were {} rounds: there is nothing to show", kFewestRounds),
                "fewer cases, which take less time to prepare and to measure");
}

}  // namespace rota::tool
