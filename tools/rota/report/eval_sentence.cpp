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

// "28% of f16's memory"; nothing where it was not measured.
std::string memory_text(const EvalTable& table, const EvalCache& cache) {
  const EvalCache* const large = table.base(&EvalCache::bytes);
  if (large == nullptr || !cache.bytes) return {};
  const double ratio = *cache.bytes / large->bytes.value_or(1);
  return is_about_one(ratio) ? "as much memory as " + with_the(large->name)
                             : share_of(ratio, with_s(large->name) + " memory");
}

// What it costs.
std::string divergence_text(const EvalTable& table, const EvalCache& cache) {
  std::string text = "KL divergence " + nats_text(cache.kld.value_or(0));
  const EvalCache* const rival = rival_of(table, cache);
  if (rival == nullptr) return text + " nats";
  // Bits alone would hide what a cache takes beside them.
  const std::string memory = cache.bytes ? memory_text(table, *rival) : std::string();
  return text + fmt::format(" where {} ({}{}) costs {}", rival->name, bits_text(rival->bits),
                            memory.empty() ? "" : ", " + memory, nats_text(rival->kld.value_or(0)));
}

// As speed_text(), of what has just been named.
std::string speed_of_it(double ratio) {
  if (is_about_one(ratio)) return "as fast";
  return ratio > 1 ? number_text(ratio, 2) + " times as fast" : fmt::format("at {} of its speed", percent(ratio));
}

// Whether most steps of one may well take as long as most of the other.
bool overlap(const EvalCache& a, const EvalCache& b) {
  if (!a.is_spread_known() || !b.is_spread_known()) return false;
  return std::max(a.ms_p10, b.ms_p10) <= std::min(a.ms_p90, b.ms_p90);
}

std::string noise_text(const EvalCache& a, const EvalCache& b) {
  return a.is_noisy() || b.is_noisy() || overlap(a, b) ? " (noisy)" : "";
}

// What is gained: memory and speed, of those that were measured. A speed that noise hides is none.
std::string gains_of(const EvalTable& table, const EvalCache& cache) {
  const std::string memory = memory_text(table, cache), context = depth_text(table.context);
  const EvalCache* const slow = table.base(&EvalCache::ms);
  if (slow == nullptr || !cache.ms || overlap(*slow, cache)) return memory.empty() ? memory : memory + " " + context;
  const double ratio = slow->ms.value_or(1) / *cache.ms;
  const bool named = !memory.empty() && slow == table.base(&EvalCache::bytes);
  std::string speed = (named ? speed_of_it(ratio) : speed_text(ratio, with_the(slow->name))) + " " +
                      depth_text(table.depth) + noise_text(*slow, cache);
  if (memory.empty()) return speed;
  return memory + (table.context == table.depth ? " and " : " " + context + ", ") + speed;
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
  std::string text = speed_text(ratio, with_the(base.name)) + noise_text(base, cache);
  if (const std::string memory = memory_text(table, cache); !memory.empty()) {
    text += ", " + memory + (table.context == table.depth ? "" : " " + depth_text(table.context));
  }
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
  text += cache.top1 ? fmt::format(" keeps {} of top-1 at {}", top1_text(*cache.top1), bits)
                     : fmt::format(" takes {} per value", bits);
  if (const std::string gains = gains_of(table, cache); !gains.empty()) text += ": " + gains;
  return text + "; " + divergence_text(table, cache) + ".";
}

std::string rule_of(EvalChoice::By by) {
  switch (by) {
    case By::top1: return fmt::format("the smallest that keeps {} of top-1", percent(kKeptTop1));
    case By::nats: return fmt::format("the smallest that stays within {} nats", number_text(kKeptNats));
    default: return "the fastest";
  }
}

std::string nats_text(double nats, int digits) {
  for (const double most : kNatsSteps) digits = digits_to_tell(nats, digits, {most, Threshold::Side::at_most});
  return number_text(nats, digits);
}

std::string top1_text(double top1) {
  constexpr int kDigits = 3;
  const int digits = digits_to_tell(top1, kDigits, {kKeptTop1, Threshold::Side::at_least});
  return digits == kDigits ? kept_percent(top1) : number_text(100 * top1, digits) + "%";
}

std::string depth_text(std::uint64_t depth) {
  return depth == 0 ? "with an empty cache" : "at " + counted(depth, "token");
}

}  // namespace rota::tool
