#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "rota/kv_cache.h"

namespace rota::cache {

class Transaction;

// What became of one layer's keys and values of a step: not appended, recorded in an open encoder, or submitted.
struct AppendMark {
  const Transaction* recorded_in = nullptr;  // while that encoder is open
  bool submitted = false;

  bool is_appended() const noexcept { return submitted || recorded_in != nullptr; }

  // Whether the append runs before what the transaction's encoder records next.
  bool is_before(const Transaction& transaction) const noexcept { return submitted || recorded_in == &transaction; }
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
  };
  std::vector<Member> members;
  std::vector<std::int64_t> positions;       // of every token, one member after the other
  std::vector<AppendMark> marks;             // one per layer of the layout
  const Transaction* extended_in = nullptr;  // while that encoder is open: a layer in another could outlive the step
  mutable std::vector<SequenceLists> lists;  // one per group, once a view was asked for
  std::weak_ptr<const void> holders;         // KvSteps, and open encoders that append to it

  // Whether its queries may still be attended with. Then what they see stays.
  bool is_held() const noexcept { return !holders.expired(); }
};

}  // namespace rota::cache
