#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <algorithm>

#include "arrays.h"
#include "bind.h"

namespace rota::python {
namespace {

using nb::literals::operator""_a;

constexpr std::pair<std::string_view, KvSide> kSides[] = {{"keys", KvSide::keys}, {"values", KvSide::values}};

// Sealed pages begin at multiples of it in a device's memory, and a CPU's at multiples of 8 bytes.
constexpr std::uint32_t kPageAlignment = 8;

constexpr const char* kPageFormatDoc = R"(The format of sealed pages of one head: docs/page-format.md.

>>> import rota
>>> rota.PageFormat("turbo4", "values", 64).page_bytes
4352
)";

constexpr const char* kSealDoc = R"(Compresses tokens to sealed pages.

`x` is [tokens, heads, dim] or [layers, tokens, heads, dim], of float32, float16 or bfloat16 and with any strides; tokens
are whole pages. Returns uint8 [pages, heads, page_bytes], or [layers, pages, heads, page_bytes], or writes to `out`, and
raises an error if a value is NaN or beyond the range of float16.

>>> import numpy, rota
>>> format = rota.PageFormat("turbo4", "keys", 64)
>>> rota.seal(numpy.ones((256, 2, 64), numpy.float32), format).shape
(2, 2, 4480)
)";

constexpr const char* kUnsealDoc =
    R"(Restores the values of sealed pages, as attention sees them. The inverse of seal().

`pages` is what seal() returned. Returns an array of `dtype`, "f32" or "f16", or writes to `out`.

>>> import numpy, rota
>>> x = numpy.random.default_rng(0).standard_normal((128, 2, 64), numpy.float32)
>>> format = rota.PageFormat("turbo8", "values", 64)
>>> bool(abs(rota.unseal(rota.seal(x, format), format) - x).max() < 0.1)
True
)";

PageFormat make_format(const nb::object& codec, std::string_view side, std::uint32_t head_dim, std::uint32_t page) {
  const auto sealed = sealed_codec(codec_of(codec));
  if (!sealed) refuse("PageFormat", "wanted a codec of sealed pages");
  const PageFormat format{
      .codec = *sealed, .side = named<KvSide>(kSides, side, "side"), .head_dim = head_dim, .tokens = page};
  check(format).value();
  return format;
}

// Tokens of some layers, and the sealed pages that are made of them.
struct Shapes {
  std::uint64_t layers, pages, heads;  // pages: of a layer

  std::vector<std::size_t> of_pages(const PageFormat& format, std::size_t dimensions) const {
    std::vector<std::size_t> shape{layers, pages, heads, page_bytes(format)};
    return {shape.end() - static_cast<std::ptrdiff_t>(dimensions), shape.end()};
  }
  std::vector<std::size_t> of_tokens(const PageFormat& format, std::size_t dimensions) const {
    std::vector<std::size_t> shape{layers, pages * format.tokens, heads, format.head_dim};
    return {shape.end() - static_cast<std::ptrdiff_t>(dimensions), shape.end()};
  }
};

Shapes shapes_of_tokens(const Elements& x, const PageFormat& format) {
  if (x.shape[3] != format.head_dim) {
    refuse("x", "wanted heads of " + std::to_string(format.head_dim) + ", found " + std::to_string(x.shape[3]));
  }
  if (x.shape[1] % format.tokens != 0) {
    refuse("x", "wanted whole pages of " + std::to_string(format.tokens) + " tokens, found " +
                    std::to_string(x.shape[1]) + " tokens");
  }
  return {.layers = x.shape[0], .pages = x.shape[1] / format.tokens, .heads = x.shape[2]};
}

Shapes shapes_of_pages(const Elements& pages, const PageFormat& format) {
  if (pages.element_bytes != 1) refuse("pages", "wanted uint8");
  if (pages.shape[3] != page_bytes(format)) {
    refuse("pages",
           "wanted pages of " + std::to_string(page_bytes(format)) + " bytes, found " + std::to_string(pages.shape[3]));
  }
  return {.layers = pages.shape[0], .pages = pages.shape[1], .heads = pages.shape[2]};
}

// One layer of tokens, page by page.
SlotView slots(const Call::Memory& memory, const Shapes& shapes, const PageFormat& format, DType dtype,
               std::uint64_t layer) {
  return {.buffer = memory.buffer,
          .dtype = dtype,
          .shape = {shapes.pages, format.tokens, shapes.heads, format.head_dim},
          .offset = memory.offset + layer * memory.strides[0],
          .page_stride = memory.strides[1] * format.tokens,
          .slot_stride = memory.strides[1],
          .head_stride = memory.strides[2],
          .dim_stride = memory.strides[3]};
}

SealedView sealed(const Call::Memory& memory, const Shapes& shapes, const PageFormat& format, std::uint64_t layer) {
  auto view = SealedView::packed(memory.buffer, format, {shapes.pages, shapes.heads});
  view.offset_bytes = memory.offset + layer * shapes.pages * view.page_stride_bytes;
  return view;
}

template <class Page>
std::vector<Page> all_pages(std::uint64_t count) {
  std::vector<Page> pages;
  pages.reserve(count);
  for (std::uint64_t page = 0; page < count; ++page) pages.push_back({.from = page, .to = page});
  return pages;
}

