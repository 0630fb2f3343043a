#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "codec/dense/rows.h"
#include "ops/selftest_pages.h"
#include "rota/ops.h"

namespace rota::ops {
namespace {

// A sealed page and some dense tokens after it, or the same all dense; two query heads for each of the pages' heads.
constexpr std::uint64_t kDenseTokens = 5;
constexpr std::uint64_t kQueryHeads = 2 * kSelfTestHeads;
constexpr std::uint64_t kQueryTokens = 2;
constexpr double kScale = 0.125;

struct Side {
  std::vector<std::byte> page;  // empty if all tokens are dense
  std::vector<std::byte> slots;
  std::vector<float> values;  // [token][head][dim]: as attention sees them
  PageFormat format;
  DType dense;
};

struct Stored {
  KvSideView view;
  std::vector<Buffer> buffers;
};

std::vector<std::byte> converted(std::span<const std::byte> from, DType from_type, DType to) {
  const std::size_t count = from.size() / info(from_type).bytes;
  std::vector<std::byte> made(count * info(to).bytes);
  codec::row_converter(from_type, to)({from.data()}, {made.data()}, count);
  return made;
}

Result<Side> make_side(Device& reference, const PageFormat& format, std::optional<DType> all_dense) {
  Side side{.format = format, .dense = all_dense.value_or(DType::f32)};
  auto page = self_test_sealed(reference, format);
  if (!page) return page.error();
  auto values = self_test_restored(reference, format, *page);
  if (!values) return values.error();
  if (!all_dense) side.page = *std::move(page);
  const std::uint64_t more = kDenseTokens * kSelfTestHeads * format.head_dim;
  const std::vector<float> tail(values->begin(), values->begin() + static_cast<std::ptrdiff_t>(more));
  values->insert(values->end(), tail.begin(), tail.end());
  const std::size_t tokens_end = values->size();
  values->resize(std::uint64_t{2} * format.tokens * kSelfTestHeads * format.head_dim, NAN);  // no token's
  side.slots = converted(std::as_bytes(std::span(*values)), DType::f32, side.dense);
  const std::vector<std::byte> rounded = converted(side.slots, side.dense, DType::f32);
  std::memcpy(values->data(), rounded.data(), rounded.size());
  values->resize(tokens_end);
  side.values = *std::move(values);
  return side;
}

Result<Stored> store_side(Device& device, const Side& side) {
  const SlotShape shape{
      .pages = 2, .page_slots = side.format.tokens, .heads = kSelfTestHeads, .dim = side.format.head_dim};
  auto slots = filled(device, side.slots);
  if (!slots) return slots.error();
  const auto list = std::make_shared<KvPages>();
  list->page_table = {0, 1};
  Stored stored{{.dense = SlotView::token_major(*slots, side.dense, shape), .sequences = {list}}, {*slots}};
  if (side.page.empty()) return stored;
  auto pages = filled(device, side.page);
  if (!pages) return pages.error();
  list->sealed_pages = 1;
  stored.view.sealed = SealedView::packed(*pages, side.format, {.pages = 1, .heads = kSelfTestHeads});
  stored.buffers.push_back(*pages);
  return stored;
}

std::vector<float> queries(std::uint64_t dim) {
  std::vector<float> values(kQueryTokens * kQueryHeads * dim);
  std::uint32_t state = 7;
  for (float& value : values) {
    state = state * 1664525 + 1013904223;
    value = static_cast<float>(state >> 16) / 32768 - 1;
  }
  return values;
}

Result<std::vector<float>> attended(Device& device, const Side& k, const Side& v, Arithmetic arithmetic) {
  auto keys = store_side(device, k);
  if (!keys) return keys.error();
  auto values = store_side(device, v);
  if (!values) return values.error();
  const std::vector<float> asked = queries(k.format.head_dim);
  auto q = filled(device, std::as_bytes(std::span(asked)));
  if (!q) return q.error();
  std::vector<float> result(kQueryTokens * kQueryHeads * v.format.head_dim, NAN);
  auto out = filled(device, std::as_bytes(std::span(result)));
  if (!out) return out.error();
  const KvView kv{.k = keys->view, .v = values->view, .lengths = {k.format.tokens + kDenseTokens}};
  const std::uint64_t query_tokens = kQueryTokens;
  const Status done = runtime::run_on(device, [&](Encoder& encoder) {
    attend(encoder, {.q = View::token_major(*q, DType::f32, {kQueryTokens, kQueryHeads, k.format.head_dim}),
                     .kv = kv,
                     .out = MutView::token_major(*out, DType::f32, {kQueryTokens, kQueryHeads, v.format.head_dim}),
                     .scale = kScale,
                     .query_tokens = {&query_tokens, 1},
                     .arithmetic = arithmetic});
  });
  if (!done) return done.error();
  if (Status status = out->read(std::as_writable_bytes(std::span(result))); !status) return status.error();
  return result;
}

// The definition, in f64, over what is stored.
std::vector<double> by_definition(const Side& k, const Side& v) {
  const std::vector<float> asked = queries(k.format.head_dim);
  const std::uint64_t tokens = k.format.tokens + kDenseTokens;
  std::vector<double> result;
  for (std::uint64_t vector = 0; vector < kQueryTokens * kQueryHeads; ++vector) {
    const std::uint64_t head = vector % kQueryHeads / (kQueryHeads / kSelfTestHeads);
    std::vector<double> sum(v.format.head_dim);
    double weights = 0;
    for (std::uint64_t token = 0; token < tokens - kQueryTokens + vector / kQueryHeads + 1; ++token) {
      double logit = 0;
      for (std::uint64_t d = 0; d < k.format.head_dim; ++d) {
        logit += static_cast<double>(asked[vector * k.format.head_dim + d]) *
                 static_cast<double>(k.values[(token * kSelfTestHeads + head) * k.format.head_dim + d]);
      }
      const double weight = std::exp(kScale * logit);
      weights += weight;
      for (std::uint64_t d = 0; d < sum.size(); ++d) {
        sum[d] += weight * static_cast<double>(v.values[(token * kSelfTestHeads + head) * sum.size() + d]);
      }
    }
    for (const double value : sum) result.push_back(value / weights);
  }
  return result;
}

struct Case {
  const PageFormat& keys;
  const PageFormat& values;
  std::optional<DType> all_dense;
  Arithmetic arithmetic;
};

Result<double> error_of(const runtime::SelfTestRun& run, const Case& what) {
  auto k = make_side(run.reference(), what.keys, what.all_dense);
  if (!k) return k.error();
  auto v = make_side(run.reference(), what.values, what.all_dense);
  if (!v) return v.error();
  auto found = attended(run.subject(), *k, *v, what.arithmetic);
  if (!found) return found.error();
  return runtime::relative_error(*found, by_definition(*k, *v));
}

}  // namespace

void attend_selftest(runtime::SelfTestRun& run) {
  const std::vector<PageFormat> formats = self_test_formats();
  for (const DTypeInfo& dtype : kDTypes) {
    run.check(std::string(dtype.name), 1e-5,
              [&] { return error_of(run, {formats[0], formats[1], dtype.dtype, Arithmetic::f32}); });
  }
  for (std::size_t i = 0; i + 1 < formats.size(); i += 2) {  // keys and values of one width
    const std::string codec(name(kv_codec(formats[i].codec)));
    // Restored values are rounded to the codec's fixed point, sealed ones are read without that.
    run.check(codec, 1e-3, [&] { return error_of(run, {formats[i], formats[i + 1], {}, Arithmetic::f32}); });
    // A tenth of what four bits err by, and more exact where codes are.
    run.check(codec + " in bytes", formats[i].bits() <= 4 ? 1e-2 : 1e-3,
              [&] { return error_of(run, {formats[i], formats[i + 1], {}, Arithmetic::stored}); });
  }
}

}  // namespace rota::ops
