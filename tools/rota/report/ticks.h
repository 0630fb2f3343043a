#pragma once

#include <cstddef>
#include <string>
#include <vector>

// Where axes have their ticks, and how they are written.

namespace rota::tool {

// The largest power of ten that is no more than a positive value: its exponent, however std::log10 rounds.
int decade_below(double value);

// Multiples of 1, 2 or 5 times a power of ten in [low, high], at most `most` of them, and 2 at least where they fit.
std::vector<double> linear_ticks(double low, double high, std::size_t most);

// Powers of ten in [low, high]; every second, third, ... where they are too many, and 2 and 5 times them where too few.
std::vector<double> log_ticks(double low, double high, std::size_t most);

// As many digits as it takes to say each tick's value to a hundredth of the step between ticks. Where all are powers of
// ten, and some are far from 1, all are written as such.
std::vector<std::string> tick_texts(const std::vector<double>& ticks);

}  // namespace rota::tool
