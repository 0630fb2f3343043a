#include "cli/kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <type_traits>
#include <variant>

#include "rota/kv_spec.h"
#include "rota/ops.h"

namespace rota::tool {
namespace {

// What models have, and beside it the smallest and the largest that can be sealed, and one that cannot.
constexpr std::array<std::uint64_t, 15> kHeadSizes{16, 32, 40, 48, 64, 80, 96, 112, 128, 160, 192, 256, 512, 576, 1024};
constexpr std::uint64_t kHeads = 2;
constexpr std::uint64_t kTokens = 128;

// Memory for one call of any op, and the calls.
class Calls {
 public:
  explicit Calls(Device& device) : device_(device) {}

  Status store(DType to, std::uint64_t dim) {
    const StorePair pair{.from = tensor(from_, DType::f32, dim, 1), .to = slots(to_, to, dim)};
    const TokenRun run{.tokens = 1, .position = 0, .capacity = kTokens};
    return recorded([&](Encoder& e) { rota::store(e, {.pairs = {&pair, 1}, .sequences = {&run, 1}}); });
  }

  Status rope(DType dtype, std::uint64_t dim) {
    const RopeTensor x = RopeTensor::in_place(tensor(to_, dtype, dim, 1));
    const std::int64_t position = 7;
    const Rotary rotary{.pairing = Pairing::halves, .theta = 1e4};
    return recorded(
        [&](Encoder& e) { rota::rope(e, {.tensors = {&x, 1}, .positions = {&position, 1}, .rotary = rotary}); });
  }

  Status seal(const Codec& codec, std::uint64_t dim) {
    const SealPage page{.from = 0, .to = 0};
    return recorded([&](Encoder& e) {
      rota::seal(e, {.from = slots(from_, DType::f16, dim),
                     .to = sealed(codec, KvSide::keys, dim),
                     .pages = {&page, 1},
                     .non_finite = {counter_}});
    });
  }

  Status unseal(const Codec& codec, std::uint64_t dim) {
    const UnsealPage page{.from = 0, .to = 0};
    return recorded([&](Encoder& e) {
      rota::unseal(e,
                   {.from = sealed(codec, KvSide::keys, dim), .to = slots(to_, DType::f16, dim), .pages = {&page, 1}});
    });
  }

  Status attend(const KvCodec& codec, std::uint64_t dim) {
    const auto side = [&](KvSide which) {
      auto pages = std::make_shared<KvPages>();
      const std::optional<Codec> sealing = sealed_codec(codec);
      KvSideView view{.dense = slots(from_, sealing ? DType::f16 : std::get<DType>(codec), dim)};
      pages->page_table = {0};
      if (sealing) {
        view.sealed = sealed(*sealing, which, dim);
        pages->sealed_pages = 1;
      }
      view.sequences = {pages};
      return view;
    };
    const KvView kv{.k = side(KvSide::keys), .v = side(KvSide::values), .lengths = {kTokens}};
    return recorded([&](Encoder& e) {
      rota::attend(
          e, {.q = tensor(query_, DType::f32, dim, 1), .kv = kv, .out = tensor(to_, DType::f32, dim, 1), .scale = 1});
    });
  }

  Status merge(DType dtype, std::uint64_t dim) {
    const AttentionState part{.out = tensor(from_, dtype, dim, 1), .log_sum_exp = tensor(query_, DType::f32, 1, 1)};
    return recorded(
        [&](Encoder& e) { rota::merge(e, {.first = part, .second = part, .out = tensor(to_, dtype, dim, 1)}); });
  }

 private:
  static constexpr std::uint64_t kRoom = kTokens * kHeads * kHeadSizes.back() * 4;

  Status recorded(const std::function<void(Encoder&)>& call) {
    Encoder encoder = device_.encoder();
    call(encoder);
    return encoder.status();
  }