void seal_into(Device device, const Elements& x, DType dtype, const Elements& to, const PageFormat& format) {
  const Shapes shapes = shapes_of_tokens(x, format);
  if (to.element_bytes != 1) refuse("out", "wanted uint8");
  if (!to.is_dense()) refuse("out", "wanted an array without gaps");
  if (x.count() == 0) return;
  Buffer counter = device.allocate(sizeof(std::uint64_t)).value();
  std::uint64_t beyond = 0;
  counter.write(std::as_bytes(std::span(&beyond, 1))).value();
  run_unlocked(std::move(device), [&](Call& call, Encoder& encoder) {
    const auto from = call.input(x);
    const auto pages = call.output(to, kPageAlignment);
    const auto list = all_pages<SealPage>(shapes.pages);
    for (std::uint64_t layer = 0; layer < shapes.layers; ++layer) {
      seal(encoder, {.from = slots(from, shapes, format, dtype, layer),
                     .to = sealed(pages, shapes, format, layer),
                     .pages = list,
                     .non_finite = {counter}});
    }
  });
  counter.read(std::as_writable_bytes(std::span(&beyond, 1))).value();
  if (beyond != 0) refuse("x", std::to_string(beyond) + " values are NaN or beyond the range of float16");
}

void unseal_into(Device device, const Elements& pages, const Elements& to, DType dtype, const PageFormat& format) {
  const Shapes shapes = shapes_of_pages(pages, format);
  if (to.count() == 0) return;
  run_unlocked(std::move(device), [&](Call& call, Encoder& encoder) {
    const auto from = call.input(pages, pages.is_dense() ? kPageAlignment : ~0U);
    const auto out = call.output(to);
    const auto list = all_pages<UnsealPage>(shapes.pages);
    for (std::uint64_t layer = 0; layer < shapes.layers; ++layer) {
      unseal(
          encoder,
          {.from = sealed(from, shapes, format, layer), .to = slots(out, shapes, format, dtype, layer), .pages = list});
    }
  });
}

constexpr Dimensions kWithOrWithoutLayers{.least = 3, .most = 4};
constexpr nb::dlpack::dtype kBytes{static_cast<std::uint8_t>(nb::dlpack::dtype_code::UInt), 8, 1};

nb::object seal_array(const Input& x, const PageFormat& format, const nb::object& out,
                      const std::optional<Device>& device) {
  const Elements elements = elements_of(described(x), "x", kWithOrWithoutLayers);
  const Target to =
      output_or_new(out, kBytes, shapes_of_tokens(elements, format).of_pages(format, described(x).shape.size()));
  seal_into(device_or_default(device), elements, dtype_of(x.dtype(), "x"), to.elements, format);
  return to.array;
}

nb::object unseal_array(const Input& pages, const PageFormat& format, const nb::object& out, const std::string& dtype,
                        const std::optional<Device>& device) {
  const Elements elements = elements_of(described(pages), "pages", kWithOrWithoutLayers);
  const auto type = out.is_none() ? numpy_dtype(dtype_named(dtype, "dtype")) : nb::dlpack::dtype{};
  const Target to =
      output_or_new(out, type, shapes_of_pages(elements, format).of_tokens(format, described(pages).shape.size()));
  unseal_into(device_or_default(device), elements, to.elements, dtype_of(to.dtype, "out"), format);
  return to.array;
}

PageFormat read_format(const nb::bytes& bytes) {
  return read_description({static_cast<const std::byte*>(bytes.data()), bytes.size()}).value();
}

}  // namespace

void bind_pages(nb::module_& module) {
  nb::class_<PageFormat>(module, "PageFormat", kPageFormatDoc)
      .def(
          "__init__",
          [](PageFormat* self, const nb::object& codec, std::string_view side, std::uint32_t head_dim,
             std::uint32_t page) { new (self) PageFormat(make_format(codec, side, head_dim, page)); },
          "codec"_a, "side"_a, "head_dim"_a, nb::kw_only(), "page"_a = 128)
      .def_static("read", &read_format, "description"_a, "The format that describe() wrote.")
      .def(
          "describe",
          [](const PageFormat& format) {
            const auto bytes = describe(format);
            return nb::bytes(bytes.data(), bytes.size());
          },
          "The format as 32 bytes, to store with pages that leave the process.")
      .def_prop_ro("codec", [](const PageFormat& format) { return python_codec(kv_codec(format.codec)); })
      .def_prop_ro("side", [](const PageFormat& format) { return name_of<KvSide>(kSides, format.side); })
      .def_prop_ro("head_dim", [](const PageFormat& format) { return std::uint32_t{format.head_dim}; })
      .def_ro("page", &PageFormat::tokens, "Tokens per page.")
      .def_prop_ro("page_bytes", &page_bytes, "The bytes of a page of one head.")
      .def_prop_ro("bits_per_value",
                   [](const PageFormat& format) {
                     return 8.0 * static_cast<double>(page_bytes(format)) / (format.tokens * format.head_dim);
                   })
      .def("__eq__", [](const PageFormat& a, const PageFormat& b) { return a == b; })
      .def("__hash__", [](const PageFormat& format) { return std::uint64_t{format.head_dim} * 31 + format.bits(); });
  module.def("seal", &seal_array, "x"_a, "format"_a, nb::kw_only(), "out"_a = nb::none(), "device"_a = nb::none(),
             kSealDoc);
  module.def("unseal", &unseal_array, "pages"_a, "format"_a, nb::kw_only(), "out"_a = nb::none(), "dtype"_a = "f32",
             "device"_a = nb::none(), kUnsealDoc);
}

}  // namespace rota::python
