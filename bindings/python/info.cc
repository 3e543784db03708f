// What this build has: settings, types, instruction sets, units.

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "base/settings.h"
#include "base/str.h"
#include "base/units.h"
#include "bind.h"
#include "convert.h"
#include "device/image.h"
#include "engine/reduce/levels.h"
#include "transport/fifo.h"
#include "transport/table.h"
#include "verification.h"

namespace nb = nanobind;

namespace unisono::python {
namespace {

std::string type_name(SettingType type) {
  switch (type) {
    case SettingType::text:
      return "text";
    case SettingType::integer:
      return "integer";
    case SettingType::size_bytes:
      return "bytes";
    case SettingType::duration:
      return "duration";
    case SettingType::boolean:
      return "boolean";
  }
  return "";
}

// The secret is not for printing.
std::string shown_value(const SettingRow& row) {
  const std::string& value = environment_settings().text(row.setting);
  return row.setting == Setting::secret && !value.empty() ? "(set)" : value;
}

template <class T>
std::vector<std::string> names(int count) {
  std::vector<std::string> out;
  for (int i = 0; i < count; ++i) out.emplace_back(name(static_cast<T>(i)));
  return out;
}

// Name, whether it works here, what a person should know, and whom it joins.
using Transport = std::tuple<std::string, bool, std::string, std::string>;

std::vector<Transport> transports() {
  std::vector<Transport> out;
  for (const transport::TransportRow& row : transport::transport_table()) {
    auto probed = row.probe(environment_settings());
    const char* joins =
        row.reach == transport::Reach::host ? "ranks of one host" : "ranks of all hosts";
    out.emplace_back(row.name, probed.ok(), probed.ok() ? *probed : probed.error().message,
                     row.is_default ? joins : str(joins, ", where UNISONO_TRANSPORT names it"));
  }
  return out;
}

void bind_settings(nb::module_& module) {
  nb::class_<SettingRow>(module, "Setting")
      .def_prop_ro("variable", [](const SettingRow& row) { return text(row.variable); })
      .def_prop_ro("type", [](const SettingRow& row) { return type_name(row.type); })
      .def_prop_ro("default", [](const SettingRow& row) { return text(row.default_text); })
      .def_prop_ro("meaning", [](const SettingRow& row) { return text(row.meaning); })
      .def_prop_ro("value", &shown_value)
      .def_prop_ro("is_set",
                   [](const SettingRow& row) { return environment_settings().is_set(row.setting); })
      .def("__repr__", [](const SettingRow& row) {
        return str("<unisono.Setting ", row.variable, "=", shown_value(row), ">");
      });
  module.def("unknown_variables", &unknown_variables);
  module.def("settings", [] {
    const auto rows = setting_rows();
    return std::vector<SettingRow>(rows.begin(), rows.end());
  });
}

}  // namespace

int usable_slots() {
  const auto options = transport::FifoOptions::from_settings(environment_settings()).shared_by(2);
  check(options.check());
  return options.usable_slots();
}

void bind_info(nb::module_& module) {
  bind_settings(module);
  module.def("simd_level", [] {
    return text(engine::choose_level(environment_settings().text(Setting::simd)).level.name);
  });
  module.def("data_types", [] {
    std::vector<std::pair<std::string, std::size_t>> out;
    for (int i = 0; i < data_type_count; ++i) {
      const auto type = static_cast<DataType>(i);
      out.emplace_back(name(type), size_bytes(type));
    }
    return out;
  });
  module.def("reduce_operations", [] { return names<ReduceOperation>(reduce_operation_count); });
  // Point-to-point and custom, the last two, are not called by name.
  module.def("collectives",
             [] { return names<Collective>(static_cast<int>(Collective::point_to_point)); });
  module.def("transports", &transports);
  module.def(
      "usual_transport",
      [](bool is_same_node) {
        const std::string& named = environment_settings().text(Setting::transport);
        check(transport::check_transport_name(named));
        return std::string(transport::usual_transport(named, is_same_node));
      },
      nb::arg("is_same_node"));
  module.def("usable_slots", &usable_slots);
  // Whether the library was built with nvcc, so that GPUs can run plans.
  module.def("has_kernels", [] { return device::kernel_image() != nullptr; });
  module.def("name_hint", &name_hint, nb::arg("name"), nb::arg("known"));
  module.def("protocols", [] { return names<Protocol>(protocol_count); });

  module.def(
      "parse_bytes", [](std::string_view size) { return take(parse_bytes(size)); },
      nb::arg("text"));
  module.def("format_bytes", &format_bytes, nb::arg("bytes"));
  module.def(
      "parse_seconds",
      [](std::string_view duration) {
        return static_cast<double>(take(parse_duration_ns(duration))) * 1e-9;
      },
      nb::arg("text"));
}

}  // namespace unisono::python
