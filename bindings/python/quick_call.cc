// Calls on plain arrays, without a view of each: a call of a few bytes takes less time than views
// do.

#include <unisono/communicator.h>

#include <nanobind/stl/string_view.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>

#include "bind.h"
#include "convert.h"
#include "interrupt.h"

namespace nb = nanobind;

namespace unisono::python {
namespace {

// The memory of a dense array of one of the core's types, while it is alive.
class PlainArray {
 public:
  PlainArray(nb::handle exporter, bool writable) {
    const int flags = PyBUF_FORMAT | PyBUF_C_CONTIGUOUS | (writable ? PyBUF_WRITABLE : 0);
    if (PyObject_CheckBuffer(exporter.ptr()) == 0) return;
    is_held_ = PyObject_GetBuffer(exporter.ptr(), &buffer_, flags) == 0;
    if (!is_held_) PyErr_Clear();
  }
  ~PlainArray() {
    if (is_held_) PyBuffer_Release(&buffer_);
  }
  PlainArray(const PlainArray&) = delete;
  PlainArray& operator=(const PlainArray&) = delete;

  // Nothing if it is no such array.
  std::optional<DataType> type() const {
    if (!is_held_ || buffer_.format == nullptr || std::strlen(buffer_.format) != 1) return {};
    constexpr std::array signed_by_bytes{DataType::int8, DataType::int16, DataType::int32,
                                         DataType::int64};
    constexpr std::array unsigned_by_bytes{DataType::uint8, DataType::uint16, DataType::uint32,
                                           DataType::uint64};
    // 1, 2, 4 and 8 bytes.
    const auto power = static_cast<std::size_t>(
        std::countr_zero(static_cast<std::size_t>(std::max<Py_ssize_t>(buffer_.itemsize, 1))));
    switch (buffer_.format[0]) {
      case 'b':
      case 'h':
      case 'i':
      case 'l':
      case 'q':
        return signed_by_bytes.at(power);
      case 'B':
      case 'H':
      case 'I':
      case 'L':
      case 'Q':
        return unsigned_by_bytes.at(power);
      case 'e':
        return DataType::float16;
      case 'f':
        return DataType::float32;
      case 'd':
        return DataType::float64;
      default:
        return {};
    }
  }
  void* data() const { return buffer_.buf; }
  std::int64_t count() const { return buffer_.len / std::max<Py_ssize_t>(buffer_.itemsize, 1); }
  // Rows along the first dimension; 0 where there is none.
  std::int64_t rows() const { return buffer_.ndim > 0 ? buffer_.shape[0] : 0; }

 private:
  Py_buffer buffer_{};
  bool is_held_ = false;
};

// The elements that a rank contributes to or gets from a call; nothing where arrays of so many
// elements do not fit the call.
std::optional<std::int64_t> count_of(Collective collective, const PlainArray& input,
                                     const PlainArray& output, std::int64_t ranks) {
  const std::int64_t in = input.count();
  const std::int64_t out = output.count();
  switch (collective) {
    case Collective::all_reduce:
    case Collective::broadcast:
      return in == out ? std::optional(in) : std::nullopt;
    case Collective::all_gather:
      return out == in * ranks ? std::optional(in) : std::nullopt;
    case Collective::reduce_scatter:
      return input.rows() % ranks == 0 && in == out * ranks && in > 0 ? std::optional(out)
                                                                      : std::nullopt;
    case Collective::all_to_all:
      return input.rows() % ranks == 0 && in == out && in > 0 ? std::optional(in / ranks)
                                                              : std::nullopt;
    default:
      return std::nullopt;
  }
}

// Runs a collective of default options, if it is one of plain arrays. False: it was not run, and
// the caller finds out what it is.
bool try_call(Communicator& communicator, std::string_view collective, nb::handle input,
              nb::handle output, std::string_view operation, int root) {
  const auto of = collective_from_name(collective);
  const auto reduction = reduce_operation_from_name(operation);
  if (!of || !reduction || *reduction == ReduceOperation::pre_multiplied_sum) return false;
  Call call;
  call.collective = *of;
  call.operation = *reduction;
  call.root = root;
  if (*of == Collective::barrier) {
    call.type = DataType::uint8;
    check(without_gil([&] { return communicator.run(call); }));
    return true;
  }
  const bool in_place = input.is(output);
  const PlainArray target(output, true);
  const auto type = target.type();
  if (!type) return false;
  std::optional<PlainArray> source;
  if (!in_place) {
    source.emplace(input, false);
    if (source->type() != type) return false;
  }
  const PlainArray& given = in_place ? target : *source;
  const auto count = count_of(*of, given, target, communicator.size());
  if (!count) return false;
  call.input = given.data();
  call.output = target.data();
  call.count = *count;
  call.type = *type;
  check(without_gil([&] { return communicator.run(call); }));
  return true;
}

// The same for a message without a tag, to or from a rank that is named.
bool try_message(Communicator& communicator, bool is_send, nb::handle array, int peer) {
  if (peer < 0 || peer >= communicator.size()) return false;
  const PlainArray memory(array, !is_send);
  const auto type = memory.type();
  if (!type) return false;
  check(without_gil([&] {
    return is_send ? communicator.send(memory.data(), memory.count(), *type, peer)
                   : communicator.recv(memory.data(), memory.count(), *type, peer);
  }));
  return true;
}

}  // namespace

void bind_quick_call(nb::module_& module) {
  module.def("try_call", &try_call, nb::arg("communicator"), nb::arg("collective"),
             nb::arg("input").none(), nb::arg("output").none(), nb::arg("operation"),
             nb::arg("root"));
  module.def("try_message", &try_message, nb::arg("communicator"), nb::arg("is_send"),
             nb::arg("array").none(), nb::arg("peer"));
}

}  // namespace unisono::python
