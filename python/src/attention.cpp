#include "attention.h"

#include "bind.h"

namespace rota::python {
namespace {

constexpr std::pair<std::string_view, Mask> kMasks[] = {{"causal", Mask::causal}, {"none", Mask::none}};
constexpr std::pair<std::string_view, Arithmetic> kArithmetics[] = {{"stored", Arithmetic::stored},
                                                                    {"f32", Arithmetic::f32}};

// One number per query head, in an array of any shape: [1, heads, 1].
std::optional<View> per_head(Call& call, const Input* array, const char* name) {
  if (array == nullptr) return {};
  Elements elements = elements_of(described(*array), name, {.least = 1, .most = 4});
  if (!elements.is_dense()) refuse(name, "wanted an array without gaps");
  const std::uint64_t heads = elements.count();
  elements = {.data = elements.data, .element_bytes = elements.element_bytes, .shape = {1, 1, 1, heads}};
  return View{.buffer = call.input(elements).buffer,
              .dtype = dtype_of(array->dtype(), name),
              .shape = {1, heads, 1},
              .token_stride = heads,
              .head_stride = 1};
}

}  // namespace

Queries queries_of(const Input& q, std::uint64_t value_dim, const nb::object& out, const AttendOptions& options) {
  const Elements elements = elements_of(described(q), "q");
  const DType dtype = dtype_of(q.dtype(), "q");
  // NumPy has no bf16, and f32 holds its results.
  const auto made = out.is_none() ? numpy_dtype(dtype == DType::bf16 ? DType::f32 : dtype) : nb::dlpack::dtype{};
  return {.q = q,
          .out = output_or_new(out, made, {elements.shape[1], elements.shape[2], value_dim}),
          .scale = options.scale,
          .soft_cap = options.soft_cap,
          .sink_logits = options.sink_logits ? &*options.sink_logits : nullptr,
          .alibi_slopes = options.alibi_slopes ? &*options.alibi_slopes : nullptr,
          .mask = named<Mask>(kMasks, options.mask, "mask"),
          .arithmetic = named<Arithmetic>(kArithmetics, options.arithmetic, "arithmetic")};
}

void record_attend(Call& call, Encoder& encoder, const Queries& queries, const KvView& kv,
                   std::span<const std::uint64_t> query_tokens) {
  attend(encoder, {.q = call.view(queries.q, "q"),
                   .kv = kv,
                   .out = call.mut_view(queries.out, "out"),
                   .scale = queries.scale,
                   .query_tokens = query_tokens,
                   .mask = queries.mask,
                   .soft_cap = queries.soft_cap,
                   .sink_logits = per_head(call, queries.sink_logits, "sink_logits"),
                   .alibi_slopes = per_head(call, queries.alibi_slopes, "alibi_slopes"),
                   .arithmetic = queries.arithmetic});
}

}  // namespace rota::python
