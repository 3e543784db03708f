// Times calls on a CUDA device: a communicator's and NCCL's, in one process, on the same buffers.

#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/try.h"
#include "bench.h"
#include "call.h"
#include "convert.h"
#include "interrupt.h"
#include "kernels.h"
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
constexpr std::size_t store_bytes = 16;

// What is timed. In a ring the call's input goes to the next rank and its output comes from the one
// before, whatever its collective.
struct Measured {
  const Call& call;
  bool by_nccl = false;
  bool is_ring = false;
};

class DeviceBench {
 public:
  // The buffers are NCCL's where its library is given.
  static Result<std::unique_ptr<DeviceBench>> make(const Communicator& communicator, int ordinal,
                                                   std::size_t max_bytes, const std::string& nccl) {
    std::unique_ptr<DeviceBench> bench(new DeviceBench(communicator, max_bytes));
    UNISONO_ASSIGN(bench->device_, Device::open(ordinal));
    UNISONO_TRY(nccl.empty() ? bench->allocate() : bench->allocate_by_nccl(nccl));
    UNISONO_ASSIGN(bench->kernels_, BenchKernels::load(bench->device_));
    const Current current(*bench->device_);
    UNISONO_TRY(bench->check(bench->driver().stream_create(&bench->stream_, stream_non_blocking),
                             "making a stream"));
    for (auto& event : bench->events_)
      UNISONO_TRY(bench->check(bench->driver().event_create(&event, 0), "making an event"));
    return bench;
  }
  ~DeviceBench() {
    if (stream_ == nullptr) return;
    const Current current(*device_);
    nccl_.reset();
    nccl_buffers_ = {};
    for (auto* event : events_) driver().event_destroy(event);
    driver().stream_destroy(stream_);
  }
  DeviceBench(const DeviceBench&) = delete;
  DeviceBench& operator=(const DeviceBench&) = delete;

  DeviceAddress input_address() const { return input_; }
  DeviceAddress output_address() const { return output_; }
  std::uintptr_t stream() const { return reinterpret_cast<std::uintptr_t>(stream_); }
  Status copy(DeviceAddress to, DeviceAddress from, std::size_t bytes) const {
    return device_->copy(to, from, bytes);
  }
  BenchKernels& kernels() { return kernels_; }
  Status poison(DeviceAddress address, std::size_t bytes, unsigned char value) const {
    const Current current(*device_);
    UNISONO_TRY(check(driver().set_bytes(address, value, bytes, stream_), "setting memory"));
    return check(driver().stream_synchronize(stream_), "setting memory");
  }

  // What other ranks store into by push_us, by a handle that they open.
  Result<sys::cuda::IpcHandle> make_landing() {
    UNISONO_ASSIGN(landing_, sys::cuda::Memory::allocate(device_, max_bytes_));
    return landing_.export_handle();
  }
  Status open_landings(const std::vector<nb::bytes>& handles) {
    for (const auto& bytes : handles) {
      sys::cuda::IpcHandle handle{};
      if (bytes.size() != handle.bytes.size())
        return misuse("a handle of device memory has ", handle.bytes.size(), " bytes, not ",
                      bytes.size());
      std::copy_n(bytes.c_str(), bytes.size(), handle.bytes.begin());
      UNISONO_ASSIGN(auto opened, sys::cuda::ImportedMemory::open(device_, handle));
      peers_.push_back(std::move(opened));
    }
    if (peers_.size() > max_push_peers)
      return misuse("stores go to at most ", max_push_peers, " peers, not ", peers_.size());
    return {};
  }

  Result<int> join_nccl(const std::string& library, const NcclId& id) {
    const Current current(*device_);
    UNISONO_ASSIGN(nccl_, NcclPeer::join(library, id, communicator_.rank(), communicator_.size()));
    return nccl_->version();
  }

  Status run(const Measured& measured, bool in_graph) {
    const Current current(*device_);
    const auto once = [&] { return enqueue(measured); };
    if (!in_graph) {
      UNISONO_TRY(once());
      return synchronize();
    }
    UNISONO_ASSIGN(auto* graph, capture(1, once));
    Status status = check(driver().graph_launch(graph, stream_), "launching a graph");
    if (status.ok()) status = synchronize();
    driver().graph_exec_destroy(graph);
    return status;
  }

  Result<double> time_us(const Measured& measured, int calls, bool in_graph) {
    return time_us(calls, in_graph, [&] { return enqueue(measured); });
  }

  // Microseconds in which kernels that do nothing follow each other.
  Result<double> launch_us(int calls, bool in_graph) {
    return time_us(calls, in_graph, [&] { return kernels_.nothing(stream_); });
  }

