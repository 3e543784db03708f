// Memory of Python objects, by DLPack or the buffer protocol.

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include "base/str.h"
#include "bind.h"
#include "convert.h"

namespace nb = nanobind;

namespace unisono::python {
namespace {

using Code = nb::dlpack::dtype_code;

std::string type_name(const nb::dlpack::dtype& type) {
  if (type.lanes != 1) return "";
  switch (static_cast<Code>(type.code)) {
    case Code::Int:
      return str("int", type.bits);
    case Code::UInt:
      return str("uint", type.bits);
    case Code::Float:
      return str("float", type.bits);
    case Code::Bfloat:
      return str("bfloat", type.bits);
    case Code::Float8_E4M3FN:
      return "float8_e4m3";
    case Code::Float8_E5M2:
      return "float8_e5m2";
    case Code::Bool:
      return "bool";
    case Code::Complex:
      return str("complex", type.bits);
    default:
      return "";
  }
}

// Exporters may leave out shapes and strides, as ctypes does; nanobind reads them. A memoryview has
// them.
nb::object with_strides(nb::handle source) {
  if (PyObject_CheckBuffer(source.ptr()) == 0 || nb::hasattr(source, "__dlpack__"))
    return nb::borrow(source);
  nb::object view = nb::steal(PyMemoryView_FromObject(source.ptr()));
  if (!view.is_valid()) throw nb::python_error();
  return view;
}

class Buffer {
 public:
  Buffer(nb::handle exporter, bool writable) {
    const nb::object source = with_strides(exporter);
    if (writable) {
      nb::ndarray<> array;
      if (!nb::try_cast(source, array, false)) throw nb::type_error("no writable memory is shared");
      read(array);
      memory_ = nb::ndarray<nb::ro>(std::move(array));
    } else {
      nb::ndarray<nb::ro> array;
      if (!nb::try_cast(source, array, false)) throw nb::type_error("no memory is shared");
      read(array);
      memory_ = std::move(array);
    }
  }

  std::uintptr_t address() const { return reinterpret_cast<std::uintptr_t>(memory_.data()); }
  std::size_t count() const { return memory_.size(); }
  int item_bytes() const { return memory_.dtype().bits / 8 * memory_.dtype().lanes; }
  bool on_cpu() const { return memory_.device_type() == nb::device::cpu::value; }
  bool contiguous() const { return contiguous_; }

  nb::tuple shape() const {
    return tuple([this](std::size_t i) { return static_cast<std::int64_t>(memory_.shape(i)); });
  }
  nb::tuple strides() const {
    return tuple([this](std::size_t i) { return memory_.stride(i); });
  }

  // The core's name; empty when it has no such type.
  std::string type() const {
    const std::string found = type_name(memory_.dtype());
    return data_type_from_name(found) ? found : "";
  }
  std::string type_text() const {
    const nb::dlpack::dtype type = memory_.dtype();
    const std::string found = type_name(type);
    return found.empty()
               ? str("DLPack code ", type.code, ", ", type.bits, " bits, ", type.lanes, " lanes")
               : found;
  }

  // Address, count, shape and type of a dense array in CPU memory, whose type the core has; None of
  // others. For most arrays this is all that is asked.
  nb::object plain() const {
    if (!on_cpu() || !contiguous_) return nb::none();
    const std::string known = type();
    if (known.empty()) return nb::none();
    return nb::make_tuple(address(), count(), shape(), known);
  }

  std::string device() const {
    const int type = memory_.device_type();
    const std::string id = str(":", memory_.device_id());
    switch (type) {
      case nb::device::cpu::value:
        return "cpu";
      case nb::device::cuda::value:
        return "cuda" + id;
      case nb::device::rocm::value:
        return "rocm" + id;
      case nb::device::metal::value:
        return "metal" + id;
      default:
        return str("DLPack type ", type, id);
    }
  }

 private:
  template <class Array>
  void read(const Array& array) {
    std::int64_t expected = 1;
    contiguous_ = true;
    for (std::size_t i = array.ndim(); i-- > 0;) {
      const auto length = static_cast<std::int64_t>(array.shape(i));
      if (length != 1 && array.stride(i) != expected) contiguous_ = false;
      expected *= length;
    }
    if (array.size() == 0) contiguous_ = true;
  }

  template <class F>
  nb::tuple tuple(F&& at) const {
    nb::list list;
    for (std::size_t i = 0; i < memory_.ndim(); ++i) list.append(at(i));
    return nb::tuple(list);
  }

  nb::ndarray<nb::ro> memory_;
  bool contiguous_ = true;
};

}  // namespace

void bind_buffer(nb::module_& module) {
  nb::class_<Buffer>(module, "Buffer")
      .def(nb::init<nb::handle, bool>(), nb::arg("source"), nb::arg("writable"))
      .def_prop_ro("address", &Buffer::address)
      .def_prop_ro("count", &Buffer::count)
      .def_prop_ro("item_bytes", &Buffer::item_bytes)
      .def_prop_ro("shape", &Buffer::shape)
      .def_prop_ro("strides", &Buffer::strides)
      .def_prop_ro("type", &Buffer::type)
      .def_prop_ro("type_text", &Buffer::type_text)
      .def_prop_ro("on_cpu", &Buffer::on_cpu)
      .def("plain", &Buffer::plain)
      .def_prop_ro("device", &Buffer::device)
      .def_prop_ro("contiguous", &Buffer::contiguous);
}

}  // namespace unisono::python
