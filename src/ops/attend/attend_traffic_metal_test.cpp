#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "codec/codecs.h"
#include "harness/attend_on_device.h"
#include "ops/attend/attend.params.h"
#include "software_metal.h"

// What attention reads of a cache, counted access by access: no GPU is needed to know that.

namespace rota::test {
namespace {

struct CacheTraffic {
  std::uint64_t bytes = 0, lines = 0;
};

const metal::BufferTraffic& at(const metal::Traffic& dispatch, std::uint32_t binding) {
  return *std::ranges::find(dispatch.buffers, binding, &metal::BufferTraffic::index);
}

// Of keys and values, by the dispatch that reads all of them that are stored in one way.
CacheTraffic traffic_of(const std::vector<metal::Traffic>& dispatches, std::uint64_t stored_key_bytes) {
  for (const metal::Traffic& dispatch : dispatches) {
    if (dispatch.kernel != "attend_split") continue;
    const metal::BufferTraffic& k = at(dispatch, ops::kAttendSplitBindingKeys);
    const metal::BufferTraffic& v = at(dispatch, ops::kAttendSplitBindingValues);
    if (k.distinct_bytes_read == stored_key_bytes) return {k.bytes_read + v.bytes_read, k.lines_read + v.lines_read};
  }
  return {};
}

// In one sequence.
struct StoredBytes {
  std::uint64_t k, v;
};

StoredBytes sealed_bytes(const KvView& kv) {
  const auto of = [](const KvSideView& side) {
    return side.sequences[0]->sealed_pages * side.dense.shape.heads *
           ops::layout_bytes(codec::layout_of(side.sealed->format));
  };
  return {of(kv.k), of(kv.v)};
}

StoredBytes dense_bytes(const KvView& kv) {
  const auto of = [&](const KvSideView& side) {
    return kv.lengths[0] * side.dense.shape.heads * side.dense.shape.dim * info(side.dense.dtype).bytes;
  };
  return {of(kv.k), of(kv.v)};
}

class AttendTraffic : public AttendOnDevice {
 protected:
  ~AttendTraffic() override { metal::set_options(metal::options_of_environment()); }

  // `most_lines` of 64 bytes, in multiples of the bytes that are read.
  void expect_reads(const Case& what, std::string_view codec, double most_lines) {
    const Stored stored = store_sequences(what);
    const View q = queries(what);
    metal::Options options = metal::options_of_environment();
    options.traffic = true;
    metal::set_options(options);
    metal::take_traffic();
    run(stored.kv, {.q = q, .query_tokens = what.query_tokens});
    const StoredBytes bytes = stored.kv.k.sealed ? sealed_bytes(stored.kv) : dense_bytes(stored.kv);
    const CacheTraffic traffic = traffic_of(metal::take_traffic(), bytes.k);
    const std::uint64_t tiles = (what.group * what.query_tokens[0] + kTileVectors - 1) / kTileVectors;
    const double reads = static_cast<double>(traffic.bytes) / static_cast<double>(bytes.k + bytes.v);
    const double lines = static_cast<double>(traffic.lines) * 64 / static_cast<double>(traffic.bytes);
    fmt::print("| {} | {} | {} | {} | {:.2f} | {:.2f} |\n", codec, what.group, what.query_tokens[0], tiles, reads,
               lines);
    EXPECT_GT(reads, 0.95 * static_cast<double>(tiles));
    EXPECT_LE(reads, 1.05 * static_cast<double>(tiles));
    EXPECT_LE(lines, most_lines);
  }

  static constexpr std::uint64_t kTileVectors = 4;  // of a query tile at this head size
};

Case case_of(KvCodec codec, std::uint32_t group, std::uint64_t query_tokens) {
  return {.k = codec,
          .v = codec,
          .head_dim = 128,
          .value_dim = 128,
          .kv_heads = 2,
          .group = group,
          .lengths = {1025},
          .query_tokens = {query_tokens},
          .page = 128,
          .tail = 128,
          .sinks = 0};
}

// docs/gpu.md has the table.
TEST_F(AttendTraffic, EachQueryTileReadsEveryStoredByteOnce) {
  for (const std::uint32_t group : {1U, 4U, 8U}) {
    for (const std::uint64_t query_tokens : {1U, 4U, 8U}) {
      expect_reads(case_of(Turbo{4}, group, query_tokens), "turbo4", 1.25);
      expect_reads(case_of(DType::f16, group, query_tokens), "f16", 1.25);
    }
  }
}

}  // namespace
}  // namespace rota::test
