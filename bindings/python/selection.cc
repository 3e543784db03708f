// Which plan a call would take, without a communicator.

#include "comm/select/selection.h"

#include <nanobind/stl/array.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "base/error.h"
#include "base/settings.h"
#include "base/str.h"
#include "bind.h"
#include "convert.h"
#include "engine/gpu/ll128_links.h"
#include "engine/gpu/paths.h"

namespace nb = nanobind;

namespace unisono::python {
namespace {

using comm::Candidate;
using comm::Selection;
using comm::SelectionRow;

// This process's settings, with those that the caller gives instead.
Settings settings_with(const SettingTexts& given) {
  Settings settings = take(environment_settings().with(values_of(given)));
  check(settings.check());
  return settings;
}

Selection selection_for(const topo::Placement& placement, double oversubscription,
                        const SettingTexts& given,
                        const comm::CostModel& costs = comm::host_cost_model()) {
  const Settings settings = settings_with(given);
  // Nodes may be virtual ones, of one machine; then slots are smaller, which few plans notice.
  const auto fifo_options =
      transport::FifoOptions::from_settings(settings).shared_by(placement.max_ranks_on_a_node());
  check(fifo_options.check());
  Selection selection(
      placement, comm::host_model(fifo_options, {.oversubscription = oversubscription}, costs));
  check(selection.read_settings(settings));
  return selection;
}

// On GPUs of one host, none of which need be there. An empty architecture is the newest that has
// rows.
Selection device_selection(int ranks, std::string_view architecture, int sms,
                           const SettingTexts& given) {
  const Settings settings = settings_with(given);
  const auto options = engine::gpu::Options::from_settings(settings);
  check(options.check());
  const auto table = take(engine::gpu::PathTable::from_settings(settings));
  const int number = architecture.empty() ? table.newest_architecture()
                                          : engine::gpu::architecture_from_name(architecture);
  if (number == 0)
    check(misuse("architecture is '", architecture,
                 "'; it must be a compute capability's name, such as sm_90"));
  constexpr int first_with_tma = 90;
  auto paths = table.resolve(number, number >= first_with_tma, options.zero_copy_min_bytes);
  // Without devices, as if all links between them were NVLink.
  const auto use = take(engine::gpu::ll128_use_from_settings(settings));
  Selection selection(
      topo::Placement::single_node(ranks),
      comm::device_model(options, sms, std::move(paths), engine::gpu::why_no_ll128(use)));
  check(selection.read_settings(settings));
  return selection;
}

SelectionRow choose(std::string_view collective, const Size& size, const topo::Placement& placement,
                    double oversubscription, const SettingTexts& settings) {
  Selection selection = selection_for(placement, oversubscription, settings);
  const Collective which = collective_of(collective);
  const std::uint64_t bytes = bytes_of(size);
  return selection.row_of(which, bytes, take(selection.choose(which, bytes, 0, {})));
}

template <class T>
constexpr std::string_view name_of_type =
    std::is_same_v<T, Candidate> ? "Candidate" : "SelectionRow";

template <class T>
void bind_choice(nb::class_<T>& bound) {
  bound.def_prop_ro("algorithm", [](const T& self) { return text(self.choice.entry->name); })
      .def_prop_ro("plan_name", [](const T& self) { return self.choice.entry->plan_name(); })
      .def_prop_ro("protocol", [](const T& self) { return text(name(self.choice.protocol)); })
      .def_prop_ro("channels", [](const T& self) { return self.choice.channels; })
      .def("__repr__", [](const T& self) {
        return str("<unisono.", name_of_type<T>, " ", self.choice.entry->plan_name(), ", ",
                   name(self.choice.protocol), ", ", number_of(self.choice.channels, "channel"),
                   ">");
      });
}

template <class T>
std::optional<std::uint64_t> largest(const T& self) {
  if (self.max_bytes == UINT64_MAX) return std::nullopt;
  return self.max_bytes;
}

void bind_explanation(nb::module_& module) {
  nb::class_<PlanCandidate>(module, "PlanCandidate")
      .def_ro("algorithm", &PlanCandidate::algorithm)
      .def_prop_ro("protocol", [](const PlanCandidate& self) { return text(name(self.protocol)); })
      .def_ro("channels", &PlanCandidate::channels)
      .def_ro("time_us", &PlanCandidate::time_us)
      .def_ro("longer_us", &PlanCandidate::longer_us)
      .def_ro("steps", &PlanCandidate::steps)
      .def_ro("steps_inter_node", &PlanCandidate::steps_inter_node)
      .def_ro("bytes_sent", &PlanCandidate::bytes_sent)
      .def_ro("bytes_sent_inter_node", &PlanCandidate::bytes_sent_inter_node)
      .def("__repr__", [](const PlanCandidate& self) {
        return str("<unisono.PlanCandidate ", self.algorithm, ", ", name(self.protocol), ", ",
                   number_of(self.channels, "channel"), ": ", self.time_us, " us>");
      });
  nb::class_<PlanDistance>(module, "PlanDistance")
      .def_ro("where", &PlanDistance::where)
      .def_ro("messages", &PlanDistance::messages)
      .def_ro("bytes", &PlanDistance::bytes)
      .def_ro("longer_us", &PlanDistance::longer_us)
      .def("__repr__", [](const PlanDistance& self) {
        return str("<unisono.PlanDistance ", self.where, ": ", number_of(self.messages, "message"),
                   ">");
      });
  nb::class_<Explanation>(module, "Explanation")
      .def_prop_ro("collective",
                   [](const Explanation& self) { return text(name(self.collective)); })
      .def_ro("bytes", &Explanation::bytes)
      .def_ro("ranks", &Explanation::ranks)
      .def_ro("nodes", &Explanation::nodes)
      .def_ro("algorithm", &Explanation::algorithm)
      .def_prop_ro("protocol", [](const Explanation& self) { return text(name(self.protocol)); })
      .def_ro("channels", &Explanation::channels)
      .def_ro("path", &Explanation::path)
      .def_ro("thread_blocks", &Explanation::thread_blocks)
      .def_ro("slots", &Explanation::slots)
      .def_ro("chunk_bytes", &Explanation::chunk_bytes)
      .def_ro("origin", &Explanation::origin)
      .def_ro("min_bytes", &Explanation::min_bytes)
      .def_prop_ro("max_bytes", &largest<Explanation>)
      .def_ro("note", &Explanation::note)
      .def_ro("candidates", &Explanation::candidates)
      .def_ro("levels", &Explanation::levels)
      .def_ro("distances", &Explanation::distances)
      .def("__str__", &Explanation::text)
      .def("__repr__", &Explanation::text)
      .def("_repr_html_", &html_of);
}

}  // namespace

void bind_selection(nb::module_& module) {
  bind_explanation(module);
  nb::class_<Candidate> candidate(module, "Candidate");
  bind_choice(candidate);
  candidate.def_ro("time_us", &Candidate::time_us).def_ro("cost", &Candidate::cost);

  nb::class_<SelectionRow> row(module, "SelectionRow");
  bind_choice(row);
  row.def_ro("min_bytes", &SelectionRow::min_bytes)
      .def_prop_ro("max_bytes", &largest<SelectionRow>)
      .def_ro("origin", &SelectionRow::origin);

  module.def(
      "selection_table",
      [](std::string_view collective, const topo::Placement& placement, double oversubscription,
         const SettingTexts& settings) {
        return selection_for(placement, oversubscription, settings).rows(collective_of(collective));
      },
      nb::arg("collective"), nb::arg("placement"), nb::arg("oversubscription") = 1.0,
      nb::arg("settings") = SettingTexts());
  module.def("choose", &choose, nb::arg("collective"), nb::arg("bytes"), nb::arg("placement"),
             nb::arg("oversubscription") = 1.0, nb::arg("settings") = SettingTexts());
  module.def(
      "candidates",
      [](std::string_view collective, const Size& bytes, const topo::Placement& placement,
         double oversubscription, const std::optional<comm::Parameters>& parameters,
         const SettingTexts& settings) {
        const comm::CostModel costs =
            parameters ? comm::cost_model_of(*parameters) : comm::host_cost_model();
        return selection_for(placement, oversubscription, settings, costs)
            .candidates(collective_of(collective), bytes_of(bytes));
      },
      nb::arg("collective"), nb::arg("bytes"), nb::arg("placement"),
      nb::arg("oversubscription") = 1.0, nb::arg("parameters") = nb::none(),
      nb::arg("settings") = SettingTexts());
  module.def("cost_parameters", [] { return comm::parameters_of(comm::host_cost_model()); });
  module.def(
      "explain",
      [](std::string_view collective, const Size& bytes, const topo::Placement& placement,
         double oversubscription, const SettingTexts& settings) {
        return take(selection_for(placement, oversubscription, settings)
                        .explain(collective_of(collective), bytes_of(bytes)));
      },
      nb::arg("collective"), nb::arg("bytes"), nb::arg("placement"),
      nb::arg("oversubscription") = 1.0, nb::arg("settings") = SettingTexts());
  module.def(
      "explain_device",
      [](std::string_view collective, const Size& bytes, int ranks, std::string_view architecture,
         int sms, const SettingTexts& settings, std::string_view type, std::string_view operation,
         bool in_place, const nb::dict& options) {
        return take(device_selection(ranks, architecture, sms, settings)
                        .explain(collective_of(collective), bytes_of(bytes),
                                 explain_options(type, operation, in_place, options)));
      },
      nb::arg("collective"), nb::arg("bytes"), nb::arg("ranks"), nb::arg("architecture") = "",
      nb::arg("sms") = 132, nb::arg("settings") = SettingTexts(), nb::arg("type") = "",
      nb::arg("operation") = "sum", nb::arg("in_place") = false, nb::arg("options") = nb::dict());
}

}  // namespace unisono::python
