// What the language's bindings share: traces that know where the user's source is.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <array>
#include <optional>
#include <vector>

#include "base/error.h"
#include "compile/compile.h"
#include "convert.h"

namespace unisono::python {

namespace nb = nanobind;

// A whole number as an argument: a bool, which Python counts among its integers, is none.
template <class T>
struct Whole {
  T value = 0;
  operator T() const { return value; }
};

}  // namespace unisono::python

template <class T>
struct nanobind::detail::type_caster<unisono::python::Whole<T>> {
  NB_TYPE_CASTER(unisono::python::Whole<T>, const_name("int"))

  bool from_python(handle source, std::uint8_t flags, cleanup_list* cleanup) noexcept {
    make_caster<T> inner;
    if (PyBool_Check(source.ptr()) || !inner.from_python(source, flags, cleanup)) return false;
    value.value = inner.value;
    return true;
  }
};

namespace unisono::python {

using compile::Chunk;
using compile::Kind;
using compile::Trace;

// ProgramError for what the program's author can change.
[[noreturn]] inline void raise_program(const Error& error) {
  if (error.kind != ErrorKind::misuse) raise(error);
  const nb::object exception =
      nb::module_::import_("unisono.errors").attr("ProgramError")(error.message);
  PyErr_SetObject(exception.type().ptr(), exception.ptr());
  throw nb::python_error();
}

template <class T>
T take_program(Result<T> result) {
  if (!result.ok()) [[unlikely]]
    raise_program(result.error());
  return std::move(*result);
}
inline void check_program(const Status& status) {
  if (!status.ok()) raise_program(status.error());
}

// The lines of the user's source that call steps.
class Lines {
 public:
  // The line of the Python function that is calling.
  std::int32_t current(Trace& trace) {
    PyFrameObject* frame = PyEval_GetFrame();
    if (frame == nullptr) return 0;
    PyCodeObject* code = PyFrame_GetCode(frame);
    const int instruction = PyFrame_GetLasti(frame);
    Slot& slot = slots_[(reinterpret_cast<std::uintptr_t>(code) / 16 +
                         static_cast<std::uintptr_t>(instruction)) %
                        slots_.size()];
    if (slot.code == code && slot.instruction == instruction) [[likely]] {
      Py_DECREF(code);
      return slot.line;
    }
    // The code object is kept: another one must not come to lie where it was.
    codes_.push_back(nb::steal(reinterpret_cast<PyObject*>(code)));
    nb::handle name = code->co_filename;
    slot = {code, instruction,
            trace.add_line(nb::cast<std::string>(name), PyFrame_GetLineNumber(frame))};
    return slot.line;
  }

  // The line of who called that function, past those of its file and the standard library's context
  // managers.
  static std::int32_t caller(Trace& trace) {
    const auto file_of = [](const nb::object& frame) {
      const nb::object code = nb::steal(reinterpret_cast<PyObject*>(
          PyFrame_GetCode(reinterpret_cast<PyFrameObject*>(frame.ptr()))));
      return nb::cast<std::string>(code.attr("co_filename"));
    };
    nb::object frame = nb::borrow(reinterpret_cast<PyObject*>(PyEval_GetFrame()));
    if (!frame.is_valid()) return 0;
    const std::string own = file_of(frame);
    for (; frame.is_valid(); frame = nb::steal(reinterpret_cast<PyObject*>(
                                 PyFrame_GetBack(reinterpret_cast<PyFrameObject*>(frame.ptr()))))) {
      const std::string file = file_of(frame);
      if (file != own && !file.ends_with("contextlib.py"))
        return trace.add_line(file,
                              PyFrame_GetLineNumber(reinterpret_cast<PyFrameObject*>(frame.ptr())));
    }
    return 0;
  }

