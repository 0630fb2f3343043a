#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "rota/kv_cache.h"

namespace rota::cache {

class Transaction;

// Whether something was done to a layer: not yet, recorded in an open encoder, or submitted.
struct LayerMark {
  const Transaction* recorded_in = nullptr;  // while that encoder is open
  bool submitted = false;

  bool is_set() const noexcept { return submitted || recorded_in != nullptr; }

  // Whether it runs before what the transaction's encoder records next.
  bool is_before(const Transaction& transaction) const noexcept { return submitted || recorded_in == &transaction; }

  // Whether another open encoder has recorded it.
  bool is_elsewhere(const Transaction& transaction) const noexcept {
    return recorded_in != nullptr && recorded_in != &transaction;
  }
};

// The sequences of views, which layers of a group share.
struct SequenceLists {
  SharedList<std::shared_ptr<const KvPages>> k, v;
  SharedList<std::uint64_t> lengths;
};

// Tokens given to extend() at once. A sequence is a member until it goes on, is cut shorter or is closed; which ones
// still are is asked of SequenceTable, since a member that left may come back when an encoder is dropped.
struct Step {
  struct Member {
    Sequence sequence;
    std::uint64_t position;  // of its first token in the step
    std::uint64_t tokens;
    bool takes_turns = false;  // began a Transition
  };
  std::vector<Member> members;
  std::vector<std::int64_t> positions;       // of every token, one member after the other
  std::vector<LayerMark> appended;           // one per layer of the layout
  bool takes_turns = false;                  // of any member: a layer is done when another of its group is appended
  const Transaction* extended_in = nullptr;  // while that encoder is open: a layer in another could outlive the step
  mutable std::vector<SequenceLists> lists;  // one per group, once a view was asked for
  std::weak_ptr<const void> holders;         // KvSteps, and open encoders that append to it

  // Whether its queries may still be attended with. Then what they see stays.
  bool is_held() const noexcept { return !holders.expired(); }
};

}  // namespace rota::cache
