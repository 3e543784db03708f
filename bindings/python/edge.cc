#include "edge.h"

#include <algorithm>
#include <array>
#include <exception>
#include <new>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "convert.h"

namespace nb = nanobind;

namespace unisono::python {
namespace {

// nanobind calls functions through one entry for each shape of signature, six of them; which one
// was a callable's own is found by the guard that was put over it.
constexpr std::size_t max_entries = 16;
std::array<vectorcallfunc, max_entries> entries{};

// Called with a TypeError set. Python words what is wrong; it leaves other TypeErrors alone.
void refuse(PyObject* function, PyObject* const* arguments, std::size_t flags, PyObject* names) {
  const nb::python_error error;
  try {
    // The flags above are Python's and nanobind's.
    const std::size_t positional = flags & 0xffffffffu;
    nb::list values;
    for (std::size_t i = 0; i < positional; ++i) values.append(nb::handle(arguments[i]));
    nb::dict named;
    const std::size_t count =
        names == nullptr ? 0 : static_cast<std::size_t>(PyTuple_GET_SIZE(names));
    for (std::size_t i = 0; i < count; ++i)
      named[nb::handle(PyTuple_GET_ITEM(names, static_cast<Py_ssize_t>(i)))] =
          nb::handle(arguments[positional + i]);
    const nb::object answer =
        nb::module_::import_("unisono.arguments")
            .attr("refusal")(nb::handle(function), error.value(), values, named);
    PyErr_SetObject(answer.type().ptr(), answer.ptr());
  } catch (nb::python_error& failed) {
    failed.restore();
  }
}

template <std::size_t entry>
PyObject* call(PyObject* function, PyObject* const* arguments, std::size_t flags, PyObject* names) {
  PyObject* result = entries[entry](function, arguments, flags, names);
  if (result == nullptr && PyErr_ExceptionMatches(PyExc_TypeError))
    refuse(function, arguments, flags, names);
  return result;
}

template <std::size_t... entry>
constexpr std::array<vectorcallfunc, max_entries> make_guards(std::index_sequence<entry...>) {
  return {&call<entry>...};
}
constexpr auto guards = make_guards(std::make_index_sequence<max_entries>());

void guard(nb::handle function) {
  auto& held = *reinterpret_cast<vectorcallfunc*>(reinterpret_cast<char*>(function.ptr()) +
                                                  Py_TYPE(function.ptr())->tp_vectorcall_offset);
  if (std::ranges::find(guards, held) != guards.end()) return;
  for (std::size_t i = 0; i < max_entries; ++i) {
    if (entries[i] == nullptr) entries[i] = held;
    if (entries[i] != held) continue;
    held = guards[i];
    return;
  }
}

bool is_function(nb::handle object) {
  const std::string_view name = Py_TYPE(object.ptr())->tp_name;
  return name == "nanobind.nb_func" || name == "nanobind.nb_method";
}

PyObject* construct(PyObject* type, PyObject* const* arguments, std::size_t flags,
                    PyObject* names) {
  PyErr_SetString(PyExc_TypeError, "no constructor");
  refuse(type, arguments, flags, names);
  return nullptr;
}

void guard_class(nb::handle handle) {
  auto* type = reinterpret_cast<PyTypeObject*>(handle.ptr());
  const auto members = nb::borrow<nb::dict>(type->tp_dict);
  // A constructor is guarded as every method is; classes that have none are only handed out.
  if (!is_function(members["__init__"])) type->tp_vectorcall = &construct;
  for (const auto [name, member] : members) {
    if (is_function(member)) guard(member);
    if (!PyObject_TypeCheck(member.ptr(), &PyProperty_Type)) continue;
    for (const char* part : {"fget", "fset"}) {
      const nb::object function = member.attr(part);
      if (is_function(function)) guard(function);
    }
  }
}

}  // namespace

void answer_exceptions() {
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& error) {
      try {
        raise(bug("a C++ exception that nothing answers: ", error.what()));
      } catch (nb::python_error& raised) {
        raised.restore();
      }
    }
  });
}

void guard_functions(nb::module_& module) {
  for (const auto [name, member] : nb::borrow<nb::dict>(module.attr("__dict__"))) {
    if (is_function(member)) guard(member);
    if (PyType_Check(member.ptr()) && nb::type_check(member)) guard_class(member);
  }
}

}  // namespace unisono::python
