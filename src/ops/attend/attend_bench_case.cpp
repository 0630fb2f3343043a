#include "ops/attend/attend_bench_case.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <variant>
#include <vector>

#include "rota/ops.h"

namespace rota::bench {
namespace {

constexpr std::uint32_t kPage = 128;

std::uint64_t pages_for(std::uint64_t tokens) { return (tokens + kPage - 1) / kPage; }

// One side of a cache: what one copy of it takes, and views of such copies.
class SideMaker {
 public:
  SideMaker(const AttendCase& what, KvSide side, CallCopies& copies)
      : what_(what),
        dim_(side == KvSide::keys ? what.head_dim : what.value_dim),
        format_{.codec = turbo(4), .side = side, .head_dim = static_cast<std::uint32_t>(dim_), .tokens = kPage} {
    const KvCodec& codec = side == KvSide::keys ? what.k : what.v;
    if (const std::optional<Codec> sealed = sealed_codec(codec)) {
      format_.codec = *sealed;
      check(format_).value();
      sealed_pages_ = (what.keys - std::min(what.keys, what.tail)) / kPage;
    } else {
      dtype_ = std::get<DType>(codec);
    }
    dense_pages_ = pages_for(what.keys) - sealed_pages_;
    first_page_ = what.window ? (what.keys - std::min(what.keys, *what.window)) / kPage : 0;
    if (sealed_pages_ > 0) {
      sealed_ = copies.add(sealed_pages(format_), all_sealed() * what.kv_heads * page_bytes(format_));
    }
    dense_ = copies.add(numbers(dtype_), dense_shape().pages * kPage * what.kv_heads * dim_ * info(dtype_).bytes);
  }

  // What attention reads of one copy: tokens inside the window.
  std::uint64_t read_bytes() const {
    const std::uint64_t sealed = sealed_pages_ - std::min(sealed_pages_, first_page_);
    const std::uint64_t first =
        std::max(what_.keys - std::min(what_.keys, what_.window.value_or(what_.keys)), sealed_pages_ * kPage);
    return what_.sequences * what_.kv_heads *
           (sealed * page_bytes(format_) + (what_.keys - first) * dim_ * info(dtype_).bytes);
  }

  KvSideView view(const CallCopies& copies, std::uint64_t copy, std::minstd_rand& random) const {
    const CallCopies::At dense = copies.at(dense_, copy);
    KvSideView view{.dense = SlotView::head_major(dense.buffer, dtype_, dense_shape())};
    view.dense.offset = dense.offset_bytes / info(dtype_).bytes;
    if (sealed_) {
      const CallCopies::At sealed = copies.at(*sealed_, copy);
      view.sealed = SealedView::packed(sealed.buffer, format_, {.pages = all_sealed(), .heads = what_.kv_heads});
      view.sealed->offset_bytes = sealed.offset_bytes;
    }
    const std::vector<std::uint32_t> sealed_order = order(all_sealed(), random);
    const std::vector<std::uint32_t> dense_order = order(what_.sequences * dense_pages_, random);
    for (std::uint64_t sequence = 0; sequence < what_.sequences; ++sequence) {
      const auto list = std::make_shared<KvPages>();
      list->sealed_pages = sealed_pages_;
      const auto add = [&](const std::vector<std::uint32_t>& from, std::uint64_t count) {
        for (std::uint64_t page = 0; page < count; ++page) list->page_table.push_back(from[sequence * count + page]);
      };
      add(sealed_order, sealed_pages_);
      add(dense_order, dense_pages_);
      view.sequences.edit().push_back(list);
    }
    return view;
  }

 private:
  std::uint64_t all_sealed() const { return what_.sequences * sealed_pages_; }

  // A view has at least one page.
  SlotShape dense_shape() const {
    return {.pages = std::max<std::uint64_t>(what_.sequences * dense_pages_, 1),
            .page_slots = kPage,
            .heads = what_.kv_heads,
            .dim = dim_};
  }

  std::vector<std::uint32_t> order(std::uint64_t pages, std::minstd_rand& random) const {
    std::vector<std::uint32_t> places(pages);
    std::iota(places.begin(), places.end(), 0U);
    if (what_.scattered) std::ranges::shuffle(places, random);
    return places;
  }

  AttendCase what_;
  std::uint64_t dim_;
  PageFormat format_;
  DType dtype_ = DType::f16;
  std::uint64_t sealed_pages_ = 0, dense_pages_ = 0, first_page_ = 0;
  std::optional<CallCopies::Where> sealed_{};
  CallCopies::Where dense_{};
};

// Calls on all copies, once there is memory for them.
struct AttendCalls {
  AttendCalls(const Place& place, const AttendCase& asked) : what(asked), copies(place) {}

  void reserve(Place& place) {
    copies.reserve(place, what.rotated_bytes);
    place.take((query_numbers() + outs() * output_numbers()) * sizeof(float));
  }

  void prepare(Device& device) {
    copies.fill(device);
    const std::uint64_t tokens = what.sequences * what.rows, heads = what.kv_heads * what.group;
    q = View::token_major(numbers_in(device, DType::f32, query_numbers()), DType::f32, {tokens, heads, what.head_dim});
    for (std::uint64_t at = 0; at < outs(); ++at) {
      out.push_back(MutView::token_major(numbers_in(device, DType::f32, output_numbers()), DType::f32,
                                         {tokens, heads, what.value_dim}));
    }
    std::minstd_rand random(3);
    for (std::uint64_t copy = 0; copy < copies.count(); ++copy) {
      views.push_back({.k = keys.view(copies, copy, random),
                       .v = values.view(copies, copy, random),
                       .lengths = std::vector<std::uint64_t>(what.sequences, what.keys),
                       .window = what.window});
    }
  }

  void record(Encoder& encoder, std::uint64_t copy) const {
    attend(encoder, {.q = q, .kv = views[copy], .out = out[copy % out.size()], .scale = scale, .query_tokens = rows});
  }

  std::uint64_t query_heads() const { return what.sequences * what.rows * what.kv_heads * what.group; }
  std::uint64_t query_numbers() const { return query_heads() * what.head_dim; }
  std::uint64_t output_numbers() const { return query_heads() * what.value_dim; }
  // Neighbouring calls do not wait for each other's output. One for each copy would be more memory than the copies
  // where there are many rows.
  std::uint64_t outs() const { return std::min<std::uint64_t>(copies.count(), 4); }

  AttendCase what;
  CallCopies copies;
  SideMaker keys{what, KvSide::keys, copies}, values{what, KvSide::values, copies};
  View q{};
  std::vector<KvView> views{};
  std::vector<MutView> out{};
  std::vector<std::uint64_t> rows = std::vector<std::uint64_t>(what.sequences, what.rows);
  double scale = 1 / std::sqrt(static_cast<double>(what.head_dim));
};

}  // namespace

Work attend_work(Place& place, const AttendCase& what) {
  const auto calls = std::make_shared<AttendCalls>(place, what);
  calls->reserve(place);
  return {.bytes = calls->keys.read_bytes() + calls->values.read_bytes(),
          .prepare = [calls, device = place.device]() mutable { calls->prepare(device); },
          .run = rotating(place.device, {calls, &calls->copies},
                          [calls](Encoder& encoder, std::uint64_t copy) { calls->record(encoder, copy); })};
}

}  // namespace rota::bench
