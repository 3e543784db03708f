// Times calls on a CUDA device: a communicator's and NCCL's, in one process, on the same buffers.

#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include <algorithm>

#include "base/error.h"
#include "base/try.h"
#include "bind.h"
#include "call.h"
#include "convert.h"
#include "interrupt.h"
#include "nccl_peer.h"
#include "sys/cuda/device.h"

namespace nb = nanobind;

namespace unisono::python {
namespace {

using sys::cuda::Current;
using sys::cuda::Device;
using sys::cuda::DeviceAddress;

constexpr int capture_thread_local = 1;
constexpr unsigned stream_non_blocking = 1;

class DeviceBench {
 public:
  static Result<std::unique_ptr<DeviceBench>> make(const Communicator& communicator, int ordinal,
                                                   std::size_t max_bytes) {
    std::unique_ptr<DeviceBench> bench(new DeviceBench(communicator));
    UNISONO_ASSIGN(bench->device_, Device::open(ordinal));
    UNISONO_ASSIGN(bench->input_, sys::cuda::Memory::allocate(bench->device_, max_bytes));
    UNISONO_ASSIGN(bench->output_, sys::cuda::Memory::allocate(bench->device_, max_bytes));
    const Current current(*bench->device_);
    UNISONO_TRY(bench->check(bench->driver().stream_create(&bench->stream_, stream_non_blocking),
                             "making a stream"));
    for (auto& event : bench->events_)
      UNISONO_TRY(bench->check(bench->driver().event_create(&event, 0), "making an event"));
    return bench;
  }
  ~DeviceBench() {
    if (stream_ == nullptr) return;
    nccl_.reset();
    const Current current(*device_);
    for (auto* event : events_) driver().event_destroy(event);
    driver().stream_destroy(stream_);
  }
  DeviceBench(const DeviceBench&) = delete;
  DeviceBench& operator=(const DeviceBench&) = delete;

  DeviceAddress input_address() const { return input_.address(); }
  DeviceAddress output_address() const { return output_.address(); }
  std::uintptr_t stream() const { return reinterpret_cast<std::uintptr_t>(stream_); }
  Status copy(DeviceAddress to, DeviceAddress from, std::size_t bytes) const {
    return device_->copy(to, from, bytes);
  }

  Result<int> join_nccl(const std::string& library, const NcclId& id) {
    const Current current(*device_);
    UNISONO_ASSIGN(nccl_, NcclPeer::join(library, id, communicator_.rank(), communicator_.size()));
    return nccl_->version();
  }

  Status run(const Call& call, bool by_nccl) {
    UNISONO_TRY(enqueue(call, by_nccl));
    return synchronize();
  }

  // Microseconds of a call, of `calls` one after another.
  Result<double> time_us(const Call& call, bool by_nccl, int calls, bool in_graph) {
    sys::cuda::GraphExecHandle* graph = nullptr;
    const Current current(*device_);
    if (in_graph) {
      UNISONO_ASSIGN(graph, capture(call, by_nccl, calls));
      UNISONO_TRY(check(driver().graph_launch(graph, stream_), "launching a graph"));
      UNISONO_TRY(synchronize());
    }
    // Ranks begin together.
    Status status = communicator_.barrier();
    if (status.ok()) status = check(driver().event_record(events_[0], stream_), "an event");
    if (in_graph && status.ok())
      status = check(driver().graph_launch(graph, stream_), "launching a graph");
    for (int i = 0; !in_graph && i < calls && status.ok(); ++i) status = enqueue(call, by_nccl);
    if (status.ok()) status = check(driver().event_record(events_[1], stream_), "an event");
    if (status.ok()) status = synchronize();
    if (graph != nullptr) driver().graph_exec_destroy(graph);
    if (!status.ok()) return status.take_error();
    float ms = 0;
    UNISONO_TRY(check(driver().event_elapsed(&ms, events_[0], events_[1]), "reading events"));
    return 1e3 * static_cast<double>(ms) / calls;
  }

 private:
  explicit DeviceBench(const Communicator& communicator) : communicator_(communicator) {}

  const sys::cuda::Driver& driver() const { return device_->driver(); }
  Status check(sys::cuda::DriverResult result, std::string_view what) const {
    return device_->check(result, what);
  }

  Status enqueue(const Call& call, bool by_nccl) {
    if (!by_nccl) return communicator_.run(call);
    if (!nccl_) return misuse("NCCL was not joined");
    const Current current(*device_);
    return nccl_->run(call, stream_);
  }

