#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "codec/dense/rows.h"
#include "ops/merge/merge.h"

namespace rota::ops {
namespace {

constexpr std::uint64_t kChunk = 256;  // elements at a time: they stay in the nearest cache

struct Place {
  std::uint64_t token, head, d;
};

// One view, element by element or in stretches of a row.
struct Elements {
  std::byte* bound;
  const Strides& strides;
  DType dtype;

  std::byte* at(Place place) const noexcept {
    return bound + info(dtype).bytes * (strides.offset + place.token * strides.token + place.head * strides.head +
                                        place.d * strides.dim);
  }

  void load(Place place, float* to, std::uint64_t count) const noexcept {
    codec::row_converter(dtype, DType::f32)({at(place), strides.dim}, {reinterpret_cast<std::byte*>(to)}, count);
  }
  void store(Place place, const float* from, std::uint64_t count) const noexcept {
    codec::row_converter(DType::f32, dtype)({reinterpret_cast<const std::byte*>(from)}, {at(place), strides.dim},
                                            count);
  }
};

// What a row takes from each part, and its new logarithm.
struct Shares {
  std::uint32_t parts;
  float first, second;
  float log;
};

Shares weigh(float first, float second) noexcept {
  const std::uint32_t parts = parts_with_keys(std::bit_cast<uint>(first), std::bit_cast<uint>(second));
  if (parts == kSpoilt) return {parts, 0, 0, std::bit_cast<float>(kNaNBits)};
  if (parts != kBothParts) return {parts, 0, 0, std::max(first, second)};
  const float larger = std::max(first, second);
  const float weight = std::exp(std::min(first, second) - larger);
  const float whole = 1 + weight;
  const float of_larger = 1 / whole;
  const float of_smaller = weight / whole;
  const bool in_order = first == larger;
  return {parts, in_order ? of_larger : of_smaller, in_order ? of_smaller : of_larger, larger + std::log1p(weight)};
}

// What happens to one row after the other of a call.
class RowMerger {
 public:
  explicit RowMerger(const runtime::CpuCall& call) noexcept
      : p_(call.params_as<MergeParams>()),
        first_(view(call, kFirstOut, call.constants[kMergeConstantFirst])),
        second_(view(call, kSecondOut, call.constants[kMergeConstantSecond])),
        out_(view(call, kMergedOut, call.constants[kMergeConstantOut])),
        first_log_(view(call, kFirstLog, p_.first_log)),
        second_log_(view(call, kSecondLog, p_.second_log)),
        log_(view(call, kMergedLog, p_.merged_log)) {}

  void merge(std::uint64_t row) const noexcept {
    const Place place{row / p_.heads, row % p_.heads, 0};
    float first = 0;
    float second = 0;
    first_log_.load(place, &first, 1);
    second_log_.load(place, &second, 1);
    const Shares shares = weigh(first, second);
    if (p_.merged_log != kNoLog) log_.store(place, &shares.log, 1);
    switch (shares.parts) {
      case kFirstPart: return copy(first_, place);
      case kSecondPart: return copy(second_, place);
      case kBothParts: return mix(shares, place);
      default: return fill(shares.parts == kSpoilt ? std::bit_cast<float>(kNaNBits) : 0, place);
    }
  }

 private:
  static Elements view(const runtime::CpuCall& call, std::uint32_t index, std::uint32_t type) noexcept {
    return {call.bound[index], reinterpret_cast<const Strides*>(call.bound[kMergeStrides])[index],
            static_cast<DType>(type)};
  }

  // body(place, count) for each chunk of a row.
  template <class Body>
  void for_each_chunk(Place place, const Body& body) const noexcept {
    for (; place.d < p_.dim; place.d += kChunk) body(place, std::min(kChunk, p_.dim - place.d));
  }

  void copy(const Elements& from, Place place) const noexcept {
    if (from.at(place) == out_.at(place)) return;
    codec::row_converter(from.dtype, out_.dtype)({from.at(place), from.strides.dim}, {out_.at(place), out_.strides.dim},
                                                 p_.dim);
  }

  void mix(const Shares& shares, Place row) const noexcept {
    alignas(64) std::array<float, kChunk> first;
    alignas(64) std::array<float, kChunk> second;
    for_each_chunk(row, [&](Place place, std::uint64_t count) {
      first_.load(place, first.data(), count);
      second_.load(place, second.data(), count);
      for (std::uint64_t i = 0; i < count; ++i) first[i] = shares.first * first[i] + shares.second * second[i];
      out_.store(place, first.data(), count);
    });
  }

  void fill(float value, Place row) const noexcept {
    alignas(64) std::array<float, kChunk> values;
    values.fill(value);
    for_each_chunk(row, [&](Place place, std::uint64_t count) { out_.store(place, values.data(), count); });
  }

  const MergeParams& p_;
  const Elements first_, second_, out_;
  const Elements first_log_, second_log_, log_;
};

}  // namespace

// A row is one head vector of one token.
void merge_cpu(const runtime::CpuCall& call) noexcept {
  const RowMerger merger(call);
  for (std::uint64_t row = call.first_item; row < call.last_item; ++row) merger.merge(row);
}

}  // namespace rota::ops
