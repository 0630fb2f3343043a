#include "bind.h"

namespace nb = nanobind;

NB_MODULE(_rota, module) {
  // What a program holds when it ends is given back with the process.
  nb::set_leak_warnings(false);
  module.doc() = "Rota's library: devices, sealed pages, KV caches and ops.";
  module.attr("__version__") = std::string(rota::version().text).c_str();
  rota::python::bind_errors(module);
  rota::python::bind_devices(module);
  rota::python::bind_codecs(module);
  rota::python::bind_pages(module);
  rota::python::bind_specs(module);
  rota::python::bind_caches(module);
  rota::python::bind_ops(module);
  rota::python::bind_stores(module);
}
