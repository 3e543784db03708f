// The verifier's reports and logical schedules.

#include "verify/verify.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "base/str.h"
#include "bind.h"
#include "convert.h"
#include "verify/schedule.h"

namespace nb = nanobind;

namespace unisono::python {

void bind_verify(nb::module_& module) {
  using verify::Failure;
  nb::class_<Failure>(module, "Failure")
      .def_prop_ro("problem", [](const Failure& self) { return text(name(self.problem)); })
      .def_ro("rank", &Failure::rank)
      .def_ro("thread_block", &Failure::thread_block)
      .def_ro("step", &Failure::step)
      .def_prop_ro("buffer", [](const Failure& self) { return text(name(self.buffer)); })
      .def_ro("chunk", &Failure::chunk)
      .def_ro("expected", &Failure::expected)
      .def_ro("got", &Failure::got)
      .def_ro("counterexample", &Failure::counterexample)
      .def("describe", &Failure::describe)
      .def("__repr__", [](const Failure& self) {
        return str("<unisono.Failure: ", name(self.problem), ", rank ", self.rank, ">");
      });

  using verify::Report;
  nb::class_<Report>(module, "Report")
      .def_prop_ro("ok", &Report::ok)
      .def("__repr__",
           [](const Report& self) {
             const std::string verdict =
                 self.ok()
                     ? str("right, ", number_of(self.slots, "slot"))
                     : str(number_of(static_cast<std::int64_t>(self.failures.size()), "failure"),
                           ", first ", name(self.failures.front().problem), " on rank ",
                           self.failures.front().rank);
             return str("<unisono.Report: ", verdict, ", ", number_of(self.steps, "step"), ", ",
                        number_of(self.messages, "message"), ">");
           })
      .def("_repr_html_", &html_of)
      .def_ro("failures", &Report::failures)
      .def_ro("steps", &Report::steps)
      .def_ro("messages", &Report::messages)
      .def_ro("slots", &Report::slots)
      .def_ro("orders_differ", &Report::orders_differ);

  using verify::TimedStep;
  nb::class_<TimedStep>(module, "TimedStep")
      .def_ro("rank", &TimedStep::rank)
      .def_ro("thread_block", &TimedStep::thread_block)
      .def_ro("number", &TimedStep::number)
      .def_prop_ro("operation", [](const TimedStep& self) { return text(name(self.operation)); })
      .def_ro("text", &TimedStep::text)
      .def_ro("start", &TimedStep::start)
      .def_ro("end", &TimedStep::end);

  using verify::Arrow;
  nb::class_<Arrow>(module, "Arrow")
      .def_ro("sender", &Arrow::sender)
      .def_ro("receiver", &Arrow::receiver)
      .def_ro("sent", &Arrow::sent)
      .def_ro("arrived", &Arrow::arrived);

  using verify::Schedule;
  nb::class_<Schedule>(module, "Schedule")
      .def_ro("steps", &Schedule::steps)
      .def_ro("messages", &Schedule::messages)
      .def_ro("duration", &Schedule::duration);
}

}  // namespace unisono::python
