#pragma once

#include <nanobind/nanobind.h>
#include <rota/rota.h>

#include <span>
#include <string>
#include <string_view>
#include <utility>

// One function per subject: what it adds to the module.

namespace rota::python {

namespace nb = nanobind;

void bind_errors(nb::module_& module);
void bind_devices(nb::module_& module);
void bind_codecs(nb::module_& module);
void bind_pages(nb::module_& module);
void bind_specs(nb::module_& module);
void bind_caches(nb::module_& module);
void bind_ops(nb::module_& module);
void bind_stores(nb::module_& module);

// An enumerator by its name in Python. An error lists the names.
template <class Enum>
using Names = std::span<const std::pair<std::string_view, Enum>>;

template <class Enum>
Enum named(std::type_identity_t<Names<Enum>> names, std::string_view name, const char* argument) {
  std::string known;
  for (const auto& [one, value] : names) {
    if (one == name) return value;
    known += (known.empty() ? "" : ", ") + std::string(one);
  }
  throw BadResult({.code = Errc::invalid_argument,
                   .message = std::string(argument) + ": wanted one of " + known + ", found " + std::string(name)});
}

template <class Enum>
std::string_view name_of(std::type_identity_t<Names<Enum>> names, Enum value) {
  for (const auto& [one, known] : names) {
    if (known == value) return one;
  }
  return "?";
}

// A codec as Python gives it: a name of rota.CODECS, or a rota.Turbo.
KvCodec codec_of(const nb::object& codec);
nb::object python_codec(const KvCodec& codec);

}  // namespace rota::python
