#include "gpu_cost/layer.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>
#include <variant>

#include "ops/attend/plan_reader.h"
#include "rota/rota.h"
#include "runtime/recorder.h"

namespace rota::test {
namespace {

constexpr std::uint64_t kPage = 128;
constexpr std::size_t kLayers = 3, kMiddle = 1;

Buffer room_for(Device& device, std::uint64_t bytes) { return device.allocate(bytes + 4096).value(); }

// What layers hand on: the next one takes the same memory.
struct Activations {
  MutView q, k, v, out;

  Activations(Device& device, const LayerCase& what) {
    const std::uint64_t tokens = what.sequences * what.query_tokens;
    const auto tensor = [&](std::uint64_t heads, std::uint64_t dim) {
      return MutView::token_major(room_for(device, tokens * heads * dim * 2), DType::f16, {tokens, heads, dim});
    };
    q = tensor(what.kv_heads * what.group, what.key_dim);
    k = tensor(what.kv_heads, what.key_dim);
    v = tensor(what.kv_heads, what.value_dim);
    out = tensor(what.kv_heads * what.group, what.value_dim);
  }
};

class Cache {
 public:
  Cache(Device& device, const LayerCase& what) : device_(device), what_(what) {
    pages_ = std::vector<std::shared_ptr<const KvPages>>();
    for (std::uint64_t i = 0; i < what.sequences; ++i) {
      const auto pages = std::make_shared<KvPages>();
      pages->sealed_pages = sealed_pages();
      add_pages(pages->page_table, i * sealed_pages(), sealed_pages());
      add_pages(pages->page_table, i * dense_pages(), dense_pages());
      if (sinks() != 0) pages->sinks = static_cast<std::uint32_t>(i);
      pages_.push_back(pages);
    }
    view_.k = side(KvSide::keys, what.key_dim);
    view_.v = side(KvSide::values, what.value_dim);
    view_.lengths = std::vector<std::uint64_t>(what.sequences, sealed_pages() * kPage + tail());
  }

  const KvView& view() const noexcept { return view_; }

  // The newest tokens, in dense pages.
  void record_store(Encoder& encoder, const Activations& activations) const {
    const std::vector<StorePair> pairs{{activations.k, view_.k.dense}, {activations.v, view_.v.dense}};
    std::vector<TokenRun> runs;
    std::vector<std::vector<std::uint32_t>> tables(what_.sequences);
    for (std::uint64_t i = 0; i < what_.sequences; ++i) {
      add_pages(tables[i], i * dense_pages(), dense_pages());
      runs.push_back({.tokens = what_.query_tokens,
                      .position = tail() - what_.query_tokens,
                      .capacity = dense_pages() * kPage,
                      .page_table = tables[i]});
    }
    store(encoder, {.pairs = pairs, .sequences = runs});
  }

 private:
  bool is_sealed() const { return std::holds_alternative<Turbo>(what_.codec); }
  std::uint64_t sealed_pages() const { return is_sealed() ? what_.sealed_pages : 0; }
  std::uint64_t sinks() const { return is_sealed() ? what_.sinks : 0; }
  std::uint64_t tail() const { return what_.tail + (what_.sealed_pages - sealed_pages()) * kPage; }
  std::uint64_t dense_pages() const { return (tail() + kPage - 1) / kPage; }

  static void add_pages(std::vector<std::uint32_t>& table, std::uint64_t first, std::uint64_t count) {
    table.resize(table.size() + count);
    std::iota(table.end() - static_cast<std::ptrdiff_t>(count), table.end(), static_cast<std::uint32_t>(first));
  }

  SlotView slots(std::uint64_t pages, std::uint64_t page_slots, std::uint32_t dim) {
    const std::uint64_t bytes = pages * page_slots * what_.kv_heads * dim * 2;
    return SlotView::head_major(room_for(device_, bytes), DType::f16,
                                {.pages = pages, .page_slots = page_slots, .heads = what_.kv_heads, .dim = dim});
  }

  KvSideView side(KvSide which, std::uint32_t dim) {
    KvSideView view{.dense = slots(what_.sequences * dense_pages(), kPage, dim), .sequences = pages_};
    if (sinks() != 0) view.sinks = slots(what_.sequences, sinks(), dim);
    if (const Turbo* const turbo = std::get_if<Turbo>(&what_.codec)) {
      const PageFormat format{.codec = *turbo, .side = which, .head_dim = dim};
      const SealedShape shape{.pages = what_.sequences * sealed_pages(), .heads = what_.kv_heads};
      view.sealed =
          SealedView::packed(room_for(device_, shape.pages * shape.heads * page_bytes(format)), format, shape);
    }
    return view;
  }

