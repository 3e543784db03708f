// The extension module: what unisono.torch needs beyond PyTorch's own bindings of a backend.

#include <pybind11/chrono.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "backend.h"
#include "errors.h"

namespace py = pybind11;

namespace unisono::pytorch {
namespace {

using Base = c10::intrusive_ptr<c10d::Backend>;
using ReduceOp = c10d::ReduceOp;

// `handle` is the address of a Communicator of the extension unisono._unisono, which is copied; 0
// is an empty one.
Base make_backend(std::uintptr_t handle, InitOptions joining, std::string name,
                  std::vector<std::uint64_t> global_ranks, std::chrono::milliseconds timeout,
                  bool host_waits) {
  const auto communicator =
      handle == 0 ? Communicator() : *reinterpret_cast<const Communicator*>(handle);
  return Backend::make(communicator, std::move(joining), std::move(name), std::move(global_ranks),
                       timeout, host_waits);
}

InitOptions joining(const std::string& interface, const std::optional<std::string>& policy,
                    int max_sms) {
  const auto found = policy ? policy_from_name(*policy) : std::nullopt;
  if (policy && !policy->empty() && !found)
    refuse("the policy '" + *policy + "' is unknown; choose fastest or zero_sm");
  return {.interface = interface, .policy = found, .max_sms = max_sms};
}
InitOptions as_rank(InitOptions joining, int rank, int size) {
  joining.rank = rank;
  joining.world_size = size;
  return joining;
}

}  // namespace
}  // namespace unisono::pytorch

PYBIND11_MODULE(_unisono_torch, module) {
  using namespace unisono::pytorch;
  py::module_::import("torch._C._distributed_c10d");
  // How ranks find each other, and what they agree on for calls on devices.
  py::class_<unisono::InitOptions>(module, "Joining")
      .def(py::init(&joining), py::arg("interface"), py::arg("policy"), py::arg("max_sms"))
      .def("as_rank", &as_rank, py::arg("rank"), py::arg("size"));
  // What ProcessGroup._get_backend returns for this library.
  py::class_<Backend, c10d::Backend, c10::intrusive_ptr<Backend>>(module, "ProcessGroupUnisono")
      .def_property_readonly("options", &Backend::getBackendOptions)
      .def_property_readonly("joining", &Backend::joining)
      .def("get_error", &Backend::getError, py::call_guard<py::gil_scoped_release>())
      .def("_drop_batch", &Backend::drop_batch, py::call_guard<py::gil_scoped_release>())
      .def("_set_default_timeout", &Backend::setTimeout, py::arg("timeout"),
           py::call_guard<py::gil_scoped_release>());
  module.def("make_backend", &make_backend, py::arg("handle"), py::arg("joining"), py::arg("name"),
             py::arg("global_ranks"), py::arg("timeout"), py::arg("host_waits"));
  module.def(
      "communicator_handle",
      [](const Base& backend) {
        return reinterpret_cast<std::uintptr_t>(&Backend::of(backend).connected("communicator"));
      },
      py::arg("backend"));
  module.def("close_all", &Backend::close_all, py::call_guard<py::gil_scoped_release>());
  module.def(
      "monitored_barrier",
      [](const Base& backend, std::chrono::milliseconds timeout) {
        c10d::BarrierOptions options;
        options.timeout = timeout;
        Backend::of(backend).monitoredBarrier(options, true);
      },
      py::arg("backend"), py::arg("timeout"), py::call_guard<py::gil_scoped_release>());
  module.def(
      "all_gather_by",
      [](const Base& backend, const std::string& algorithm, at::Tensor output, at::Tensor input,
         bool async_op) {
        return Backend::of(backend).all_gather_by(algorithm, output, input, async_op);
      },
      py::arg("backend"), py::arg("algorithm"), py::arg("output"), py::arg("input"),
      py::arg("async_op"), py::call_guard<py::gil_scoped_release>());
  module.def(
      "reduce_scatter_by",
      [](const Base& backend, const std::string& algorithm, at::Tensor output, at::Tensor input,
         const ReduceOp& op, bool async_op) {
        return Backend::of(backend).reduce_scatter_by(algorithm, output, input, op, async_op);
      },
      py::arg("backend"), py::arg("algorithm"), py::arg("output"), py::arg("input"), py::arg("op"),
      py::arg("async_op"), py::call_guard<py::gil_scoped_release>());
}