  static MutView tensor(const Buffer& buffer, DType dtype, std::uint64_t dim, std::uint64_t tokens) {
    return MutView::token_major(buffer, dtype, {.tokens = tokens, .heads = kHeads, .dim = dim});
  }

  static SlotView slots(const Buffer& buffer, DType dtype, std::uint64_t dim) {
    return SlotView::head_major(buffer, dtype, {.page_slots = kTokens, .heads = kHeads, .dim = dim});
  }

  SealedView sealed(const Codec& codec, KvSide side, std::uint64_t dim) const {
    const PageFormat format{.codec = codec, .side = side, .head_dim = static_cast<std::uint32_t>(dim)};
    return SealedView::packed(pages_, format, {.pages = 1, .heads = kHeads});
  }

  Device& device_;
  Buffer from_ = device_.allocate(kRoom).value(), to_ = device_.allocate(kRoom).value(),
         pages_ = device_.allocate(kRoom).value(), query_ = device_.allocate(kRoom).value(),
         counter_ = device_.allocate(8).value();
};

Json support_row(std::string_view op, std::string_view codec, const std::function<Status(std::uint64_t)>& call) {
  Json taken = Json::array();
  Json refused = Json::array();
  for (const std::uint64_t dim : kHeadSizes) {
    if (const Status status = call(dim); status) {
      taken.push_back(dim);
    } else {
      refused.push_back(fmt::format("{}: {}", dim, status.error().message));
    }
  }
  return {{"op", op}, {"codec", codec}, {"devices", Json::array()}, {"head_dims", taken}, {"refused", refused}};
}

// Devices that answer alike share a row; one that does not has its own behind theirs.
void add_answer(Table& table, Json row, const std::string& device) {
  const auto alike = [&](const std::vector<const char*>& keys) {
    return [&row, keys](const Json& other) {
      return std::ranges::all_of(keys, [&](const char* key) { return other.at(key) == row.at(key); });
    };
  };
  auto found = std::ranges::find_if(table.rows, alike({"op", "codec", "head_dims", "refused"}));
  if (found == table.rows.end()) {
    const auto before = std::ranges::find_if(table.rows.rbegin(), table.rows.rend(), alike({"op", "codec"}));
    found = table.rows.insert(before == table.rows.rend() ? table.rows.end() : before.base(), std::move(row));
  }
  found->at("devices").push_back(device);
}

}  // namespace

Table support_table() {
  return {.columns = {{"op", "op"},
                      {"codec", "codec"},
                      {"devices", "devices"},
                      {"head_dims", "head sizes"},
                      {"refused", "refused, and why"}}};
}

void add_support(Device& device, Table& table) {
  Calls calls(device);
  // Of each op the codecs that its call can name.
  const auto each_codec = [&](std::string_view op, const auto& call) {
    for (const NamedCodec& known : kCodecs) {
      const auto add = [&](const auto& codec) {
        if constexpr (std::is_invocable_v<decltype(call), decltype(codec), std::uint64_t>) {
          add_answer(table, support_row(op, known.name, [&](std::uint64_t dim) { return call(codec, dim); }),
                     device.info().id);
        }
      };
      std::visit(add, known.codec);
    }
  };
  each_codec("attend", [&](const KvCodec& codec, std::uint64_t dim) { return calls.attend(codec, dim); });
  each_codec("merge", [&](DType dtype, std::uint64_t dim) { return calls.merge(dtype, dim); });
  each_codec("rope", [&](DType dtype, std::uint64_t dim) { return calls.rope(dtype, dim); });
  each_codec("seal", [&](const Codec& codec, std::uint64_t dim) { return calls.seal(codec, dim); });
  each_codec("store", [&](DType dtype, std::uint64_t dim) { return calls.store(dtype, dim); });
  each_codec("unseal", [&](const Codec& codec, std::uint64_t dim) { return calls.unseal(codec, dim); });
}

}  // namespace rota::tool