 private:
  struct Slot {
    PyCodeObject* code = nullptr;
    int instruction = 0;
    std::int32_t line = 0;
  };
  std::array<Slot, 256> slots_{};
  std::vector<nb::object> codes_;
};

class PyTrace {
 public:
  explicit PyTrace(Trace program) : trace(std::move(program)) {}
  ~PyTrace() { end(); }
  PyTrace(const PyTrace&) = delete;
  PyTrace& operator=(const PyTrace&) = delete;

  // Programs are traced one inside the other at most: the innermost takes steps, the others none.
  void begin() {
    outer_ = innermost_;
    innermost_ = this;
  }
  void end() {
    if (innermost_ == this) innermost_ = outer_;
  }
  // A step that another compilation of the program, or another program, would take is refused: it
  // would vanish from this one.
  void check_open() {
    if (innermost_ == this) [[likely]]
      return;
    raise_program(misuse(where_now(), "the chunk or the program is of another compilation, of ",
                         trace.program().header.name,
                         ", which takes no steps now; take chunks of the p that the function is "
                         "called with"));
  }

  std::int32_t line() { return lines_.current(trace); }
  std::int32_t caller() { return Lines::caller(trace); }

  int buffer(nb::handle name) {
    for (std::size_t i = 0; i < names_.size(); ++i)
      if (names_[i].ptr() == name.ptr()) return buffers_[i];
    if (!nb::isinstance<nb::str>(name))
      raise_program(misuse(trace.where(line()), "a buffer is named by a string, not by a ",
                           nb::cast<std::string>(nb::str(name.type().attr("__name__")))));
    const auto text = nb::cast<std::string>(name);
    const int found = trace.layout().find(text);
    if (found < 0) {
      std::vector<std::string> known;
      for (int i = 0; i < trace.layout().buffers(); ++i)
        known.push_back(trace.layout().buffer_name(i));
      raise_program(misuse(trace.where(line()), "there is no buffer '", text, "'",
                           name_hint(text, known), " scratch(name, chunks) makes one"));
    }
    // A program names few buffers, but could build their names anew each time.
    if (names_.size() < 16) {
      names_.push_back(nb::borrow(name));
      buffers_.push_back(found);
    }
    return found;
  }

  Trace trace;

 private:
  std::string where_now() { return trace.where(line()); }

  Lines lines_;
  std::vector<nb::object> names_;
  std::vector<int> buffers_;
  PyTrace* outer_ = nullptr;
  static inline thread_local PyTrace* innermost_ = nullptr;
};

// Keeps the trace's Python object alive.
class Owner {
 public:
  Owner(nb::handle object, PyTrace* trace) : object_(nb::borrow(object)), trace_(trace) {}
  PyTrace* operator->() const { return trace_; }
  PyTrace& operator*() const { return *trace_; }
  bool is(const Owner& other) const { return trace_ == other.trace_; }

 private:
  nb::object object_;
  PyTrace* trace_;
};

struct PyChunk {
  Owner owner;
  Chunk chunk;

  compile::Layout::Names names() const { return owner->trace.layout().names(chunk.cell); }
};

// A whole number that a step was given, or what it is instead.
template <class T>
T whole_number(PyTrace& owner, nb::handle value, std::string_view what) {
  Whole<T> number;
  if (!nb::try_cast(value, number))
    raise_program(misuse(owner.trace.where(owner.line()), what, " is a whole number, not ",
                         nb::cast<std::string>(nb::repr(value))));
  return number;
}

// -1 for that of the fragment around.
inline int channel_of(PyTrace& owner, nb::handle channel) {
  if (channel.is_none()) return -1;
  const int number = whole_number<int>(owner, channel, "a channel");
  if (number < 0)
    raise_program(misuse(owner.trace.where(owner.line()), "channel ", number,
                         "; channels are 0 to ", compile::max_channel));
  return number;
}

void bind_chunks(nb::module_& module);
// chunk and chunks of a trace.
void bind_taking(nb::class_<PyTrace>& trace);

}  // namespace unisono::python
