#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "arrays.h"
#include "bind.h"

namespace rota::python {
namespace {

using nb::literals::operator""_a;

constexpr const char* kDeviceDoc = R"(An open device: "cpu", or a GPU such as "vulkan:0" (see backends()).

`threads` are those that a CPU computes with; 0 is one for each CPU that the process may use.

>>> import rota
>>> rota.Device("cpu", threads=1).threads
1
)";

Device open(const std::string& id, std::uint32_t threads, const std::string& pipeline_cache) {
  const nb::gil_scoped_release unlocked;
  return Device::open({.device = id, .threads = threads, .pipeline_cache = pipeline_cache}).value();
}

std::string to_text(const Device& device) {
  const DeviceInfo& info = device.info();
  return "rota.Device(\"" + info.id + "\"): " + info.name;
}

nb::list backends() {
  std::vector<BackendReport> reports;
  {
    const nb::gil_scoped_release unlocked;
    reports = list_backends().value();
  }
  nb::list list;
  for (const BackendReport& report : reports) {
    nb::list devices;
    for (const DeviceInfo& device : report.devices) devices.append(nb::cast(device));
    nb::dict one;
    one["name"] = report.name;
    one["devices"] = devices;
    one["error"] = report.status ? nb::object(nb::none()) : nb::cast(report.status.error().message);
    one["advice"] = report.advice;
    list.append(one);
  }
  return list;
}

}  // namespace

void bind_devices(nb::module_& module) {
  nb::class_<DeviceInfo>(module, "DeviceInfo", "What backends() found.")
      .def_ro("id", &DeviceInfo::id, "For Device(id).")
      .def_ro("name", &DeviceInfo::name)
      .def_ro("driver", &DeviceInfo::driver)
      .def_prop_ro("kind", [](const DeviceInfo& info) { return name(info.kind); })
      .def_ro("memory_bytes", &DeviceInfo::memory_bytes)
      .def_prop_ro(
          "max_sparse_bytes", [](const DeviceInfo& info) { return info.limits.max_sparse_bytes; },
          "Of caches that grow with use; 0: they take their memory at once.")
      .def_ro("threads", &DeviceInfo::threads)
      .def_ro("features", &DeviceInfo::features)
      .def("__repr__", [](const DeviceInfo& info) { return "rota.DeviceInfo(" + info.id + ": " + info.name + ")"; });
  nb::class_<Device>(module, "Device", kDeviceDoc)
      .def(
          "__init__",
          [](Device* self, const std::string& id, std::uint32_t threads, const std::string& pipeline_cache) {
            new (self) Device(open(id, threads, pipeline_cache));
          },
          "id"_a = "cpu", nb::kw_only(), "threads"_a = 0, "pipeline_cache"_a = "")
      .def_prop_ro("id", [](const Device& device) { return device.info().id; })
      .def_prop_ro("info", [](const Device& device) { return device.info(); })
      .def_prop_ro("name", [](const Device& device) { return device.info().name; })
      .def_prop_ro("threads", [](const Device& device) { return device.info().threads; })
      .def(
          "save_pipelines", [](Device& device) { device.save_pipelines().value(); },
          nb::call_guard<nb::gil_scoped_release>(), "Writes the pipelines that were built to `pipeline_cache`.")
      .def("__repr__", &to_text);
  module.def("backends", &backends,
             "What each backend of this build found: its devices, or why there are none and what to do about it.");
  module.def("default_device", &default_device, nb::call_guard<nb::gil_scoped_release>(),
             "The CPU device of this process with all its threads, which calls take that are given none.");
}

}  // namespace rota::python
