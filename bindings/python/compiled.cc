// What the compiler gives, and its passes.

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "compile/compile.h"
#include "convert.h"

namespace nb = nanobind;

namespace unisono::python {

void bind_compiled(nb::module_& module) {
  using compile::Compiled;
  nb::class_<Compiled>(module, "Compiled")
      .def_ro("plan", &Compiled::plan)
      .def_ro("steps", &Compiled::steps)
      .def_ro("messages", &Compiled::messages)
      .def_prop_ro("timings", [](const Compiled& self) {
        std::vector<std::pair<std::string, double>> out;
        for (const compile::Timing& one : self.timings)
          out.emplace_back(text(one.name), one.seconds);
        return out;
      });
  module.def("passes", [] {
    std::vector<std::pair<std::string, std::string>> out;
    for (const compile::Pass& pass : compile::passes())
      out.emplace_back(text(pass.name), text(pass.summary));
    return out;
  });
}

}  // namespace unisono::python