  Status synchronize() {
    const Current current(*device_);
    UNISONO_TRY(check(driver().stream_synchronize(stream_), "waiting for the device"));
    return communicator_.failure();
  }

  Result<sys::cuda::GraphExecHandle*> capture(const Call& call, bool by_nccl, int calls) {
    UNISONO_TRY(check(driver().capture_begin(stream_, capture_thread_local), "capturing"));
    Status status;
    for (int i = 0; i < calls && status.ok(); ++i) status = enqueue(call, by_nccl);
    sys::cuda::GraphHandle* graph = nullptr;
    const auto ended = driver().capture_end(stream_, &graph);
    if (!status.ok()) return status.take_error();
    UNISONO_TRY(check(ended, "ending a capture"));
    sys::cuda::GraphExecHandle* exec = nullptr;
    status = check(driver().graph_instantiate(&exec, graph, 0), "making a graph");
    driver().graph_destroy(graph);
    if (!status.ok()) return status.take_error();
    return exec;
  }

  Communicator communicator_;
  std::shared_ptr<const Device> device_;
  sys::cuda::Memory input_;
  sys::cuda::Memory output_;
  sys::cuda::StreamHandle* stream_ = nullptr;
  sys::cuda::EventHandle* events_[2] = {};
  std::unique_ptr<NcclPeer> nccl_;
};

int device_of_address(std::uintptr_t address) {
  const auto* driver = take(sys::cuda::driver());
  const auto kind = sys::cuda::kind_of(*driver, reinterpret_cast<const void*>(address));
  if (!kind.is_device) raise(misuse("address ", address, " is not memory of a CUDA device"));
  return kind.ordinal;
}

int cuda_device_count() {
  const auto* driver = take(sys::cuda::driver());
  int count = 0;
  check(sys::cuda::check(*driver, driver->device_count(&count), "counting CUDA devices"));
  return count;
}

NcclId id_of(const nb::bytes& bytes) {
  NcclId id{};
  if (bytes.size() != id.size())
    raise(misuse("a unique id of NCCL has ", id.size(), " bytes, not ", bytes.size()));
  std::copy_n(bytes.c_str(), id.size(), id.begin());
  return id;
}

}  // namespace

void bind_device_bench(nb::module_& module) {
  module.def("device_of_address", &device_of_address, nb::arg("address"));
  module.def("cuda_device_count", &cuda_device_count);
  nb::class_<DeviceBench>(module, "DeviceBench")
      .def(nb::new_([](const Communicator& communicator, int device, std::size_t max_bytes) {
             return take(DeviceBench::make(communicator, device, max_bytes));
           }),
           nb::arg("communicator"), nb::arg("device"), nb::arg("max_bytes"))
      .def_prop_ro("input_address", &DeviceBench::input_address)
      .def_prop_ro("output_address", &DeviceBench::output_address)
      .def_prop_ro("stream", &DeviceBench::stream)
      .def(
          "copy",
          [](const DeviceBench& self, std::uint64_t to, std::uint64_t from, std::size_t bytes) {
            check(self.copy(to, from, bytes));
          },
          nb::arg("to"), nb::arg("source"), nb::arg("bytes"))
      .def_static(
          "make_nccl_id",
          [](const std::string& library) {
            const NcclId id = take(NcclPeer::make_id(library));
            return nb::bytes(id.data(), id.size());
          },
          nb::arg("library"))
      .def(
          "join_nccl",
          [](DeviceBench& self, const std::string& library, const nb::bytes& bytes) {
            const NcclId id = id_of(bytes);
            return take(without_gil([&] { return self.join_nccl(library, id); }));
          },
          nb::arg("library"), nb::arg("id"))
      .def(
          "run",
          [](DeviceBench& self, const OwnedCall& call, bool by_nccl) {
            check(without_gil([&] { return self.run(call.call, by_nccl); }));
          },
          nb::arg("call"), nb::arg("by_nccl"))
      .def(
          "time_us",
          [](DeviceBench& self, const OwnedCall& call, bool by_nccl, int calls, bool in_graph) {
            return take(
                without_gil([&] { return self.time_us(call.call, by_nccl, calls, in_graph); }));
          },
          nb::arg("call"), nb::arg("by_nccl"), nb::arg("calls"), nb::arg("in_graph"));
}

}  // namespace unisono::python
