#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rota/codec.h"
#include "rota/kv_spec.h"

// What `rota distort` tries, and on what terms.

namespace rota::tool {

struct Range {
  std::uint64_t begin, end;
};

// What is the same for all captures of a source.
struct Setting {
  std::uint64_t tokens, dim;
  double scale;  // of logits
  std::uint64_t tail, sinks;
  std::uint64_t sample;  // queries of a head that are looked at; 0: all

  std::uint64_t queries_per_head() const;
  std::uint64_t sampled_per_head() const;
  double unseen_share() const;  // of a head's queries

  // The keys that a query at `position` sees sealed.
  Range sealed(std::uint64_t position, std::uint32_t page) const;
  // Of the keys that a query sees, the mean over all queries.
  double sealed_share(std::uint32_t page) const;
};

// One way to keep keys and values.
struct Trial {
  std::string name;
  KvCodec codec;
  std::uint32_t page;
  std::vector<std::size_t> partners;  // trials whose values are attended to with the weights of this one's keys
  bool is_variant = false;            // of another trial's codec, with other options
};

// Of a dim that check_head_dim() takes; none if the trial does not seal.
std::optional<PageFormat> page_format(const Trial& trial, KvSide side, std::uint64_t dim);

double bits_stored(const Trial& trial, KvSide side, std::uint64_t dim);

}  // namespace rota::tool
