#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "arrays.h"

namespace rota::python {

// Keywords of attention.
struct AttendOptions {
  double scale;
  std::optional<double> soft_cap;
  const std::optional<Input>& sink_logits;   // one per query head
  const std::optional<Input>& alibi_slopes;  // the same
  std::string_view mask, arithmetic;
};

// The queries of a call, and where its results go.
struct Queries {
  const Input& q;
  Target out;
  double scale;
  std::optional<double> soft_cap;
  const Input* sink_logits;
  const Input* alibi_slopes;
  Mask mask;
  Arithmetic arithmetic;
};

// Takes `out`, or a new array if that is None. Wants Python's lock.
Queries queries_of(const Input& q, std::uint64_t value_dim, const nb::object& out, const AttendOptions& options);

void record_attend(Call& call, Encoder& encoder, const Queries& queries, const KvView& kv,
                   std::span<const std::uint64_t> query_tokens);

}  // namespace rota::python