  // Microseconds in which plain stores bring `bytes` to each peer whose landing was opened.
  Result<double> push_us(std::size_t bytes, int blocks, int calls) {
    const std::size_t block = bytes / store_bytes * store_bytes;
    if (static_cast<std::size_t>(communicator_.size()) * block > max_bytes_)
      return misuse(bytes, " bytes from each of ", communicator_.size(), " ranks do not fit into ",
                    max_bytes_);
    PushTargets targets{.own = input_, .units = block / store_bytes};
    for (const auto& peer : peers_)
      targets.addresses[targets.peers++] =
          peer.address() + static_cast<std::size_t>(communicator_.rank()) * block;
    return time_us(calls, true, [&] { return kernels_.push(targets, blocks, stream_); });
  }

 private:
  DeviceBench(const Communicator& communicator, std::size_t max_bytes)
      : communicator_(communicator), max_bytes_(max_bytes) {}

  Status allocate() {
    for (auto& buffer : buffers_) {
      UNISONO_ASSIGN(buffer, sys::cuda::Memory::allocate(device_, max_bytes_));
    }
    input_ = buffers_[0].address();
    output_ = buffers_[1].address();
    return {};
  }
  Status allocate_by_nccl(const std::string& library) {
    const Current current(*device_);
    for (auto& buffer : nccl_buffers_) {
      UNISONO_ASSIGN(buffer, NcclPeer::allocate(library, max_bytes_));
    }
    input_ = sys::cuda::address_of(nccl_buffers_[0].data());
    output_ = sys::cuda::address_of(nccl_buffers_[1].data());
    return {};
  }

  const sys::cuda::Driver& driver() const { return device_->driver(); }
  Status check(sys::cuda::DriverResult result, std::string_view what) const {
    return device_->check(result, what);
  }

  // Microseconds of one of `calls`, one after another.
  template <typename Enqueue>
  Result<double> time_us(int calls, bool in_graph, const Enqueue& enqueue_one) {
    sys::cuda::GraphExecHandle* graph = nullptr;
    const Current current(*device_);
    if (in_graph) {
      UNISONO_ASSIGN(graph, capture(calls, enqueue_one));
      UNISONO_TRY(check(driver().graph_launch(graph, stream_), "launching a graph"));
      UNISONO_TRY(synchronize());
    }
    // Ranks begin together.
    Status status = communicator_.barrier();
    if (status.ok()) status = check(driver().event_record(events_[0], stream_), "an event");
    if (in_graph && status.ok())
      status = check(driver().graph_launch(graph, stream_), "launching a graph");
    for (int i = 0; !in_graph && i < calls && status.ok(); ++i) status = enqueue_one();
    if (status.ok()) status = check(driver().event_record(events_[1], stream_), "an event");
    if (status.ok()) status = synchronize();
    if (graph != nullptr) driver().graph_exec_destroy(graph);
    if (!status.ok()) return status.take_error();
    float ms = 0;
    UNISONO_TRY(check(driver().event_elapsed(&ms, events_[0], events_[1]), "reading events"));
    return 1e3 * static_cast<double>(ms) / calls;
  }

  Status enqueue(const Measured& measured) {
    const Call& call = measured.call;
    if (measured.by_nccl) {
      if (!nccl_) return misuse("NCCL was not joined");
      const Current current(*device_);
      return measured.is_ring ? nccl_->ring(call, stream_) : nccl_->run(call, stream_);
    }
    if (!measured.is_ring) return communicator_.run(call);
    const int rank = communicator_.rank();
    const int ranks = communicator_.size();
    const Message messages[] = {{.is_send = true,
                                 .send_data = call.input,
                                 .count = call.count,
                                 .type = call.type,
                                 .peer = (rank + 1) % ranks},
                                {.is_send = false,
                                 .recv_data = call.output,
                                 .count = call.count,
                                 .type = call.type,
                                 .peer = (rank + ranks - 1) % ranks}};
    UNISONO_ASSIGN(Work work, communicator_.submit(messages, call.options));
    return work.wait();
  }

  Status synchronize() {
    const Current current(*device_);
    UNISONO_TRY(check(driver().stream_synchronize(stream_), "waiting for the device"));
    return communicator_.failure();
  }

