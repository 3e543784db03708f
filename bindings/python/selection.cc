// Which plan a call would take, without a communicator.

#include "comm/select/selection.h"

#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "base/settings.h"
#include "bind.h"
#include "convert.h"

namespace nb = nanobind;

namespace unisono::python {
namespace {

using comm::Candidate;
using comm::Selection;
using comm::SelectionRow;

Selection selection_for(const topo::Placement& placement, double crowding,
                        const comm::CostModel& costs = comm::host_cost_model()) {
  check(settings().check());
  // Nodes may be virtual ones, of one machine; then slots are smaller, which few plans notice.
  const auto fifo_options =
      transport::FifoOptions::from_settings().shared_by(placement.max_ranks_on_a_node());
  check(fifo_options.check());
  Selection selection(placement, comm::host_model(fifo_options, {.crowding = crowding}, costs));
  check(selection.read_settings());
  return selection;
}

SelectionRow choose(std::string_view collective, std::uint64_t bytes,
                    const topo::Placement& placement, double crowding) {
  Selection selection = selection_for(placement, crowding);
  const Collective which = collective_of(collective);
  const comm::Choice choice = take(selection.choose(which, bytes, 0, false, {}));
  for (SelectionRow row : selection.rows(which))
    if (row.min_bytes <= bytes && bytes <= row.max_bytes) {
      if (row.choice != choice) row.origin = "forced by a setting";
      row.choice = choice;
      return row;
    }
  return {.min_bytes = 0, .max_bytes = UINT64_MAX, .choice = choice, .origin = {}};
}

template <class T>
void bind_choice(nb::class_<T>& bound) {
  bound.def_prop_ro("algorithm", [](const T& self) { return text(self.choice.entry->name); })
      .def_prop_ro("plan_name", [](const T& self) { return self.choice.entry->plan_name(); })
      .def_prop_ro("protocol", [](const T& self) { return text(name(self.choice.protocol)); })
      .def_prop_ro("channels", [](const T& self) { return self.choice.channels; });
}

}  // namespace

void bind_selection(nb::module_& module) {
  nb::class_<Candidate> candidate(module, "Candidate");
  bind_choice(candidate);
  candidate.def_ro("time_us", &Candidate::time_us).def_ro("cost", &Candidate::cost);

  nb::class_<SelectionRow> row(module, "SelectionRow");
  bind_choice(row);
  row.def_ro("min_bytes", &SelectionRow::min_bytes)
      .def_prop_ro("max_bytes",
                   [](const SelectionRow& self) -> std::optional<std::uint64_t> {
                     if (self.max_bytes == UINT64_MAX) return std::nullopt;
                     return self.max_bytes;
                   })
      .def_ro("origin", &SelectionRow::origin);

  module.def(
      "selection_table",
      [](std::string_view collective, const topo::Placement& placement, double crowding) {
        return selection_for(placement, crowding).rows(collective_of(collective));
      },
      nb::arg("collective"), nb::arg("placement"), nb::arg("crowding") = 1.0);
  module.def("choose", &choose, nb::arg("collective"), nb::arg("bytes"), nb::arg("placement"),
             nb::arg("crowding") = 1.0);
  module.def(
      "candidates",
      [](std::string_view collective, std::uint64_t bytes, const topo::Placement& placement,
         double crowding, const std::optional<comm::Parameters>& parameters) {
        const comm::CostModel costs =
            parameters ? comm::cost_model_of(*parameters) : comm::host_cost_model();
        return selection_for(placement, crowding, costs)
            .candidates(collective_of(collective), bytes);
      },
      nb::arg("collective"), nb::arg("bytes"), nb::arg("placement"), nb::arg("crowding") = 1.0,
      nb::arg("parameters") = nb::none());
  module.def("cost_parameters", [] { return comm::parameters_of(comm::host_cost_model()); });
  module.def(
      "explain",
      [](std::string_view collective, std::uint64_t bytes, const topo::Placement& placement,
         double crowding) {
        return take(selection_for(placement, crowding).explain(collective_of(collective), bytes));
      },
      nb::arg("collective"), nb::arg("bytes"), nb::arg("placement"), nb::arg("crowding") = 1.0);
}

}  // namespace unisono::python
