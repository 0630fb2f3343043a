#include "bind.h"

namespace rota::python {
namespace {

PyObject* error_type = nullptr;  // lives as long as the process

constexpr std::pair<std::string_view, Errc> kCodes[] = {{"invalid_argument", Errc::invalid_argument},
                                                        {"unsupported", Errc::unsupported},
                                                        {"no_device", Errc::no_device},
                                                        {"out_of_memory", Errc::out_of_memory},
                                                        {"out_of_pages", Errc::out_of_pages},
                                                        {"busy", Errc::busy},
                                                        {"device_lost", Errc::device_lost},
                                                        {"pipeline_failed", Errc::pipeline_failed},
                                                        {"io", Errc::io},
                                                        {"internal", Errc::internal}};

}  // namespace

void bind_errors(nb::module_& module) {
  error_type = PyErr_NewExceptionWithDoc(
      "rota.Error", "A call that the library refused or that failed. `code` says why, such as \"out_of_pages\".",
      PyExc_RuntimeError, nullptr);
  if (error_type == nullptr) nb::raise_python_error();
  module.attr("Error") = nb::handle(error_type);
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const BadResult& refused) {
      const nb::object error = nb::handle(error_type)(refused.what());
      error.attr("code") = std::string(name_of<Errc>(kCodes, refused.error().code)).c_str();
      PyErr_SetObject(error_type, error.ptr());
    }
  });
}

}  // namespace rota::python