  template <typename Enqueue>
  Result<sys::cuda::GraphExecHandle*> capture(int calls, const Enqueue& enqueue_one) {
    UNISONO_TRY(check(driver().capture_begin(stream_, capture_thread_local), "capturing"));
    Status status;
    for (int i = 0; i < calls && status.ok(); ++i) status = enqueue_one();
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
  std::size_t max_bytes_;
  std::shared_ptr<const Device> device_;
  std::array<sys::cuda::Memory, 2> buffers_;
  std::array<NcclMemory, 2> nccl_buffers_;
  DeviceAddress input_ = 0;
  DeviceAddress output_ = 0;
  sys::cuda::Memory landing_;
  std::vector<sys::cuda::ImportedMemory> peers_;
  BenchKernels kernels_;
  sys::cuda::StreamHandle* stream_ = nullptr;
  sys::cuda::EventHandle* events_[2] = {};
  std::unique_ptr<NcclPeer> nccl_;
};

RepeatedTable repeated(std::uint64_t period, std::uint64_t phase, std::uint64_t count, int width) {
  if (period == 0 || (width != 1 && width != 2 && width != 4 && width != 8))
    raise(misuse("a table of ", period, " elements of ", width, " bytes cannot be repeated"));
  return {
      .period = period, .phase = phase, .count = count, .width = static_cast<std::uint32_t>(width)};
}

NcclId id_of(const nb::bytes& bytes) {
  NcclId id{};
  if (bytes.size() != id.size())
    raise(misuse("a unique id of NCCL has ", id.size(), " bytes, not ", bytes.size()));
  std::copy_n(bytes.c_str(), id.size(), id.begin());
  return id;
}

}  // namespace

void bind_device(nb::module_& module) {
  nb::class_<DeviceBench>(module, "DeviceBench")
      .def(nb::new_([](const Communicator& communicator, int device, std::size_t max_bytes,
                       const std::string& nccl) {
             return take(DeviceBench::make(communicator, device, max_bytes, nccl));
           }),
           nb::arg("communicator"), nb::arg("device"), nb::arg("max_bytes"), nb::arg("nccl") = "")
      .def_prop_ro("input_address", &DeviceBench::input_address)
      .def_prop_ro("output_address", &DeviceBench::output_address)
      .def_prop_ro("stream", &DeviceBench::stream)
      .def(
          "copy",
          [](const DeviceBench& self, std::uint64_t to, std::uint64_t from, std::size_t bytes) {
            check(self.copy(to, from, bytes));
          },
          nb::arg("to"), nb::arg("source"), nb::arg("bytes"))
      .def(
          "poison",
          [](const DeviceBench& self, std::uint64_t address, std::size_t bytes, int value) {
            check(self.poison(address, bytes, static_cast<unsigned char>(value)));
          },
          nb::arg("address"), nb::arg("bytes"), nb::arg("value"))
      .def(
          "fill",
          [](DeviceBench& self, std::uint64_t out, std::uintptr_t table, std::uint64_t period,
             std::uint64_t phase, std::uint64_t count, int width) {
            check(self.kernels().fill(out, reinterpret_cast<const void*>(table),
                                      repeated(period, phase, count, width)));
          },
          nb::arg("out"), nb::arg("table"), nb::arg("period"), nb::arg("phase"), nb::arg("count"),
          nb::arg("width"))
      .def(
          "count_wrong",
          [](DeviceBench& self, std::uint64_t found, std::uintptr_t table, std::uint64_t period,
             std::uint64_t phase, std::uint64_t count, int width) {
            return take(self.kernels().count_wrong(found, reinterpret_cast<const void*>(table),
                                                   repeated(period, phase, count, width)));
          },
          nb::arg("found"), nb::arg("table"), nb::arg("period"), nb::arg("phase"), nb::arg("count"),
          nb::arg("width"))
      .def("make_landing",
           [](DeviceBench& self) {
             const auto handle = take(self.make_landing());
             return nb::bytes(handle.bytes.data(), handle.bytes.size());
           })
      .def(
          "open_landings",
          [](DeviceBench& self, const std::vector<nb::bytes>& handles) {
            check(self.open_landings(handles));
          },
          nb::arg("handles"))
      .def(
          "push_us",
          [](DeviceBench& self, std::size_t bytes, int blocks, int calls) {
            return take(without_gil([&] { return self.push_us(bytes, blocks, calls); }));
          },
          nb::arg("bytes"), nb::arg("blocks"), nb::arg("calls"))
      .def(
          "launch_us",
          [](DeviceBench& self, int calls, bool in_graph) {
            return take(without_gil([&] { return self.launch_us(calls, in_graph); }));
          },
          nb::arg("calls"), nb::arg("in_graph"))
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
          [](DeviceBench& self, const OwnedCall& call, bool by_nccl, bool is_ring, bool in_graph) {
            const Measured measured{call.call, by_nccl, is_ring};
            check(without_gil([&] { return self.run(measured, in_graph); }));
          },
          nb::arg("call"), nb::arg("by_nccl"), nb::arg("is_ring"), nb::arg("in_graph"))
      .def(
          "time_us",
          [](DeviceBench& self, const OwnedCall& call, bool by_nccl, bool is_ring, bool in_graph,
             int calls) {
            const Measured measured{call.call, by_nccl, is_ring};
            return take(without_gil([&] { return self.time_us(measured, calls, in_graph); }));
          },
          nb::arg("call"), nb::arg("by_nccl"), nb::arg("is_ring"), nb::arg("in_graph"),
          nb::arg("calls"));
}

}  // namespace unisono::python
