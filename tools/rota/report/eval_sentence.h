#pragma once

#include <string>

#include "report/eval_join.h"

// Which cache of a table to take, and why, in a sentence.

namespace rota::tool {

inline constexpr double kKeptTop1 = 0.97, kKeptNats = 0.01;
// Divergences of which the page says who stays within them.
inline constexpr double kNatsSteps[] = {1e-3, kKeptNats};

struct EvalChoice {
  const EvalCache* cache = nullptr;  // none: nothing but dense caches
  // What decided: the smallest that keeps kKeptTop1, or where that was not measured stays within kKeptNats; else the
  // fastest.
  enum class By { top1, nats, speed } by = By::top1;
  bool reached = false;  // else the closest
};

EvalChoice choice_of(const EvalTable& table);

// Plain text; nothing if there is no choice.
std::string sentence_of(const EvalTable& table, const EvalChoice& choice);

// "the smallest that keeps 97% of top-1"
std::string rule_of(EvalChoice::By by);

// On the same side of what the page judges by as the numbers themselves: a divergence of 0.0104 is not "0.01", and
// 96.98% of top-1 not "97%".
std::string nats_text(double nats, int digits = 2);
std::string top1_text(double top1);

// "with 2,048 tokens in the cache" is "at 2,048 tokens".
std::string depth_text(std::uint64_t depth);

}  // namespace rota::tool
