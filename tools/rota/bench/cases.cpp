#include "bench/cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <variant>

#include "cli/command.h"
#include "cli/numbers.h"
#include "cli/show.h"
#include "ops/checksum/checksum_bench_case.h"
#include "ops/rope/rope_bench_case.h"
#include "ops/seal/seal_bench_case.h"
#include "ops/store/store_bench_case.h"

namespace rota::tool {
namespace {

using bench::Place;
using bench::Work;

DType dense_type(const KvCodec& codec, std::string_view op) {
  if (const auto* const dtype = std::get_if<DType>(&codec)) return *dtype;
  throw Failure(Exit::usage,
                fmt::format("{} writes dense numbers, and {} is none of f16, bf16 and f32", op, name(codec)),
                "rota bench seal --help");
}

Work store_of(Place& place, const BenchShape& shape) {
  return bench::store_work(place, {.sides = {{DType::f16, dense_type(shape.k, "store"), shape.head_dim},
                                             {DType::f16, dense_type(shape.v, "store"), shape.value_dim}},
                                   .heads = shape.kv_heads,
                                   .tokens = shape.sequences * shape.keys,
                                   .rotated_bytes = shape.rotated_bytes});
}

Work rope_of(Place& place, const BenchShape& shape) {
  return bench::rope_work(place, {.dtype = dense_type(shape.k, "rope"),
                                  .tokens = shape.sequences * shape.keys,
                                  .heads = {shape.kv_heads * shape.group, shape.kv_heads},
                                  .head_dim = shape.head_dim,
                                  .rotary = {.pairing = Pairing::halves, .theta = 5e5},
                                  .rotated_bytes = shape.rotated_bytes});
}

PageFormat format_of(const KvCodec& codec, KvSide side, std::uint64_t head_dim) {
  const std::optional<Codec> sealed = sealed_codec(codec);
  if (!sealed) {
    throw Failure(Exit::usage, fmt::format("seal makes pages of turbo2 to turbo8, not of {}", name(codec)),
                  "rota bench seal -ctk turbo4 -ctv turbo4");
  }
  const PageFormat format{.codec = *sealed, .side = side, .head_dim = static_cast<std::uint32_t>(head_dim)};
  check(format).value();
  return format;
}

Work seal_of(Place& place, const BenchShape& shape) {
  const PageFormat keys = format_of(shape.k, KvSide::keys, shape.head_dim);
  const PageFormat values = format_of(shape.v, KvSide::values, shape.value_dim);
  return bench::seal_work(place, {.formats = {keys, values},
                                  .pages = shape.sequences * std::max<std::uint64_t>(1, shape.keys / keys.tokens),
                                  .heads = shape.kv_heads,
                                  .rotated_bytes = shape.rotated_bytes});
}

}  // namespace

MemoryLeft memory_of(const Device& device, std::uint64_t rotated_bytes) {
  return {most_memory(device.info()), rotated_bytes};
}

Place place_of(const Device& device, MemoryLeft& left) {
  const auto take = [id = device.info().id, most = memory_of(device, 0).bytes, &left](std::uint64_t bytes) {
    constexpr std::uint64_t kFew = std::uint64_t{64} << 20;
    if (bytes > left.bytes) {
      throw Failure(Exit::failed_check,
                    fmt::format("{} more are needed on {}, and {} are left of the {} that rota takes of its memory",
                                bytes_text(bytes), id, bytes_text(left.bytes), bytes_text(most)),
                    left.rotated_bytes > kFew ? "fewer cases at a time, or less memory to go round through: --rotate 64"
                                              : "fewer cases at a time, or smaller ones");
    }
    left.bytes -= bytes;
  };
  return {.device = device, .take = take};
}

Work make_work(Place& place, const std::string& op, const BenchShape& shape) {
  using Maker = Work (*)(Place&, const BenchShape&);
  static const std::map<std::string, Maker> makers{
      {"attend", bench::attend_work}, {"rope", rope_of}, {"seal", seal_of}, {"store", store_of}};
  return makers.at(op)(place, shape);
}

Work make_read(Place& place) {
  constexpr std::uint64_t kBuffers = 4;
  constexpr std::uint64_t kMost = std::uint64_t{128} << 20;  // four of them are more than caches hold
  const std::uint64_t limit = place.device.info().limits.max_binding_bytes;
  return bench::checksum_work(
      place, {.call_bytes = limit == 0 ? kMost : std::min(kMost, limit / 64 * 64), .copies = kBuffers});
}

}  // namespace rota::tool
