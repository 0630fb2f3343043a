#include "report/eval_sentence.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include "report/series.h"
#include "report/words.h"

namespace rota::tool {
namespace {

using By = EvalChoice::By;

bool is_compressed(const EvalCache& cache) { return !cache.is_reference() && cache.bits < kFewBits; }

std::string with_s(const std::string& name) { return name == "reference" ? "the reference's" : name + "'s"; }
std::string with_the(const std::string& name) { return name == "reference" ? "the reference" : name; }

// The other side's cache that is nearest in bits, and the better of those: ggml's for one of Rota's.
const EvalCache* rival_of(const EvalTable& table, const EvalCache& cache) {
  const EvalCache* best = nullptr;
  const auto rank = [&](const EvalCache& other) {
    return std::tuple(std::abs(other.bits - cache.bits), other.kld.value_or(0));
  };
  for (const EvalCache& other : table.caches) {
    if (!is_compressed(other) || other.is_ours() == cache.is_ours() || !other.kld) continue;
    if (best == nullptr || rank(other) < rank(*best)) best = &other;
  }
  return best;
}

// What it costs.
std::string divergence_text(const EvalTable& table, const EvalCache& cache) {
  std::string text = "KL divergence " + number_text(cache.kld.value_or(0), 2);
  const EvalCache* const rival = rival_of(table, cache);
  if (rival == nullptr) return text + " nats";
  return text + fmt::format(" where {} ({}) costs {}", rival->name, bits_text(rival->bits),
                            number_text(rival->kld.value_or(0), 2));
}

// As speed_text(), of what has just been named.
std::string speed_of_it(double ratio) {
  if (is_about_one(ratio)) return "as fast";
  return ratio > 1 ? number_text(ratio, 2) + " times as fast" : fmt::format("at {} of its speed", percent(ratio));
}

// What is gained: memory and speed, of those that were measured.
std::vector<std::string> gains_of(const EvalTable& table, const EvalCache& cache, bool speed_too = true) {
  std::vector<std::string> gains;
  const EvalCache* const large = table.base(&EvalCache::bytes);
  if (large != nullptr && cache.bytes) {
    const double ratio = *cache.bytes / large->bytes.value_or(1);
    gains.push_back(is_about_one(ratio) ? "as much memory as " + with_the(large->name)
                                        : share_of(ratio, with_s(large->name) + " memory"));
  }
  const EvalCache* const slow = table.base(&EvalCache::ms);
  if (speed_too && slow != nullptr && cache.ms) {
    const double ratio = slow->ms.value_or(1) / *cache.ms;
    const bool named = !gains.empty() && slow == large;
    gains.push_back((named ? speed_of_it(ratio) : speed_text(ratio, with_the(slow->name))) + " " +
                    depth_text(table.depth));
  }
  return gains;
}

EvalChoice fastest_of(const EvalTable& table) {
  EvalChoice choice{.by = By::speed};
  for (const EvalCache& cache : table.caches) {
    if (!is_compressed(cache) || !cache.ms) continue;
    if (choice.cache == nullptr || *cache.ms < choice.cache->ms.value_or(0)) choice.cache = &cache;
  }
  const EvalCache* const base = table.base(&EvalCache::ms);
  if (base == nullptr) choice.cache = nullptr;
  if (choice.cache == nullptr) return choice;
  const double ratio = base->ms.value_or(1) / choice.cache->ms.value_or(1);
  choice.reached = ratio > 1 && !is_about_one(ratio);
  return choice;
}

std::string speed_sentence(const EvalTable& table, const EvalChoice& choice) {
  const EvalCache& cache = *choice.cache;
  const EvalCache& base = *table.base(&EvalCache::ms);
  const std::string when = depth_text(table.depth);
  const double ratio = base.ms.value_or(1) / cache.ms.value_or(1);
  std::vector<std::string> parts{speed_text(ratio, with_the(base.name))};
  for (const std::string& gain : gains_of(table, cache, false)) parts.push_back(gain);
  const std::string text = joined(parts, ", ");
  const std::string unknown = "What it does to predictions was not measured.";
  if (choice.reached) return fmt::format("{} is the fastest {}: {}. {}", cache.name, when, text, unknown);
  return fmt::format("No compressed cache is faster than {} {}; {} comes closest: {}. {}", with_the(base.name), when,
                     cache.name, text, unknown);
}

}  // namespace

EvalChoice choice_of(const EvalTable& table) {
  std::vector<const EvalCache*> candidates;
  for (const EvalCache& cache : table.caches) {
    if (is_compressed(cache) && cache.kld) candidates.push_back(&cache);
  }
  if (candidates.empty()) return fastest_of(table);
  EvalChoice choice;
  choice.by =
      std::ranges::all_of(candidates, [](auto* cache) { return cache->top1.has_value(); }) ? By::top1 : By::nats;
  const bool sized = std::ranges::all_of(candidates, [](auto* cache) { return cache->bytes.has_value(); });
  const auto kld = [](const EvalCache& cache) { return cache.kld.value_or(0); };
  const auto lost = [&](const EvalCache& cache) {
    return choice.by == By::top1 ? 1 - cache.top1.value_or(0) : kld(cache);
  };
  const auto keeps = [&](const EvalCache& cache) {
    return choice.by == By::top1 ? cache.top1.value_or(0) >= kKeptTop1 : kld(cache) <= kKeptNats;
  };
  const auto size = [&](const EvalCache& cache) { return sized ? cache.bytes.value_or(0) : cache.bits; };
  // Those that keep enough come before all others, by size; the others by what they lose.
  const auto rank = [&](const EvalCache& cache) {
    return keeps(cache) ? std::tuple(0, size(cache), kld(cache)) : std::tuple(1, lost(cache), size(cache));
  };
  for (const EvalCache* cache : candidates) {
    if (choice.cache == nullptr || rank(*cache) < rank(*choice.cache)) choice.cache = cache;
  }
  choice.reached = keeps(*choice.cache);
  return choice;
}

std::string sentence_of(const EvalTable& table, const EvalChoice& choice) {
  if (choice.cache == nullptr) return {};
  if (choice.by == By::speed) return speed_sentence(table, choice);
  const EvalCache& cache = *choice.cache;
  std::string text = cache.name;
  if (!choice.reached) {
    const std::string rule = choice.by == By::top1 ? fmt::format("keeps {} of top-1", percent(kKeptTop1))
                                                   : fmt::format("stays within {} nats", number_text(kKeptNats));
    text = fmt::format("No compressed cache {}; {} comes closest and", rule, cache.name);
  }
  const std::string bits = bits_text(cache.bits);
  text += cache.top1 ? fmt::format(" keeps {} of top-1 at {}", kept_percent(*cache.top1), bits)
                     : fmt::format(" takes {} per value", bits);
  const std::vector<std::string> gains = gains_of(table, cache);
  if (!gains.empty()) text += ": " + joined(gains, ", ");
  return text + "; " + divergence_text(table, cache) + ".";
}

std::string rule_of(EvalChoice::By by) {
  switch (by) {
    case By::top1: return fmt::format("the smallest that keeps {} of top-1", percent(kKeptTop1));
    case By::nats: return fmt::format("the smallest that stays within {} nats", number_text(kKeptNats));
    default: return "the fastest";
  }
}

std::string depth_text(std::uint64_t depth) {
  return depth == 0 ? "with an empty cache" : "at " + counted(depth, "token");
}

}  // namespace rota::tool
