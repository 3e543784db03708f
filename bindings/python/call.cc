#include "call.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "base/error.h"
#include "bind.h"
#include "convert.h"

namespace nb = nanobind;

namespace unisono::python {
namespace {

bool is_integer(DataType type) { return type <= DataType::uint64; }

// Python's int goes to integers as it is, modulo 2^64; this function checks whether the type can
// hold it.
void set_multiplier(Call& call, nb::handle multiplier) {
  if (call.operation != ReduceOperation::pre_multiplied_sum) return;
  if (!is_integer(call.type)) {
    if (!nb::try_cast(multiplier, call.multiplier))
      raise(misuse("multiplier is ", nb::repr(multiplier).c_str(), " in ", name(call.collective),
                   "; it must be a number"));
    return;
  }
  const bool is_signed = call.type == DataType::int8 || call.type == DataType::int16 ||
                         call.type == DataType::int32 || call.type == DataType::int64;
  const auto bits = static_cast<int>(size_bytes(call.type) * 8);
  const std::uint64_t most =
      is_signed ? (std::uint64_t{1} << (bits - 1)) - 1 : ~std::uint64_t{0} >> (64 - bits);
  const std::int64_t least = is_signed ? -static_cast<std::int64_t>(most) - 1 : 0;
  std::int64_t whole = 0;
  std::uint64_t large = 0;
  const bool has_whole = nb::try_cast(multiplier, whole, false);
  if (has_whole && whole >= least && (whole < 0 || static_cast<std::uint64_t>(whole) <= most)) {
    call.integer_multiplier = whole;
  } else if (!has_whole && nb::try_cast(multiplier, large, false) && large <= most) {
    call.integer_multiplier = static_cast<std::int64_t>(large);
  } else {
    raise(misuse("multiplier is ", nb::repr(multiplier).c_str(), " in ", name(call.collective),
                 " of ", name(call.type), "; it must be a whole number from ", least, " to ",
                 most));
  }
}

}  // namespace

OwnedCall::OwnedCall(std::string_view collective, std::uintptr_t input, std::uintptr_t output,
                     std::int64_t count, std::string_view type, std::string_view operation,
                     int root, nb::handle multiplier, const nb::dict& options,
                     std::optional<std::uintptr_t> stream,
                     std::vector<std::int64_t> its_send_counts,
                     std::vector<std::int64_t> its_send_displacements,
                     std::vector<std::int64_t> its_recv_counts,
                     std::vector<std::int64_t> its_recv_displacements)
    : send_counts(std::move(its_send_counts)),
      send_displacements(std::move(its_send_displacements)),
      recv_counts(std::move(its_recv_counts)),
      recv_displacements(std::move(its_recv_displacements)) {
  call.collective = collective_of(collective);
  call.input = reinterpret_cast<const void*>(input);
  call.output = reinterpret_cast<void*>(output);
  call.count = count;
  call.type = data_type_of(type);
  call.operation = operation_of(operation);
  call.root = root;
  set_multiplier(call, multiplier);
  call.options = call_options_of(options, stream);
  call.send_counts = send_counts;
  call.send_displacements = send_displacements;
  call.recv_counts = recv_counts;
  call.recv_displacements = recv_displacements;
}

void bind_call(nb::module_& module) {
  using Counts = std::vector<std::int64_t>;
  nb::class_<OwnedCall>(module, "Call")
      .def(nb::init<std::string_view, std::uintptr_t, std::uintptr_t, std::int64_t,
                    std::string_view, std::string_view, int, nb::handle, const nb::dict&,
                    std::optional<std::uintptr_t>, Counts, Counts, Counts, Counts>(),
           nb::arg("collective"), nb::arg("input"), nb::arg("output"), nb::arg("count"),
           nb::arg("type"), nb::arg("operation") = "sum", nb::arg("root") = 0,
           nb::arg("multiplier") = nb::int_(1), nb::arg("options") = nb::dict(),
           nb::arg("stream") = nb::none(), nb::arg("send_counts") = Counts(),
           nb::arg("send_displacements") = Counts(), nb::arg("recv_counts") = Counts(),
           nb::arg("recv_displacements") = Counts());

  nb::class_<Message>(module, "Message")
      .def(
          "__init__",
          [](Message* self, bool is_send, std::uintptr_t address, std::int64_t count,
             std::string_view type, int peer, int tag) {
            new (self) Message{.is_send = is_send,
                               .count = count,
                               .type = data_type_of(type),
                               .peer = peer,
                               .tag = tag};
            if (is_send)
              self->send_data = reinterpret_cast<const void*>(address);
            else
              self->recv_data = reinterpret_cast<void*>(address);
          },
          nb::arg("is_send"), nb::arg("address"), nb::arg("count"), nb::arg("type"),
          nb::arg("peer"), nb::arg("tag") = 0);
}

}  // namespace unisono::python