  Device& device_;
  const LayerCase& what_;
  std::vector<std::shared_ptr<const KvPages>> pages_;
  KvView view_;
};

template <class Params>
Params params_of(const runtime::Command& command) {
  Params params;
  std::memcpy(&params, command.params.data(), sizeof(params));
  return params;
}

ops::PlanReader plan_of(const runtime::Command& command, std::uint32_t binding) {
  const runtime::Binding& plan = command.bindings[binding];
  return ops::PlanReader(reinterpret_cast<const std::uint32_t*>(plan.memory->host() + plan.bytes.begin));
}

void read_splits(const runtime::Command& command, LayerLaunch& launch) {
  const auto params = params_of<ops::AttendSplitParams>(command);
  const ops::PlanReader plan = plan_of(command, ops::kAttendSplitBindingPlan);
  const bool is_sealed = command.constants.values[ops::kAttendSplitConstantKeyFormat] >= ops::kSealedFormat;
  const bool is_sinks = (params.flags & ops::kKeySinks) != 0;
  launch.name += is_sealed ? ", sealed" : is_sinks ? ", sinks" : ", dense";
  std::set<std::tuple<std::uint32_t, std::uint32_t>> ranges;
  for (std::uint32_t i = 0; i < params.splits; ++i) {
    const ops::KvSplit& split = plan.kv_split(plan.word(params.first_split + i));
    launch.split_keys.push_back(split.keys);
    const bool is_new = ranges.emplace(plan.query_tile(split.query_tile).sequence, split.first_key).second;
    if (is_new) launch.distinct_keys += split.keys;
  }
}

void read_merge(const runtime::Command& command, LayerLaunch& launch) {
  const auto params = params_of<ops::AttendMergeParams>(command);
  const ops::PlanReader plan = plan_of(command, ops::kAttendMergeBindingPlan);
  launch.value_dim = params.dim;
  for (std::uint32_t i = 0; i < params.query_tiles; ++i) {
    const ops::QueryTile& tile = plan.query_tile(params.first_query_tile + i);
    launch.most_splits = std::max<std::uint64_t>(launch.most_splits, tile.splits);
    launch.partial_bytes +=
        std::uint64_t{tile.splits} * tile.vectors * params.kv_heads * ops::partial_floats(params.dim) * sizeof(float);
  }
}

}  // namespace

std::vector<LayerLaunch> record_layer(Device& device, const LayerCase& what) {
  const Activations activations(device, what);
  std::vector<std::unique_ptr<Cache>> caches;
  for (std::size_t i = 0; i < kLayers; ++i) caches.push_back(std::make_unique<Cache>(device, what));
  const std::uint64_t tokens = what.sequences * what.query_tokens;
  const std::vector<std::int64_t> positions(tokens, 0);
  const std::vector<std::uint64_t> query_tokens(what.sequences, what.query_tokens);
  Encoder encoder = device.encoder();
  const auto commands = [&] { return runtime::Inside::of(encoder)->commands().all(); };
  std::vector<LayerLaunch> launches;
  for (std::size_t layer = 0; layer < kLayers; ++layer) {
    const auto record = [&](LayerOp op, const auto& call) {
      const std::size_t before = commands().size();
      call();
      encoder.status().value();  // throws what an op refused
      for (const runtime::Command& command : commands().subspan(before)) {
        if (layer != kMiddle) continue;
        LayerLaunch& launch = launches.emplace_back(LayerLaunch{op,
                                                                command.kernel,
                                                                command.constants,
                                                                command.barrier_before,
                                                                std::string(command.kernel->name),
                                                                command.dispatch.groups,
                                                                {}});
        if (command.kernel->name == "attend_split") read_splits(command, launch);
        if (command.kernel->name == "attend_merge") read_merge(command, launch);
        if (!launch.split_keys.empty()) launch.workgroups = launch.split_keys.size() * what.kv_heads;
      }
    };
    record(LayerOp::rope, [&] {
      const std::vector<RopeTensor> tensors{RopeTensor::in_place(activations.q, std::nullopt),
                                            RopeTensor::in_place(activations.k, std::nullopt)};
      rope(encoder, {.tensors = tensors, .positions = positions, .rotary = {.pairing = Pairing::halves, .theta = 1e6}});
    });
    record(LayerOp::store, [&] { caches[layer]->record_store(encoder, activations); });
    record(LayerOp::attend, [&] {
      attend(encoder, {.q = activations.q,
                       .kv = caches[layer]->view(),
                       .out = activations.out,
                       .scale = 1,
                       .query_tokens = query_tokens});
    });
  }
  return launches;
}

}  // namespace rota::test
