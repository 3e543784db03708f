// The verifier's reports and logical schedules.

#include "verify/verify.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "base/str.h"
#include "bind.h"
#include "convert.h"
#include "verification.h"
#include "verify/schedule.h"

namespace nb = nanobind;

namespace unisono::python {
namespace {

// A schedule whose lists are made once: programs index them in loops.
struct TimedPlan {
  nb::tuple steps;
  nb::tuple messages;
  std::int64_t duration = 0;
};

template <class T>
nb::tuple tuple_of(std::vector<T>&& values) {
  nb::list out;
  for (T& value : values) out.append(std::move(value));
  return nb::tuple(out);
}

std::string verdict_of(const verify::Report& report) {
  if (report.ok())
    return str(report.results_verified ? "right, " : "right but for its results, ",
               number_of(report.slots, "slot"));
  const verify::Failure& first = report.failures.front();
  const std::string place = first.rank >= 0 ? str(" on rank ", first.rank) : "";
  return str(number_of(static_cast<std::int64_t>(report.failures.size()), "failure"), ", first ",
             name(first.problem), place);
}

}  // namespace

nb::object schedule_of(const plan::Plan& plan, int slots) {
  verify::Schedule schedule = take(verify::make_schedule(plan, slots));
  return nb::cast(TimedPlan{tuple_of(std::move(schedule.steps)),
                            tuple_of(std::move(schedule.messages)), schedule.duration});
}

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
        const std::string place = self.rank >= 0 ? str(", rank ", self.rank) : "";
        return str("<unisono.Failure: ", name(self.problem), place, ">");
      });

  using verify::Report;
  nb::class_<Report>(module, "Report")
      .def_prop_ro("ok", &Report::ok)
      .def("__repr__",
           [](const Report& self) {
             return str("<unisono.Report: ", verdict_of(self), ", ", number_of(self.steps, "step"),
                        ", ", number_of(self.messages, "message"), ">");
           })
      .def("_repr_html_", &html_of)
      .def_ro("failures", &Report::failures)
      .def_ro("steps", &Report::steps)
      .def_ro("messages", &Report::messages)
      .def_ro("slots", &Report::slots)
      .def_ro("results_verified", &Report::results_verified)
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

  nb::class_<TimedPlan>(module, "Schedule")
      .def_ro("steps", &TimedPlan::steps)
      .def_ro("messages", &TimedPlan::messages)
      .def_ro("duration", &TimedPlan::duration);
}

}  // namespace unisono::python
