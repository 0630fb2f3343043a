#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "arrays.h"
#include "attention.h"
#include "bind.h"

namespace rota::python {
namespace {

using nb::literals::operator""_a;

constexpr std::pair<std::string_view, Pairing> kPairings[] = {
    {"halves", Pairing::halves}, {"interleaved", Pairing::interleaved}, {"section_halves", Pairing::section_halves}};

constexpr const char* kAttendDoc = R"(Attention over dense keys and values, [tokens, heads, dim] each.

The queries are the newest tokens, unless `mask` is "none". For sealed pages see KvCache.

>>> import numpy, rota
>>> q, k, v = (numpy.ones((n, h, 16), numpy.float32) for n, h in ((1, 4), (9, 2), (9, 2)))
>>> rota.attend(q, k, v, scale=0.25).shape
(1, 4, 16)
)";

constexpr const char* kRopeDoc =
    R"(Rotates head vectors by their positions: pair p by position * theta^(-2p / rope_dim) radians.

`x` is [tokens, heads, dim]; `positions` has one number per token. docs/rope.md lists the values of many models.

>>> import numpy, rota
>>> x = numpy.ones((2, 1, 16), numpy.float32)
>>> bool((rota.rope(x, [0, 7], theta=10000.0)[0] == x[0]).all())
True
)";

nb::object attend_dense(const Input& q, const Input& k, const Input& v, double scale, const nb::object& out,
                        std::optional<double> soft_cap, const std::optional<Input>& sink_logits,
                        const std::optional<Input>& alibi_slopes, std::string_view mask,
                        const std::optional<Device>& device) {
  const Elements values = elements_of(described(v), "v");
  const Queries queries =
      queries_of(q, values.shape[3], out, {scale, soft_cap, sink_logits, alibi_slopes, mask, "stored"});
  const auto slots = [](const View& view) {
    return SlotView{.buffer = view.buffer,
                    .dtype = view.dtype,
                    .shape = {1, view.shape.tokens, view.shape.heads, view.shape.dim},
                    .offset = view.offset,
                    .slot_stride = view.token_stride,
                    .head_stride = view.head_stride,
                    .dim_stride = view.dim_stride};
  };
  run_unlocked(device_or_default(device), [&](Call& call, Encoder& encoder) {
    const View keys = call.view(k, "k");
    const std::uint64_t tokens = keys.shape.tokens, query_tokens = queries.out.elements.shape[1];
    const TokenRun run{.tokens = tokens, .position = 0, .capacity = tokens};
    record_attend(call, encoder, queries, KvView::of_slots(slots(keys), slots(call.view(v, "v")), std::span(&run, 1)),
                  std::span(&query_tokens, 1));
  });
  return queries.out.array;
}

nb::object rope_array(const Input& x, const std::vector<std::int64_t>& positions, double theta,
                      std::string_view pairing, std::optional<std::uint64_t> rope_dim, std::vector<float> factors,
                      double interpolation, const nb::object& out, const std::optional<Device>& device) {
  const Elements elements = elements_of(described(x), "x");
  const DType dtype = dtype_of(x.dtype(), "x");
  const Target to = output_or_new(out, out.is_none() ? numpy_dtype(dtype) : nb::dlpack::dtype{},
                                  {elements.shape[1], elements.shape[2], elements.shape[3]});
  const Rotary rotary{.pairing = named<Pairing>(kPairings, pairing, "pairing"),
                      .theta = theta,
                      .rope_dim = rope_dim,
                      .factors = std::move(factors),
                      .interpolation = interpolation};
  run_unlocked(device_or_default(device), [&](Call& call, Encoder& encoder) {
    const RopeTensor tensor{.from = call.view(x, "x"), .to = call.mut_view(to, "out")};
    rope(encoder, {.tensors = std::span(&tensor, 1), .positions = positions, .rotary = rotary});
  });
  return to.array;
}

}  // namespace

void bind_ops(nb::module_& module) {
  module.def("attend", &attend_dense, "q"_a, "k"_a, "v"_a, nb::kw_only(), "scale"_a, "out"_a = nb::none(),
             "soft_cap"_a = nb::none(), "sink_logits"_a = nb::none(), "alibi_slopes"_a = nb::none(),
             "mask"_a = "causal", "device"_a = nb::none(), kAttendDoc);
  module.def("rope", &rope_array, "x"_a, "positions"_a, nb::kw_only(), "theta"_a, "pairing"_a = "halves",
             "rope_dim"_a = nb::none(), "factors"_a = std::vector<float>(), "interpolation"_a = 1.0,
             "out"_a = nb::none(), "device"_a = nb::none(), kRopeDoc);
}

}  // namespace rota::python
