#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/error.h"
#include "rota/ops.h"
#include "runtime/selftest_pages.h"

namespace rota::ops {
namespace {

// A sealed page and some dense tokens after it, or the same all dense; two query heads for each of the pages' heads.
constexpr std::uint64_t kDenseTokens = 5;
constexpr std::uint64_t kQueryHeads = 2 * kSelfTestHeads;
constexpr std::uint64_t kRows = 2;
constexpr double kScale = 0.125;

struct Side {
  std::vector<std::byte> page;
  std::vector<float> values;  // [token][head][dim]: what the page holds, restored, and the dense tokens
  PageFormat format;
};

struct Stored {
  KvSideView view;
  std::vector<Buffer> buffers;
};

Result<Side> make_side(Device& reference, const PageFormat& format) {
  auto page = self_test_sealed(reference, format);
  if (!page) return page.error();
  auto values = self_test_restored(reference, format, *page);
  if (!values) return values.error();
  const std::uint64_t more = kDenseTokens * kSelfTestHeads * format.head_dim;
  const std::vector<float> tail(values->begin(), values->begin() + static_cast<std::ptrdiff_t>(more));
  values->insert(values->end(), tail.begin(), tail.end());
  return Side{*std::move(page), *std::move(values), format};
}

Result<Stored> store_side(Device& device, const Side& side, bool sealed) {
  auto pages = filled(device, side.page);
  if (!pages) return pages.error();
  const std::uint64_t tokens = side.format.tokens;
  std::vector<float> slots = side.values;
  slots.resize(2 * tokens * kSelfTestHeads * side.format.head_dim, NAN);  // no token's
  auto dense = filled(device, std::as_bytes(std::span(slots)));
  if (!dense) return dense.error();
  const auto list = std::make_shared<KvPages>();
  list->sealed_pages = sealed ? 1 : 0;
  list->places = {0, 1};
  return Stored{{.dense = SlotView::token_major(
                     *dense, DType::f32,
                     {.pages = 2, .page_slots = tokens, .heads = kSelfTestHeads, .dim = side.format.head_dim}),
                 .sealed = SealedView::packed(*pages, side.format, {.pages = 1, .heads = kSelfTestHeads}),
                 .sequences = {list}},
                {*pages, *dense}};
}

std::vector<float> queries(std::uint64_t dim) {
  std::vector<float> values(kRows * kQueryHeads * dim);
  std::uint32_t state = 7;
  for (float& value : values) {
    state = state * 1664525 + 1013904223;
    value = static_cast<float>(state >> 16) / 32768 - 1;
  }
  return values;
}

Result<std::vector<float>> attended(Device& device, const Side& k, const Side& v, bool sealed) {
  auto keys = store_side(device, k, sealed);
  if (!keys) return keys.error();
  auto values = store_side(device, v, sealed);
  if (!values) return values.error();
  const std::vector<float> asked = queries(k.format.head_dim);
  auto q = filled(device, std::as_bytes(std::span(asked)));
  if (!q) return q.error();
  std::vector<float> result(kRows * kQueryHeads * v.format.head_dim, NAN);
  auto out = filled(device, std::as_bytes(std::span(result)));
  if (!out) return out.error();
  const KvView kv{.k = keys->view, .v = values->view, .lengths = {k.format.tokens + kDenseTokens}};
  const std::uint64_t rows = kRows;
  const Status done = runtime::run_on(device, [&](Encoder& encoder) {
    attend(encoder, {.q = View::token_major(*q, DType::f32, {kRows, kQueryHeads, k.format.head_dim}),
                     .kv = kv,
                     .out = MutView::token_major(*out, DType::f32, {kRows, kQueryHeads, v.format.head_dim}),
                     .scale = kScale,
                     .rows = {&rows, 1}});
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
  for (std::uint64_t vector = 0; vector < kRows * kQueryHeads; ++vector) {
    const std::uint64_t head = vector % kQueryHeads / (kQueryHeads / kSelfTestHeads);
    std::vector<double> sum(v.format.head_dim);
    double weights = 0;
    for (std::uint64_t token = 0; token < tokens - kRows + vector / kQueryHeads + 1; ++token) {
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

Status check_on(Device& device, const Side& k, const Side& v, bool sealed) {
  auto found = attended(device, k, v, sealed);
  if (!found) return found.error();
  const std::vector<double> wanted = by_definition(k, v);
  double error = 0;
  double squares = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    error += std::pow(static_cast<double>((*found)[i]) - wanted[i], 2);
    squares += wanted[i] * wanted[i];
  }
  // Restored values are rounded to the codec's fixed point, sealed ones are read without that.
  const double bound = sealed ? 1e-3 : 1e-5;
  if (std::sqrt(error / squares) <= bound) return {};
  return Error{Errc::internal, core::text("attend over {} is off by {:.3} on {}, more than {:.3}",
                                          sealed ? core::text("turbo:{}", std::uint32_t{k.format.codec.bits}) : "f32",
                                          std::sqrt(error / squares), device.info().id, bound)};
}

}  // namespace

Status attend_selftest(Device& subject, Device& reference) {
  const std::vector<PageFormat> formats = self_test_formats();
  for (std::size_t i = 0; i + 1 < formats.size(); i += 2) {  // keys and values of one width
    auto k = make_side(reference, formats[i]);
    if (!k) return k.error();
    auto v = make_side(reference, formats[i + 1]);
    if (!v) return v.error();
    for (Device* const device : {&reference, &subject}) {
      if (Status status = check_on(*device, *k, *v, true); !status) return status;
      if (i > 0) continue;
      if (Status status = check_on(*device, *k, *v, false); !status) return status;
    }
  }
  return {};
}

}  // namespace rota::ops
