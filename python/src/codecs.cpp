#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include "bind.h"

namespace rota::python {
namespace {

using nb::literals::operator""_a;

constexpr std::pair<std::string_view, ScaleRule> kScaleRules[] = {
    {"rms", ScaleRule::rms}, {"least_squares", ScaleRule::least_squares}, {"search", ScaleRule::search}};

constexpr const char* kTurboDoc = R"(The codec of sealed pages: 2, 3, 4, 5, 6 or 8 bits per value.

A name such as "turbo4" is the same with the defaults.
)";

std::string to_text(const Turbo& turbo) {
  return "rota.Turbo(" + std::to_string(turbo.bits) + ", scale=\"" +
         std::string(name_of<ScaleRule>(kScaleRules, turbo.scale)) +
         "\", key_mean=" + (turbo.key_mean ? "True" : "False") + ", seed=" + std::to_string(turbo.seed) + ")";
}

}  // namespace

KvCodec codec_of(const nb::object& codec) {
  if (nb::isinstance<Turbo>(codec)) return nb::cast<Turbo>(codec);
  if (!nb::isinstance<nb::str>(codec)) throw nb::type_error("a codec is a name of rota.CODECS, or a rota.Turbo");
  return codec_named(nb::cast<std::string>(codec)).value();
}

nb::object python_codec(const KvCodec& codec) {
  const auto* turbo = std::get_if<Turbo>(&codec);
  if (turbo != nullptr && *turbo != rota::turbo(turbo->bits)) return nb::cast(*turbo);
  return nb::cast(name(codec));
}

void bind_codecs(nb::module_& module) {
  nb::list names;
  for (const NamedCodec& codec : kCodecs) names.append(nb::cast(codec.name));
  module.attr("CODECS") = nb::tuple(names);
  nb::class_<Turbo>(module, "Turbo", kTurboDoc)
      .def(
          "__init__",
          [](Turbo* self, std::uint32_t bits, std::string_view scale, bool key_mean, std::uint32_t seed) {
            new (self) Turbo{.bits = bits,
                             .scale = named<ScaleRule>(kScaleRules, scale, "scale"),
                             .key_mean = key_mean,
                             .seed = seed};
          },
          "bits"_a, nb::kw_only(), "scale"_a = "search", "key_mean"_a = true, "seed"_a = turbo(4).seed)
      .def_prop_ro("bits", [](const Turbo& turbo) { return std::uint32_t{turbo.bits}; })
      .def_prop_ro("scale", [](const Turbo& turbo) { return name_of<ScaleRule>(kScaleRules, turbo.scale); })
      .def_ro("key_mean", &Turbo::key_mean)
      .def_ro("seed", &Turbo::seed)
      .def("__eq__", [](const Turbo& a, const Turbo& b) { return a == b; })
      .def("__hash__", [](const Turbo& turbo) { return std::uint64_t{turbo.seed} * 31 + turbo.bits; })
      .def("__repr__", &to_text);
}

}  // namespace rota::python
