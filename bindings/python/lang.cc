// The language's native part: programs are traced into compile::Trace, and compiled.
//
// A step of a program is one call. What it costs decides how large a program can be written as
// plain loops, so the place in the user's source is found by code object and instruction,
// remembered, and buffers are recognised by the identity of their names.

#include "lang.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "base/settings.h"
#include "bind.h"

namespace unisono::python {
namespace {

Collective program_collective(std::string_view wanted) {
  if (const auto found = collective_from_name(wanted)) return *found;
  std::vector<std::string> names;
  for (int i = 0; i < collective_count; ++i)
    if (const auto one = static_cast<Collective>(i); compile::has_programs(one))
      names.emplace_back(name(one));
  raise_program(misuse("there is no collective '", wanted, "'", name_hint(wanted, names)));
}

Trace make_trace(std::string name, std::string_view collective, int ranks, int nodes, int root,
                 int chunks, bool in_place, std::pair<int, int> blocks) {
  compile::Program program;
  program.nodes = nodes;
  plan::Header& header = program.header;
  header.name = std::move(name);
  header.collective = program_collective(collective);
  header.ranks = ranks;
  header.root = root;
  header.chunks_per_block = chunks;
  header.in_place = in_place;
  header.input_blocks = blocks.first;
  header.output_blocks = blocks.second;
  if (ranks > 0 && root >= 0 && root < ranks) plan::set_blocks(header);
  return take_program(Trace::start(program));
}

template <class T>
T option(std::string_view name, nb::handle value) {
  T out{};
  // A bool is no number.
  const bool fits = std::is_same_v<T, bool> || !PyBool_Check(value.ptr());
  if (fits && nb::try_cast(value, out)) return out;
  raise_program(misuse(name, " is ", nb::repr(value).c_str(), ", of type ",
                       nb::cast<std::string>(value.type().attr("__name__")), "; it must be ",
                       std::is_same_v<T, bool>       ? "True or False"
                       : std::is_integral_v<T>       ? "a whole number"
                       : std::is_floating_point_v<T> ? "a number"
                                                     : "a text"));
}

constexpr std::array<std::string_view, 10> known_options{
    "in_place",    "protocol", "instances", "alpha_us",     "gigabytes_per_second",
    "block_bytes", "fuse",     "slots",     "check_passes", "target"};

compile::Options options_of(const nb::dict& values) {
  compile::Options options{.check_passes = environment_settings().boolean(Setting::check_passes)};
  for (const auto& [key, value] : values) {
    const auto name = option<std::string>("the name of an option", key);
    if (std::ranges::find(known_options, name) == known_options.end())
      raise_program(misuse("there is no option '", name, "'",
                           name_hint(name, {known_options.begin(), known_options.end()})));
    if (name == "in_place") options.in_place = option<bool>(name, value);
    if (name == "protocol") options.protocol = protocol_of(option<std::string>(name, value));
    if (name == "instances") options.instances = option<int>(name, value);
    if (name == "alpha_us") options.alpha_us = option<double>(name, value);
    if (name == "gigabytes_per_second") options.gigabytes_per_second = option<double>(name, value);
    if (name == "block_bytes") options.block_bytes = option<std::int64_t>(name, value);
    if (name == "fuse") options.fuse = option<bool>(name, value);
    if (name == "slots") options.slots = option<int>(name, value);
    if (name == "check_passes") options.check_passes = option<bool>(name, value);
    if (name == "target" && !value.is_none())
      options.target = take_program(plan::find_foreign_executor(option<std::string>(name, value)));
  }
  return options;
}

// set(line), of which only a message needs to know the line.
template <class Set>
void set_at_caller(PyTrace& self, Set set) {
  if (!set(0).ok()) [[unlikely]]
    check_program(set(self.caller()));
}

}  // namespace

void bind_lang(nb::module_& module) {
  bind_chunks(module);
  nb::class_<PyTrace> trace(module, "Trace");
  bind_taking(trace);
  trace
      .def(
          "__init__",
          [](PyTrace* self, std::string name, std::string_view collective, Whole<int> ranks,
             Whole<int> nodes, Whole<int> root, Whole<int> chunks, bool in_place,
             std::pair<Whole<int>, Whole<int>> blocks) {
            new (self) PyTrace(make_trace(std::move(name), collective, ranks, nodes, root, chunks,
                                          in_place, {blocks.first, blocks.second}));
          },
          nb::arg("name"), nb::arg("collective"), nb::arg("ranks"), nb::arg("nodes"),
          nb::arg("root"), nb::arg("chunks"), nb::arg("in_place"), nb::arg("blocks"))
      .def(
          "set_conditions",
          [](PyTrace& self, std::vector<bool> given,
             std::vector<std::vector<std::int32_t>> required) {
            check_program(self.trace.set_conditions({std::move(given), std::move(required)}));
          },
          nb::arg("given"), nb::arg("required"))
      .def(
          "set_most_steps",
          [](PyTrace& self, Whole<std::size_t> most) { self.trace.set_most_operations(most); },
          nb::arg("most"))
      .def(
          "set_home",
          [](PyTrace& self, std::string file, int line) {
            self.trace.set_home(std::move(file), line);
          },
          nb::arg("file"), nb::arg("line"))
      .def(
          "add_scratch",
          [](PyTrace& self, const std::string& name, Whole<std::int64_t> chunks) {
            self.check_open();
            set_at_caller(self, [&](std::int32_t line) {
              return self.trace.add_scratch(name, chunks, line);
            });
          },
          nb::arg("name"), nb::arg("chunks"))
      .def(
          "set_parallel",
          [](PyTrace& self, Whole<int> instances) {
            self.check_open();
            const int before = self.trace.parallel();
            set_at_caller(
                self, [&](std::int32_t line) { return self.trace.set_parallel(instances, line); });
            return before;
          },
          nb::arg("instances"))
      .def(
          "set_channel",
          [](PyTrace& self, Whole<int> channel) {
            self.check_open();
            const int before = self.trace.channel();
            set_at_caller(self,
                          [&](std::int32_t line) { return self.trace.set_channel(channel, line); });
            return before;
          },
          nb::arg("channel"))
      .def(
          "set_thread_blocks",
          [](PyTrace& self, std::optional<Whole<int>> send, std::optional<Whole<int>> recv) {
            self.check_open();
            const Trace::ThreadBlocks before = self.trace.thread_blocks();
            set_at_caller(self, [&](std::int32_t line) {
              return self.trace.set_thread_blocks({send, recv}, line);
            });
            return before;
          },
          nb::arg("send").none(), nb::arg("recv").none())
      .def("begin", &PyTrace::begin)
      .def("end", &PyTrace::end)
      .def("caller", [](PyTrace& self) { return self.trace.where(self.caller()); })
      .def_prop_ro("operations", [](PyTrace& self) { return self.trace.operations().size(); })
      .def(
          "compile",
          [](PyTrace& self, const nb::dict& options) {
            const compile::Options wanted = options_of(options);
            const auto made = [&] {
              const nb::gil_scoped_release release;
              return compile::compile(self.trace, wanted);
            };
            return take_program(made());
          },
          nb::arg("options"))
      .def(
          "dump_after",
          [](PyTrace& self, const nb::dict& options, std::string_view pass) {
            return take_program(compile::dump_after(self.trace, options_of(options), pass));
          },
          nb::arg("options"), nb::arg("pass_name"));
}

}  // namespace unisono::python
